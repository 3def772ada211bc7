"""Tests of the estimator that keeps its graphs: it equals TPUEstimator, with fewer graphs."""

import collections
import dataclasses
from typing import Any, Counter, Dict, List, Tuple
from unittest import mock

import pytest

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.client import session as session_module

from inception_v3 import estimator as estimator_module
from inception_v3.local_estimator import LocalEstimator
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.evaluations import read_evaluations
from inception_v3.run.hooks.saving import CheckpointHook
from inception_v3.run.hooks.watchers import StepHook
from tests.cycles.test_training import read_events
from tests.support.checkpoints import saved_variables
from tests.support.runs import execute, make_small_config
from tests.test_repeatability import differing


def checkpoints_of(model_dir: str) -> Dict[str, Any]:
    paths = tf.train.get_checkpoint_state(model_dir).all_model_checkpoint_paths
    return {f'{path.rpartition("-")[2]} {name}': v for path in paths for name, v in saved_variables(path).items()}


def evaluations_of(model_dir: str) -> List[Any]:
    return [evaluation._replace(seconds=0, time='') for evaluation in read_evaluations(model_dir)]


@pytest.mark.both
@pytest.mark.program
def test_run__equals_that_of_tpu_estimator_with_a_graph_for_each_cycle(
    digits_dir: str, tmp_path: Any, monkeypatch: Any, one_layer: None
) -> None:
    config = make_small_config(
        digits_dir,
        learning_rate=0.3,
        moving_average_decay=0.5,
        train_steps=5,
        train_steps_per_eval=2,
        eval_batch_size=120,
        skip_host_call=False,
        save_summary_steps=1,
        seed=1,
        intra_op_threads=1,
    )
    kept, rebuilt = (dataclasses.replace(config, model_dir=str(tmp_path / name)) for name in ('kept', 'rebuilt'))
    graphs: Counter[Tuple[str, str]] = collections.Counter()

    def model_fn(features: Any, labels: Any, mode: str, params: Dict[str, Any]) -> Any:
        graphs[params['config'].model_dir, mode] += 1
        return inception_model_fn(features, labels, mode, params)

    monkeypatch.setattr(estimator_module, 'inception_model_fn', model_fn)
    execute(kept)
    plain = lambda strategy, **arguments: tf.estimator.tpu.TPUEstimator(**arguments)  # noqa: E731
    monkeypatch.setattr(estimator_module, 'LocalEstimator', plain)
    execute(rebuilt)
    one, other = str(kept.model_dir), str(rebuilt.model_dir)
    assert graphs == {(one, 'train'): 1, (one, 'eval'): 1, (other, 'train'): 3, (other, 'eval'): 3}
    values = checkpoints_of(one)
    assert {name.split()[0] for name in values} == {'0', '2', '4', '5'}
    assert not differing(values, checkpoints_of(other))
    # The kept graph of evaluation is optimized, so the last digits of its sums may differ.
    both = [[e._replace(cross_entropy=round(e.cross_entropy, 5)) for e in evaluations_of(run)] for run in (one, other)]
    assert both[0] == both[1]
    assert [evaluation.step for evaluation in evaluations_of(one)] == [2, 4, 5]
    for tag, points in read_events(one).items():
        if tag != 'images_per_second' and 'cross_entropy' not in tag:
            assert points == read_events(other)[tag], tag


def counting_model(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> tf.estimator.tpu.TPUEstimatorSpec:
    """A model whose variable sums the training examples, and whose metric adds this sum to the evaluated examples."""
    total = tf.get_variable('total', [], tf.float32, tf.zeros_initializer(), use_resource=True)
    value = tf.reduce_sum(features)
    if mode == tf.estimator.ModeKeys.TRAIN:
        with tf.control_dependencies([total.assign_add(value)]):
            train_op = tf.train.get_global_step().assign_add(1)
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=tf.identity(value), train_op=tf.group(train_op))

    def metrics(values: tf.Tensor) -> Dict[str, Any]:
        return {'sum': tf.metrics.mean(values + total)}

    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=value, eval_metrics=(metrics, [features]))


