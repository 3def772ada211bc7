"""TensorFlow's profiler, whose interface and file format differ between the versions.

1.15 writes a `Trace`, which the Profile page of its own TensorBoard shows. 2.15 writes an `XSpace`, which TensorBoard
shows with the package tensorboard-plugin-profile. Both are under `plugins/profile/` of the folder.
"""

import contextlib
import os
from typing import Iterator, List, NamedTuple

from console.tensorflow_versions import tf

try:
    from tensorflow.python.profiler import profiler_client
    from tensorflow.python.profiler import profiler_v2 as profiler
except ImportError:
    from tensorflow.python.eager import profiler, profiler_client
_IS_1 = tf.__version__.startswith('1.')
_HOST = '/host:CPU'
# The folder in which TensorBoard looks for profiles.
_PROFILES = os.path.join('plugins', 'profile')
_TRACE, _XSPACE = 'trace', '.xplane.pb'


class Event(NamedTuple):
    """A piece of work on a thread of the host, or on a device.

    Attributes:
      device: the name of the device; empty for the host.
      thread: the thread of the host, or the stream of the device.
      name: of the work: `NAME:TYPE` of an operation, or `Iterator::…` of a data set.
      start: milliseconds since the trace began.
      end: the same.
    """

    device: str
    thread: str
    name: str
    start: float
    end: float


class ProfilerError(Exception):
    """The profiler cannot be started or stopped, or the trace cannot be read."""


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raises ProfilerError in place of TensorFlow's errors; that of 1.15 for a second profile has no class in 2.15."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (tf.errors.OpError, RuntimeError)) or 'ProfilerAlreadyRunning' in type(error).__name__:
            raise ProfilerError(getattr(error, 'message', '') or str(error))
        raise


def start(folder: str) -> None:
    """Starts to trace this process; `stop` writes the trace to the folder.

    Raises:
      ProfilerError: another profile is being taken.
    """
    with _explained():
        if _IS_1:
            profiler.start()
        else:
            profiler.start(folder)


def stop(folder: str, writes: bool = True) -> None:
    """Stops tracing, and writes the trace or discards it.

    Raises:
      ProfilerError: the trace cannot be written.
    """
    with _explained():
        if not _IS_1:
            profiler.stop(writes)
        elif writes:
            profiler.save(folder, profiler.stop())
        else:
            profiler.stop()


def trace_workers(addresses: List[str], folder: str, milliseconds: int) -> None:
    """Traces the processes of other machines, such as the workers of a TPU, and waits for the end.

    Args:
      addresses: HOST:PORT of the workers' profilers.
      folder: the folder for the trace, which the workers must be able to write to.
      milliseconds: the duration of the trace.

    Raises:
      ProfilerError: the profiler does not answer, or traced nothing.
    """
    trace = profiler_client.start_tracing if _IS_1 else profiler_client.trace
    with _explained():
        trace(addresses[0], folder, milliseconds, ','.join(addresses))


def runs(folder: str) -> List[str]:
    """The folders of the profiles in a folder, oldest first."""
    parent = os.path.join(folder, _PROFILES)
    if not tf.io.gfile.isdir(parent):
        return []
    return [os.path.join(parent, name.rstrip('/')) for name in sorted(tf.io.gfile.listdir(parent))]


def events(run: str) -> List[Event]:
    """Reads the traces in a folder that `runs` names.

    Raises:
      ProfilerError: there is no trace, or it is damaged.
    """
    found: List[Event] = []
    with _explained():
        names = [name for name in sorted(tf.io.gfile.listdir(run)) if name.endswith((_TRACE, _XSPACE))]
        for name in names:
            with tf.io.gfile.GFile(os.path.join(run, name), 'rb') as file:
                content = file.read()
            found += _events_of_trace(content) if name.endswith(_TRACE) else _events_of_xspace(content)
    if not found:
        raise ProfilerError(f'{run}: the trace is empty')
    return found


def _event(device: str, thread: str, name: str, start: float, picoseconds: int) -> Event:
    return Event('' if device == _HOST else device, thread, name, start, start + picoseconds / 1e9)


def _events_of_trace(content: bytes) -> Iterator[Event]:
    from tensorflow.core.protobuf import trace_events_pb2

    trace = trace_events_pb2.Trace.FromString(content)
    for event in trace.trace_events:
        device = trace.devices[event.device_id]
        thread = f'{device.resources[event.resource_id].name}/{event.resource_id}'
        # The name itself is the type of an operation alone.
        name = event.args.get('long name', event.name)
        yield _event(device.name, thread, name, event.timestamp_ps / 1e9, event.duration_ps)


def _events_of_xspace(content: bytes) -> Iterator[Event]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for plane in xplane_pb2.XSpace.FromString(content).planes:
        if not plane.name.startswith((_HOST, '/device:')):
            continue
        for line in plane.lines:
            for event in line.events:
                # Arguments follow a number sign.
                name = plane.event_metadata[event.metadata_id].name.split('#')[0]
                start = line.timestamp_ns / 1e6 + event.offset_ps / 1e9
                yield _event(plane.name, line.name or str(line.id), name, start, event.duration_ps)
