"""The connection between workers: threads of this process stand in for their processes."""

import contextlib
import functools
import queue
import re
import socket
import threading
import time
import types
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from compat.errors import CommandError, Terminated
from inception_v3.machines import channel, cluster
from inception_v3.machines.channel import Channel, Ending
from tests.support.ports import free_addresses
from tests.support.processes import wait_for

# The shortest time that a test waits for an event that must not come.
BRIEF = 0.4
# The workers that a test has made.
MADE: 'List[Workers]' = []


class Workers:
    """Workers on threads; `ended` has the number of each worker that another one ended, and the ending."""

    def __init__(self, count: int, timeout: int = 30):
        self.addresses = free_addresses(count)
        self.ended: queue.Queue[Tuple[int, Ending]] = queue.Queue()
        MADE.append(self)
        self.timeout = timeout
        self.all: List[Any] = [None] * count

    def _ended_at(self, number: int, ending: Ending) -> None:
        self.ended.put((number, ending))

    def open(self, number: int) -> Any:
        """The connection of a worker, from the beginning of its process."""
        if self.all[number] is None:
            place = cluster.Place(tuple(self.addresses), number, self.timeout)
            self.all[number] = channel.of(place, functools.partial(self._ended_at, number))
        return self.all[number]

    def start(self, number: int, **answer: Any) -> 'queue.Queue[Any]':
        """Starts a worker; the queue gets its result: None, or an error."""
        worker = self.open(number)
        if number:
            return self.call(lambda: worker.join(lambda greeting: {**greeting, **answer}))
        return self.call(
            lambda: worker.gather({'token': 7}, lambda answers: answer.get('check', lambda _: '')(answers))
        )

    @staticmethod
    def call(function: Callable[[], Any]) -> 'queue.Queue[Any]':
        result: queue.Queue[Any] = queue.Queue()

        def run() -> None:
            try:
                result.put(function())
            except CommandError as error:
                result.put(error)

        threading.Thread(target=run, daemon=True).start()
        return result

    def begun(self) -> 'Workers':
        for result in [self.start(number) for number in range(len(self.all))]:
            assert result.get(timeout=20) is None
        return self

    def endings(self, count: int) -> Dict[int, Ending]:
        return dict(self.ended.get(timeout=20) for _ in range(count))

    def cut(self, number: int) -> None:
        """Closes the connections, as the system does for a process that is killed."""
        worker, self.all[number] = self.all[number], None
        worker._has_left = worker._is_told = True
        if number == 0:
            worker._close()
        for link in worker._links().values():
            link.close()


@pytest.fixture(autouse=True)
def _no_worker_stays() -> Iterator[None]:
    """Ends the threads of a test's workers, whose lines would appear in the log of a later test."""
    MADE.clear()
    yield
    for workers in MADE:
        for worker in workers.all:
            if worker:
                worker.leave(at_once=True)
                worker._is_told = True


@pytest.fixture
def three() -> Workers:
    return Workers(3).begun()


def together(workers: Workers, call: Callable[[Channel, int], Any]) -> List[Any]:
    results = [workers.call(functools.partial(call, worker, n)) for n, worker in enumerate(workers.all)]
    return [result.get(timeout=20) for result in results]


def test_share__all_get_the_value_of_the_first(three: Workers) -> None:
    assert together(three, lambda worker, n: worker.share(lambda: ['of', n])) == [['of', 0]] * 3
    # In the order in which the first worker gives them, although the others ask later.
    for value in (1, 2):
        three.all[0].share(functools.partial(int, value))
    assert [three.all[2].share(lambda: None) for _ in range(2)] == [1, 2]


def test_union__all_get_the_bits_of_all(three: Workers) -> None:
    for step in range(20):
        expected = 5 if step == 19 else 0
        bits = [4, 0, 1] if step == 19 else [0, 0, 0]
        results = [three.call(functools.partial(each.union, own)) for each, own in zip(three.all, bits)]
        assert [result.get(timeout=20) for result in results] == [expected] * 3


