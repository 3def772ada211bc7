"""What TensorBoard shows of a run: the curves of training and of evaluation, and images."""

import contextlib
import datetime
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from unittest import mock

import tensorflow as tf

from data import remote
from inception_v3.config import Config
from inception_v3.hooks import image_summaries
from inception_v3.learning_rate import learning_rate
from inception_v3.model_dir.evaluations import Evaluation, read_evaluations

# Below model_dir. TensorBoard follows one growing file in each folder.
EVALUATION_FOLDER = 'eval'
HOST_FOLDER = 'host'

LOSS = 'loss'
LEARNING_RATE = 'learning_rate'
EPOCH = 'epoch'
IMAGES_PER_SECOND = 'images_per_second'

DESCRIPTIONS = {
    LOSS: (
        'Training loss of a step, in nats: cross-entropy with smoothed labels, the auxiliary head and weight decay '
        'included. Written by the host of a TPU, it is that of the first core; by the TPU, the mean over all cores.'
    ),
    LEARNING_RATE: 'Learning rate of a step, of the whole batch.',
    EPOCH: 'Passes over the training images, before a step.',
    IMAGES_PER_SECOND: 'Training images per second, of all cores together, since the point before.',
    'top_1': 'Fraction of the validation images whose label is the likeliest class.',
    'top_5': 'Fraction of the validation images whose label is among the five likeliest classes.',
    'cross_entropy': 'Mean over the validation images, in nats, without label smoothing.',
}

_START = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)


class TrainingSummaries(tf.estimator.SessionRunHook):
    """Writes training's curves, a point every `save_summary_steps` steps; on a TPU, when its host is visited next.

    A point stands at the number of steps done before the step that it is of, where an evaluation of the same weights
    stands. What an earlier command has written beyond the checkpoint that a session begins with is declared void.

    A host call, if there is one, writes all but the speed, from the device; that goes into a folder of its own then.

    Args:
      config: of the run.
      class_names: by label, for the images.
    """

    def __init__(self, config: Config, class_names: Sequence[str]):
        self._config = config
        self._class_names = class_names
        self._images: Optional[tf.compat.v1.Summary] = None
        # What TensorFlow gives the graph to, and with a host call that of the host's own folder.
        self._writers: List[tf.compat.v1.summary.FileWriter] = []
        self._last_step = -1
        # The steps done, and the time, from which the speed is measured.
        self._measured_from: Optional[Tuple[int, float]] = None

    def draw_images(self, step: int) -> None:
        """Draws the images that the next session is to write when it begins, after so many steps."""
        self._images = image_summaries.draw(self._config, True, self._class_names, step)

    def begin(self) -> None:
        """Finds the step and the loss, which Estimator puts last into the collection LOSSES, and opens the files."""
        self._step = tf.compat.v1.train.get_global_step()
        self._loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]
        if self._writers:
            return
        model_dir = str(self._config.model_dir)
        self._writers.append(tf.compat.v1.summary.FileWriterCache.get(model_dir))
        if not self._config.skip_host_call:
            self._writers.append(tf.compat.v1.summary.FileWriter(os.path.join(model_dir, HOST_FOLDER)))

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Marks where the session begins, and writes the images."""
        step = int(session.run(self._step))
        for writer in self._writers:
            writer.add_session_log(_START, step)
        if self._images:
            self._writers[0].add_summary(self._images, step)
            self._images = None
        self._last_step = step - 1
        self._measured_from = None
        self.flush()

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        """Asks for the loss."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes a point, if one is due."""
        now, config = time.monotonic(), self._config
        steps = int(run_context.session.run(self._step))
        step = steps - 1
        # As the host call, at the multiples of save_summary_steps, or at the end of the loop that has one.
        is_due = step // config.save_summary_steps > self._last_step // config.save_summary_steps
        self._last_step = step
        if is_due:
            values = {}
            if config.skip_host_call:
                values = {
                    LOSS: float(run_values.results),
                    LEARNING_RATE: learning_rate(step, config),
                    EPOCH: step * config.train_batch_size / config.num_train_images,
                }
            if self._measured_from:
                steps_before, begun = self._measured_from
                values[IMAGES_PER_SECOND] = (steps - steps_before) * config.train_batch_size / (now - begun)
            if values:
                self._writers[-1].add_summary(_scalars(values), step)
            if not remote.is_remote(str(config.model_dir)):
                self.flush()
        # The first step is left out: it builds the graph's kernels and fills the input pipeline.
        if is_due or not self._measured_from:
            self._measured_from = steps, now

    def flush(self) -> None:
        """Writes what waits to be written. A remote file is written anew then, so there it waits for two minutes."""
        for writer in self._writers:
            writer.flush()


class EvaluationSummaries:
    """Writes the curves of the evaluations: the last one of each step, as `results.jsonl` has them.

    Where an earlier command may have evaluated the same step, what is there from that step on is declared void, and
    written anew, so that nothing is there twice.

    Args:
      config: of the run.
      class_names: by label, for the images.
    """

    def __init__(self, config: Config, class_names: Sequence[str]):
        self._config = config
        self._class_names = class_names
        self._writer: Optional[tf.compat.v1.summary.FileWriter] = None
        self._last_step = -1

    def write(self, evaluation: Evaluation) -> None:
        """Writes an evaluation that has been recorded."""
        model_dir, step = str(self._config.model_dir), evaluation.step
        evaluations = [evaluation]
        is_first = not self._writer
        if not self._writer:
            self._writer = tf.compat.v1.summary.FileWriter(os.path.join(model_dir, EVALUATION_FOLDER))
        if is_first or step <= self._last_step:
            self._writer.add_session_log(_START, step)
            from_here = {recorded.step: recorded for recorded in read_evaluations(model_dir) if recorded.step >= step}
            evaluations = [from_here[recorded] for recorded in sorted(from_here)]
            if self._config.image_summaries:
                images = image_summaries.draw(self._config, False, self._class_names, step)
                self._writer.add_summary(images, step)
        for each in evaluations:
            values = {'top_1': each.top_1, 'top_5': each.top_5, 'cross_entropy': each.cross_entropy}
            self._writer.add_event(
                tf.compat.v1.Event(wall_time=_seconds(each.time), step=each.step, summary=_scalars(values))
            )
        self._last_step = max(each.step for each in evaluations)
        self._writer.flush()


def _scalars(values: Dict[str, float]) -> tf.compat.v1.Summary:
    summary = tf.compat.v1.Summary()
    for tag, number in values.items():
        summary.value.add(tag=tag, simple_value=number).metadata.summary_description = DESCRIPTIONS[tag]
    return summary


def _seconds(moment: str) -> float:
    """A time in ISO 8601 as seconds since 1970; now, if it is none."""
    try:
        return datetime.datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return time.time()


@contextlib.contextmanager
def unwritten_by_estimator() -> Iterator[None]:
    """Keeps Estimator from writing an evaluation, with a mean loss that counts padding, and twice if it is repeated."""
    with mock.patch.object(tf.compat.v1.summary.FileWriterCache, 'get'):
        yield
