"""The guide's program on one page, against the full program."""

import dataclasses
import os
from typing import Any, Dict, List
from unittest import mock

import numpy as np
import pytest

from compat import tf
from data.records import TRAIN, VALIDATION, find_shards
from examples import guide
from inception_v3.config import Config
from inception_v3.networks.registry import NETWORKS
from inception_v3.optimizers import make_optimizer
from inception_v3.presets import PRESETS
from inception_v3.run.evaluations import read_evaluations
from tests.support.checkpoints import saved_variables
from tests.support.runs import execute
from tests.support.tiny_network import TINY


def values_of(model_dir: str, step: int) -> Dict[str, np.ndarray]:
    return saved_variables(os.path.join(model_dir, f'model.ckpt-{step}'))


LOGGED = (
    'Starting training',
    'Starting evaluation cycle',
    'Using SGD',
    'Using Mom',
    'Using RMS',
    'Reloading',
    'Evaluation results',
)


def check_equal(config: Config, folder: Any, caplog: Any) -> None:
    """Checks that both programs have the same weights and metrics after the steps of a configuration."""
    caplog.clear()
    ours = dataclasses.replace(config, model_dir=str(folder / 'guide'))
    found = guide.run(ours)
    assert [message for message in caplog.messages if message.startswith(LOGGED)] == [
        'Starting training cycle 0.',
        'Using RMS optimizer',
        'Starting evaluation cycle 0.',
        'Reloading EMA...',
        f'Evaluation results: {found}',
    ]
    full = dataclasses.replace(config, model_dir=str(folder / 'full'))
    execute(full)
    expected = values_of(str(full.model_dir), config.train_steps)
    values = values_of(str(ours.model_dir), config.train_steps)
    assert values.keys() == expected.keys()
    assert [name for name in values if not np.array_equal(values[name], expected[name])] == []
    # The averages differ from the weights, and both programs evaluate the averages.
    averages = [name for name in values if name.endswith('/ExponentialMovingAverage')]
    assert averages and not any(np.array_equal(values[name], values[name.rpartition('/')[0]]) for name in averages)
    evaluation = read_evaluations(str(full.model_dir))[-1]
    assert (found['top_1'], found['images']) == (pytest.approx(evaluation.top_1, abs=1e-6), 359)
    assert found['cross_entropy'] == pytest.approx(evaluation.cross_entropy, rel=1e-6)


@pytest.fixture
def config(small_config: Config) -> Config:
    # The auxiliary head needs 107 pixels.
    changes = {'train_steps': 10, 'batch_norm_decay': 0.5, 'learning_rate': 0.3, 'height': 107, 'width': 107}
    return dataclasses.replace(small_config, seed=3, intra_op_threads=1, **changes)


@pytest.mark.program
@pytest.mark.both
def test_guide__ten_steps_give_the_weights_of_the_full_program(config: Config, tmp_path: Any, caplog: Any) -> None:
    caplog.set_level('INFO', 'tensorflow')
    with mock.patch.dict(NETWORKS, inception_v3=TINY), mock.patch.object(guide, 'inception_v3', TINY.build):
        check_equal(config, tmp_path, caplog)


def test_guide__trains_as_the_preset_does() -> None:
    changes = {'model_dir': 'runs/guide', 'export_dir': None, 'save_summary_steps': 100}
    assert Config(**{**PRESETS['digits'], **changes}) == guide.CONFIG


def test_guide_optimizers__take_the_steps_of_the_program() -> None:
    assert [*guide.OPTIMIZERS] == ['sgd', 'momentum', 'RMS']
    for name, (_, make) in guide.OPTIMIZERS.items():
        with tf.variable_scope(name, use_resource=True):
            ours, theirs = (tf.get_variable(each, initializer=[1.0, -2.0]) for each in ('ours', 'theirs'))
        gradient = tf.placeholder(tf.float32, [2])
        program = make_optimizer(0.5, Config(use_tpu=False, optimizer=name))
        updates = [each.apply_gradients([(gradient, on)]) for each, on in ((make(0.5), ours), (program, theirs))]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for value in ([1.0, 0.3], [-0.2, 2.0], [0.5, 0.5]):
                session.run(updates, {gradient: value})
            found, expected = session.run([ours, theirs])
        assert found.tolist() == expected.tolist() != [1.0, -2.0], name


def test_guide_storage__shuffles_and_repeats_training_and_reads_validation_once(small_config: Config) -> None:
    config = dataclasses.replace(small_config, followup_shuffle_buffer_size=20)
    with tf.Session() as session:

        def read(is_training: bool, number: int) -> List[bytes]:
            # If several files are read at once, one may be late by more than two epochs.
            ours = dataclasses.replace(config, num_files_infeed=1 if is_training else 8)
            dataset = guide.InputPipeline(is_training, ours).storage().batch(number)
            return [*session.run(tf.data.make_one_shot_iterator(dataset).get_next().serialized)]

        def stored(split: str) -> List[bytes]:
            files = find_shards(config.data_dir, split)
            return [record for path in files for record in tf.python_io.tf_record_iterator(path)]

        training = read(True, 2 * 1438)
        assert len(training) == 2 * 1438 and {*training} == {*stored(TRAIN)} and training[:1438] != training[1438:]
        assert sorted(read(False, 1000)) == sorted(stored(VALIDATION))
    # Files and records are shuffled in training, only records in evaluation.
    operations = tf.get_default_graph().get_operations()
    buffers = [tf.get_static_value(each.inputs[1]) for each in operations if each.type.startswith('ShuffleDataset')]
    assert buffers == [config.initial_shuffle_buffer_size, 20, 20]


@pytest.mark.program
def test_guide_input__distorts_anew_without_a_seed(small_config: Config) -> None:
    config = dataclasses.replace(
        small_config, initial_shuffle_buffer_size=0, followup_shuffle_buffer_size=0, num_files_infeed=1
    )
    dataset = guide.InputPipeline(is_training=True, config=config)({'batch_size': 8})
    first = tf.data.make_one_shot_iterator(dataset).get_next()
    again = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        (images, labels), (others, same_labels) = session.run((first, again))
    assert images.shape == (8, 75, 75, 3) and labels.tolist() == same_labels.tolist()
    assert not np.array_equal(images, others)
