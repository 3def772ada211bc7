"""The progress of training and evaluation on the screen."""

import time
from typing import Any, Optional

from console.log import logger
from console.messages import counted
from console.screen import Screen, duration
from console.tensorflow_versions import tf
from inception_v3.run.hooks.watchers import Step, Watcher

# Weight of the latest images/s in the smoothed rate.
_NEWEST = 0.05


class Throughput:
    """Images per second of a command's training steps, over all its cycles.

    The first step of each cycle does not count: it builds the graph's kernels and fills the input pipeline.

    Args:
      graphs_in_pause: the graphs that are built between two cycles: that of evaluation and, on a TPU, that of training.
    """

    def __init__(self, graphs_in_pause: int = 2) -> None:
        self._graphs_in_pause = graphs_in_pause
        self.images = 0
        self.seconds = 0.0
        # Seconds between the steps of two cycles: an evaluation, and the graphs of both.
        self._pause: Optional[float] = None
        self._paused_at: Optional[float] = None
        self._began_at = time.monotonic()
        self._preparation = 0.0

    def cycle_began(self, now: float) -> None:
        """Measures the pause before a cycle's first step; before the first cycle, the preparation of training."""
        if self._paused_at is None:
            self._preparation = now - self._began_at
        else:
            self._pause = now - self._paused_at

    def cycle_ended(self, now: float) -> None:
        """Notes the time of a cycle's last step."""
        self._paused_at = now

    def seconds_of_pauses(self, pauses: int, with_export: bool) -> float:
        """An estimate of the seconds outside of the steps: evaluations, the building of graphs, and an export.

        Args:
          pauses: the number of evaluations that follow.
          with_export: whether an export follows; its graph takes about as long as that of training.
        """
        # Before the first evaluation: each graph takes about as long as that of training.
        pause = self._graphs_in_pause * self._preparation if self._pause is None else self._pause
        return pauses * pause + with_export * self._preparation

    @property
    def images_per_second(self) -> Optional[float]:
        """Images per second; None before two steps of a cycle are done."""
        return self.images / self.seconds if self.seconds else None


