"""Tests of `--seed`: runs repeat and resume bit for bit, and agree on any number of cores."""

import dataclasses
import functools
import os
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from compat import tf
from data import records
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.fitting import with_settled_threads
from tests.support.checkpoints import saved_variables
from tests.support.photos import Photo, photo_example
from tests.support.pipelines import read
from tests.support.recorded import write_start
from tests.support.runs import execute, make_small_config
from tests.support.shared import once
from tools.datasets import writing

Values = Dict[str, np.ndarray]


def train(config: Config, *stops: int) -> Values:
    """Trains to each of several steps with a new command; returns the variables of the last checkpoint."""
    for stop in stops:
        execute(dataclasses.replace(config, train_steps=stop))
    return saved_variables(str(config.model_dir))


def differing(one: Values, other: Values) -> List[str]:
    """Returns the names of variables that differ in any bit."""
    assert one.keys() == other.keys()
    return sorted(name for name in one if one[name].tobytes() != other[name].tobytes())


@pytest.fixture(scope='module')
def thumbnail_dir(thumbnails: List[Photo], tmp_path_factory: Any) -> str:
    """Five small photographs in two files."""

    def make(data_dir: str) -> None:
        for split in (records.TRAIN, records.VALIDATION):
            writing.write_shards(data_dir, split, [functools.partial(photo_example, photo) for photo in thumbnails], 2)

    return once(tmp_path_factory, 'thumbnails', make)


@pytest.fixture
def photo_config(thumbnail_dir: str, tmp_path: Any) -> Config:
    """A run on five photographs in two files, with batches of three, so that epochs end within batches."""
    return make_small_config(
        thumbnail_dir,
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


def check_resumed(config: Config, **changes: Any) -> None:
    """Checks that a resumed run ends with the bits of an uninterrupted run, whatever the parallelism."""
    whole = train(config, 3)
    resumed = dataclasses.replace(
        config, model_dir=f'{config.model_dir}-resumed', num_parallel_calls=1, num_files_infeed=1, **changes
    )
    assert not differing(whole, train(resumed, 1, 3))


def test_seed__repeats_and_resumes_bit_for_bit(photo_config: Config, one_layer: None) -> None:
    check_resumed(photo_config)


@pytest.mark.program
@pytest.mark.parametrize(
    ('changes', 'of_resumed'),
    [
        pytest.param(
            {'preprocessing': 'vgg', 'transfer': 'uint8'},
            {'mode': 'train_and_eval', 'train_steps_per_eval': 2},
            id='in cycles',
        ),
        pytest.param(
            {'tpu': 'emulated:2x2', 'use_tpu': True, 'num_shards': 2, 'train_batch_size': 4, 'eval_batch_size': 6},
            {},
            id='on emulated cores',
            marks=pytest.mark.both,
        ),
    ],
)
def test_seed__repeats_and_resumes_with_dropout(
    changes: Dict[str, Any], of_resumed: Dict[str, Any], photo_config: Config, tiny: None
) -> None:
    # The least size with an auxiliary head.
    config = dataclasses.replace(photo_config, height=107, width=107, **changes)
    check_resumed(config, **of_resumed)


def test_seed__keeps_the_number_of_threads_of_the_first_start(photo_config: Config) -> None:
    config = dataclasses.replace(photo_config, intra_op_threads=0)
    cores = len(os.sched_getaffinity(0))
    assert with_settled_threads(config).intra_op_threads == cores
    assert with_settled_threads(dataclasses.replace(config, seed=None)).intra_op_threads == 0
    # The first start of the run was on a machine with one more core.
    tf.io.gfile.makedirs(str(config.model_dir))
    write_start(dataclasses.replace(config, intra_op_threads=cores + 1), None)
    assert with_settled_threads(config).intra_op_threads == cores + 1
    assert with_settled_threads(photo_config).intra_op_threads == 2
    # The number of threads of a start without a seed does not count.
    write_start(dataclasses.replace(config, seed=None, intra_op_threads=cores + 2), None)
    assert with_settled_threads(config).intra_op_threads == cores
    session = make_estimator(photo_config).config.session_config
    assert session.intra_op_parallelism_threads == 2


def batches(config: Config, count: int, batch_size: int) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated images and labels of the first batches of the training pipeline."""
    images, labels = zip(*read(config, True, batch_size, count))
    return np.concatenate(images), np.concatenate(labels)


def test_images__do_not_depend_on_parallelism_and_the_batch_size(digits_dir: str) -> None:
    changes = {'num_parallel_calls': 16, 'num_files_infeed': 1, 'prefetch_dataset_buffer_size': 0}
    config = make_small_config(digits_dir, seed=3, height=32, width=32)
    for one, other in zip(batches(config, 1, 20), batches(dataclasses.replace(config, **changes), 4, 5)):
        np.testing.assert_array_equal(one, other)


def test_epochs__have_each_image_once_with_new_order_and_distortions(photo_config: Config) -> None:
    images, labels = batches(photo_config, 20, 5)
    epochs = labels.reshape([20, 5])
    assert (np.sort(epochs) == [1, 2, 3, 4, 5]).all()
    assert len({tuple(epoch) for epoch in epochs}) > 10
    distorted = images[labels == 1]
    assert len({image.tobytes() for image in distorted}) == 20
