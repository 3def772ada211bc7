"""Profiles the steps of `--profile_steps` with TensorFlow's profiler, whose interface differs between the versions.

1.15 writes a `Trace`, which the Profile page of its own TensorBoard shows. 2.15 writes an `XSpace`, which TensorBoard
shows with the package tensorboard-plugin-profile. Both are in `plugins/profile` of model_dir.
"""

import contextlib
import os
import threading
import time
from typing import Any, Iterator, List, Optional, Sequence

from compat import tf
from compat.log import logger
from compat.tensorflow import IS_REFERENCE
from console.screen import failure
from inception_v3.config import Config
from inception_v3.model_dir import now
from inception_v3.run import profile
from inception_v3.run.hooks.watchers import Step, Watcher
from inception_v3.run.profile import Event
from inception_v3.tpu import topology

try:
    from tensorflow.python.profiler import profiler_client
    from tensorflow.python.profiler import profiler_v2 as profiler
except ImportError:
    from tensorflow.python.eager import profiler, profiler_client
_HOST = '/host:CPU'
# The port of a TPU worker's profiler, beside that of its sessions:
# https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/client/trace
_SESSIONS_PORT, _PROFILER_PORT = ':8470', ':8466'
# Milliseconds to trace a TPU if no step has been timed yet.
_UNTIMED_TRACE = 2000
# Seconds to wait for the trace of a TPU's workers after its steps.
_PATIENCE = 60


def workers_of(config: Config, run_config: tf.estimator.tpu.RunConfig) -> List[str]:
    """The addresses of the profilers, HOST:PORT, of the machines whose sessions a run uses.

    The list is empty if this process does the work itself.
    """
    if not config.use_tpu or config.is_emulated or config.tpu == topology.LOCAL:
        return []
    jobs = run_config.cluster_spec.as_dict() if run_config.cluster_spec else {}
    tasks = [task for job in jobs.values() for task in job] or [run_config.master]
    return [address.replace('grpc://', '').replace(_SESSIONS_PORT, _PROFILER_PORT) for address in tasks]


def start(folder: str) -> None:
    """Starts to trace this process; `stop` writes the trace to the folder."""
    profiler.start() if IS_REFERENCE else profiler.start(folder)


def stop(folder: str, writes: bool = True) -> None:
    """Stops tracing, and writes the trace or discards it."""
    if not IS_REFERENCE:
        profiler.stop(writes)
        return
    trace = profiler.stop()
    if writes:
        profiler.save(folder, trace)


def trace_workers(addresses: Sequence[str], folder: str, milliseconds: int) -> None:
    """Traces the processes of other machines, which must be able to write to the folder, and waits for the end."""
    trace = profiler_client.start_tracing if IS_REFERENCE else profiler_client.trace
    trace(addresses[0], folder, milliseconds, ','.join(addresses))


def newest(folder: str) -> str:
    """The folder of the newest trace in a model_dir; empty if there is none."""
    parent = os.path.join(folder, 'plugins', 'profile')
    names = sorted(tf.io.gfile.listdir(parent)) if tf.io.gfile.isdir(parent) else []
    return os.path.join(parent, names[-1].rstrip('/')) if names else ''


def events_in(trace: str) -> List[Event]:
    """The events of the traces in the folder that `newest` names."""
    found: List[Event] = []
    for name in sorted(tf.io.gfile.listdir(trace)):
        read = _events_of_trace if name.endswith('trace') else _events_of_xspace
        if name.endswith(('trace', '.xplane.pb')):
            with tf.io.gfile.GFile(os.path.join(trace, name), 'rb') as file:
                found += read(file.read())
    if not found:
        raise RuntimeError(f'{trace}: the trace is empty')
    return found


def _event(device: str, thread: str, name: str, start: float, picoseconds: int) -> Event:
    return Event('' if device == _HOST else device, thread, name, start, start + picoseconds / 1e9)


def _events_of_trace(content: bytes) -> Iterator[Event]:
    from tensorflow.core.protobuf import trace_events_pb2

    trace = trace_events_pb2.Trace.FromString(content)
    for event in trace.trace_events:
        device = trace.devices[event.device_id]
        thread = f'{device.resources[event.resource_id].name}/{event.resource_id}'
        # The name itself is only the type of an operation.
        name = event.args.get('long name', event.name)
        yield _event(device.name, thread, name, event.timestamp_ps / 1e9, event.duration_ps)


def _events_of_xspace(content: bytes) -> Iterator[Event]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for plane in xplane_pb2.XSpace.FromString(content).planes:
        for line in plane.lines if plane.name.startswith((_HOST, '/device:')) else ():
            for event in line.events:
                # Arguments follow a number sign.
                name = plane.event_metadata[event.metadata_id].name.split('#')[0]
                start = line.timestamp_ns / 1e6 + event.offset_ps / 1e9
                yield _event(plane.name, line.name or str(line.id), name, start, event.duration_ps)