class StepLines:
    """Logs the lines of `--log_steps`: one at the first session call that reaches a multiple, and one for each epoch.

    A session call is one step on a CPU, and one loop of `--iterations` steps on a TPU. Both rates are those of a core;
    the smoothed rate of all cores together follows them:

    - Rate is smoothed: the latest call has a weight of 1/20. It starts again with each cycle of training; the first
      call of a cycle does not count.
    - GlobalRate is the number of images since the epoch began (or since this command began, if that is later), divided
      by the seconds of training since then. Evaluations between cycles do not count. The first step of a cycle does,
      although it also builds kernels and fills the input pipeline.

    An epoch ends with the first session call after its last image was used.

    Args:
      device: the device whose loss is shown.
      replicas: the number of cores that share a batch.
      batch_size: images per step, over all cores.
      epoch_images: images per epoch.
      step: the number of steps done before this command.
      log_steps: the number of steps between lines.
    """

    def __init__(self, device: str, replicas: int, batch_size: int, epoch_images: int, step: int, log_steps: int = 1):
        self._device = device
        self._replicas = replicas
        self._batch_size = batch_size
        self._epoch_images = epoch_images
        self._step = step
        self._log_steps = log_steps
        self._images = 0
        self._seconds = self._time = 0.0

    def begin(self, now: float) -> None:
        """Starts the clock of a training cycle at `now`, in seconds."""
        self._time = now

    def visit(self, done: Step, is_last: bool, text: str, rate: Optional[float], rest: str) -> None:
        """Logs a session call.

        Args:
          done: its step and time.
          is_last: whether it is the last one of the run.
          text: the step and the loss, as text.
          rate: images per second of all cores, smoothed.
          rest: this rate and the time left, as text.
        """
        # The step decreases if the session was lost and restored from a checkpoint.
        self._images += max(0, done.step - self._step) * self._batch_size
        self._seconds += done.time - self._time
        ended_before, ended = (step * self._batch_size // self._epoch_images for step in (self._step, done.step))
        is_due = done.step // self._log_steps > self._step // self._log_steps or is_last
        self._step, self._time = done.step, done.time
        epoch, global_rate, replicas = ended_before + 1, self._images / self._seconds, self._replicas
        if is_due:
            own = f'Rate {rate / replicas:,.1f}, ' if rate is not None else ''
            rates = f'{own}GlobalRate {global_rate / replicas:,.1f} images/s per core'
            logger.info('device %s, epoch %d, %s, %s%s', self._device, epoch, text, rates, rest)
        if ended > ended_before:
            name = f'epoch {epoch}' if ended == epoch else f'epochs {epoch} to {ended}'
            logger.info(
                '%s: time %.1f s, %s images (%s per replica), GlobalRate %s images/s over %s together',
                *(name, self._seconds, f'{self._images:,}', f'{self._images // replicas:,}'),
                *(f'{global_rate:,.1f}', counted(replicas, 'replica')),
            )
            self._images, self._seconds = 0, 0.0


class TrainingProgress(Watcher):
    """Shows step, loss, images/s and the time left.

    Without a terminal, each cycle logs at least two such lines: the first one with the time left, and the last one.

    Args:
      screen: the screen to show them on.
      throughput: counts the images and seconds of the steps.
      train_steps: the number of steps of the whole run.
      batch_size: images per step, over all cores.
      step_lines: logs the lines of `--log_steps`, in place of the screen; None for none.
      steps_per_eval: steps between evaluations; 0 for a run that is not evaluated.
      exports: whether the run ends with an export.
    """

    def __init__(
        self,
        screen: Screen,
        throughput: Throughput,
        train_steps: int,
        batch_size: int,
        step_lines: Optional[StepLines] = None,
        steps_per_eval: int = 0,
        exports: bool = False,
    ):
        self._steps_per_eval = steps_per_eval
        self._exports = exports
        self._screen = screen
        self._throughput = throughput
        self._train_steps = train_steps
        self._batch_size = batch_size
        self._step_lines = step_lines
        self._last: Optional[Step] = None
        self._rate: Optional[float] = None
        self._has_shown_left = False

    def graph_built(self) -> None:
        """Shows that training is being prepared: creating the session takes seconds."""
        self._screen.wait(f'preparing to train, {self._train_steps} steps in all')

    def session_began(self, session: Any, begin: int, now: float) -> None:
        """Starts the clock of the step lines."""
        if self._step_lines:
            self._step_lines.begin(now)

    def step_done(self, session: Any, done: Step) -> None:
        """Measures the speed and shows the status."""
        if self._last is None:
            self._throughput.cycle_began(done.time)
        if self._last and done.step > self._last.step:
            images, seconds = (done.step - self._last.step) * self._batch_size, done.time - self._last.time
            self._throughput.images += images
            self._throughput.seconds += seconds
            latest = images / seconds
            self._rate = latest if self._rate is None else (1 - _NEWEST) * self._rate + _NEWEST * latest
        self._last = done
        left = None
        if self._rate:
            left = (self._train_steps - done.step) * self._batch_size / self._rate
            evaluated, per_eval = done.step - 1, self._steps_per_eval
            pauses = -(-self._train_steps // per_eval) - evaluated // per_eval if per_eval else 0
            left += self._throughput.seconds_of_pauses(pauses, self._exports)
        text = f'step {done.step} of {self._train_steps}, loss {done.loss:.4f}'
        rest = '' if self._rate is None else f', {self._rate:,.1f} images/s'
        rest += '' if left is None else f', {duration(left)} left'
        if self._step_lines:
            self._screen.clear()
            self._step_lines.visit(done, done.step == self._train_steps, text, self._rate, rest)
        else:
            self._screen.update(text + rest, at_once=left is not None and not self._has_shown_left)
            self._has_shown_left = left is not None

    def session_ended(self) -> None:
        """Logs the last status if it has not been logged, and removes the live line."""
        self._screen.catch_up()
        self._screen.keep()
        if self._last:
            self._throughput.cycle_ended(self._last.time)


class EvaluationProgress(tf.estimator.SessionRunHook):
    """Shows the number of evaluated batches, of as many as are expected."""

    def __init__(self, screen: Screen, batches: int):
        self._screen = screen
        self._batches = batches
        self._done = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the batch and shows the number."""
        self._done += 1
        self._screen.update(f'evaluating: batch {self._done} of {self._batches}')

    def end(self, session: Any) -> None:
        """Removes the live line."""
        self._screen.clear()