def test_begin__waits_for_a_late_worker_and_says_for_whom(monkeypatch: Any) -> None:
    monkeypatch.setattr(channel, '_SAY_EVERY', 0.1)
    said: List[str] = []
    monkeypatch.setattr(channel.logger, 'info', lambda text, *values: said.append(text % values))
    workers = Workers(3)
    results = [workers.start(1), workers.start(0)]
    late = f'waiting for worker 2 ({workers.addresses[2]})'
    port = cluster.channel_port(workers.addresses)
    # From the second time on, with a hint: if that worker has other addresses, its port may be another one.
    hint = f'; if it runs, it must have the same --worker_hosts, a --task_index of its own, and reach port {port} of'
    wait_for(lambda: said.count(f'{late}{hint} this machine') > 1)
    assert any(text.endswith(f'worker 2 ({workers.addresses[2]})') for text in said)
    assert all(result.empty() for result in results)
    first = f'waiting for worker 0 ({workers.addresses[0]}), at its port {port}'
    assert first in said
    results.append(workers.start(2))
    assert [result.get(timeout=20) for result in results] == [None] * 3


def test_begin__later_worker_says_what_to_compare_if_the_first_runs(monkeypatch: Any) -> None:
    monkeypatch.setattr(channel, '_SAY_EVERY', 0.1)
    said: List[str] = []
    monkeypatch.setattr(channel.logger, 'info', lambda text, *values: said.append(text % values))
    workers = Workers(2)
    result = workers.start(1)
    wait_for(lambda: len(said) > 1)
    first = f'waiting for worker 0 ({workers.addresses[0]}), at its port {cluster.channel_port(workers.addresses)}'
    hint = '; if it runs, it must have the same --worker_hosts, and this machine must reach that port'
    assert said[:2] == [first, first + hint]
    results = [workers.start(0), result]
    assert [each.get(timeout=20) for each in results] == [None] * 2


def test_threads__end_with_the_process() -> None:
    before = {*threading.enumerate()}
    Workers(2).begun()
    new = {*threading.enumerate()} - before
    assert len(new) >= 4 and all(thread.daemon for thread in new)


@pytest.mark.parametrize('waiting', [0, 1])
def test_begin__says_that_the_name_of_the_other_has_no_address(waiting: int, monkeypatch: Any) -> None:
    said: List[str] = []
    monkeypatch.setattr(channel.logger, 'info', lambda text, *values: said.append(text % values))
    workers = Workers(2)
    workers.addresses[1 - waiting] = 'no-such-host.invalid:2222'
    look_up = socket.getaddrinfo

    def unknown(host: Any, *more: Any, **options: Any) -> Any:
        if host == 'no-such-host.invalid':
            raise socket.gaierror(socket.EAI_NONAME, 'Name or service not known')
        return look_up(host, *more, **options)

    monkeypatch.setattr(socket, 'getaddrinfo', unknown)
    workers.start(waiting)
    name = f'worker {1 - waiting} (no-such-host.invalid:2222)'
    expected = f'the name of {name} has no address yet: Name or service not known'
    wait_for(lambda: expected in [*said])
    assert not [line for line in said if line.startswith(f'the name of worker {waiting}')]


@pytest.mark.parametrize('number', [0, 1])
def test_begin__a_worker_that_left_before_may_be_replaced(number: int, monkeypatch: Any) -> None:
    said: List[str] = []
    monkeypatch.setattr(channel.logger, 'info', lambda text, *values: said.append(text % values))
    workers = Workers(3)
    results = [workers.start(2), workers.start(1 - number)]
    workers.open(number)
    wait_for(lambda: len(workers.all[0]._others) == 2 and workers.all[1]._link and workers.all[2]._link)
    workers.cut(number)
    wait_for(lambda: not workers.all[1]._link if number == 0 else 1 not in workers.all[0]._others)
    assert [result.get(timeout=20) for result in (workers.start(number), *results)] == [None] * 3
    left = rf'worker {number} \({workers.addresses[number]}\) has left: .*; another process may come in its place'
    assert any(re.match(f'{left} within 30 s', line) for line in said)


