"""Bad records in training with a seed: each is replaced, and the other images of every batch stay the same."""

import dataclasses
import os
from typing import Any, List, Set, Tuple

import numpy as np
import pytest

from compat import tf
from data import records
from inception_v3.config import Config
from inception_v3.input import usable_records
from inception_v3.input.bad_records import BadRecords
from tests.support.runs import make_small_config
from tests.support.tiers import further
from tests.test_layouts import STEPS, global_batches

# The bad records among 96; two are neighbours.
BAD = {3, 40, 41, 95}
# Each of 16 lanes supplies two images of a batch, so a run of 8 records lasts 4 steps.
BATCH, LANES, WIDTH, RUN_STEPS = 32, 16, 2, 4


def by_hand(usable: List[int], runs: int, run: int) -> List[int]:
    chosen = []
    for begin in range(0, runs * run, run):
        members = [*range(begin, begin + run)]
        for place in range(run):
            following = [index for index in members[place:] + members[:place] if index in usable]
            chosen.append(usable.index(following[0]) if following else -1)
    return chosen


@pytest.mark.parametrize('usable', [[*range(12)], [0, 5, 6, 11], [1, 2, 8], [4], []])
def test_replaced__is_the_next_usable_record_of_the_run(usable: List[int]) -> None:
    with tf.Session() as session:
        found = session.run(usable_records._replaced(tf.constant(usable, tf.int64), 3, 4))
    assert found.tolist() == by_hand(usable, 3, 4)


def lane_by_lane(values: np.ndarray) -> np.ndarray:
    """Values [steps, batch, …] of whole runs as [images, …]: run after run, and in each run lane after lane."""
    shape = values.shape[2:]
    runs = values.reshape([-1, RUN_STEPS, LANES, WIDTH, *shape])
    return runs.swapaxes(1, 2).reshape([-1, *shape])


def written(folder: Any, config: Config, bad: Set[int]) -> Config:
    """A configuration for 96 of the digits in three files; the `bad` ones cannot be decoded."""
    paths = records.find_shards(config.data_dir, records.TRAIN)
    serialized = [record for path in paths for record in tf.io.tf_record_iterator(path)][:96]
    folder.mkdir()
    for file, numbers in enumerate([range(50), range(50, 51), range(51, 96)]):
        with tf.io.TFRecordWriter(records.shard_path(str(folder), records.TRAIN, file, 3)) as writer:
            for number in numbers:
                writer.write(b'no example' if number in bad else serialized[number])
    return dataclasses.replace(config, data_dir=str(folder), model_dir=str(folder / 'run'), max_bad_records=len(bad))


@pytest.fixture(scope='module')
def config(digits_dir: str) -> Config:
    return make_small_config(digits_dir, train_batch_size=BATCH, seed=1, height=32, width=32)


@pytest.fixture(scope='module')
def damaged(config: Config, tmp_path_factory: Any) -> Config:
    return written(tmp_path_factory.mktemp('damaged') / 'data', config, BAD)


@pytest.fixture(scope='module')
def batches(damaged: Config) -> Tuple[np.ndarray, np.ndarray]:
    """The batches of 12 steps on one host and core: 4 epochs, and 3 runs of each lane."""
    return global_batches(damaged, steps=12)


def test_bad_records__leave_the_other_images_and_are_named(
    config: Config, damaged: Config, batches: Tuple[np.ndarray, np.ndarray], tmp_path: Any
) -> None:
    whole = global_batches(written(tmp_path / 'whole', config, set()), steps=12)
    with pytest.raises(tf.errors.InvalidArgumentError):
        global_batches(dataclasses.replace(damaged, max_bad_records=0), steps=12)
    differs = (batches[0] != whole[0]).any(axis=(2, 3, 4))
    assert differs.sum() == 4 * len(BAD)
    # Each is replaced by the image of the next usable record of its run, with its label.
    usable = [index for index, is_bad in enumerate(lane_by_lane(differs)) if not is_bad]
    chosen = [usable[index] for index in by_hand(usable, 3 * LANES, RUN_STEPS * WIDTH)]
    for found, given in zip(batches, whole):
        np.testing.assert_array_equal(lane_by_lane(found), lane_by_lane(given)[chosen])
    names = set(os.listdir(f'{damaged.model_dir}/bad_records/train'))
    assert names == {'train-00000-of-00003@3', 'train-00000-of-00003@40', 'train-00000-of-00003@41'} | {
        'train-00002-of-00003@44'
    }


# Within a run of 4 steps, and after it.
@pytest.mark.parametrize('step', [7, further(8)])
def test_bad_records__are_replaced_alike_after_resumption_on_more_hosts(
    step: int, damaged: Config, batches: Tuple[np.ndarray, np.ndarray]
) -> None:
    for found, wanted in zip(global_batches(damaged, hosts=2, cores=4, step=step), batches):
        np.testing.assert_array_equal(found, wanted[step : step + STEPS])


def test_run_without_a_usable_record__is_an_error(config: Config, tmp_path: Any) -> None:
    message = 'none of.*consecutive records can be used.*00000-of-00003.*00002-of'
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        global_batches(written(tmp_path / 'damaged', config, {*range(1, 96)}))


def test_bad_records__are_counted_for_each_worker(digits_dir: str, tmp_path: Any, caplog: Any) -> None:
    paths = records.find_shards(digits_dir, records.TRAIN)
    for worker, position in ((0, 3), (1, 4), (1, 5), (0, 5)):
        config = Config(
            use_tpu=False, data_dir=digits_dir, model_dir=str(tmp_path), max_bad_records=3,
            worker_hosts='a:1,b:2', task_index=worker,
        )  # fmt: skip
        with tf.Graph().as_default(), tf.Session() as session:
            places = tf.constant(paths[:1]), tf.constant([position], tf.int64)
            session.run(usable_records.name_bad_records(config, records.TRAIN, *places))
    # An evaluation of other files has also skipped a record in this run.
    (tmp_path / 'bad_records' / records.TRAIN / 'other-00000-of-00001@3').touch()
    BadRecords(config, [records.TRAIN]).log()
    first, *others = caplog.messages
    # If two workers have skipped a record, the last one counts.
    assert first == '3 records could not be used (2 at worker 0 (a:1), 1 at worker 1 (b:2)):'
    text = 'skipped at worker {}: {}, record {}: could not be used when it was read.'
    expected = [('0 (a:1)', 3), ('1 (b:2)', 4), ('0 (a:1)', 5)]
    assert others == [text.format(worker, paths[0], position) for worker, position in expected]
