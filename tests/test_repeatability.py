"""Tests of `--seed`: runs repeat and resume bit for bit, and agree on any number of cores."""

import dataclasses
import io
import itertools
import os
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import tensorflow as tf

from console.screen import Screen
from inception_v3.config import Config
from inception_v3.cycles import Run
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import starts
from tests.support.runs import make_small_config

Values = Dict[str, np.ndarray]


def train(config: Config, *stops: int) -> Values:
    """Trains to each of several steps with a new command; returns the variables of the last checkpoint."""
    for stop in stops:
        Run(dataclasses.replace(config, train_steps=stop), Screen(io.StringIO())).execute()
    reader = tf.train.load_checkpoint(config.model_dir)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def differing(one: Values, other: Values) -> List[str]:
    """Returns the names of variables that differ in any bit."""
    assert one.keys() == other.keys()
    return sorted(name for name in one if one[name].tobytes() != other[name].tobytes())


@pytest.fixture
def photo_config(photo_dir: str, tmp_path: Any) -> Config:
    """A run on five photographs in two files, with batches of three, so that epochs end within batches."""
    return make_small_config(
        photo_dir,
        num_train_images=5,
        num_eval_images=5,
        num_classes=6,
        train_batch_size=3,
        eval_batch_size=5,
        mode='train',
        model_dir=str(tmp_path / 'model'),
        seed=7,
        intra_op_threads=2,
    )


def in_another_folder(config: Config, **changes: Any) -> Config:
    """Returns the configuration with another model_dir, and with other changes."""
    return dataclasses.replace(config, **{'model_dir': f'{config.model_dir}-other', **changes})


@pytest.mark.slow
def test_seed__repeats_and_resumes_inception_v3_bit_for_bit(photo_config: Config) -> None:
    assert not differing(train(photo_config, 4), train(in_another_folder(photo_config), 1, 4))


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'preprocessing': 'vgg'},
        {'transfer': 'uint8'},
        {'use_data': 'fake'},
        {'fast_mode': False, 'use_fast_color_distort': False},
        {'tpu': 'emulated:3', 'use_tpu': True, 'num_shards': 3, 'eval_batch_size': 6, 'iterations': 3},
        {'tpu': 'emulated:2x2', 'use_tpu': True, 'num_shards': 2, 'train_batch_size': 4, 'eval_batch_size': 6},
    ],
)
def test_seed__repeats_and_resumes_bit_for_bit(changes: Dict[str, Any], photo_config: Config, one_layer: None) -> None:
    config = dataclasses.replace(photo_config, **changes)
    once = train(config, 7)
    assert not differing(once, train(in_another_folder(config, num_parallel_calls=1, num_files_infeed=1), 2, 3, 7))


def test_seed__resumes_across_cycles_of_training_and_evaluation(photo_config: Config, one_layer: None) -> None:
    once = train(photo_config, 6)
    cycles = in_another_folder(photo_config, mode='train_and_eval', train_steps_per_eval=2)
    assert not differing(once, train(cycles, 3, 6))


def test_seed__keeps_the_number_of_threads_of_the_first_start(photo_config: Config, one_layer: None) -> None:
    config = dataclasses.replace(photo_config, intra_op_threads=0)
    cores = len(os.sched_getaffinity(0))
    assert starts.with_settled_threads(config).intra_op_threads == cores
    assert starts.with_settled_threads(dataclasses.replace(config, seed=None)).intra_op_threads == 0
    train(dataclasses.replace(config, intra_op_threads=cores + 1), 1)
    assert starts.with_settled_threads(config).intra_op_threads == cores + 1
    assert starts.with_settled_threads(photo_config).intra_op_threads == 2
    session = make_estimator(photo_config).config.session_config
    assert session.intra_op_parallelism_threads == 2


def test_seed__differs_between_seeds_and_without_one(photo_config: Config, one_layer: None) -> None:
    once = train(photo_config, 1)
    without = train(in_another_folder(photo_config, seed=None), 1)
    again = train(in_another_folder(photo_config, seed=None, model_dir=f'{photo_config.model_dir}-again'), 1)
    other = train(in_another_folder(photo_config, seed=8, model_dir=f'{photo_config.model_dir}-8'), 1)
    for one, another in itertools.combinations([once, without, again, other], 2):
        assert {'Layer/weights', 'Logits/weights'} <= {*differing(one, another)}


def batches(config: Config, count: int, batch_size: int = 3) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated images and labels of the first batches of the training pipeline."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = InputPipeline(True, config)({'batch_size': batch_size})
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        images, labels = zip(*[session.run(batch) for _ in range(count)])
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.parametrize(
    'changes',
    [
        {'num_parallel_calls': 1},
        {'num_parallel_calls': 16},
        {'num_files_infeed': 1},
        {'num_files_infeed': 64},
        {'prefetch_enabled': False},
        {'prefetch_dataset_buffer_size': 1},
    ],
)
def test_batches__do_not_depend_on_parallelism(changes: Dict[str, Any], digits_dir: str) -> None:
    config = make_small_config(digits_dir, seed=3)
    images, labels = batches(config, 40, 40)
    other_images, other_labels = batches(dataclasses.replace(config, **changes), 40, 40)
    np.testing.assert_array_equal(labels, other_labels)
    np.testing.assert_array_equal(images, other_images)


def test_images__do_not_depend_on_the_batch_size(digits_dir: str) -> None:
    config = make_small_config(digits_dir, seed=3)
    for one, other in zip(batches(config, 6, 50), batches(config, 100, 3)):
        np.testing.assert_array_equal(one, other)


def test_epochs__have_each_image_once_with_new_order_and_distortions(photo_config: Config) -> None:
    images, labels = batches(photo_config, 20, 5)
    epochs = labels.reshape([20, 5])
    assert (np.sort(epochs) == [1, 2, 3, 4, 5]).all()
    assert len({tuple(epoch) for epoch in epochs}) > 10
    distorted = images[labels == 1]
    assert len({image.tobytes() for image in distorted}) == 20


@pytest.mark.parametrize('cores', [2, 4, 8])
def test_seed__gives_the_same_weights_on_any_number_of_cores(
    cores: int, digits_dir: str, tmp_path: Any, one_layer: None
) -> None:
    one, several = (
        train(
            make_small_config(
                digits_dir,
                use_tpu=True,
                tpu=f'emulated:{number}',
                num_shards=number,
                mode='train',
                model_dir=str(tmp_path / str(number)),
                train_batch_size=16,
                batch_norm='synchronized',
                seed=1,
                intra_op_threads=2,
            ),
            5,
        )
        for number in (1, cores)
    )
    for name, value in one.items():
        np.testing.assert_allclose(several[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
