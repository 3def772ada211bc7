"""The connection between the workers of a run, beside TensorFlow's own: agreement, common stops, and lost workers.

TensorFlow's sums across machines wait forever for a worker that is gone. Therefore, each of the other workers has a TCP
connection to the first worker, and both ends send heartbeats. A worker is lost if its connection ends, or if it is
silent for `--worker_timeout`; the first worker tells all others.

The connection begins with the process, before flags are checked and TensorFlow is loaded. So a worker that fails early
can tell the others why; it waits up to `--worker_timeout` for workers that it cannot reach yet. A worker that ends
without a message may be replaced within the same time. The others wait without limit for a worker that has never
connected.

A message is a JSON object on a line of limited length. Nothing in it is executed. There is no authentication: anyone
who reaches the port can end the run, as at TensorFlow's own port (SECURITY.md). The module uses sockets, because
TensorFlow's own server does not report lost peers, and has another interface in each version.
"""

import abc
import contextlib
import errno
import json
import math
import queue
import secrets
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from compat.errors import DONE, FIX, INTERRUPTED, RESUME, RETRY, CommandError, RetryableError, Terminated
from compat.log import logger
from compat.messages import shown
from console.json_content import from_json, record
from inception_v3.machines import cluster

# The longest message, in bytes, and the longest line of an error's text in it, in characters.
_LONGEST, _LONGEST_TEXT = 1 << 18, 4096
# Heartbeats within the time after which a silent worker is lost, and the most seconds between two.
_SIGNS, _SIGN_EVERY = 4, 10.0
# Seconds: between attempts to connect, between log lines about missing workers, and for a new connection to identify
# itself.
_RETRY_EVERY, _SAY_EVERY, _GREETS_WITHIN = 0.5, 60.0, 10.0
# Seconds in which workers that start together tell each other an error, before a log line names missing workers.
_TOLD_WITHIN = 1.0
# Seconds after which a wait checks whether the run has ended.
_LOOK_EVERY = 0.5
_LARGEST_CODE = 255
_HAS_LEFT = '%s has left: %s; another process may come in its place within %d s'


class Ending(NamedTuple):
    """The end of a run at another worker: the exit code for all workers, and a text about the cause and its place."""

    code: int
    text: str

    def error(self, more: str = '') -> CommandError:
        """The error that ends this worker, with further sentences."""
        error = CommandError(f'{self.text} {more}'.rstrip())
        error.exit_code = self.code
        return error


def _ending_in(value: Any) -> Ending:
    """The ending in a message, which may contain anything."""
    code, text = value
    is_code = type(code) is int and DONE <= code <= _LARGEST_CODE
    # Several problems have a line each.
    lines = [shown(line, _LONGEST_TEXT) for line in str(text).split('\n')]
    return Ending(code if is_code else RETRY, '\n'.join(lines))


class _Message(NamedTuple):
    kind: str
    value: Any = None


