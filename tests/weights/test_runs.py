"""Tests of whole runs that begin from the weights of another run, with a network of one layer."""

import dataclasses
import shutil
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.starts import read_starts
from inception_v3.weights import sources
from inception_v3.weights.beginning import BeginHook
from inception_v3.weights.sources import AVERAGE
from tests.support.checkpoints import saved_variables
from tests.support.runs import FinishedRun, execute
from tests.support.tiers import further
from tools import trained_model
from tools.provenance import __main__ as provenance

IMAGES = np.random.RandomState(0).uniform(-1, 1, [4, 75, 75, 3]).astype(np.float32)


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Saves time: variables are treated alike in every network."""


def beginning(finished: FinishedRun, folder: Any, **changes: Any) -> Config:
    """Executes a run of one step, without evaluation, that begins from the finished run."""
    own = {'model_dir': str(folder), 'export_dir': None, 'mode': 'train', 'train_steps': 1, 'skip_host_call': True}
    values = {**own, 'seed': 2, 'init_from': finished.config.model_dir, **changes}
    config = dataclasses.replace(finished.config, **values)
    execute(config)
    return config


def outputs(model_dir: str, checkpoint: str, moving_average: bool = True) -> Dict[str, np.ndarray]:
    """The probabilities, and the inputs of the classifier, that a checkpoint computes."""
    found = trained_model.find(model_dir, checkpoint)
    model = found._replace(config=dataclasses.replace(found.config, moving_average=moving_average))
    with tf.Graph().as_default() as graph, tf.Session() as session:
        spec = inception_model_fn(tf.constant(IMAGES), None, tf.estimator.ModeKeys.PREDICT, {'config': model.config})
        features = [op.inputs[0] for op in graph.get_operations() if op.type == 'Conv2D' and 'Logits' in op.name]
        model.restore(session)
        return session.run({'probabilities': spec.predictions['probabilities'], 'features': features[0]})


@pytest.mark.parametrize(
    'device', [further({}), {'use_tpu': True, 'tpu': 'emulated:2', 'num_shards': 2}], ids=['cpu', 'cores']
)
def test_predictions__at_step_0_equal_the_sources_to_the_bit(
    device: Dict[str, Any], finished_run: FinishedRun, tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    config = beginning(finished_run, tmp_path / 'model', **device)
    # A name is one in the model_dir, even if the working folder has a checkpoint of that name.
    for path in (tmp_path / 'model').glob('model.ckpt-0.*'):
        shutil.copy(str(path), str(tmp_path / path.name.replace('-0.', '-5.')))
    monkeypatch.chdir(tmp_path)
    own = outputs(str(config.model_dir), 'model.ckpt-0')
    of_source = outputs(str(finished_run.config.model_dir), 'model.ckpt-5')
    np.testing.assert_array_equal(own['probabilities'], of_source['probabilities'])
    # The weights themselves, too, are the source's averages.
    raw = outputs(str(config.model_dir), 'model.ckpt-0', moving_average=False)
    np.testing.assert_array_equal(raw['probabilities'], of_source['probabilities'])
    start = read_starts(str(config.model_dir))[0]
    source = sources.read(str(finished_run.config.model_dir))
    expected = {'path': source.path, 'kind': 'checkpoint', 'step': 5, 'values': 'average', 'digest': source.digest}
    assert start.weights == expected
    provenance.main([str(config.model_dir)])
    assert f'{source.path}, step 5, average, digest {source.digest}' in capsys.readouterr().out
    table = (tmp_path / 'model' / 'init_from.tsv').read_text().splitlines()
    assert table[0].split('\t') == ['fate', 'name', 'source', 'reason']
    assert f'loaded\tLayer/weights\tLayer/weights{AVERAGE}\t' in table


def test_features__equal_the_sources_without_averages_and_with_other_classes(
    finished_run: FinishedRun, tmp_path: Any
) -> None:
    changes = {'moving_average': False, 'init_averages': False, 'num_classes': 13, 'moving_average_decay': 0}
    config = beginning(finished_run, tmp_path / 'model', **changes)
    own = outputs(str(config.model_dir), 'model.ckpt-0', moving_average=False)
    of_source = outputs(str(finished_run.config.model_dir), 'model.ckpt-5', moving_average=False)
    np.testing.assert_array_equal(own['features'], of_source['features'])
    assert own['probabilities'].shape == (4, 13)
    # The seed determines the new classifier.
    assert np.ptp(own['probabilities'], axis=0).max() > 0


@pytest.mark.program
def test_resumption__continues_from_the_runs_own_checkpoint(finished_run: FinishedRun, tmp_path: Any) -> None:
    source = tmp_path / 'source'
    shutil.copytree(str(finished_run.config.model_dir), str(source))
    config = beginning(finished_run, tmp_path / 'model', init_from=str(source), train_steps=2)
    straight = saved_variables(str(config.model_dir))
    # The run was killed during the first checkpoint: it begins again in the same way.
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / 'saving.unfinished').write_text('model.ckpt-0')
    (tmp_path / 'other' / 'model.ckpt-0.index').write_text('')
    killed = beginning(finished_run, tmp_path / 'other', init_from=str(source))
    # A run that resumes at step 1 does not need the source.
    shutil.rmtree(str(source))
    resumed = beginning(finished_run, tmp_path / 'other', init_from=str(source), train_steps=2)
    np.testing.assert_equal(saved_variables(str(resumed.model_dir)), straight)
    starts = read_starts(str(killed.model_dir))
    assert [(start.step, bool(start.weights)) for start in starts] == [(0, True), (1, False)]


def test_begin_hook__leaves_a_restored_checkpoint(tmp_path: Any) -> None:
    """A session on a TPU may be made again, after the first checkpoint and before the first step."""
    tf.train.create_global_step()
    weight = tf.get_variable('Layer/weights', initializer=[1.0, 2.0])
    tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, weight)
    source = sources.Source('s', 'npz', {'Layer/weights': np.array([3.0, 4.0])}, '', None)
    has_checkpoint = [True]
    hook = BeginHook(Config(model_dir=str(tmp_path)), source, lambda: has_checkpoint[0])
    hook.begin()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        hook.after_create_session(session, None)
        assert session.run(weight).tolist() == [1.0, 2.0] and not (tmp_path / 'init_from.tsv').exists()
        has_checkpoint[0] = False
        hook.after_create_session(session, None)
        assert session.run(weight).tolist() == [3.0, 4.0] and (tmp_path / 'init_from.tsv').exists()
