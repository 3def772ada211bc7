"""Profiles the steps of `--profile_steps`."""

import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional

from console import tensorflow_profiler
from console.log import logger
from console.tensorflow_versions import tf
from data.sources import source_of
from inception_v3.config import Config
from inception_v3.run.files import now
from inception_v3.run.hooks.step import Step, Watcher
from inception_v3.run.profiling import page, phases
from inception_v3.run.profiling.profile import profile_of
from inception_v3.tpu import topology

# The port of a TPU worker's profiler, beside that of its sessions:
# https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/client/trace
_SESSIONS_PORT, _PROFILER_PORT = ':8470', ':8466'
_GRPC = 'grpc://'
# Milliseconds to trace a TPU for, as long as no step has been timed.
_UNTIMED_TRACE = 2000
# Seconds to wait for the trace of a TPU's workers after its steps.
_PATIENCE = 60


class Workers(NamedTuple):
    """The addresses of the profilers of a TPU's workers, HOST:PORT."""

    addresses: List[str]

    @classmethod
    def of(cls, run_config: tf.estimator.tpu.RunConfig) -> 'Workers':
        """The profilers of the machines whose sessions a run uses."""
        tasks = (
            (task for job in run_config.cluster_spec.as_dict().values() for task in job)
            if run_config.cluster_spec
            else ()
        )
        found = [*tasks] or [run_config.master]
        return cls([address.replace(_GRPC, '').replace(_SESSIONS_PORT, _PROFILER_PORT) for address in found])


def workers_of(config: Config, run_config: tf.estimator.tpu.RunConfig) -> Optional[Workers]:
    """The workers to trace over the network; None if this process does the work itself."""
    is_here = not config.use_tpu or config.is_emulated or config.tpu == topology.LOCAL
    return None if is_here else Workers.of(run_config)


