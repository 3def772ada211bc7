"""Tests of the summaries for TensorBoard: their steps, values and folders, without a whole run."""

import dataclasses
import glob
import os
from typing import Any, Dict, List

import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.run.evaluations import append_evaluation
from inception_v3.run.hooks.summaries import EvaluationSummaries, TrainingSummaries
from inception_v3.run.hooks.watchers import Step
from tests.support.evaluations import EVALUATION


@pytest.fixture
def config(tmp_path: Any) -> Config:
    """A run with 50 steps per epoch, a decay of the learning rate after each epoch, and a summary every 4 steps."""
    return Config(
        use_tpu=False,
        model_dir=str(tmp_path / 'model'),
        train_batch_size=64,
        num_train_images=3200,
        learning_rate_decay_epochs=1,
        save_summary_steps=4,
    )


def shown(folder: Any) -> Dict[str, Dict[int, float]]:
    """The curves in a folder's event files by tag and step, as TensorBoard reads them."""
    curves: Dict[str, Dict[int, float]] = {}
    for path in sorted(glob.glob(os.path.join(str(folder), 'events.*'))):
        for event in tf.train.summary_iterator(path):
            if event.session_log.status == tf.SessionLog.START:
                curves = {tag: {s: v for s, v in curve.items() if s < event.step} for tag, curve in curves.items()}
            for value in event.summary.value:
                assert event.step not in curves.setdefault(value.tag, {})
                curves[value.tag][event.step] = value.simple_value
    return curves


def make_older(folder: str) -> None:
    """Renames the event files in a folder as if an earlier command had written them.

    File names contain the time in whole seconds, and a test may write two files within one second.
    """
    for path in glob.glob(os.path.join(folder, 'events.*')):
        os.rename(path, path.replace('tfevents.', 'tfevents.0'))


def train(watcher: TrainingSummaries, begin: int, loops: List[int]) -> None:
    """Runs a session from step `begin`, with one call per loop of steps. A step takes 0.1 s; its loss is its number."""
    step, now = begin, 1000.0
    watcher.graph_built()
    watcher.session_began(None, begin, now)
    for loop in loops:
        step, now = step + loop, now + 0.1 * loop
        watcher.step_done(None, Step(step, step - 1, now))
    watcher.flush()


def test_training_summaries__number_a_point_by_the_steps_done_before_it(config: Config) -> None:
    train(TrainingSummaries(config, ()), 0, [1] * 60)
    curves = shown(config.model_dir)
    at = [*range(0, 60, 4)]
    assert curves['loss'] == {step: step for step in at}
    assert curves['epoch'] == {step: pytest.approx(step / 50) for step in at}
    assert curves['learning_rate'] == {step: pytest.approx(learning_rate(step, config)) for step in at}
    assert curves['learning_rate'][48] > curves['learning_rate'][52]
    # Ten steps per second, of 64 images each; the first step has no earlier time to measure from.
    assert curves['images_per_second'] == {step: pytest.approx(640, rel=1e-4) for step in at[1:]}


def test_training_summaries__of_a_local_folder_can_be_read_at_once(config: Config) -> None:
    watcher = TrainingSummaries(config, ())
    watcher.graph_built()
    watcher.session_began(None, 0, 1000.0)
    watcher.step_done(None, Step(1, 0.5, 1000.1))
    assert shown(config.model_dir)['loss'] == {0: 0.5}


def test_training_summaries__write_a_point_at_the_end_of_a_tpu_loop(config: Config) -> None:
    train(TrainingSummaries(config, ()), 0, [3, 3, 3, 1, 1, 9, 2])
    # The loops end with steps 2, 5, 8, 9, 10, 19 and 21. The loops that end with 9 and 10 contain no multiple of 4.
    assert [*shown(config.model_dir)['loss']] == [2, 5, 8, 19, 21]


def test_training_summaries__void_points_beyond_the_restored_checkpoint(config: Config) -> None:
    watcher = TrainingSummaries(config, ())
    train(watcher, 0, [1] * 12)
    # The second cycle, after an evaluation: its first step has no earlier time to measure from.
    train(watcher, 12, [1] * 10)
    assert [*shown(config.model_dir)['images_per_second']] == [4, 8, 16, 20]
    other = dataclasses.replace(config, learning_rate=1.0)
    train(TrainingSummaries(other, ()), 14, [1] * 4)
    rates = shown(config.model_dir)['learning_rate']
    assert [*rates] == [0, 4, 8, 12, 16]
    assert rates[12] == pytest.approx(learning_rate(12, config))
    assert rates[16] == pytest.approx(learning_rate(16, other))


def test_training_summaries__write_only_the_speed_beside_a_host_call(config: Config) -> None:
    with_host_call = dataclasses.replace(config, skip_host_call=False)
    train(TrainingSummaries(with_host_call, ()), 0, [1] * 9)
    make_older(f'{config.model_dir}/host')
    train(TrainingSummaries(with_host_call, ()), 6, [1] * 9)
    assert shown(config.model_dir) == {}
    assert {tag: [*curve] for tag, curve in shown(f'{config.model_dir}/host').items()} == {
        'images_per_second': [4, 8, 12]
    }


def test_evaluation_summaries__keep_the_last_values_of_a_step(config: Config) -> None:
    def evaluate(writer: EvaluationSummaries, step: int, top_1: float) -> None:
        evaluation = EVALUATION._replace(step=step, top_1=top_1)
        append_evaluation(str(config.model_dir), evaluation)
        writer.write(evaluation)

    tf.io.gfile.makedirs(str(config.model_dir))
    writer = EvaluationSummaries(config, ())
    for step, top_1 in ((100, 0.1), (200, 0.2), (300, 0.3), (200, 0.4)):
        evaluate(writer, step, top_1)
    assert shown(f'{config.model_dir}/eval')['top_1'] == pytest.approx({100: 0.1, 200: 0.4, 300: 0.3})
    make_older(f'{config.model_dir}/eval')
    writer = EvaluationSummaries(config, ())
    evaluate(writer, 300, 0.5)
    evaluate(writer, 400, 0.6)
    curves = shown(f'{config.model_dir}/eval')
    assert curves['top_1'] == pytest.approx({100: 0.1, 200: 0.4, 300: 0.5, 400: 0.6})
    assert curves.keys() == {'top_1', 'top_5', 'cross_entropy'}
    assert curves['cross_entropy'][400] == pytest.approx(EVALUATION.cross_entropy)
    # The points have the time of their evaluation, 2020-01-01T00:00 in UTC.
    paths = glob.glob(f'{config.model_dir}/eval/events.*')
    events = [event for path in paths for event in tf.train.summary_iterator(path)]
    assert {event.wall_time for event in events if event.summary.value} == {1577836800.0}
