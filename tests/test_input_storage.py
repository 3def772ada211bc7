"""Tests of the pipeline's storage phase: hosts' shares of the files, completeness, resuming, memory, closing."""

import dataclasses
import io
import os
import shutil
import subprocess
import sys
import tarfile
from typing import Any, Dict, List, Sequence

import pytest

from compat import tf
from compat.tensorflow import threads_of
from data import order, records
from data.formats import FORMATS
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from tests.data.written_records import written
from tests.support.graphs import type_in_1_15
from tests.support.pipelines import Host, read
from tests.support.tiers import further


def paths_read(config: Config, is_training: bool, host: int, hosts: int, count: int) -> tf.Tensor:
    """The paths of the first `count` records that a host reads, one per record; fewer if there are no more."""
    dataset = InputPipeline(is_training, config).storage(host, hosts).batch(count)
    return tf.data.make_one_shot_iterator(dataset).get_next().serialized


@pytest.fixture
def one_record_each(monkeypatch: Any) -> None:
    """Makes each file's path its only record."""
    read_file = lambda self, at_a_time, path, size, paths: tf.data.Dataset.from_tensors(records.Record(path))  # noqa: E731
    monkeypatch.setattr(InputPipeline, '_read_file', read_file)


@pytest.mark.parametrize(('hosts', 'files'), [(1, 5), (3, 67), (16, 32)])
@pytest.mark.parametrize('is_training', [True, False])
def test_hosts__read_disjoint_and_complete_shares_of_the_files(
    is_training: bool, hosts: int, files: int, tmp_path: Any, one_record_each: None
) -> None:
    paths = written(tmp_path, records.TRAIN if is_training else records.VALIDATION, [1] * files)
    config = Config(use_tpu=False, data_dir=str(tmp_path), num_files_infeed=1, followup_shuffle_buffer_size=1)
    # In training, three passes over the share: the files are shuffled and repeated.
    count = 3 * -(-files // hosts)
    with tf.Session() as session:
        shares = session.run([paths_read(config, is_training, host, hosts, count) for host in range(hosts)])
    if is_training:
        assert all(len(share) == count for share in shares)
        shares = [sorted(set(share)) for share in shares]
    assert sorted(path.decode() for share in shares for path in share) == paths, 'disjoint and complete'
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_buffers_of_size_0__keep_the_order_of_files_and_records(tmp_path: Any) -> None:
    paths = written(tmp_path, records.TRAIN, [3, 2, 4])
    every = [[*tf.io.tf_record_iterator(path)] for path in paths]
    config = Config(
        use_tpu=False, data_dir=str(tmp_path), initial_shuffle_buffer_size=0, followup_shuffle_buffer_size=0
    )
    alone, together = (dataclasses.replace(config, num_files_infeed=count) for count in (1, 3))
    with tf.Session() as session:
        # Two epochs, file after file; and records of the files in turn.
        found, in_turn = session.run(
            [paths_read(each, True, 0, 1, count) for each, count in ((alone, 18), (together, 8))]
        )
    assert [*found] == 2 * [record for of_file in every for record in of_file]
    assert [*in_turn] == [every[file][place] for place in (0, 1) for file in (0, 1, 2)] + [every[0][2], every[0][0]][:2]


def compress(paths: Sequence[str]) -> None:
    """Compresses the second of every three record files with gzip, and the third with zlib, in place."""
    for number, path in enumerate(paths):
        serialized = [*tf.io.tf_record_iterator(path)]
        with tf.io.TFRecordWriter(path, options=('', 'GZIP', 'ZLIB')[number % 3]) as writer:
            for record in serialized:
                writer.write(record)


def kinds_of_nodes(config: Config) -> List[str]:
    """The kinds of the operations, as 1.15 names them, in the training pipeline and its functions."""
    with tf.Graph().as_default() as graph:
        tf.data.make_initializable_iterator(InputPipeline(is_training=True, config=config)({'batch_size': 4}))
        definition = graph.as_graph_def()
    scopes = [definition.node, *(function.node_def for function in definition.library.function)]
    return [type_in_1_15(node.op) for scope in scopes for node in scope]


@pytest.mark.parametrize('seed', [further(None), 3])
def test_compressed_files__are_read_as_others(seed: Any, small_config: Config, tmp_path: Any) -> None:
    data_dir = tmp_path / 'compressed'
    shutil.copytree(small_config.data_dir, str(data_dir))
    compress(records.find_shards(str(data_dir), records.TRAIN))
    changes = {'seed': seed, 'train_batch_size': 8, 'num_files_infeed': 1, 'followup_shuffle_buffer_size': 0}
    config = dataclasses.replace(small_config, **changes, initial_shuffle_buffer_size=0 if seed is None else 1024)
    tf.train.get_or_create_global_step()
    # With a seed, both resume after three steps.
    each = [
        tf.data.make_initializable_iterator(
            InputPipeline(is_training=True, config=dataclasses.replace(config, data_dir=folder))
            .storage(1, 2)
            .batch(1000)
        )
        for folder in (config.data_dir, str(data_dir))
    ]
    with tf.Session() as session:
        session.run(tf.assign(tf.train.get_global_step(), 3))
        session.run([iterator.initializer for iterator in each])
        plain, compressed = session.run([iterator.get_next() for iterator in each])
    for one, other in zip(tf.nest.flatten(plain), tf.nest.flatten(compressed)):
        assert one.tolist() == other.tolist()
    kinds = {*kinds_of_nodes(dataclasses.replace(config, data_dir=str(data_dir)))}
    # The threads of Dataset.interleave outlive it, unlike those of this operation: see below.
    unwanted = {'InterleaveDataset', *(f'ParallelInterleaveDatasetV{number}' for number in (2, 3, 4))}
    assert 'ParallelInterleaveDataset' in kinds and not kinds & {'PyFunc', *unwanted}


def test_hosts__take_their_share_from_the_context(small_config: Config, photo_dir: str) -> None:
    # Each host reads one of the two files, which have two and three photographs.
    config = dataclasses.replace(small_config, data_dir=photo_dir, num_eval_images=5, num_classes=6)
    shares = [read(config, False, 4, context=Host(index, 2))[0] for index in range(2)]
    seen = [image.tobytes() for images, labels in shares for image in images[labels >= 0]]
    # All images differ, so each image came once.
    assert len(seen) == len(set(seen)) == 5 > (shares[0][1] >= 0).sum() > 1
    pipeline, files = (
        InputPipeline(is_training=True, config=small_config),
        len(records.find_shards(small_config.data_dir, 'train')),
    )
    pipeline.storage(files - 1, files)
    with pytest.raises(records.DataError, match=f'{files} train files for {files + 1} TPU hosts'):
        pipeline.storage(files, files + 1)


def test_training__shuffles_the_files_anew_in_each_epoch(tmp_path: Any, one_record_each: None) -> None:
    paths = written(tmp_path, records.TRAIN, [1] * 20)
    config = Config(use_tpu=False, data_dir=str(tmp_path), num_files_infeed=1, followup_shuffle_buffer_size=1)
    with tf.Session() as session:
        read_in_order = [path.decode() for path in session.run(paths_read(config, True, 0, 1, 40))]
    first, second = read_in_order[:20], read_in_order[20:]
    assert sorted(first) == sorted(second) == paths
    assert len({tuple(order) for order in (first, second, paths)}) == 3


def operations_of(kind: str) -> List[tf.Operation]:
    """The operations of a kind, as 1.15 names it, in the default graph, outside of functions."""
    return [o for o in tf.get_default_graph().get_operations() if type_in_1_15(o.type) == kind]


@pytest.mark.parametrize(
    ('is_training', 'seed', 'any_order'), [(True, None, True), (True, 0, False), (False, None, False)]
)
def test_order__is_relaxed_in_training_without_a_seed(
    is_training: bool, seed: Any, any_order: bool, small_config: Config
) -> None:
    dataset = InputPipeline(is_training, dataclasses.replace(small_config, seed=seed))({'batch_size': 4})
    assert dataset.options().experimental_deterministic is not any_order
    (interleave,) = operations_of('ParallelInterleaveDataset')
    if 'deterministic' in interleave.node_def.attr:  # 2.15
        assert interleave.get_attr('deterministic') == (b'false' if any_order else b'true')
    else:
        sloppy = interleave.inputs[-3]
        assert sloppy.dtype == tf.bool and tf.get_static_value(sloppy) == any_order


def test_training__has_threads_per_image_and_new_seeds_in_each_run(small_config: Config) -> None:
    dataset = InputPipeline(is_training=True, config=small_config)({'batch_size': 4})
    options = dataset.options()
    assert threads_of(options).max_intra_op_parallelism == 1
    # If both seeds are 0, TensorFlow draws new ones in each session.
    shuffles = operations_of('ShuffleDataset')
    assert [[tf.get_static_value(seed) for seed in o.inputs[2:4]] for o in shuffles] == [[0, 0]] * 2
    # 1.15 adds the data set that autotunes only when the iterator is made.
    tf.data.make_initializable_iterator(dataset)
    is_on = options.autotune.enabled if hasattr(options, 'autotune') else bool(operations_of('ModelDataset'))
    assert is_on is False


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        ({'num_parallel_calls': 1, 'use_data': 'fake'}, 1),
        ({'num_parallel_calls': 10_000}, 4 * len(os.sched_getaffinity(0))),
        ({'num_parallel_calls': 10_000, 'use_tpu': True}, 10_000),
        (
            {'num_parallel_calls': 10_000, 'use_tpu': True, 'tpu': 'emulated:2', 'num_shards': 2},
            4 * len(os.sched_getaffinity(0)),
        ),
    ],
)
def test_num_parallel_calls__is_at_most_four_per_core_of_this_machine(
    changes: Dict[str, Any], expected: int, small_config: Config
) -> None:
    dataset = InputPipeline(is_training=True, config=dataclasses.replace(small_config, **changes))({'batch_size': 4})
    *of_groups, of_images = operations_of('ParallelMapDataset')
    assert tf.get_static_value(of_images.inputs[-1]) == expected
    # A group of records has the operations of a few images.
    assert [tf.get_static_value(each.inputs[-1]) for each in of_groups] == (
        [] if 'use_data' in changes else [-(-expected // 4)]
    )
    # The hosts of a TPU keep TensorFlow's own threads.
    threads = threads_of(dataset.options()).private_threadpool_size
    assert threads == (None if expected == 10_000 else expected)


@pytest.mark.parametrize(('megabytes', 'expected'), [((30, 34, 31), 7), further((300, 10, 10), 1)])
def test_storage__limits_the_bytes_of_files_that_are_read_whole(
    megabytes: Sequence[int], expected: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Like files on s3://.
    monkeypatch.setitem(FORMATS, 'tar', FORMATS['tar']._replace(is_read_whole=lambda data_dir: True))
    for number, size in enumerate(megabytes):
        with open(tmp_path / f'train-{number:05d}.tar', 'wb') as file:
            file.truncate(size * 10**6)
    InputPipeline(is_training=True, config=Config(use_tpu=False, data_dir=str(tmp_path), data_format='tar')).storage()
    (interleave,) = operations_of('ParallelInterleaveDataset')
    # As many files as fit 256 MiB if all are as large as the largest, and at most --num_files_infeed.
    (cycle_length,) = [value for value in interleave.inputs if value.op.name.endswith('cycle_length')]
    assert tf.get_static_value(cycle_length) == expected


@pytest.mark.parametrize(
    ('at_a_time', 'changes', 'size', 'expected'),
    [
        (8, {}, 0, 8 << 20),
        (64, {'num_files_infeed': 64}, 0, 4 << 20),
        (3, {'num_files_infeed': 3, 'prefetch_dataset_buffer_size': 1000}, 0, 1000),
        # No more than the size of the file.
        (8, {}, 1234, 1234),
        # Lanes together read ahead as much as eight files of 8 MiB together, and at most 8 MiB each.
        (64, {}, 1 << 30, 1 << 20),
        (16, {}, 0, 4 << 20),
        (4, {}, 0, 8 << 20),
        (64, {'prefetch_dataset_buffer_size': 1}, 0, 1),
        (8, {'prefetch_dataset_buffer_size': 0}, 1234, 0),
    ],
)
def test_storage__reads_at_most_256_mib_ahead(
    at_a_time: int, changes: Dict[str, Any], size: int, expected: int, photo_dir: str, monkeypatch: Any
) -> None:
    buffers: List[tf.Tensor] = []

    def record_file(path: tf.Tensor, buffer_size: tf.Tensor) -> tf.data.Dataset:
        buffers.append(buffer_size)
        return tf.data.Dataset.from_tensors(path)

    monkeypatch.setattr(tf.data, 'TFRecordDataset', record_file)
    config = Config(use_tpu=False, data_dir=photo_dir, **changes)
    InputPipeline(is_training=True, config=config)._read_file(
        at_a_time, tf.constant('path'), tf.constant(size, tf.int64)
    )
    assert tf.Session().run(buffers) == [expected]


def test_seed__orders_with_the_buffers_of_the_flags(small_config: Config, monkeypatch: Any) -> None:
    given: List[Any] = []
    monkeypatch.setattr(order, 'ordered', lambda *arguments: given.append(arguments))
    changes = {'seed': 3, 'initial_shuffle_buffer_size': 17, 'followup_shuffle_buffer_size': 19}
    InputPipeline(is_training=True, config=dataclasses.replace(small_config, train_batch_size=32, **changes)).storage(
        2, 4
    )
    ((files, _, seed, _, *others),) = given
    assert (seed, *others) == (3, (32, 2, 4), 17, 19, 1)
    # The order gets the files of all hosts.
    assert sum(file.records for file in files) == 1438


# Opens and closes sessions while the threads of the storage phase run.
_CLOSE_WHILE_READING = """
import sys
from compat import tf
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline

graphs = []
for seed in (None, 1):
    with tf.Graph().as_default() as graph:
        config = Config(use_tpu=False, data_dir=sys.argv[1], followup_shuffle_buffer_size=10, seed=seed)
        iterator = tf.data.make_initializable_iterator(InputPipeline(is_training=True, config=config).storage())
        graphs.append((graph, iterator.initializer, iterator.get_next()))
for _ in range(12):
    for graph, initializer, record in graphs:
        with tf.Session(graph=graph) as session:
            session.run(initializer)
            session.run(record)
"""


@pytest.mark.both
@pytest.mark.program
def test_session__closes_without_a_crash_while_files_are_read(digits_dir: str) -> None:
    # With tf.data.Dataset.interleave, each of six processes ended in a segmentation fault here.
    command = [sys.executable, '-W', 'ignore', '-c', _CLOSE_WHILE_READING, digits_dir]
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


_MEMORY_OF_SHARDS = """
import sys
from compat import tf
from tools.benchmarks.measurement import peak_bytes
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
config = Config(use_tpu=False, data_dir=sys.argv[1], data_format='tar', followup_shuffle_buffer_size=1)
samples = tf.data.make_one_shot_iterator(InputPipeline(is_training=True, config=config).storage().batch(16)).get_next()
with tf.Session() as session:
    session.run(tf.zeros([]))
    before = peak_bytes()
    for _ in range(25):
        session.run(samples)
print(peak_bytes() - before)
"""


@pytest.mark.program
def test_storage__reads_large_tar_shards_within_256_mebibytes(tmp_path: Any) -> None:
    """Measures a process that reads shards of 65 MB, eight at a time."""
    first = str(tmp_path / 'train-00000.tar')
    image = b'\xff\xd8' + bytes(range(256)) * 420
    with tarfile.open(first, 'w') as archive:
        for number in range(600):
            for extension, content in (('jpg', image), ('cls', b'1')):
                member = tarfile.TarInfo(f'{number:06d}.{extension}')
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    for shard in range(1, 12):
        os.link(first, str(tmp_path / f'train-{shard:05d}.tar'))
    output = subprocess.run(
        [sys.executable, '-c', _MEMORY_OF_SHARDS, str(tmp_path)], stdout=subprocess.PIPE, check=True, text=True
    )
    assert int(output.stdout.split()[-1]) < 256 << 20
