"""What a user sees while a run goes on: one live line on a terminal, plain lines elsewhere."""

import re
import time
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from console.screen import Screen, duration, logger

# What the newest images per second count among all that are averaged.
_NEWEST = 0.05


class Throughput:
    """Images per second of the training steps of a command, over as many cycles as it has.

    Each cycle's first step is left out: it builds the graph's kernels and fills the input pipeline.
    """

    def __init__(self) -> None:
        self.images = 0
        self.seconds = 0.0

    @property
    def images_per_second(self) -> Optional[float]:
        """None before there is anything to measure."""
        return self.images / self.seconds if self.seconds else None


class Status(NamedTuple):
    """How far training has come, as a line tells it.

    Attributes:
      step: the steps done.
      steps: of the whole run.
      loss: of the last step.
      images_per_second: None before it is known.
      seconds_left: None before it is known.
      device: on which that was the loss; None in the lines that do not tell it.
      epoch: that went on until then, from 1 on; None in the same lines.
      global_rate: images per second since the epoch began, as `StepLines` counts them; None in the same lines.
    """

    step: int
    steps: int
    loss: float
    images_per_second: Optional[float]
    seconds_left: Optional[float]
    device: Optional[str] = None
    epoch: Optional[int] = None
    global_rate: Optional[float] = None

    def __str__(self) -> str:
        text = f'step {self.step} of {self.steps}, loss {self.loss:.4f}'
        rate = '' if self.images_per_second is None else f'{self.images_per_second:,.1f}'
        left = '' if self.seconds_left is None else f', {duration(self.seconds_left)} left'
        if self.device is None:
            return f'{text}, {rate} images/s{left}' if rate else text
        rates = f'Rate {rate}, ' * bool(rate) + f'GlobalRate {self.global_rate:,.1f} images/s'
        return f'device {self.device}, epoch {self.epoch}, {text}, {rates}{left}'

    @classmethod
    def parse(cls, line: str) -> Optional['Status']:
        """The status that a line ends with, whatever is before it; None if it ends with none."""
        match = _STATUS.search(line)
        if not match:
            return None
        rate, left, epoch, global_rate = match.group('rate', 'left', 'epoch', 'global_rate')
        return cls(
            step=int(match['step']),
            steps=int(match['steps']),
            loss=float(match['loss']),
            images_per_second=_number(rate) if rate else None,
            seconds_left=_seconds_of(left) if left else None,
            device=match['device'],
            epoch=int(epoch) if epoch else None,
            global_rate=_number(global_rate) if global_rate else None,
        )


_STATUS = re.compile(
    r'(?:\bdevice (?P<device>\S+), epoch (?P<epoch>\d+), )?\bstep (?P<step>\d+) of (?P<steps>\d+), loss (?P<loss>\S+?)'
    r'(?:(?:, (?:Rate )?(?P<rate>[\d,.]+))?(?:, GlobalRate (?P<global_rate>[\d,.]+))? images/s)?'
    r'(?:, (?P<left>[\d:]+) left)?$'
)


def _number(text: str) -> float:
    return float(text.replace(',', ''))