def test_begin__a_process_that_ends_while_it_is_welcomed_may_be_replaced(monkeypatch: Any) -> None:
    workers = Workers(2)
    results = [workers.start(0)]
    place = cluster.host_and_port(workers.addresses[0])[0], cluster.channel_port(workers.addresses)
    send, refused = channel._Link.send, threading.Event()

    def fails_once(link: Any, kind: str, value: Any = None) -> None:
        if kind == 'welcome' and not refused.is_set():
            refused.set()
            raise OSError('reset')
        send(link, kind, value)

    monkeypatch.setattr(channel._Link, 'send', fails_once)
    with socket.create_connection(place, 20) as connection:
        connection.sendall(b'{"kind": "hello", "value": [1, "another process"]}\n')
        assert connection.recv(1) == b''
    results.append(workers.start(1))
    assert [result.get(timeout=20) for result in results] == [None] * 2


def test_join__ends_if_the_thread_that_connects_fails(monkeypatch: Any) -> None:
    def fails(*unused: Any) -> None:
        raise UnicodeError('label empty or too long')

    monkeypatch.setattr(channel.socket, 'create_connection', fails)
    workers = Workers(2)
    error, first = workers.start(1).get(timeout=20), f'worker 0 ({workers.addresses[0]})'
    assert error.exit_code == 1 and f'{first} cannot be talked to: label empty or too long' in str(error)


def test_begin__a_process_that_connects_again_is_the_same_worker() -> None:
    workers = Workers(2)
    first, later = workers.open(0), workers.start(1)
    # The worker connects again before the first worker has noticed the end of this connection.
    wait_for(lambda: first._others and workers.all[1]._link)
    with first._change:
        workers.all[1]._link.close()
        time.sleep(0.1)
    assert [result.get(timeout=20) for result in (workers.start(0), later)] == [None] * 2


def test_begin__a_worker_that_waits_gets_the_greeting() -> None:
    workers = Workers(2)
    first, later = workers.open(0), workers.start(1)
    wait_for(lambda: first._others)
    assert [result.get(timeout=20) for result in (workers.start(0), later)] == [None] * 2


def test_begin__a_problem_with_the_answers_ends_all_with_code_2() -> None:
    workers, answers = Workers(3), []

    def check(given: Dict[int, Any]) -> str:
        answers.append(given)
        return 'different flags'

    results = [workers.start(2, flags='b'), workers.start(0, check=check), workers.start(1, flags='a')]
    for result in results:
        error = result.get(timeout=20)
        assert str(error) == 'different flags' and error.exit_code == 2
    assert answers == [{1: {'token': 7, 'flags': 'a'}, 2: {'token': 7, 'flags': 'b'}}]


def test_begin__another_process_with_a_number_or_one_too_many_is_refused() -> None:
    workers = Workers(3)
    workers.start(0), workers.start(1)
    wait_for(lambda: 1 in workers.all[0]._others)

    def error_of(number: int) -> Any:
        # Only this worker has the last address in its --worker_hosts.
        place = cluster.Place((*workers.addresses, '127.0.0.1:9'), number, 30)
        other: Any = channel.of(place, lambda ending: None)
        return workers.call(lambda: other.join(lambda greeting: None)).get(timeout=20)

    error = error_of(1)
    assert str(error) == '--task_index=1: another process is this worker already; each needs a number of its own.'
    assert error.exit_code == 1
    error, first = error_of(3), f'worker 0 ({workers.addresses[0]})'
    assert str(error) == f'--task_index=3: {first} has 3 workers; --worker_hosts must be the same for all.'
    assert error.exit_code == 2


