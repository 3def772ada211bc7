"""The connection between the workers of a run, besides TensorFlow's own: agreement, common stops, and lost workers.

TensorFlow's sums across machines wait for ever for a worker that is gone. So every other worker has one TCP connection
to the first, and both ends send signs of life. A worker whose connection ends, or which is silent for
`--worker_timeout`, is lost; the first worker tells all others.

A message is a JSON object on a line of limited length. Nothing in it is executed, and nobody is authenticated: whoever
reaches the port can end the run, as at TensorFlow's own port (SECURITY.md). By hand, with sockets: TensorFlow's own
server answers nobody whose peer is gone, and has another interface in each version.
"""

import abc
import contextlib
import errno
import json
import queue
import socket
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from compat.errors import DONE, FIX, RETRY, CommandError, RetryableError
from compat.log import logger
from compat.messages import shown
from console.json_content import from_json, record
from inception_v3.machines import cluster

# Of a message, in bytes; of an error's text in it, in characters.
_LONGEST, _LONGEST_TEXT = 1 << 18, 4096
# Signs of life in the time after which a worker is lost, and the most seconds between two.
_SIGNS, _SIGN_EVERY = 4, 10.0
# Seconds: between attempts to connect, between lines that say who is waited for, and for a stranger to say who it is.
_RETRY_EVERY, _SAY_EVERY, _GREETS_WITHIN = 0.5, 60.0, 10.0
# Seconds after which a wait looks whether the run has ended.
_LOOK_EVERY = 0.5
_LARGEST_CODE = 255


class Ending(NamedTuple):
    """The end of a run at another worker: the exit code for all, and what happened where."""

    code: int
    text: str

    def error(self, more: str = '') -> CommandError:
        """The error that ends this worker, with further sentences."""
        error = CommandError(f'{self.text} {more}'.rstrip())
        error.exit_code = self.code
        return error


def _ending_in(value: Any) -> Ending:
    """The ending in a message, whatever it contains."""
    code, text = value
    is_code = type(code) is int and DONE <= code <= _LARGEST_CODE
    return Ending(code if is_code else RETRY, shown(text, _LONGEST_TEXT))


class _Message(NamedTuple):
    kind: str
    value: Any = None


