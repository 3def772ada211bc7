"""Tests of evaluation on a slice: shares of the hosts, steps, and metrics of every image once."""

import dataclasses
import os
import pathlib
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from data import records
from data.dataset_info import DatasetInfo
from inception_v3.config import PADDING_LABEL, Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
from inception_v3.tpu import slices, topology
from inception_v3.tpu.slices import images_of_hosts
from tests.data.written_records import read as records_in
from tests.support.pipelines import Host, labels_of, read
from tests.support.runs import make_small_config
from tests.support.tiers import further
from tools.datasets import writing
from tools.datasets.tar_shards import conversion as tar_shards


@pytest.mark.parametrize(
    ('counts', 'hosts', 'at_most', 'images'),
    [
        ([13, 6], 2, 0, [13, 6]),
        ([13, 6], 1, 0, [19]),
        ([13, 6], 4, 0, [13, 6, 0, 0]),
        # Hosts get files in turn.
        ([1, 2, 3, 4, 5], 2, 0, [9, 6]),
        ([13, 6], 2, 10, [5, 5]),
        ([13, 6], 2, 15, [9, 6]),
        ([13, 6], 2, 18, [12, 6]),
        ([13, 6], 2, 19, [13, 6]),
        ([13, 6], 2, 100, [13, 6]),
        ([1, 50, 2, 50], 4, 9, [1, 3, 2, 3]),
        ([4, 4, 4], 3, 1, [0, 0, 1]),
    ],
)
def test_shares_of__are_the_images_of_each_hosts_files(
    counts: List[int], hosts: int, at_most: int, images: List[int]
) -> None:
    assert slices.shares_of(counts, hosts, at_most) == images


@pytest.mark.parametrize(
    ('images', 'batch', 'steps'),
    [
        ([19], 4, 5),
        ([20], 4, 5),
        # Each of two hosts feeds two images in a step.
        ([13, 6], 4, 7),
        ([12, 7], 4, 6),
        ([13, 6, 0, 0], 8, 7),
        ([12500] * 4, 4096, 13),
    ],
)
def test_steps_for__follow_the_host_with_the_most_images(images: List[int], batch: int, steps: int) -> None:
    assert slices.steps_for(images, batch) == steps


@pytest.fixture
def uneven_dir(digits_dir: str, tmp_path: pathlib.Path) -> str:
    """A data set whose validation files have 13 and 6 digits."""
    digits = records_in(records.shard_path(digits_dir, records.VALIDATION, 0, 4))
    folder = tmp_path / 'uneven'
    folder.mkdir()
    for shard, (first, end) in enumerate([(0, 13), (13, 19)]):
        with tf.io.TFRecordWriter(records.shard_path(str(folder), records.VALIDATION, shard, 2)) as writer:
            for record in digits[first:end]:
                writer.write(record)
    return str(folder)


WEIGHTS = np.random.RandomState(0).normal(size=(3, 11)).astype(np.float32)


def centres(images: tf.Tensor, num_classes: int, is_training: bool, **unused: Any) -> Any:
    """A network that reads one pixel of each image."""
    weights = tf.get_variable('weights', initializer=WEIGHTS, use_resource=True)
    return tf.matmul(tf.cast(images[:, 30, 30, :], tf.float32) * [4.0, 1.0, 1.0], weights), None


def expected_metrics(config: Config) -> Dict[str, float]:
    """The metrics of the network `centres`, by NumPy, over the images that one device reads."""
    ((images, labels),) = read(config, False, 19)
    logits = (images[:, 30, 30, :] * [4, 1, 1]) @ WEIGHTS
    of_label = logits[np.arange(len(labels)), labels]
    ranks = np.sum(logits > of_label[:, np.newaxis], axis=1)
    normalizers = np.log(np.sum(np.exp(logits), axis=1))
    return {
        'images': len(labels),
        'top_1': np.mean(ranks < 1),
        'top_5': np.mean(ranks < 5),
        'cross_entropy': np.mean(normalizers - of_label),
    }