class _Link:
    """One end of a connection.

    If the other end is gone, sending and receiving raise OSError, whose text is the reason.
    """

    def __init__(self, connection: socket.socket, timeout: float):
        connection.settimeout(timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._reader = connection.makefile('rb')
        self._sending = threading.Lock()

    def set_timeout(self, timeout: float) -> None:
        """Sets the seconds without a message after which the other end counts as gone."""
        self._connection.settimeout(timeout)

    def send(self, kind: str, value: Any = None) -> None:
        """Sends a message; may be called from any thread."""
        line = json.dumps(_Message(kind, value)._asdict()).encode() + b'\n'
        with self._sending:
            self._connection.sendall(line)

    def receive(self) -> _Message:
        """The next message other than a heartbeat."""
        while True:
            try:
                line = self._reader.readline(_LONGEST + 1)
            except socket.timeout:
                raise OSError(f'no sign of life for {self._connection.gettimeout():.0f} s (--worker_timeout)')
            except ConnectionError:
                # The system resets the connection of a process that ends with unread messages.
                line = b''
            except (OSError, ValueError) as error:
                raise OSError(f'its connection ended ({error})')
            if not line:
                raise OSError('its process ended')
            try:
                message: _Message = from_json(line, lambda values: record(_Message, values))
            except ValueError as error:
                raise OSError(f'it sent no message of this program ({error})')
            if message.kind != 'alive':
                return message

    def close(self) -> None:
        """Closes the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class Channel(abc.ABC):
    """A worker's part in the connection between all workers of a run.

    Attributes:
      on_end: called, on a separate thread, when another worker is lost or ends with an error. Calls that wait for
        another worker raise the same ending as an error.
      has_begun: whether all workers were connected at the same time, and the first has started the run: from then on,
        no worker can be replaced.
    """

    def __init__(self, place: cluster.Place, on_end: Callable[[Ending], None]):
        self._addresses, self._number, self._timeout = place
        self.on_end = on_end
        self._change = threading.Condition()
        self._ending: Optional[Ending] = None
        # Whether `on_end` has returned; it does not if it ends the process.
        self._is_handled = False
        self._has_left = False
        self.has_begun = False
        # Workers whose host names could not be resolved.
        self._unresolved: Set[int] = set()
        # The exit code and the text of this worker's end, or of another worker's end to be passed on.
        self._last_words: Optional[List[Any]] = None

    @abc.abstractmethod
    def share(self, make: Callable[[], Any]) -> Any:
        """The value that `make` returns on the first worker, the only one that calls it. It must fit into JSON."""

    @abc.abstractmethod
    def union(self, bits: int) -> int:
        """The union of all workers' bits; every worker calls this once per step."""

    @abc.abstractmethod
    def _links(self) -> Dict[int, _Link]:
        """The connections to the workers that this one must tell about its end, by number."""

    @abc.abstractmethod
    def _untold(self) -> List[int]:
        """The numbers of the workers that must still be told about this one's end."""

    def leave(self, code: int = DONE, text: str = '', at_once: bool = False) -> None:
        """Tells the others that this worker ends; any exit code but 0 ends them, too.

        Only the first call has an effect. Before the run begins, it waits up to `--worker_timeout` for workers that
        have not connected, unless `at_once`.
        """
        with self._change:
            if self._has_left:
                return
            self._has_left = True
            self._change.notify_all()
        self._say_end(Ending(code, f'{self._name_of(self._number)} ended: {text}' if code else ''), at_once)

    def fail(self, error: BaseException) -> None:
        """Leaves because of an error, with the exit code of a command that ends with this error."""
        if isinstance(error, KeyboardInterrupt):
            is_sigterm = isinstance(error, Terminated)
            code, name = (RESUME, 'SIGTERM') if is_sigterm else (INTERRUPTED, 'Ctrl-C')
            self.leave(code, f'ended by {name}', at_once=True)
            return
        code = error.exit_code if isinstance(error, CommandError) else RETRY
        self.leave(code, str(error) or type(error).__name__)

    def wait_for_ending(self, seconds: float) -> None:
        """Waits for a message that another worker has ended, which would explain an error of TensorFlow here."""
        with self._change:
            self._change.wait_for(lambda: self._is_handled, seconds)

    def _name_of(self, *numbers: int) -> str:
        return ', '.join(cluster.name_of(self._addresses, number) for number in numbers)

    def _say_unresolved(self, numbers: Sequence[int]) -> None:
        """Logs once which workers' names have no address, for example after a typo, or before a pod exists."""
        for number in sorted({*numbers} - self._unresolved):
            try:
                socket.getaddrinfo(cluster.host_and_port(self._addresses[number])[0], None)
            except OSError as error:
                self._unresolved.add(number)
                logger.info('the name of %s has no address yet: %s', self._name_of(number), error.strerror)

    def _tell(self, kind: str, value: Any = None) -> None:
        for link in self._links().values():
            # The thread that reads from this connection notices if it is broken.
            with contextlib.suppress(OSError):
                link.send(kind, value)

    def _say_end(self, ending: Ending, at_once: bool = False) -> None:
        """Tells all others about the end of this worker or of another one."""
        with self._change:
            self._last_words = [*ending]
            self._change.notify_all()
        for number, link in self._links().items():
            self._say_end_to(number, link)
        if ending.code == DONE or self.has_begun or at_once:
            return
        # Ctrl-C ends only the wait; the command keeps its error.
        with self._change, contextlib.suppress(KeyboardInterrupt):
            if not self._change.wait_for(lambda: not self._untold(), _TOLD_WITHIN):
                others = self._name_of(*self._untold())
                text = shown(ending.text.replace('\n', ' '), _LONGEST_TEXT)
                logger.info('waiting up to %d s for %s, to tell the error: %s', self._timeout, others, text)
                self._change.wait_for(lambda: not self._untold(), self._timeout)

    @abc.abstractmethod
    def _say_end_to(self, number: int, link: _Link) -> None:
        """Sends this worker's end to another worker, and notes that it was sent."""

    def _end(self, ending: Ending) -> None:
        with self._change:
            if self._ending:
                return
            self._ending = ending
            if self._has_left:
                # Only `wait_for_first` reads this.
                self._is_handled = True
                self._change.notify_all()
                return
        self._say_end(ending)
        self.on_end(ending)
        with self._change:
            self._is_handled = True
            self._change.notify_all()

    def _note_end(self, message: _Message) -> None:
        """Ends the run if another worker's last message reports an error."""
        ending = _ending_in(message.value)
        if ending.code != DONE:
            self._end(ending)

    def _next(self, messages: 'queue.Queue[Tuple[_Link, _Message]]', number: int = 0) -> Tuple[_Link, _Message]:
        """The next message of a worker's queue. Raises an error if an ending comes first, even a good one."""
        while True:
            with contextlib.suppress(queue.Empty):
                link, message = messages.get(timeout=_LOOK_EVERY)
                if message.kind != 'end':
                    return link, message
                self.check_ending()
                name = self._name_of(number)
                raise RetryableError(f'{name} has ended this run while this one waited for it; its log says why.')
            if self._is_handled:
                self.check_ending()

    def check_ending(self) -> None:
        """Raises the error of another worker's end, if there is one, once `on_end` has returned."""
        with self._change:
            if self._ending:
                self._change.wait_for(lambda: self._is_handled)
                raise self._ending.error()

    def _show_life(self) -> None:
        while not self._has_left:
            self._tell('alive')
            time.sleep(min(_SIGN_EVERY, self._timeout / _SIGNS))


class _Other:
    """Another worker, as the first one sees it: connection, mark of the process, answer, and bits of each step."""

    def __init__(self, link: _Link, mark: Any):
        self.link = link
        self.mark = mark
        self.has_answered = False
        self.answer: Any = None
        self.bits: queue.Queue[Tuple[_Link, _Message]] = queue.Queue()


class First(Channel):
    """The first worker's part: it accepts connections from the others, and passes on their messages."""

    def __init__(self, place: cluster.Place, on_end: Callable[[Ending], None]):
        """Starts to listen.

        Raises:
          PortInUseError: the port is in use.
        """
        super().__init__(place, on_end)
        self._others: Dict[int, _Other] = {}
        # The numbers of workers that know of the end, or have ended before.
        self._told = {self._number}
        # A list with the greeting, once it is known.
        self._greeting: List[Any] = []
        host, port = cluster.host_and_port(self._addresses[0])[0], cluster.channel_port(self._addresses)
        self._listening = _listening(*_own_address(host, port), 'on which the first worker talks to the others')
        threading.Thread(target=self._accept, daemon=True).start()
        threading.Thread(target=self._show_life, daemon=True).start()

    def gather(self, greeting: Any, problem_with: Callable[[Dict[int, Any]], str]) -> None:
        """Waits for all others, and starts the run if their answers to the greeting are right.

        Raises:
          CommandError: the problem with the answers, which ends the other workers, too; or the end of another worker.
        """
        said: Any = None
        hint = ''
        with self._change:
            self._greeting = [greeting]
            present = [*self._others.values()]
        for other in present:
            with contextlib.suppress(OSError):
                other.link.send('greeting', greeting)
        with self._change:
            while not self._has_left and self._missing():
                if self._is_handled:
                    self.check_ending()
                if said != self._missing():
                    said, said_at = self._missing(), time.monotonic()
                    logger.info('waiting for %s%s', self._name_of(*said), hint)
                    # On another thread: other threads wait for this one, and a look-up may take seconds.
                    threading.Thread(target=self._say_unresolved, args=[said], daemon=True).start()
                if not self._change.wait(max(0, said_at + _SAY_EVERY - time.monotonic())):
                    said = None
                    port = cluster.channel_port(self._addresses)
                    hint = (
                        '; if it runs, it must have the same --worker_hosts, a --task_index of its own, and reach '
                        f'port {port} of this machine'
                    )
            if self._has_left:
                return
            self.has_begun = True
            answers = {number: other.answer for number, other in sorted(self._others.items())}
        self._close()
        problem = problem_with(answers)
        if problem:
            self._has_left = True
            self._say_end(Ending(FIX, problem))
            raise CommandError(problem)
        self._tell('begin')

    def _missing(self) -> List[int]:
        """The numbers of the workers that have not answered the greeting."""
        there = {number for number, other in self._others.items() if other.has_answered}
        return [number for number in range(1, len(self._addresses)) if number not in there]

    def leave(self, code: int = DONE, text: str = '', at_once: bool = False) -> None:
        """As for any worker; from then on, no worker can connect."""
        super().leave(code, text, at_once)
        self._close()

    def _close(self) -> None:
        # Wakes the thread that accepts connections.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        # Until the socket is closed.
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Welcomes a worker that has connected, and reads its messages. Rejects other programs."""
        link = _Link(connection, _GREETS_WITHIN)
        try:
            number, other = self._welcomed(link)
        except (OSError, TypeError, ValueError):
            link.close()
            return
        link.set_timeout(self._timeout)
        try:
            while True:
                message = link.receive()
                if message.kind == 'bits' and type(message.value) is int:
                    other.bits.put((link, message))
                elif message.kind == 'answer':
                    with self._change:
                        other.has_answered, other.answer = True, message.value
                        self._change.notify_all()
                elif message.kind == 'end':
                    self._note_told(number)
                    self._note_end(message)
                    other.bits.put((link, message))
                    return
        except (OSError, TypeError, ValueError) as error:
            reason = shown(error)
        self._lose(number, other, reason)

    def _welcomed(self, link: _Link) -> Tuple[int, _Other]:
        message = link.receive()
        number, mark = message.value if message.kind == 'hello' else (None, None)
        with self._change:
            other = self._others.get(number)
            is_number = type(number) is int and 0 < number < len(self._addresses)
            # A process may connect again before the end of its first connection is noticed.
            if not is_number or (other and other.mark != mark):
                code, reason = RETRY, 'another process is this worker already; each needs a number of its own'
                if not is_number:
                    others = f'{self._name_of(0)} has {len(self._addresses)} workers'
                    code, reason = FIX, f'{others}; --worker_hosts must be the same for all'
                link.send('end', [code, f'--task_index={shown(number)}: {reason}.'])
                raise ValueError(number)
            other = _Other(link, mark)
            # The welcome comes before anything that other threads send. A process that has ended by now frees its
            # number.
            link.send('welcome')
            if self._greeting:
                link.send('greeting', *self._greeting)
            self._others[number] = other
            self._change.notify_all()
            if self._last_words:
                self._say_end_to(number, link)
        return number, other

    def _lose(self, number: int, other: _Other, reason: str) -> None:
        """Ends the run because a worker is lost, unless another process may and does replace it."""
        with self._change:
            is_current = self._others.get(number) is other
            if not self.has_begun and is_current:
                del self._others[number]
                other.link.close()
            if not is_current or self._last_words:
                return
            if not self.has_begun:
                logger.info(_HAS_LEFT, self._name_of(number), reason, self._timeout)
                if self._change.wait_for(lambda: number in self._others or self._last_words, self._timeout):
                    return
                reason += f', and no other came in its place within {self._timeout} s'
                # The worker cannot be told.
                self._told.add(number)
        # If the worker is only silent, it is told, too.
        self._end(Ending(RETRY, f'{self._name_of(number)} is lost: {reason}.'))

    def _links(self) -> Dict[int, _Link]:
        with self._change:
            return {number: other.link for number, other in self._others.items()}

    def _untold(self) -> List[int]:
        return [number for number in range(len(self._addresses)) if number not in self._told]

    def _say_end_to(self, number: int, link: _Link) -> None:
        with contextlib.suppress(OSError):
            link.send('end', self._last_words)
        self._note_told(number)

    def _note_told(self, number: int) -> None:
        with self._change:
            self._told.add(number)
            self._change.notify_all()

    def share(self, make: Callable[[], Any]) -> Any:
        """Sends the value to the others."""
        value = make()
        self._tell('shared', value)
        return value

    def union(self, bits: int) -> int:
        """Collects the bits of all others, and sends them the union."""
        for number, other in self._others.items():
            bits |= self._next(other.bits, number)[1].value
        self._tell('union', bits)
        return bits


class Later(Channel):
    """The part of each other worker, which connects to the first one."""

    def __init__(self, place: cluster.Place, on_end: Callable[[Ending], None]):
        """Starts to connect."""
        super().__init__(place, on_end)
        # Distinguishes this process from another one with the same number.
        self._mark = secrets.token_hex(8)
        self._link: Optional[_Link] = None
        self._is_told = False
        # Messages in the order in which this worker needs them: greetings, 'begin', then shared values and unions.
        self._said: queue.Queue[Tuple[_Link, _Message]] = queue.Queue()
        self._talking = threading.Thread(target=self._talk, daemon=True)
        self._talking.start()
        threading.Thread(target=self._show_life, daemon=True).start()

    def join(self, answer_to: Callable[[Any], Any]) -> None:
        """Waits for the first worker, answers its greeting, and waits until it starts the run.

        Raises:
          CommandError: the first worker refuses a worker, or a worker has ended; the message says why.
        """
        while True:
            link, message = self._next(self._said)
            if message.kind == 'begin':
                return
            answer = answer_to(message.value)
            # If the connection breaks, there will be another greeting.
            with contextlib.suppress(OSError):
                link.send('answer', answer)

    def _talk(self) -> None:
        try:
            self._follow_first()
        except Exception as error:  # Otherwise, the others would wait for a thread that has ended.
            self._end(Ending(RETRY, f'{self._name_of(0)} cannot be talked to: {shown(error)}.'))

    def _follow_first(self) -> None:
        """Connects to the first worker, or to a process that replaces it, and reads its messages."""
        was_there = False
        while True:
            link, lost = self._connected(was_there)
            if link is None:
                break
            was_there = True
            try:
                return self._listen(link)
            except (OSError, TypeError, ValueError) as error:
                reason = shown(error)
            if self.has_begun:
                lost = f'{self._name_of(0)} is lost: {reason}.'
                break
            link.close()
            with self._change:
                self._link = None
            if not self._has_left:
                logger.info(_HAS_LEFT, self._name_of(0), reason, self._timeout)
        if lost:
            self._end(Ending(RETRY, lost))

    def _connected(self, was_there: bool) -> Tuple[Optional[_Link], str]:
        """A connection to the first worker; or None and the reason, which is empty after this worker's end.

        If the first worker has never been there, this waits without limit. Another program may have its port.
        """
        where = cluster.host_and_port(self._addresses[0])[0], cluster.channel_port(self._addresses)
        problem = f'{self._name_of(0)} is lost, and no other process came in its place within {self._timeout} s.'
        now, hint = time.monotonic, ''
        said_at, deadline = -_SAY_EVERY, now() + self._timeout if was_there else math.inf
        while now() < deadline and not (self._has_left and not self._untold()):
            if now() >= said_at + _SAY_EVERY and not self._has_left:
                said_at = now()
                logger.info('waiting for %s, at its port %d%s', self._name_of(0), where[1], hint)
                hint = '; if it runs, it must have the same --worker_hosts, and this machine must reach that port'
                self._say_unresolved([0])
            try:
                connection = socket.create_connection(where, self._timeout)
            except OSError:
                if not was_there:
                    deadline = math.inf
                time.sleep(_RETRY_EVERY)
                continue
            link = _Link(connection, self._timeout)
            try:
                link.send('hello', [self._number, self._mark])
                message = link.receive()
                if message.kind == 'welcome':
                    return link, ''
                self._end(_ending_in(message.value))
                return None, ''
            except (OSError, TypeError, ValueError) as error:
                reason = shown(error)
            link.close()
            if not was_there and deadline == math.inf:
                deadline = now() + self._timeout
                problem = (
                    f'--worker_hosts: at port {where[1]} of {self._name_of(0)} is another program: {reason}. '
                    'End that program, or give all workers other ports.'
                )
            time.sleep(_RETRY_EVERY)
        return None, '' if self._has_left else problem

    def _listen(self, link: _Link) -> None:
        with self._change:
            self._link = link
        if self._last_words:
            self._say_end_to(0, link)
        while True:
            message = link.receive()
            if message.kind == 'begin':
                self.has_begun = True
            if message.kind == 'end':
                self._note_end(message)
            self._said.put((link, message))
            if message.kind == 'end':
                return

    def _links(self) -> Dict[int, _Link]:
        # After another worker's end, the first worker knows of it, or is lost.
        return {0: self._link} if self._link and not self._ending else {}

    def _untold(self) -> List[int]:
        return [] if self._is_told or self._ending else [0]

    def _say_end_to(self, number: int, link: _Link) -> None:
        with self._change:
            # The first worker is told only once: it may have ended, and another may have replaced it.
            if self._is_told:
                return
            with contextlib.suppress(OSError):
                link.send('end', self._last_words)
                self._is_told = True
            self._change.notify_all()

    def share(self, make: Callable[[], Any]) -> Any:
        """Waits for the first worker's value."""
        return self._next(self._said)[1].value

    def union(self, bits: int) -> int:
        """Sends the bits to the first worker, and waits for the union."""
        self._tell('bits', bits)
        return int(self._next(self._said)[1].value)

    def wait_for_first(self) -> None:
        """Waits until the first worker has ended well; raises an error for any other ending."""
        self._talking.join()
        if self._ending:
            raise self._ending.error()


def of(place: cluster.Place, on_end: Callable[[Ending], None]) -> Channel:
    """The part of the worker at a place among the run's machines.

    Raises:
      PortInUseError: the port of the first worker is in use.
    """
    return Later(place, on_end) if place.number else First(place, on_end)


@contextlib.contextmanager
def opened(place: Optional[cluster.Place], end_process: Callable[[CommandError], None]) -> Iterator[Optional[Channel]]:
    """Context manager with the part of the worker at a place; None for one machine.

    If the body fails, the worker tells the others. `end_process` is called with the error if another worker fails
    meanwhile.
    """
    if place is None:
        yield None
        return
    channel = of(place, lambda ending: end_process(ending.error()))
    try:
        yield channel
    except BaseException as error:
        channel.fail(error)
        raise


class PortInUseError(RetryableError):
    """A port of this machine that a run needs is in use."""


def check_port_is_free(addresses: Sequence[str], number: int) -> None:
    """Raises PortInUseError if the port of a worker's TensorFlow server is in use: TensorFlow would share it."""
    port = cluster.host_and_port(addresses[number])[1]
    _listening(socket.AF_INET, ('', port), f'of worker {number}').close()


def _own_address(host: str, port: int) -> Tuple[int, Any]:
    """The family and address on which to listen as a host: its own, or all if the name is another machine's."""
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind((address[0], 0))
        return family, address
    return socket.AF_INET, ('', port)


def _listening(family: int, address: Any, whose: str) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Allows a port that an earlier run has just released.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
        return listening
    except OSError as error:
        listening.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortInUseError(
            f'--worker_hosts: port {address[1]}, {whose}, is in use by another process of this machine. If it is a '
            'worker of this run, give each its own --task_index; otherwise end it, or give all workers other ports.'
        )