@pytest.mark.parametrize('failed', [0, 1, 2])
def test_begin__a_worker_that_fails_before_it_joins_ends_all(failed: int) -> None:
    workers = Workers(3)
    left = workers.call(lambda: workers.open(failed).leave(2, 'no such folder'))
    # The others begin while it waits for them, one after the other.
    ending = Ending(2, f'worker {failed} ({workers.addresses[failed]}) ended: no such folder')
    for number in sorted({0, 1, 2} - {failed}):
        time.sleep(0.1)
        assert left.empty() or failed
        workers.open(number)
        assert failed == 0 or number < 2 or left.get(timeout=20) is None
    assert workers.endings(2) == dict.fromkeys({0, 1, 2} - {failed}, ending)
    assert failed or left.get(timeout=20) is None


def test_begin__a_worker_that_failed_waits_a_bounded_time(monkeypatch: Any) -> None:
    said: List[str] = []
    monkeypatch.setattr(channel.logger, 'info', lambda text, *values: said.append(text % values))
    began = time.monotonic()
    for number in (0, 1):
        workers = Workers(3, timeout=1)
        leave = functools.partial(workers.open(number).leave, 2, 'no data\nno model')
        assert workers.call(leave).get(timeout=20) is None
        others = [f'worker {each} ({workers.addresses[each]})' for each in ((1, 2), (0,))[number]]
        own = f'worker {number} ({workers.addresses[number]}) ended: no data no model'
        assert f'waiting up to 1 s for {", ".join(others)}, to tell the error: {own}' in said
    # A second without a line, then the timeout, for each.
    assert time.monotonic() - began >= 4
    # After a signal, or without an error, it does not wait.
    began = time.monotonic()
    Workers(2).open(1).leave(75, 'ended by SIGTERM', at_once=True)
    Workers(2).open(1).leave()
    Workers(2).open(0).leave()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize('lost', [0, 1])
def test_begin__all_end_if_no_one_replaces_a_worker(lost: int) -> None:
    workers = Workers(3, timeout=1)
    waiting = [workers.start(number) for number in (0, 1, 2) if number != lost]
    worker = workers.open(lost)
    wait_for(lambda: len(workers.all[0]._others) == 2)
    wait_for(lambda: worker._link if lost else True)
    workers.cut(lost)
    for result in waiting:
        error = result.get(timeout=20)
        assert re.match(rf'worker {lost} \(.*\) is lost.* and no other .*came in its place within 1 s', str(error))
        assert error.exit_code == 1


def test_join__ends_if_another_program_has_the_port_of_the_first() -> None:
    workers = Workers(2, timeout=1)
    port = cluster.channel_port(workers.addresses)
    with socket.socket() as other:
        other.bind(('127.0.0.1', port))
        other.listen()
        error = workers.start(1).get(timeout=20)
    assert error.exit_code == 1
    assert str(error).startswith(
        f'--worker_hosts: at port {port} of worker 0 ({workers.addresses[0]}) is another program: no sign of life for 1'
    )


def test_join__waits_for_the_first_after_another_program_has_left_its_port() -> None:
    workers = Workers(2, timeout=1)
    with socket.socket() as other:
        other.bind(('127.0.0.1', cluster.channel_port(workers.addresses)))
        other.listen()
        waiting = workers.start(1)
        other.accept()[0].close()
    time.sleep(1.5)
    assert workers.start(0).get(timeout=20) is None and waiting.get(timeout=20) is None


