"""The progress of training and evaluation on the screen."""

import datetime
import math
import time
from typing import Any, Optional

from compat import tf
from compat.log import logger
from compat.messages import counted
from console.screen import Screen, duration
from inception_v3.config import Config
from inception_v3.run.hooks.watchers import Step, Watcher
from inception_v3.tpu import accelerator

# Weight of the latest images/s in the smoothed rate.
_NEWEST = 0.05


class StepLines:
    """Logs the lines of `--log_steps`: one at each session call that reaches a multiple, and one for each epoch.

    The lines are those of the published streaming example, each followed by a bar and this program's own text;
    docs/outputs.md compares them. A session call is one step on a CPU, and one loop of `--iterations` steps on a TPU.
    Both rates are per core, or per replica:

    - Rate is smoothed: the latest call has a weight of 1/20. It starts again with each cycle of training; the first
      call of a cycle does not count, and its line repeats GlobalRate.
    - GlobalRate is the number of images since the epoch began (or since this command began, if that is later), divided
      by the seconds of training since then. Evaluations between cycles do not count. The first step of a cycle does,
      although it also builds kernels and fills the input pipeline.

    An epoch ends with the first session call after its last image was used. The command begins at `step`.
    """

    def __init__(self, config: Config, step: int):
        self._config = config
        self._device = 'TPU:0' if config.use_tpu else 'GPU:0' if accelerator.on_gpu(config) else 'CPU:0'
        self._step = step
        self._images = 0
        self._seconds = self._time = 0.0

    def begin(self, now: float) -> None:
        """Starts the clock of a training cycle at `now`, in seconds."""
        self._time = now

    def visit(self, done: Step, rate: Optional[float], rest: str) -> None:
        """Logs a session call: `rate` is for all cores, and `rest` is a text with it and the time left."""
        config, replicas, before = self._config, self._config.replicas, self._step
        # The step decreases if the session was lost and restored from a checkpoint.
        self._images += max(0, done.step - before) * config.train_batch_size
        self._seconds += done.time - self._time
        self._step, self._time = done.step, done.time
        ended_before, ended = (
            step * config.train_batch_size // config.num_train_images for step in (before, done.step)
        )
        epoch, global_rate = ended_before + 1, self._images / self._seconds
        now = time.strftime('%H:%M:%S')
        if done.step // config.log_steps > before // config.log_steps or done.step == config.train_steps:
            step = done.step - math.ceil(ended_before * config.num_train_images / config.train_batch_size)
            own = (global_rate if rate is None else rate) / replicas
            of_run = f'step {done.step:,} of {config.train_steps:,}'
            logger.info(
                f'| Training Device={self._device} Epoch={epoch} Step={step} Loss={done.loss:.5f} Rate={own:.2f} '
                f'GlobalRate={global_rate / replicas:.2f} Time={now} | {of_run}{rest}'
            )
        if ended > ended_before:
            kind = 'core' if config.use_tpu or replicas == 1 else 'replica'
            name = f'Epoch {epoch}' if ended == epoch else f'Epochs {epoch} to {ended}'
            logger.info(
                f'{name} train end {now}, Epoch Time={datetime.timedelta(seconds=int(self._seconds))}, '
                f'Replica Train Samples={self._images // replicas}, Reduced GlobalRate={global_rate:.2f} | '
                f'{self._seconds:.1f} s, {self._images:,} images on {counted(replicas, kind)}'
            )
            self._images, self._seconds = 0, 0.0


class TrainingProgress(Watcher):
    """Shows step, loss, images/s and the time left, or instead the lines of `--log_steps`, in all cycles.

    Without a terminal, each cycle logs at least two such lines: the first one with the time left, and the last one. The
    first step of a cycle does not count: it builds the graph's kernels and fills the input pipeline.
    """

    def __init__(self, screen: Screen, config: Config):
        self._screen = screen
        self._config = config
        self._step_lines: Optional[StepLines] = None
        self._images, self._seconds = 0, 0.0
        # The last step and the rate of the current cycle.
        self._last: Optional[Step] = None
        self._rate: Optional[float] = None
        self._has_shown_left = False

    @property
    def images_per_second(self) -> Optional[float]:
        """Images per second of a command's training steps; None before two steps of a cycle are done."""
        return self._images / self._seconds if self._seconds else None

    def graph_built(self) -> None:
        """Begins a cycle, and shows that training is being prepared: creating the session takes seconds."""
        self._last, self._rate, self._has_shown_left = None, None, False
        self._screen.update(f'preparing to train, {self._config.train_steps:,} steps in all', at_once=True)

    def session_began(self, session: Any, begin: int, now: float) -> None:
        """Starts the clock of the step lines, which begin with the first session."""
        if self._config.log_steps:
            self._step_lines = self._step_lines or StepLines(self._config, begin)
            self._step_lines.begin(now)

    def step_done(self, session: Any, done: Step) -> None:
        """Measures the speed and shows the status."""
        config = self._config
        if self._last and done.step > self._last.step:
            images, seconds = (done.step - self._last.step) * config.train_batch_size, done.time - self._last.time
            self._images += images
            self._seconds += seconds
            latest = images / seconds
            self._rate = latest if self._rate is None else (1 - _NEWEST) * self._rate + _NEWEST * latest
        self._last = done
        text, rest = f'step {done.step:,} of {config.train_steps:,}, loss {done.loss:.4f}', ''
        if self._rate:
            left = (config.train_steps - done.step) * config.train_batch_size / self._rate
            rest = f', {self._rate:,.1f} images/s, {duration(left)} left'
        if self._step_lines:
            self._screen.clear()
            self._step_lines.visit(done, self._rate, rest)
        else:
            self._screen.update(text + rest, at_once=bool(rest) and not self._has_shown_left)
            self._has_shown_left = bool(rest)

    def session_ended(self) -> None:
        """Logs the last status if it has not been logged, and removes the live line."""
        self._screen.catch_up()
        self._screen.keep()


class EvaluationProgress(tf.estimator.SessionRunHook):
    """Shows the number of evaluated batches, and of the expected ones."""

    def __init__(self, screen: Screen, batches: int):
        self._screen = screen
        self._batches = batches
        self._done = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the batch and shows the number."""
        self._done += 1
        self._screen.update(f'evaluating: batch {self._done:,} of {self._batches:,}')

    def end(self, session: Any) -> None:
        """Removes the live line."""
        self._screen.clear()