class StepLines:
    """A line for each visit of the host to the training, and one for each epoch: what `--step_lines` shows.

    On a CPU the host visits after each step, on a TPU after each loop of `--iterations`. Both rates are of all cores
    together:

    - Rate is the smoothed one, `Status.images_per_second`, in which each visit counts a twentieth, and those before it
      the rest. It begins anew with each cycle of training, whose first visit does not count.
    - GlobalRate is the images since the epoch began, or this command did in the midst of it, divided by the seconds of
      training since then. What lies between two cycles, the evaluation, is not among them; a cycle's first step is,
      in which kernels are built and the input pipeline is filled, and which `Throughput` leaves out.

    An epoch ends with the visit in which its last image was used, or that came after it.

    Args:
      device: on which the loss is that of the lines.
      replicas: cores that share a batch.
      batch_size: images per step, over all cores.
      epoch_images: images in an epoch.
      step: the steps done before this command.
    """

    def __init__(self, device: str, replicas: int, batch_size: int, epoch_images: int, step: int):
        self._device = device
        self._replicas = replicas
        self._batch_size = batch_size
        self._epoch_images = epoch_images
        self._step = step
        self._images = 0
        self._seconds = self._time = 0.0

    def begin(self, now: float) -> None:
        """A cycle of training begins, at a time in seconds."""
        self._time = now

    def visit(self, status: Status, now: float) -> None:
        """Tells of a visit at a time in seconds."""
        # It has fallen back, if the session was lost and made anew.
        self._images += max(0, status.step - self._step) * self._batch_size
        self._seconds += now - self._time
        ended_before, ended = (step * self._batch_size // self._epoch_images for step in (self._step, status.step))
        self._step, self._time = status.step, now
        epoch, global_rate = ended_before + 1, self._images / self._seconds
        logger.info(str(status._replace(device=self._device, epoch=epoch, global_rate=global_rate)))
        if ended > ended_before:
            name = f'epoch {epoch}' if ended == epoch else f'epochs {epoch} to {ended}'
            logger.info(
                '%s: time %.1f s, %s images, GlobalRate %s images/s, over %d replica%s together',
                *(name, self._seconds, f'{self._images:,}', f'{global_rate:,.1f}'),
                *(self._replicas, '' if self._replicas == 1 else 's'),
            )
            self._images, self._seconds = 0, 0.0


class TrainingProgress(tf.estimator.SessionRunHook):
    """Shows step, loss, images/s and the time left.

    However short a cycle is, its log has two lines of that: the first that knows the time left, and the last.

    Args:
      screen: where to.
      throughput: is told of each step.
      train_steps: the steps of the whole run.
      batch_size: images per step.
      step_lines: what shows each visit, in place of the screen; None if nothing does.
    """

    def __init__(
        self,
        screen: Screen,
        throughput: Throughput,
        train_steps: int,
        batch_size: int,
        step_lines: Optional[StepLines] = None,
    ):
        self._screen = screen
        self._throughput = throughput
        self._train_steps = train_steps
        self._batch_size = batch_size
        self._step_lines = step_lines
        self._last_step: Optional[int] = None
        self._last_time = 0.0
        self._rate: Optional[float] = None
        self._has_shown_left = False

    def begin(self) -> None:
        """Finds the step and the loss, which Estimator puts last into the collection LOSSES."""
        self._step = tf.compat.v1.train.get_global_step()
        self._loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]
        self._screen.update(f'preparing to train, {self._train_steps} steps in all')

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Lets time begin."""
        if self._step_lines:
            self._step_lines.begin(time.monotonic())

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        """Asks for the loss."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Measures and shows."""
        # Asked for along with the loss, it would be the one before or after, as it happens.
        step, loss = int(run_context.session.run(self._step)), float(run_values.results)
        now = time.monotonic()
        if self._last_step is not None and step > self._last_step:
            images, seconds = (step - self._last_step) * self._batch_size, now - self._last_time
            self._throughput.images += images
            self._throughput.seconds += seconds
            latest = images / seconds
            self._rate = latest if self._rate is None else (1 - _NEWEST) * self._rate + _NEWEST * latest
        self._last_step, self._last_time = step, now
        left = (self._train_steps - step) * self._batch_size / self._rate if self._rate else None
        status = Status(step, self._train_steps, loss, self._rate, left)
        if self._step_lines:
            self._screen.clear()
            self._step_lines.visit(status, now)
        else:
            self._screen.update(str(status), at_once=left is not None and not self._has_shown_left)
            self._has_shown_left = left is not None

    def end(self, session: Any) -> None:
        """Leaves the last status in a log, and takes the live line away."""
        self._screen.catch_up()
        self._screen.clear()


class EvaluationProgress(tf.estimator.SessionRunHook):
    """Shows how many batches of an evaluation are done.

    Args:
      screen: where to.
      batches: how many there are expected to be.
    """

    def __init__(self, screen: Screen, batches: int):
        self._screen = screen
        self._batches = batches
        self._done = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts and shows."""
        self._done += 1
        self._screen.update(f'evaluating: batch {self._done} of {self._batches}')

    def end(self, session: Any) -> None:
        """Takes the line away."""
        self._screen.clear()


def _seconds_of(text: str) -> int:
    """The number of seconds of which `duration` has made a text."""
    seconds = 0
    for part in text.split(':'):
        seconds = 60 * seconds + int(part)
    return seconds