class ProfiledSteps(Watcher):
    """Traces the steps of `--profile_steps`, and writes their profile to model_dir.

    It reads the clock and the profiler, and changes neither the graph nor the session: the weights of a run are the
    same with and without it. A failure of the profiler is logged; training continues. Without workers to trace over the
    network, this process is traced.
    """

    def __init__(self, config: Config, workers: Sequence[str] = ()):
        self._config = config
        self._flag = f'--profile_steps={config.profile_steps}'
        self._folder = str(config.model_dir)
        self._first, self._last = config.profiled_steps
        self._per_call = config.iterations if config.use_tpu else 1
        self._workers = workers
        self._has_ended = False
        self._cpu = 0.0
        # The session calls before the profile, and those in the profile, the first of which marks its start.
        self._before: List[Step] = []
        self._calls: List[Step] = []
        self._tracing: Optional[threading.Thread] = None

    def session_began(self, session: Any, begin: int, now: float) -> None:
        """Starts the profile if its first step comes next; logs if all of its steps are done already."""
        if begin >= self._last and not self._has_ended:
            self._has_ended = True
            logger.info('%s: nothing is profiled; the run is at step %s already', self._flag, f'{begin:,}')
        elif begin >= self._first and not self._has_ended:
            text = '%s: the profile begins with step %s, because the run resumes after step %s'
            logger.info(text, self._flag, f'{begin + 1:,}', f'{begin:,}')
        self._before = []
        self._start_if_next(Step(begin, 0.0, now))

    def step_done(self, session: Any, done: Step) -> None:
        """Starts the profile before its first step, and writes it after its last one."""
        if self._calls:
            self._calls.append(done)
            if done.step >= self._last:
                self._end(writes=True)
        elif not self._has_ended:
            self._before.append(done)
            self._start_if_next(done)

    def session_ended(self) -> None:
        """Writes a profile of the steps that were done, if training ends before the last step.

        If no step was done, because an evaluation comes before the first one, the next session starts the profile
        again.
        """
        if self._calls:
            self._end(writes=len(self._calls) > 1)

    def abandon(self) -> None:
        """Discards an unfinished profile, after an error of training."""
        if self._calls:
            logger.info('%s: training ended during the profile, which is discarded', self._flag)
            self._end(writes=False)
            self._has_ended = True

    def _start_if_next(self, done: Step) -> None:
        if self._has_ended or done.step + self._per_call < self._first:
            return
        with self._failures_logged():
            if self._workers:
                self._tracing = threading.Thread(target=self._trace, daemon=True)
                self._tracing.start()
            else:
                start(self._folder)
            self._cpu = time.process_time()
            self._calls = [done._replace(time=time.monotonic())]

    def _trace(self) -> None:
        """Traces the workers, on a thread of its own, for about as long as the steps take."""
        usual = self._usual_ms()
        steps = max(self._per_call, self._last - self._first + 1)
        with self._failures_logged():
            trace_workers(self._workers, self._folder, max(1, round(usual * steps)) if usual else _UNTIMED_TRACE)

    def _usual_ms(self) -> Optional[float]:
        # The first call of a session builds kernels and fills the pipeline.
        timed = self._before[1:]
        if len(timed) < 2:
            return None
        return 1000 * (timed[-1].time - timed[0].time) / (timed[-1].step - timed[0].step)

    def _end(self, writes: bool) -> None:
        """Ends the trace, and writes the profile, the only one of the run, or discards it."""
        cpu, calls = time.process_time() - self._cpu, self._calls
        self._has_ended, self._calls = writes, []
        with self._failures_logged():
            if self._tracing:
                self._tracing.join(_PATIENCE)
                trace = newest(self._folder) if writes else ''
                if trace:
                    logger.info('the trace of the TPU is in %s: tensorboard --logdir=%s', trace, self._folder)
            else:
                stop(self._folder, writes)
                if writes:
                    self._write(calls, cpu)

    def _write(self, calls: List[Step], cpu: float) -> None:
        config, steps = self._config, calls[-1].step - calls[0].step
        events = events_in(newest(self._folder))
        of_gpus = any(event.device for event in events)
        device = 'a GPU' if of_gpus else 'the CPU, which also prepares the images'
        if config.num_gpus > 1:
            kind = 'GPUs' if of_gpus else 'virtual devices of the CPU, which also prepares the images'
            device = f'{config.num_gpus} {kind}'
        if config.machines > 1:
            device += f', at the first of {config.machines} machines'
        if config.use_tpu:
            device = f'a TPU with {config.num_shards} cores'
        if config.is_emulated:
            device = f'{config.num_shards} emulated TPU cores on the CPU, which also prepares the images'
        about = {
            'first': calls[0].step + 1,
            'last': calls[-1].step,
            'cpu_ms': 1000 * cpu / steps,
            'usual_ms': self._usual_ms(),
            'images': config.train_batch_size,
            'hosts': topology.hosts_of(config),
            'device': device,
            'data': 'fake images' if config.use_data == 'fake' else str(config.source),
            'time': now(),
            'tensorflow': tf.__version__,
        }
        found = profile.write(self._folder, events, [1000 * (call.time - calls[0].time) for call in calls], about)
        path = os.path.join(self._folder, profile.PAGE_FILE)
        logger.info('steps %s to %s: %s %s', f'{found.first:,}', f'{found.last:,}', found.verdict, path)

    @contextlib.contextmanager
    def _failures_logged(self) -> Iterator[None]:
        """Logs a failure of the profiler, and ends the profile."""
        try:
            yield
        except Exception as error:
            # 2.15 lacks the class of 1.15's error for a second profile.
            is_running = 'ProfilerAlreadyRunning' in type(error).__name__
            if not is_running and not isinstance(error, (tf.errors.OpError, RuntimeError)):
                raise
            self._has_ended, self._calls = True, []
            logger.info('%s: the steps cannot be profiled: %s', self._flag, failure(error))