def test_opened__tells_its_error_and_ends_the_process_for_another(monkeypatch: Any) -> None:
    workers = Workers(2)
    places = [cluster.Place(tuple(workers.addresses), number, 30) for number in (0, 1)]
    ended: queue.Queue[CommandError] = queue.Queue()

    def fails() -> None:
        with channel.opened(places[1], ended.put):
            raise CommandError('no such folder')

    failed = workers.call(fails)
    with channel.opened(places[0], ended.put):
        error = ended.get(timeout=20)
    assert (str(error), error.exit_code) == (f'worker 1 ({workers.addresses[1]}) ended: no such folder', 2)
    assert str(failed.get(timeout=20)) == 'no such folder'
    with channel.opened(None, ended.put) as nothing:
        assert nothing is None


@pytest.mark.parametrize(
    'sent',
    [
        b'',
        b'GET / HTTP/1.1\r\n\r\n',
        b'{"kind": "hello", "value": [0, null]}\n',
        b'{"kind": "hello", "value": ["1", null]}\n',
        b'{"kind": "hello", "value": null}\n',
        b'{"kind": "hello"}\n' + b'[' * 1000,
        b'x' * (1 << 19),
        b'[' * 100_000 + b'\n',
    ],
)
def test_gather__turns_strangers_away(sent: bytes, monkeypatch: Any) -> None:
    monkeypatch.setattr(channel, '_GREETS_WITHIN', BRIEF)
    workers = Workers(2)
    first = workers.start(0)
    where = '127.0.0.1', cluster.channel_port(workers.addresses)

    def connected() -> Any:
        with contextlib.suppress(OSError):
            return socket.create_connection(where)

    with wait_for(connected) as stranger:
        stranger.settimeout(10)
        with contextlib.suppress(OSError):
            stranger.sendall(sent)
            while stranger.recv(1 << 16):
                pass
    assert workers.start(1).get(timeout=20) is None and first.get(timeout=20) is None


@pytest.mark.parametrize('lost', [0, 1, 2])
def test_lost__all_others_end_with_the_name_of_the_worker(lost: int) -> None:
    workers = Workers(3).begun()
    survivors = sorted({0, 1, 2} - {lost})
    # The others wait for a value, or for the bits of a step.
    waiting = [workers.call(functools.partial(workers.all[n].union, 0)) for n in survivors]
    workers.cut(lost)
    text = f'worker {lost} ({workers.addresses[lost]}) is lost: its process ended.'
    assert workers.endings(2) == {number: Ending(1, text) for number in survivors}
    for result in waiting:
        error = result.get(timeout=20)
        assert str(error) == text and error.exit_code == 1
    assert workers.ended.empty()


@pytest.mark.parametrize(
    # The first worker tells all workers, including the silent one.
    ('silent', 'told'),
    [(0, {1, 2}), (1, {0, 1, 2})],
)
def test_lost__names_a_worker_without_a_sign_of_life(silent: int, told: Any, monkeypatch: Any) -> None:
    show_life = Channel._show_life
    monkeypatch.setattr(Channel, '_show_life', lambda self: None if self._number == silent else show_life(self))
    began = time.monotonic()
    # Enough for four signs of life, even on a busy machine.
    workers = Workers(3, timeout=2).begun()
    endings = workers.endings(len(told))
    text = f'worker {silent} ({workers.addresses[silent]}) is lost: no sign of life for 2 s (--worker_timeout).'
    assert {*endings} == told and {*endings.values()} == {Ending(1, text)}
    assert 2 <= time.monotonic() - began < 20


def test_lost__names_no_worker_that_shows_life(monkeypatch: Any) -> None:
    workers = Workers(2, timeout=1).begun()
    time.sleep(1.5)
    assert workers.ended.empty() and together(workers, lambda worker, n: worker.union(n)) == [1, 1]


@pytest.mark.parametrize(
    ('value', 'code'),
    [
        ([0, 'x'], 0),
        ([2, 'x'], 2),
        ([255, 'x'], 255),
        ([256, 'x'], 1),
        ([-1, 'x'], 1),
        ([True, 'x'], 1),
        (['2', 'x'], 1),
    ],
)
def test_ending__of_a_message_has_an_exit_code(value: Any, code: int) -> None:
    assert channel._ending_in(value) == Ending(code, 'x')