def train(estimator: LocalEstimator, until: int, *hooks: Any) -> List[float]:
    """Trains to a step, and saves a checkpoint as a run does; returns the losses."""
    watcher = mock.Mock()
    saving = CheckpointHook(estimator.model_dir, 0, 1)
    estimator.train(examples, hooks=[StepHook([watcher]), saving, *hooks], max_steps=until)
    return [call[0][1].loss for call in watcher.step_done.call_args_list]


def examples(params: Any) -> tf.data.Dataset:
    return tf.data.Dataset.range(1, 100).map(lambda x: tf.cast(x, tf.float32)).batch(params['batch_size'], True)


def few_examples(params: Any) -> tf.data.Dataset:
    return examples(params).take(2)


@pytest.fixture
def is_off() -> bool:
    """Whether the sessions of a run leave graphs as they are."""
    return False


@pytest.fixture
def estimator(is_off: bool, tmp_path: Any) -> LocalEstimator:
    session_config = tf.ConfigProto()
    session_config.graph_options.rewrite_options.disable_meta_optimizer = is_off
    config = tf.estimator.tpu.RunConfig(
        model_dir=str(tmp_path), save_checkpoints_secs=None, save_summary_steps=0, session_config=session_config
    )
    return LocalEstimator(
        model_fn=counting_model, config=config, use_tpu=False, train_batch_size=1, eval_batch_size=1, params={}
    )


def test_train__continues_with_its_input_and_its_weights(estimator: LocalEstimator, tmp_path: Any) -> None:
    assert [train(estimator, until) for until in (3, 5)] == [[1, 2, 3], [4, 5]]
    assert tf.train.load_variable(str(tmp_path / 'model.ckpt-5'), 'total') == 15


def test_evaluate__restores_the_given_checkpoint_and_begins_its_sums_again(
    estimator: LocalEstimator, tmp_path: Any
) -> None:
    for until in (1, 3):
        train(estimator, until)
    found = [
        estimator.evaluate(few_examples, checkpoint_path=str(tmp_path / f'model.ckpt-{step}')) for step in (3, 1, 3)
    ]
    # The mean of 1 and 2, plus 1 + 2 + 3 or 1.
    assert [(values['global_step'], values['sum']) for values in found] == [(3, 7.5), (1, 2.5), (3, 7.5)]


def test_evaluate__continues_after_a_checkpoint_was_removed(estimator: LocalEstimator, tmp_path: Any) -> None:
    train(estimator, 1)
    found = []
    # The first evaluation builds the graph, and creates no session.
    for step in (9, 1, 9, 1):
        try:
            values = estimator.evaluate(few_examples, checkpoint_path=str(tmp_path / f'model.ckpt-{step}'))
            found.append(values['sum'])
        except (ValueError, tf.errors.NotFoundError):
            found.append(None)
    assert found == [None, 2.5, None, 2.5]


@pytest.mark.parametrize('is_off', [True, False])
def test_graphs__of_evaluation_are_always_optimized(
    is_off: bool, estimator: LocalEstimator, tmp_path: Any, monkeypatch: Any
) -> None:
    optimized = []
    first = session_module.BaseSession.__init__

    def begin(session: Any, target: str = '', graph: Any = None, config: Any = None) -> None:
        optimized.append(not config.graph_options.rewrite_options.disable_meta_optimizer)
        first(session, target, graph, config)

    monkeypatch.setattr(session_module.BaseSession, '__init__', begin)
    train(estimator, 1)
    estimator.evaluate(few_examples, checkpoint_path=str(tmp_path / 'model.ckpt-1'))
    assert optimized == [not is_off, True]


def test_export__closes_the_sessions(estimator: LocalEstimator, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(tf.estimator.tpu.TPUEstimator, 'export_saved_model', lambda self: b'')

    class Keep(tf.estimator.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            sessions.append(session)

    sessions: List[tf.Session] = []
    train(estimator, 1, Keep())
    estimator.evaluate(few_examples, hooks=[Keep()], checkpoint_path=str(tmp_path / 'model.ckpt-1'))
    assert [session.run(tf.train.get_global_step(session.graph)) for session in sessions] == [1, 1]
    estimator.export_saved_model()
    for session in sessions:
        with pytest.raises(RuntimeError, match='closed'):
            session.run(tf.train.get_global_step(session.graph))
    # A new graph restores the newest checkpoint.
    assert train(estimator, 2) == [1]
