"""TensorFlow's profiler, whose interface and file format differ between the versions.

1.15 writes a `Trace`, which the Profile page of its own TensorBoard shows. 2.15 writes an `XSpace`, which TensorBoard
shows with the package tensorboard-plugin-profile. Both are under `plugins/profile/` of the folder.
"""

import os
from typing import Iterator, List, NamedTuple

from console.tensorflow_versions import tf

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


def start(folder: str) -> None:
    """Starts to trace this process.

    Args:
      folder: the folder for the trace, which `stop` writes.

    Raises:
      ProfilerError: another profile is being taken.
    """
    try:
        from tensorflow.python.profiler import profiler_v2
    except ImportError:
        from tensorflow.python.eager import profiler

        try:
            profiler.start()
        except profiler.ProfilerAlreadyRunningError as error:
            raise ProfilerError(str(error))
        return
    try:
        profiler_v2.start(folder)
    except tf.errors.OpError as error:
        raise ProfilerError(error.message)


def stop(folder: str, writes: bool = True) -> None:
    """Stops tracing.

    Args:
      folder: as for `start`.
      writes: write the trace; False discards it.

    Raises:
      ProfilerError: the trace cannot be written.
    """
    try:
        try:
            from tensorflow.python.profiler import profiler_v2
        except ImportError:
            from tensorflow.python.eager import profiler

            trace = profiler.stop()
            if writes:
                profiler.save(folder, trace)
            return
        profiler_v2.stop(writes)
    except tf.errors.OpError as error:
        raise ProfilerError(error.message)


def trace_workers(address: str, workers: str, folder: str, milliseconds: int) -> None:
    """Traces the processes of other machines, such as the workers of a TPU, and waits for the end.

    Args:
      address: HOST:PORT of the profiler of the first worker.
      workers: the same of all workers, separated by commas.
      folder: the folder for the trace, which the workers must be able to write to.
      milliseconds: the duration of the trace.

    Raises:
      ProfilerError: the profiler does not answer, or traced nothing.
    """
    try:
        try:
            from tensorflow.python.profiler import profiler_client
        except ImportError:
            from tensorflow.python.eager import profiler_client as client

            client.start_tracing(address, folder, milliseconds, workers)
            return
        profiler_client.trace(address, folder, milliseconds, workers)
    except (tf.errors.OpError, RuntimeError) as error:
        raise ProfilerError(getattr(error, 'message', '') or str(error))


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
    try:
        names = [name for name in sorted(tf.io.gfile.listdir(run)) if name.endswith((_TRACE, _XSPACE))]
        for name in names:
            with tf.io.gfile.GFile(os.path.join(run, name), 'rb') as file:
                content = file.read()
            found += _events_of_trace(content) if name.endswith(_TRACE) else _events_of_xspace(content)
    except tf.errors.OpError as error:
        raise ProfilerError(error.message)
    if not found:
        raise ProfilerError(f'{run}: the trace is empty')
    return found


def _events_of_trace(content: bytes) -> Iterator[Event]:
    from tensorflow.core.protobuf import trace_events_pb2

    trace = trace_events_pb2.Trace.FromString(content)
    for event in trace.trace_events:
        device = trace.devices[event.device_id]
        thread = f'{device.resources[event.resource_id].name}/{event.resource_id}'
        # The name itself is the type of an operation alone.
        name = event.args.get('long name', event.name)
        start = event.timestamp_ps / 1e9
        yield Event(
            '' if device.name == _HOST else device.name,
            thread,
            name,
            start,
            start + event.duration_ps / 1e9,
        )


def _events_of_xspace(content: bytes) -> Iterator[Event]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for plane in xplane_pb2.XSpace.FromString(content).planes:
        if not plane.name.startswith((_HOST, '/device:')):
            continue
        for line in plane.lines:
            begin, thread = line.timestamp_ns / 1e6, line.name or str(line.id)
            for event in line.events:
                # Arguments follow a number sign.
                name = plane.event_metadata[event.metadata_id].name.split('#')[0]
                start = begin + event.offset_ps / 1e9
                yield Event(
                    '' if plane.name == _HOST else plane.name, thread, name, start, start + event.duration_ps / 1e9
                )