def test_ending__of_a_message_has_printable_lines_of_limited_length() -> None:
    text = channel._ending_in([2, '\x1b[0m\n' + 'b' * 5000]).text
    assert text.startswith('\\x1b[0m\nbbb') and len(text) < 4096 + 20
    assert channel._ending_in([2, 'b' * 4096]).text == 'b' * 4096
    error = Ending(75, 'ended.').error('It is kept.')
    assert (str(error), error.exit_code) == ('ended. It is kept.', 75)
    assert str(Ending(75, 'ended.').error()) == 'ended.'
    for wrong in (None, [2], [2, 'x', 'y'], 2):
        with pytest.raises((TypeError, ValueError)):
            channel._ending_in(wrong)


@pytest.mark.parametrize(
    ('error', 'code', 'text'),
    [
        (KeyboardInterrupt(), 130, 'ended by Ctrl-C'),
        (Terminated(), 75, 'ended by SIGTERM'),
        (MemoryError(), 1, 'MemoryError'),
        (ValueError('why'), 1, 'why'),
        (CommandError('no such file'), 2, 'no such file'),
    ],
)
def test_fail__tells_the_code_and_the_text_of_an_error(error: BaseException, code: int, text: str) -> None:
    workers = Workers(2).begun()
    workers.all[1].fail(error)
    assert workers.endings(1) == {0: Ending(code, f'worker 1 ({workers.addresses[1]}) ended: {text}')}


def test_leave__with_an_error_ends_all_with_its_code(three: Workers) -> None:
    three.all[1].leave(2, 'no such file')
    text = f'worker 1 ({three.addresses[1]}) ended: no such file'
    assert three.endings(2) == {0: Ending(2, text), 2: Ending(2, text)}


def test_leave__of_the_first_with_an_error_ends_the_others(three: Workers) -> None:
    three.all[0].leave(75, 'ended by SIGTERM')
    text = f'worker 0 ({three.addresses[0]}) ended: ended by SIGTERM'
    assert three.endings(2) == {1: Ending(75, text), 2: Ending(75, text)}
    with pytest.raises(CommandError, match='ended by SIGTERM'):
        three.all[1].wait_for_first()


def test_leave__at_the_end_of_the_run_is_no_loss(three: Workers) -> None:
    three.all[2].leave()
    three.cut(2)
    waiting = three.call(three.all[1].wait_for_first)
    time.sleep(0.1)
    assert waiting.empty()
    three.all[0].leave()
    assert waiting.get(timeout=20) is None
    three.cut(0)
    time.sleep(0.1)
    assert three.ended.empty()


def test_wait_for_first__raises_an_ending_or_a_loss_that_comes_later(three: Workers) -> None:
    three.all[1].leave()
    waiting = three.call(three.all[1].wait_for_first)
    three.all[0].leave(2, 'no space for the export')
    error = waiting.get(timeout=20)
    assert (error.exit_code, str(error)) == (2, f'worker 0 ({three.addresses[0]}) ended: no space for the export')
    # Worker 2 ends by this error alone.
    assert three.endings(1).keys() == {2} and three.ended.empty()
    two = Workers(2).begun()
    two.all[1].leave()
    waiting = two.call(two.all[1].wait_for_first)
    wait_for(lambda: 1 in two.all[0]._told)
    two.cut(0)
    error = waiting.get(timeout=20)
    assert error.exit_code == 1 and 'is lost: its process ended' in str(error) and two.ended.empty()


@pytest.mark.parametrize(('left', 'waits'), [(0, 1), (1, 0)])
def test_next__ends_when_the_worker_that_it_waits_for_has_ended_well(left: int, waits: int) -> None:
    two = Workers(2).begun()
    two.all[left].leave()
    error = two.call(lambda: two.all[waits].union(0)).get(timeout=20)
    assert error.exit_code == 1 and f'worker {left} ({two.addresses[left]}) has ended this run' in str(error)


