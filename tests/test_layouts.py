"""Tests that a seed gives the same global batches on any number of hosts and cores, from files of either format."""

import dataclasses
from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from data import records
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from tests.support.pipelines import Host
from tests.support.runs import make_small_config
from tests.support.tiers import further
from tests.test_repeatability import train
from tools.datasets.tar_shards import conversion as tar_shards

BATCH, STEPS = 16, 3


def global_batches(
    config: Config, cores: int = 1, hosts: int = 1, step: int = 0, steps: int = STEPS
) -> Tuple[np.ndarray, np.ndarray]:
    """The images and labels of some global batches: host after host, and for each host core after core."""
    batch = config.train_batch_size
    parts: List[List[np.ndarray]] = [[], []]
    for host in range(hosts):
        with tf.Graph().as_default(), tf.Session() as session:
            global_step = tf.train.create_global_step()
            params = {'batch_size': batch // cores, 'context': Host(host, hosts)}
            iterator = tf.data.make_initializable_iterator(InputPipeline(is_training=True, config=config)(params))
            of_core = iterator.get_next()
            session.run(tf.assign(global_step, step))
            session.run(iterator.initializer)
            batches = [session.run(of_core) for _ in range(steps * cores // hosts)]
        for part, values in zip(parts, zip(*batches)):
            part.append(np.stack(values).reshape([steps, batch // hosts, *values[0].shape[1:]]))
    images, labels = (np.concatenate(part, axis=1) for part in parts)
    return images, labels


@pytest.fixture(scope='module')
def config(digits_dir: str) -> Config:
    return make_small_config(digits_dir, train_batch_size=BATCH, seed=1, height=32, width=32)


@pytest.fixture(scope='module')
def expected(config: Config) -> Tuple[np.ndarray, np.ndarray]:
    """The global batches on one core."""
    images, labels = global_batches(config)
    assert len({image.tobytes() for image in images.reshape([STEPS * BATCH, -1])}) == STEPS * BATCH
    return images, labels


@pytest.mark.parametrize(('cores', 'hosts'), [(8, 2), further(16, 4)])
def test_batches__are_the_same_bits_on_any_hosts_and_cores(
    cores: int, hosts: int, config: Config, expected: Tuple[np.ndarray, np.ndarray]
) -> None:
    for found, wanted in zip(global_batches(config, cores, hosts), expected):
        np.testing.assert_array_equal(found, wanted)


def in_files(config: Config, tmp_path: Any, counts: List[int]) -> Config:
    """The same training images in other files, with these numbers of records."""
    paths = records.find_shards(config.data_dir, records.TRAIN)
    serialized = iter([record for path in paths for record in tf.io.tf_record_iterator(path)])
    for number, count in enumerate(counts):
        with tf.io.TFRecordWriter(records.shard_path(str(tmp_path), records.TRAIN, number, len(counts))) as writer:
            for _ in range(count):
                writer.write(next(serialized))
    assert next(serialized, None) is None
    return dataclasses.replace(config, data_dir=str(tmp_path))


def test_batches__are_the_same_bits_from_any_files(
    config: Config, expected: Tuple[np.ndarray, np.ndarray], tmp_path: Any
) -> None:
    # Fewer files than hosts, and files of very different sizes.
    for found, wanted in zip(global_batches(in_files(config, tmp_path, [1, 1300, 0, 37, 100]), 4, 2), expected):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.program
def test_batches__are_the_same_bits_from_tar_shards(photo_dir: str, tmp_path: Any) -> None:
    # A small batch has few lanes: each costs time at the start of a tar shard.
    config = make_small_config(photo_dir, train_batch_size=2, seed=1, height=32, width=32)
    tar_shards.convert(photo_dir, str(tmp_path), 0, lambda message: None)
    tar = dataclasses.replace(config, data_dir=str(tmp_path), data_format='tar')
    for found, wanted in zip(global_batches(tar, 2, 2), global_batches(config)):
        np.testing.assert_array_equal(found, wanted)


def test_fake_batches__are_the_same_bits_on_any_hosts(config: Config) -> None:
    fake = dataclasses.replace(config, use_data='fake')
    for found, wanted in zip(global_batches(fake, 4, 4), global_batches(fake)):
        np.testing.assert_array_equal(found, wanted)


def on_cores(config: Config, tmp_path: Any, layout: str) -> Config:
    cores = int(layout.partition('x')[0])
    return dataclasses.replace(
        config,
        use_tpu=True,
        tpu=f'emulated:{layout}',
        num_shards=cores,
        eval_batch_size=cores,
        iterations=1,
        mode='train',
        batch_norm='synchronized',
        intra_op_threads=2,
        model_dir=str(tmp_path),
    )


@pytest.mark.program
def test_weights__are_the_same_if_cores_and_hosts_change(config: Config, tmp_path: Any, one_layer: None) -> None:
    expected = train(on_cores(config, tmp_path / 'one', '1'), 3)
    # One step on each layout.
    for step, layout in enumerate(('1', '8x2', '2'), 1):
        values = train(on_cores(config, tmp_path / 'several', layout), step)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-6, atol=1e-6, err_msg=name)