class _Link:
    """One end of a connection. Sending and receiving raise OSError, whose text is the reason, if the other is gone."""

    def __init__(self, connection: socket.socket, timeout: float):
        connection.settimeout(timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._reader = connection.makefile('rb')
        self._sending = threading.Lock()

    def set_timeout(self, timeout: float) -> None:
        """Sets the seconds without a message after which the other is gone."""
        self._connection.settimeout(timeout)

    def send(self, kind: str, value: Any = None) -> None:
        """Sends a message; may be called from any thread."""
        line = json.dumps(_Message(kind, value)._asdict()).encode() + b'\n'
        with self._sending:
            self._connection.sendall(line)

    def receive(self) -> _Message:
        """The next message that is no sign of life."""
        while True:
            try:
                line = self._reader.readline(_LONGEST + 1)
            except socket.timeout:
                raise OSError(f'no sign of life for {self._connection.gettimeout():.0f} s (--worker_timeout)')
            except ConnectionError:
                # The system resets the connection of a process that ends with messages that it has not read.
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
    """A worker's part in the connection of all workers of a run; `number` is its own, from 0, among the addresses.

    `on_end` is called, on a thread of its own, when another worker is lost or ends with an error. Whoever waits for
    another worker gets the same ending as an error.
    """

    def __init__(self, addresses: Sequence[str], number: int, timeout: float, on_end: Callable[[Ending], None]):
        self._addresses = addresses
        self._number = number
        self._timeout = timeout
        self._on_end = on_end
        self._change = threading.Condition()
        self._ending: Optional[Ending] = None
        # Whether `on_end` has returned, which it does not if it ends the process.
        self._is_handled = False
        self._has_left = False

    @abc.abstractmethod
    def share(self, make: Callable[[], Any]) -> Any:
        """The value, of JSON, that `make` returns on the first worker, where alone it is called."""

    @abc.abstractmethod
    def union(self, bits: int) -> int:
        """The bits that any worker gives; every worker calls this, once for each step."""

    @abc.abstractmethod
    def _links(self) -> Sequence[_Link]:
        """The connections to the workers that this one tells its end."""

    def leave(self, code: int = DONE, text: str = '') -> None:
        """Tells the others that this worker ends; any exit code but 0 ends them, too. Only the first call counts."""
        with self._change:
            if self._has_left:
                return
            self._has_left = True
            self._change.notify_all()
        self._tell('end', [code, f'{cluster.name_of(self._addresses, self._number)} ended: {text}' if code else ''])

    def wait_for_ending(self, seconds: float) -> None:
        """Waits for the end of the run at another worker, which would explain an error of TensorFlow here."""
        with self._change:
            self._change.wait_for(lambda: self._is_handled, seconds)

    def _tell(self, kind: str, value: Any = None) -> None:
        for link in self._links():
            # The thread that reads from this connection sees that it is broken.
            with contextlib.suppress(OSError):
                link.send(kind, value)

    def _end(self, ending: Ending) -> None:
        with self._change:
            if self._ending or self._has_left:
                return
            self._ending = ending
        self._on_end(ending)
        with self._change:
            self._is_handled = True
            self._change.notify_all()

    def _next(self, values: 'queue.Queue[Any]') -> Any:
        """The next element of a queue. Raises the error of an ending that comes first."""
        while True:
            with contextlib.suppress(queue.Empty):
                return values.get(timeout=_LOOK_EVERY)
            if self._ending and self._is_handled:
                raise self._ending.error()

    def _show_life(self) -> None:
        while not self._has_left:
            self._tell('alive')
            time.sleep(min(_SIGN_EVERY, self._timeout / _SIGNS))


class _Other(NamedTuple):
    """Another worker, at the first one: its connection, its answer to the greeting, and its bits of each step."""

    link: _Link
    answer: Any
    bits: 'queue.Queue[int]'


class First(Channel):
    """The part of the first worker, which listens for the others, and tells them what one of them says."""

    def __init__(self, addresses: Sequence[str], number: int, timeout: float, on_end: Callable[[Ending], None]):
        super().__init__(addresses, number, timeout, on_end)
        self._others: Dict[int, _Other] = {}
        self._is_complete = False

    def gather(self, greeting: Any, problem_with: Callable[[Dict[int, Any]], str]) -> None:
        """Waits for all others, and lets the run begin if their answers to the greeting are right.

        Raises:
          RetryableError: the port is in use.
          CommandError: the problem with the answers, which ends the other workers, too.
        """
        host, port = cluster.host_and_port(self._addresses[0])[0], cluster.channel_port(self._addresses)
        listening = _listening(*_own_address(host, port), 'on which the first worker talks to the others')
        threading.Thread(target=self._accept, args=[listening, greeting], daemon=True).start()
        threading.Thread(target=self._show_life, daemon=True).start()
        with self._change:
            while len(self._others) < len(self._addresses) - 1 and not self._has_left:
                missing = (number for number in range(1, len(self._addresses)) if number not in self._others)
                logger.info('waiting for %s', ', '.join(cluster.name_of(self._addresses, number) for number in missing))
                self._change.wait(_SAY_EVERY)
            self._is_complete = True
        listening.close()
        if self._has_left:
            return
        problem = problem_with({number: other.answer for number, other in sorted(self._others.items())})
        if problem:
            self._has_left = True
            self._tell('end', [FIX, problem])
            raise CommandError(problem)
        self._tell('begin')

    def _accept(self, listening: socket.socket, greeting: Any) -> None:
        # Until the socket is closed.
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self._serve, args=[connection, greeting], daemon=True).start()

    def _serve(self, connection: socket.socket, greeting: Any) -> None:
        """Greets whoever has connected, and reads its messages. A stranger is turned away."""
        link = _Link(connection, _GREETS_WITHIN)
        try:
            number, other = self._greeted(link, greeting)
        except (OSError, TypeError, ValueError):
            link.close()
            return
        link.set_timeout(self._timeout)
        try:
            while True:
                message = link.receive()
                if message.kind == 'bits' and type(message.value) is int:
                    other.bits.put(message.value)
                elif message.kind == 'end':
                    ending = _ending_in(message.value)
                    if ending.code != DONE:
                        self._end(ending)
                    return
        except (OSError, TypeError, ValueError) as error:
            reason = shown(error)
        name = cluster.name_of(self._addresses, number)
        with self._change:
            if not self._is_complete:
                # Nothing has begun: another process may come in its place.
                del self._others[number]
                logger.info('%s has left: %s', name, reason)
                link.close()
                return
        # Tells the worker, too, if it is only silent.
        self._end(Ending(RETRY, f'{name} is lost: {reason}.'))

    def _greeted(self, link: _Link, greeting: Any) -> Tuple[int, _Other]:
        link.send('greeting', greeting)
        number, answer = link.receive().value
        with self._change:
            if type(number) is not int or not 0 < number < len(self._addresses) or number in self._others:
                link.send('end', [RETRY, f'--task_index={shown(number)}: this worker is there already, or unknown.'])
                raise ValueError(number)
            other = self._others[number] = _Other(link, answer, queue.Queue())
            self._change.notify_all()
        return number, other

    def _links(self) -> Sequence[_Link]:
        with self._change:
            return [other.link for other in self._others.values()]

    def _end(self, ending: Ending) -> None:
        if not self._has_left:
            # Before this process ends.
            self._tell('end', [ending.code, ending.text])
        super()._end(ending)

    def share(self, make: Callable[[], Any]) -> Any:
        """Tells the others the value."""
        value = make()
        self._tell('shared', value)
        return value

    def union(self, bits: int) -> int:
        """Collects the bits of all others, and tells them the union."""
        for other in self._others.values():
            bits |= self._next(other.bits)
        self._tell('union', bits)
        return bits