def test_ports__in_use_are_named() -> None:
    workers = Workers(2)
    port = cluster.channel_port(workers.addresses)
    with socket.socket() as other:
        other.bind(('127.0.0.1', port))
        other.listen()
        text = f'--worker_hosts: port {port}, on which the first worker talks to the others, is in use by another'
        with pytest.raises(channel.PortInUseError, match=text):
            workers.open(0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(('127.0.0.1', cluster.host_and_port(workers.addresses[1])[1]))
        other.listen()
        with pytest.raises(channel.PortInUseError, match='of worker 1, is in use by another process'):
            channel.check_port_is_free(workers.addresses, 1)
    channel.check_port_is_free(workers.addresses, 1)


@pytest.fixture
def links() -> Iterator[Tuple[channel._Link, channel._Link]]:
    """Both ends of a connection of this machine."""
    with socket.socket() as server:
        server.bind(('127.0.0.1', 0))
        server.listen()
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    both = channel._Link(one, 20), channel._Link(other, 20)
    yield both
    for each in both:
        each.close()


def test_link__sends_at_once_messages_of_limited_length(links: Any) -> None:
    one, other = links
    assert one._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    # A line is cut after 256 KiB and one byte. If only its line feed is cut off, the message is whole.
    longest = (1 << 18) + 1 - len('{"kind": "answer", "value": ""}')
    for length, is_received in ((longest, True), (longest + 1, False)):
        sending = threading.Thread(target=one.send, args=['answer', 'x' * length], daemon=True)
        one.send('alive')
        sending.start()
        if is_received:
            assert other.receive() == ('answer', 'x' * length)
        else:
            with pytest.raises(OSError, match='it sent no message of this program'):
                other.receive()


@pytest.mark.parametrize(('timeout', 'pause'), [(2, 0.5), (30, 7.5), (40, 10), (60, 10)])
def test_signs_of_life__come_four_times_in_the_timeout_or_more_often(
    timeout: int, pause: float, monkeypatch: Any
) -> None:
    told: List[str] = []
    worker: Any = types.SimpleNamespace(_has_left=False, _timeout=timeout, _tell=told.append)
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        worker._has_left = len(pauses) == 2

    monkeypatch.setattr(channel, 'time', types.SimpleNamespace(sleep=sleep))
    Channel._show_life(worker)
    assert (told, pauses) == (['alive'] * 2, [pause] * 2)


def test_own_address__is_that_of_the_name_or_all_if_the_name_is_of_another() -> None:
    inet = socket.AF_INET
    assert channel._own_address('127.0.0.1', 5) == (inet, ('127.0.0.1', 5))
    # An address for documentation (RFC 5737), and a name without one (RFC 6761).
    for other in ('192.0.2.1', 'no-such-host.invalid'):
        assert channel._own_address(other, 5) == (inet, ('', 5))


def test_waiting__is_said_at_once_and_then_each_minute(monkeypatch: Any) -> None:
    worker: Any = types.SimpleNamespace(_addresses=free_addresses(2), _timeout=30, _has_left=False)
    worker._untold, worker._name_of, worker._say_unresolved = list, str, lambda numbers: None
    # The seconds of each attempt, and the seconds at which the wait was logged.
    seconds: List[float] = [0.0]
    said: List[float] = []

    def sleep(pause: float) -> None:
        seconds.append(seconds[-1] + pause)
        worker._has_left = len(said) == 3

    monkeypatch.setattr(channel, 'time', types.SimpleNamespace(sleep=sleep, monotonic=lambda: seconds[-1]))
    monkeypatch.setattr(channel.logger, 'info', lambda text, *values: said.append(seconds[-1]))
    assert channel.Later._connected(worker, False) == (None, '')
    assert said == [0, 60, 120] and seconds == [number / 2 for number in range(242)]