class ProfiledSteps(Watcher):
    """Traces the steps of `--profile_steps`, and writes their profile to model_dir.

    It reads the clock and the profiler, and changes neither the graph nor the session: the weights of a run are the
    same with and without it. A failure of the profiler is logged; training continues.

    Args:
      config: of the run.
      workers: traces these over the network; None traces this process.
    """

    def __init__(self, config: Config, workers: Optional[Workers] = None):
        self._config = config
        self._folder = str(config.model_dir)
        self._first, self._last = config.profiled_steps
        self._per_call = config.iterations if config.use_tpu else 1
        self._workers = workers
        self._has_ended = False
        self._cpu = 0.0
        # `time.monotonic()` at the start of the trace, and at the end of each session call since then, with its step.
        self._began: Optional[float] = None
        self._calls: List[Step] = []
        self._before: List[Step] = []
        self._tracing: Optional[threading.Thread] = None

    def session_began(self, session: Any, begin: int, now: float) -> None:
        """Starts the profile if its first step comes next; tells if all of its steps are done already."""
        if self._has_ended:
            return
        if begin >= self._last:
            self._has_ended = True
            logger.info(
                '--profile_steps=%s: nothing is profiled; the run is at step %d already',
                self._config.profile_steps,
                begin,
            )
            return
        if begin >= self._first:
            logger.info(
                '--profile_steps=%s: the profile begins with step %d, because the run resumes after step %d',
                *(self._config.profile_steps, begin + 1, begin),
            )
        self._before = []
        self._start_if_next(Step(begin, 0.0, now))

    def step_done(self, session: Any, done: Step) -> None:
        """Starts the profile before its first step, and writes it after its last one."""
        if self._has_ended:
            return
        if self._began is None:
            self._before.append(done)
            self._start_if_next(done)
            return
        self._calls.append(done)
        if done.step >= self._last:
            self._finish()

    def session_ended(self) -> None:
        """Writes a profile of the steps that were done, if training ends before the last step.

        If none was done, because an evaluation comes before the first, the next session starts the profile again.
        """
        if self._began is None or self._has_ended:
            return
        if len(self._calls) > 1:
            self._finish()
            return
        if self._tracing is None:
            self._logged(lambda: tensorflow_profiler.stop(self._folder, writes=False))
        else:
            self._tracing.join(_PATIENCE)
        self._began, self._calls, self._tracing = None, [], None

    def abandon(self) -> None:
        """Discards an unfinished profile, after an error of training."""
        if self._began is None or self._has_ended:
            return
        self._has_ended = True
        logger.info(
            '--profile_steps=%s: training ended during the profile, which is discarded', self._config.profile_steps
        )
        if self._tracing is None:
            self._logged(lambda: tensorflow_profiler.stop(self._folder, writes=False))

    def _start_if_next(self, done: Step) -> None:
        if done.step + self._per_call < self._first:
            return
        if self._workers is None:
            if not self._logged(lambda: tensorflow_profiler.start(self._folder)):
                return
        else:
            self._trace(self._workers)
        self._cpu = time.process_time()
        self._began = time.monotonic()
        self._calls = [done._replace(time=self._began)]

    def _trace(self, workers: Workers) -> None:
        usual = self._usual_ms()
        steps = max(self._per_call, self._last - self._first + 1)
        duration = round(usual * steps) if usual else _UNTIMED_TRACE
        address, all_workers = workers.addresses[0], ','.join(workers.addresses)
        self._tracing = threading.Thread(
            target=lambda: self._logged(
                lambda: tensorflow_profiler.trace_workers(address, all_workers, self._folder, max(1, duration))
            ),
            daemon=True,
        )
        self._tracing.start()

    def _usual_ms(self) -> Optional[float]:
        # The first call of a session builds kernels and fills the pipeline.
        timed = self._before[1:]
        if len(timed) < 2:
            return None
        return 1000 * (timed[-1].time - timed[0].time) / (timed[-1].step - timed[0].step)

    def _finish(self) -> None:
        cpu = time.process_time() - self._cpu
        self._has_ended = True
        if self._tracing is not None:
            self._tracing.join(_PATIENCE)
            self._logged(
                lambda: logger.info(
                    'the trace of the TPU is in %s: tensorboard --logdir=%s, page Profile',
                    *(tensorflow_profiler.runs(self._folder)[-1], self._folder),
                )
            )
            return
        if self._logged(lambda: tensorflow_profiler.stop(self._folder)) and len(self._calls) > 1:
            self._logged(lambda: self._write(cpu))

    def _write(self, cpu: float) -> None:
        config, calls = self._config, self._calls
        steps = calls[-1].step - calls[0].step
        bounds = [1000 * (call.time - calls[0].time) for call in calls]
        events = tensorflow_profiler.events(tensorflow_profiler.runs(self._folder)[-1])
        works = phases.works_of(events, bounds[0], bounds[-1])
        about = {
            'first': calls[0].step + 1,
            'last': calls[-1].step,
            'cpu_ms': 1000 * cpu / steps,
            'usual_ms': self._usual_ms(),
            'images': config.train_batch_size,
            'hosts': topology.hosts_of(config),
            'device': _device_of(config, any(not work.on_host for work in works)),
            'data': 'fake images' if config.use_data == 'fake' else str(source_of(config)),
            'time': now(),
            'tensorflow': tf.__version__,
        }
        profile = profile_of(works, events, bounds, about)
        path = page.write(self._folder, profile, works, phases.waits_of(events), bounds)
        logger.info('steps %d to %d: %s %s', profile.first, profile.last, profile.verdict, path)

    def _logged(self, action: Callable[[], None]) -> bool:
        """Performs an action of the profiler; returns whether it succeeded, and logs its failure."""
        try:
            action()
        except tensorflow_profiler.ProfilerError as error:
            self._has_ended = True
            logger.info('--profile_steps=%s: the steps cannot be profiled: %s', self._config.profile_steps, error)
            return False
        return True


def _device_of(config: Config, has_own: bool) -> str:
    if config.is_emulated:
        return f'{config.num_shards} emulated TPU cores on the CPU, which also prepares the images'
    if config.use_tpu:
        return f'a TPU with {config.num_shards} cores'
    return 'a GPU' if has_own else 'the CPU, which also prepares the images'