@pytest.mark.parametrize(
    ('tpu', 'data_format', 'changes'),
    [
        # Half of the hosts have no file.
        further('emulated:4x4', 'tar', {}),
        ('emulated:4x2', 'tfrecord', {'transpose_enabled': True, 'transfer': 'uint8'}),
    ],
)
def test_unequal_hosts__metrics_are_the_means_over_all_images(
    uneven_dir: str, tmp_path: pathlib.Path, monkeypatch: Any, tpu: str, data_format: str, changes: Dict[str, Any]
) -> None:
    monkeypatch.setitem(NETWORKS, 'inception_v3', NETWORKS['inception_v3']._replace(build=centres))
    config = make_small_config(uneven_dir, num_eval_images=19, moving_average=False, model_dir=str(tmp_path / 'model'))
    expected = expected_metrics(config)
    assert expected['images'] == 19 and 0 < expected['top_1'] < expected['top_5'] < 1
    data_dir = uneven_dir
    if data_format == 'tar':
        data_dir = str(tmp_path / 'tar')
        tar_shards.convert(uneven_dir, data_dir, 0, print)
    cores = topology.emulated(tpu).cores
    emulated = dataclasses.replace(
        config,
        **changes,
        data_dir=data_dir,
        data_format=data_format,
        use_tpu=True,
        tpu=tpu,
        num_shards=cores,
        eval_batch_size=cores,
        train_batch_size=cores,
    )
    steps = slices.steps_for(images_of_hosts(emulated, topology.hosts_of(emulated)), cores)
    assert steps == -(-13 // topology.emulated(tpu).cores_per_host)
    found = make_estimator(emulated).evaluate(InputPipeline(is_training=False, config=emulated), steps=steps)
    # Rounding to bytes moves a pixel by up to 1 / 255.
    limit = 0.02 if changes.get('transfer') else 1e-5
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=limit)


def test_hosts__take_the_counts_of_the_description(uneven_dir: str, caplog: Any) -> None:
    config = make_small_config(uneven_dir)
    assert images_of_hosts(config, 2) == [13, 6]
    assert 'counting the records of 2 validation files' in caplog.text
    caplog.clear()
    DatasetInfo('x', '', 1, 20, 2, ['a', 'b'], '', [11, 9]).write(uneven_dir)
    assert images_of_hosts(config, 2) == [11, 9]
    assert images_of_hosts(dataclasses.replace(config, eval_total_size=7), 2) == [4, 3]
    assert not caplog.text
    DatasetInfo('x', '', 1, 20, 2, ['a', 'b'], '', [11, 8, 1]).write(uneven_dir)
    assert images_of_hosts(config, 2) == [13, 6]
    caplog.clear()
    DatasetInfo('x', '', 1, 20, 2, ['a', 'b'], '', [11, 9]).write(uneven_dir)
    # Another number of files than described: they are counted.
    for shard in range(2):
        path = records.shard_path(uneven_dir, records.VALIDATION, shard, 2)
        os.rename(path, records.shard_path(uneven_dir, records.VALIDATION, shard, 3))
    with tf.io.TFRecordWriter(records.shard_path(uneven_dir, records.VALIDATION, 2, 3)):
        pass
    assert images_of_hosts(config, 2) == [13, 6]
    assert 'counting the records of 3 validation files' in caplog.text


@pytest.mark.parametrize(('at_most', 'shares'), [(11, [6, 5]), further(15, [9, 6])])
def test_eval_total_size__is_divided_among_the_pipelines_of_hosts(
    at_most: int, shares: List[int], uneven_dir: str
) -> None:
    config = make_small_config(uneven_dir, height=75, num_eval_images=19, eval_total_size=at_most)
    for host, share in enumerate(shares):
        # Each host has a file of its own.
        own = records_in(records.shard_path(uneven_dir, records.VALIDATION, host, 2))[:share]
        labels = [writing.label_and_image(tf.train.Example.FromString(record))[0] for record in own]
        found = labels_of(read(config, False, 13, context=Host(host, 2)))
        assert found == [*labels, *[PADDING_LABEL] * (13 - share)]


def test_fake_images__are_shared_by_the_hosts() -> None:
    config = make_small_config('', use_data='fake', num_eval_images=7)
    assert images_of_hosts(config, 3) == [3, 2, 2]
    for host, labels in enumerate(([0, 3, 6], [1, 4], [2, 5])):
        found = labels_of(read(config, False, 3, context=Host(host, 3)))
        assert found == [*labels, *[PADDING_LABEL] * (3 - len(labels))]


def test_evaluation_steps__are_those_of_the_host_with_the_most_images(uneven_dir: str) -> None:
    config = make_small_config(uneven_dir, num_eval_images=19, eval_batch_size=4)
    assert slices.evaluation_steps(config) == 5
    assert slices.evaluation_steps(dataclasses.replace(config, eval_total_size=16)) == 4
    # With one host, no file is needed.
    assert slices.evaluation_steps(dataclasses.replace(config, data_dir='/no/such')) == 5
    slice_of_two = dataclasses.replace(config, use_tpu=True, tpu='emulated:4x2', num_shards=4)
    # 13 images, two in each step.
    assert slices.evaluation_steps(slice_of_two) == 7
