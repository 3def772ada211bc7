"""Profiles the steps of `--profile_steps`."""

import contextlib
import os
import threading
import time
from typing import Any, Iterator, List, Optional

from console import tensorflow_profiler
from console.log import logger
from console.tensorflow_versions import tf
from data.sources import source_of
from inception_v3.config import Config
from inception_v3.run.files import now
from inception_v3.run.hooks.step import Step, Watcher
from inception_v3.run.profiling import profile
from inception_v3.tpu import topology

# The port of a TPU worker's profiler, beside that of its sessions:
# https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/client/trace
_SESSIONS_PORT, _PROFILER_PORT = ':8470', ':8466'
_GRPC = 'grpc://'
# Milliseconds to trace a TPU for, as long as no step has been timed.
_UNTIMED_TRACE = 2000
# Seconds to wait for the trace of a TPU's workers after its steps.
_PATIENCE = 60


def workers_of(config: Config, run_config: tf.estimator.tpu.RunConfig) -> List[str]:
    """The addresses of the profilers, HOST:PORT, of the machines whose sessions a run uses.

    It is empty if this process does the work itself.
    """
    if not config.use_tpu or config.is_emulated or config.tpu == topology.LOCAL:
        return []
    jobs = run_config.cluster_spec.as_dict() if run_config.cluster_spec else {}
    tasks = [task for job in jobs.values() for task in job] or [run_config.master]
    return [address.replace(_GRPC, '').replace(_SESSIONS_PORT, _PROFILER_PORT) for address in tasks]


class ProfiledSteps(Watcher):
    """Traces the steps of `--profile_steps`, and writes their profile to model_dir.

    It reads the clock and the profiler, and changes neither the graph nor the session: the weights of a run are the
    same with and without it. A failure of the profiler is logged; training continues.

    Args:
      config: of the run.
      workers: traces these over the network; without any, this process is traced.
    """

    def __init__(self, config: Config, workers: Optional[List[str]] = None):
        self._config = config
        self._folder = str(config.model_dir)
        self._first, self._last = config.profiled_steps
        self._per_call = config.iterations if config.use_tpu else 1
        self._workers = workers
        self._has_ended = False
        self._cpu = 0.0
        # The session calls before the profile, and those of the profile, which begin with its start.
        self._before: List[Step] = []
        self._calls: List[Step] = []
        self._tracing: Optional[threading.Thread] = None

    def session_began(self, session: Any, begin: int, now: float) -> None:
        """Starts the profile if its first step comes next; logs if all of its steps are done already."""
        if self._has_ended:
            return
        flag = f'--profile_steps={self._config.profile_steps}'
        if begin >= self._last:
            self._has_ended = True
            logger.info('%s: nothing is profiled; the run is at step %d already', flag, begin)
            return
        if begin >= self._first:
            logger.info(
                '%s: the profile begins with step %d, because the run resumes after step %d', flag, begin + 1, begin
            )
        self._before = []
        self._start_if_next(Step(begin, 0.0, now))

    def step_done(self, session: Any, done: Step) -> None:
        """Starts the profile before its first step, and writes it after its last one."""
        if self._has_ended:
            return
        if not self._calls:
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
        if self._has_ended or not self._calls:
            return
        if len(self._calls) > 1:
            self._finish()
            return
        self._discard()
        self._calls, self._tracing = [], None

    def abandon(self) -> None:
        """Discards an unfinished profile, after an error of training."""
        if self._has_ended or not self._calls:
            return
        logger.info(
            '--profile_steps=%s: training ended during the profile, which is discarded', self._config.profile_steps
        )
        self._has_ended = True
        self._discard()

    def _discard(self) -> None:
        if self._tracing:
            self._tracing.join(_PATIENCE)
        else:
            with self._failures_logged():
                tensorflow_profiler.stop(self._folder, writes=False)

    def _start_if_next(self, done: Step) -> None:
        if done.step + self._per_call < self._first:
            return
        with self._failures_logged():
            if self._workers:
                self._tracing = threading.Thread(target=self._trace, daemon=True)
                self._tracing.start()
            else:
                tensorflow_profiler.start(self._folder)
            self._cpu = time.process_time()
            self._calls = [done._replace(time=time.monotonic())]

    def _trace(self) -> None:
        """Traces the workers, on a thread of its own, for about as long as the steps take."""
        steps = max(self._per_call, self._last - self._first + 1)
        usual = self._usual_ms()
        with self._failures_logged():
            duration = max(1, round(usual * steps)) if usual else _UNTIMED_TRACE
            tensorflow_profiler.trace_workers(self._workers or [], self._folder, duration)

    def _usual_ms(self) -> Optional[float]:
        # The first call of a session builds kernels and fills the pipeline.
        timed = self._before[1:]
        if len(timed) < 2:
            return None
        return 1000 * (timed[-1].time - timed[0].time) / (timed[-1].step - timed[0].step)

    def _finish(self) -> None:
        cpu = time.process_time() - self._cpu
        self._has_ended = True
        with self._failures_logged():
            if self._tracing:
                self._tracing.join(_PATIENCE)
                for run in tensorflow_profiler.runs(self._folder)[-1:]:
                    logger.info(
                        'the trace of the TPU is in %s: tensorboard --logdir=%s, page Profile', run, self._folder
                    )
                return
            tensorflow_profiler.stop(self._folder)
            self._write(cpu)

    def _write(self, cpu: float) -> None:
        config, calls = self._config, self._calls
        steps = calls[-1].step - calls[0].step
        events = tensorflow_profiler.events(tensorflow_profiler.runs(self._folder)[-1])
        device = 'a GPU' if any(event.device for event in events) else 'the CPU, which also prepares the images'
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
            'data': 'fake images' if config.use_data == 'fake' else str(source_of(config)),
            'time': now(),
            'tensorflow': tf.__version__,
        }
        found = profile.write(self._folder, events, [1000 * (call.time - calls[0].time) for call in calls], about)
        path = os.path.join(self._folder, profile.PAGE_FILE)
        logger.info('steps %d to %d: %s %s', found.first, found.last, found.verdict, path)

    @contextlib.contextmanager
    def _failures_logged(self) -> Iterator[None]:
        """Logs a failure of the profiler, and ends the profile."""
        try:
            yield
        except tensorflow_profiler.ProfilerError as error:
            self._has_ended = True
            logger.info('--profile_steps=%s: the steps cannot be profiled: %s', self._config.profile_steps, error)