class Later(Channel):
    """The part of any other worker, which connects to the first."""

    def __init__(self, addresses: Sequence[str], number: int, timeout: float, on_end: Callable[[Ending], None]):
        super().__init__(addresses, number, timeout, on_end)
        self._link: Optional[_Link] = None
        self._shared: queue.Queue[Any] = queue.Queue()
        self._unions: queue.Queue[int] = queue.Queue()
        self._is_over = threading.Event()

    def join(self, answer_to: Callable[[Any], Any]) -> None:
        """Waits for the first worker, answers its greeting, and waits until it lets the run begin.

        Raises:
          CommandError: the first worker refuses this one or another; the message says why.
        """
        where = cluster.host_and_port(self._addresses[0])[0], cluster.channel_port(self._addresses)
        threading.Thread(target=self._show_life, daemon=True).start()
        said_at = -_SAY_EVERY
        while not self._has_left:
            if time.monotonic() >= said_at + _SAY_EVERY:
                said_at = time.monotonic()
                logger.info('waiting for %s, at its port %d', cluster.name_of(self._addresses, 0), where[1])
            try:
                link = _Link(socket.create_connection(where, self._timeout), self._timeout)
                answer = answer_to(link.receive().value)
                link.send('hello', [self._number, answer])
                self._link = link
                message = link.receive()
            except OSError:
                self._link = None
                time.sleep(_RETRY_EVERY)
                continue
            if message.kind == 'end':
                raise _ending_in(message.value).error()
            threading.Thread(target=self._listen, args=[link], daemon=True).start()
            return

    def _listen(self, link: _Link) -> None:
        try:
            while True:
                message = link.receive()
                if message.kind == 'shared':
                    self._shared.put(message.value)
                elif message.kind == 'union' and type(message.value) is int:
                    self._unions.put(message.value)
                elif message.kind == 'end':
                    ending = _ending_in(message.value)
                    if ending.code != DONE:
                        self._end(ending)
                    self._is_over.set()
                    return
        except (OSError, TypeError, ValueError) as error:
            self._end(Ending(RETRY, f'{cluster.name_of(self._addresses, 0)} is lost: {shown(error)}.'))
            self._is_over.set()

    def _links(self) -> List[_Link]:
        return [self._link] if self._link else []

    def share(self, make: Callable[[], Any]) -> Any:
        """Waits for the value of the first worker."""
        return self._next(self._shared)

    def union(self, bits: int) -> int:
        """Tells the first worker the bits, and waits for those of all."""
        self._tell('bits', bits)
        return self._next(self._unions)

    def wait_for_first(self) -> None:
        """Waits until the first worker has ended well; raises the error of another ending."""
        self._is_over.wait()
        if self._ending:
            raise self._ending.error()


class PortInUseError(RetryableError):
    """A port of this machine that a run needs is in use."""


def check_port_is_free(addresses: Sequence[str], number: int) -> None:
    """Raises PortInUseError if the port on which a worker's TensorFlow is to listen is in use: TensorFlow shares it."""
    port = cluster.host_and_port(addresses[number])[1]
    _listening(socket.AF_INET, ('', port), f'of worker {number}').close()


def _own_address(host: str, port: int) -> Tuple[int, Any]:
    """The family and the address on which to listen as a host: its own, or all addresses if the name is of another."""
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind((address[0], 0))
        return family, address
    return socket.AF_INET, ('', port)


def _listening(family: int, address: Any, whose: str) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port that an earlier run has left a moment ago is free.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
        return listening
    except OSError as error:
        listening.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortInUseError(
            f'--worker_hosts: port {address[1]}, {whose}, is in use by another process of this machine. End that '
            'process, or give all workers other ports.'
        )
