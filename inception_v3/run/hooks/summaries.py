"""TensorBoard summaries of a run: the curves of training and of evaluation, and images."""

import contextlib
import datetime
import os
import types
from typing import Dict, Iterator, List, Optional, Sequence

from compat import tf
from data import remote
from inception_v3 import replicas
from inception_v3.config import Config
from inception_v3.host_call import DESCRIPTIONS, EPOCH, LEARNING_RATE, LOSS
from inception_v3.learning_rate import learning_rate
from inception_v3.run.evaluations import Evaluation, read_evaluations
from inception_v3.run.hooks.watchers import Step, Watcher

# Below model_dir. TensorBoard follows one growing file in each folder.
EVALUATION_FOLDER = 'eval'
HOST_FOLDER = 'host'

IMAGES_PER_SECOND = 'images_per_second'

_DESCRIPTIONS = {
    **DESCRIPTIONS,
    IMAGES_PER_SECOND: 'Training images per second, of all cores together, since the previous point.',
    'top_1': 'Fraction of the validation images whose label is the most likely class.',
    'top_5': 'Fraction of the validation images whose label is among the five most likely classes.',
    'cross_entropy': 'Mean over the validation images, in nats, without label smoothing.',
}

_START = tf.SessionLog(status=tf.SessionLog.START)


class TrainingSummaries(Watcher):
    """Writes training's curves: a point every `save_summary_steps` steps, on a TPU at the end of that step's loop.

    A point at step i shows the loss of the weights after i steps, so it is at the same step as an evaluation of these
    weights. TensorBoard discards points that an earlier command wrote beyond the restored checkpoint.

    With a host call, the TPU writes everything but the speed, and the speed goes into the folder `HOST_FOLDER`.
    """

    def __init__(self, config: Config, class_names: Sequence[str]):
        self._config = config
        self._class_names = class_names
        self._images: Optional[tf.Summary] = None
        # The writer that TensorFlow adds the graph to and, with a host call, the writer of the host's own folder.
        self._writers: List[tf.summary.FileWriter] = []
        self._last_step = -1
        self._measured_from: Optional[Step] = None

    def draw_images(self, step: int) -> None:
        """Draws the images that the next session writes when it begins, at `step`."""
        from inception_v3.run.hooks import image_summaries

        self._images = image_summaries.draw(self._config, True, self._class_names, step)

    def graph_built(self) -> None:
        """Opens the event files, unless an earlier cycle has."""
        if self._writers:
            return
        model_dir = str(self._config.model_dir)
        # The graph of several replicas is too large to be shown.
        with tf.Graph().as_default() if replicas.are_several() else contextlib.nullcontext():
            self._writers.append(tf.summary.FileWriterCache.get(model_dir))
        if not self._config.skip_host_call:
            self._writers.append(tf.summary.FileWriter(os.path.join(model_dir, HOST_FOLDER)))

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Marks the step at which the session begins, and writes the images."""
        for writer in self._writers:
            writer.add_session_log(_START, begin)
        if self._images:
            self._writers[0].add_summary(self._images, begin)
            self._images = None
        self._last_step = begin - 1
        self._measured_from = None
        self.flush()

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Writes a point, if one is due."""
        config, step = self._config, done.step - 1
        # As in the host call: a point at each multiple of save_summary_steps, or at the end of the loop that contains
        # one.
        is_due = step // config.save_summary_steps > self._last_step // config.save_summary_steps
        self._last_step = step
        if is_due:
            self._write_point(step, done)
        # The first step does not count: it builds the graph's kernels and fills the input pipeline.
        if is_due or not self._measured_from:
            self._measured_from = done

    def _write_point(self, step: int, done: Step) -> None:
        config, values = self._config, {}
        if config.skip_host_call:
            values = {
                LOSS: done.loss,
                LEARNING_RATE: learning_rate(step, config),
                EPOCH: step * config.train_batch_size / config.num_train_images,
            }
        if self._measured_from:
            images = (done.step - self._measured_from.step) * config.train_batch_size
            values[IMAGES_PER_SECOND] = images / (done.time - self._measured_from.time)
        if values:
            self._writers[-1].add_summary(_scalars(values), step)
        if not remote.is_remote(str(config.model_dir)):
            self.flush()

    def flush(self) -> None:
        """Writes the buffered points. Remote files are rewritten whole, so there TensorFlow buffers for two minutes."""
        for writer in self._writers:
            writer.flush()


class EvaluationSummaries:
    """Writes the curves of the evaluations: the last evaluation of each step in `results.jsonl`.

    If an earlier command may have written the same step, TensorBoard discards the points from that step on, and they
    are written again, so that no point appears twice.
    """

    def __init__(self, config: Config, class_names: Sequence[str]):
        self._config = config
        self._class_names = class_names
        self._writer: Optional[tf.summary.FileWriter] = None
        self._last_step = -1

    def write(self, evaluation: Evaluation) -> None:
        """Writes an evaluation that `results.jsonl` already has."""
        model_dir, step = str(self._config.model_dir), evaluation.step
        evaluations = [evaluation]
        is_first = not self._writer
        if not self._writer:
            self._writer = tf.summary.FileWriter(os.path.join(model_dir, EVALUATION_FOLDER))
        if is_first or step <= self._last_step:
            self._writer.add_session_log(_START, step)
            from_here = {recorded.step: recorded for recorded in read_evaluations(model_dir) if recorded.step >= step}
            evaluations = [from_here[recorded] for recorded in sorted(from_here)]
            if self._config.image_summaries:
                from inception_v3.run.hooks import image_summaries

                images = image_summaries.draw(self._config, False, self._class_names, step)
                self._writer.add_summary(images, step)
        for each in evaluations:
            values = {'top_1': each.top_1, 'top_5': each.top_5, 'cross_entropy': each.cross_entropy}
            ended = datetime.datetime.fromisoformat(each.time).timestamp()
            self._writer.add_event(tf.Event(wall_time=ended, step=each.step, summary=_scalars(values)))
        self._last_step = max(each.step for each in evaluations)
        self._writer.flush()


def _scalars(values: Dict[str, float]) -> tf.Summary:
    summary = tf.Summary()
    for tag, number in values.items():
        summary.value.add(tag=tag, simple_value=number).metadata.summary_description = _DESCRIPTIONS[tag]
    return summary


@contextlib.contextmanager
def unwritten_by_estimator() -> Iterator[None]:
    """Discards the summary that Estimator writes of an evaluation: its mean loss would count padded examples."""
    cache = tf.summary.FileWriterCache
    silent = types.SimpleNamespace(add_summary=lambda *unused: None, flush=lambda: None)
    get, cache.get = cache.get, staticmethod(lambda logdir: silent)
    try:
        yield
    finally:
        cache.get = staticmethod(get)
