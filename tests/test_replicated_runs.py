"""Tests of whole runs on several replicas, on virtual devices of the CPU: they equal runs on as many TPU cores."""

import dataclasses
import os
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.run.evaluations import read_evaluations
from inception_v3.run.starts import read_first_steps
from tests.support.runs import evaluations, execute, make_small_config
from tests.test_repeatability import differing, train


@pytest.fixture
def config(digits_dir: str, tmp_path: Any, tiny: None) -> Config:
    """A run with dropout and an auxiliary head in two cycles; its evaluation has a remainder for 2 and 4 replicas."""
    return make_small_config(
        digits_dir,
        # The least size with an auxiliary head.
        height=107,
        width=107,
        train_batch_size=8,
        eval_batch_size=8,
        eval_total_size=13,
        train_steps=3,
        train_steps_per_eval=2,
        batch_norm_decay=0.5,
        learning_rate=0.5,
        seed=1,
        intra_op_threads=1,
        iterations=1,
        model_dir=str(tmp_path / 'model'),
    )


def on_gpus(config: Config, number: int, **changes: Any) -> Config:
    return dataclasses.replace(config, accelerator='cpu', num_gpus=number, **changes)


def on_cores(config: Config, number: int, **changes: Any) -> Config:
    return dataclasses.replace(config, use_tpu=True, tpu=f'emulated:{number}', num_shards=number, **changes)


def check_no_graph_in(folder: str) -> None:
    """Checks that no file of a run has a graph of replicas."""
    names = os.listdir(folder)
    assert 'model.ckpt-3.index' in names and not [name for name in names if name.endswith('.meta')]
    events = [os.path.join(folder, name) for name in names if name.startswith('events')]
    graphs = [event.graph_def for path in events for event in tf.train.summary_iterator(path)]
    assert events and not any(tf.GraphDef.FromString(graph).node for graph in graphs)


@pytest.mark.program
@pytest.mark.parametrize(
    ('number', 'changes'),
    [
        (
            4,
            {
                'batch_norm': 'synchronized',
                'batch_norm_group_size': 2,
                'clear_update_collections': False,
                # Close to 1: below, the loss of the first core's two images is compared with the loss of all.
                'class_weights': f'mine=1{",1.2,0.8" * 5}',
            },
        ),
        pytest.param(
            *(2, {'batch_norm': 'averaged', 'transfer': 'uint8', 'freeze': 'Layer', 'freeze_batch_norm': False}),
            marks=pytest.mark.both,
        ),
    ],
)
def test_run__has_the_bits_of_an_emulated_tpu_and_saves_no_graph(
    number: int, changes: Dict[str, Any], config: Config, tmp_path: Any
) -> None:
    own = on_gpus(config, number, **changes)
    tpu = on_cores(config, number, model_dir=str(tmp_path / 'tpu'), **changes)
    assert not differing(train(own, 3), train(tpu, 3))
    steps, on_tpu = (read_first_steps(str(each.model_dir)) for each in (own, tpu))
    assert [each.digest for each in steps] == [each.digest for each in on_tpu]
    # On the left the mean over the replicas, on the right the loss of the first core.
    np.testing.assert_allclose(steps[0].loss, on_tpu[0].loss, rtol=0.2)
    assert len(evaluations(own)) == len(evaluations(tpu)) > 0
    for one, other in zip(evaluations(own), evaluations(tpu)):
        assert (one.step, one.images, one.top_1) == (other.step, 13, other.top_1)
        np.testing.assert_allclose(one.cross_entropy, other.cross_entropy, rtol=1e-6)
    check_no_graph_in(str(own.model_dir))


@pytest.mark.program
def test_run__moves_between_replicas_cores_and_one_device(config: Config) -> None:
    training = dataclasses.replace(config, mode='train')
    first = train(on_gpus(training, 1), 1)
    for step, (place, number) in enumerate([(on_gpus, 4), (on_cores, 2), (on_gpus, 2)], 2):
        moved = train(place(training, number), step)
        assert moved.keys() == first.keys()
        assert moved['global_step'] == step
    # Any number of devices evaluates a checkpoint alike, whatever devices trained it.
    checkpoint = tf.train.latest_checkpoint(str(config.model_dir))
    for number in (1, 4):
        execute(on_gpus(config, number, mode='eval', train_steps=4))
    one, other = read_evaluations(str(config.model_dir))
    assert (one.checkpoint, one.images, one.top_1) == (other.checkpoint, 13, other.top_1)
    np.testing.assert_allclose(one.cross_entropy, other.cross_entropy, rtol=1e-6)
    assert checkpoint.endswith('-4')
