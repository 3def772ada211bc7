"""What the study of streaming measures: the same images, stored in three ways, read for training in each.

`write` stores them: single files in class folders, tar shards, and TFRecord files. `measure` reads one of these with
the input pipeline of the program, from this machine's file system or from an object store on the loopback, in a new
process. That is forked from one that has loaded TensorFlow and done nothing else, so all of its CPU time is the
pipeline's, and no measurement has to load TensorFlow again.

Before each, the files are taken out of the page cache: a data set as large as ImageNet would not be there, either.
"""

import contextlib
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import tensorflow as tf
from absl import app

from data import records, tar_shards
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline, preprocess_for_train
from inception_v3.presets import PRESETS
from preprocessing.inception_preprocessing import whole_image_box
from studies.streaming import object_store
from studies.streaming.object_store import ObjectStore, Tally

# Layouts, and the folders that have them.
FILES, TAR, TFRECORD = 'files', 'tar', 'tfrecord'

BATCH_SIZE = 8
# What getrusage counts reads in, in bytes.
_DISK_BLOCK = 512
# The program's own buffer of 1,000 records delays the first batch, and not those after it.
_SHUFFLE_BUFFER = 64
# Seconds after which a measurement is ended as hung, beyond those that it is to take.
_PATIENCE = 300


class MeasurementError(Exception):
    """A measurement that failed, and why."""


class DataSet(NamedTuple):
    """Images that are stored in each of the layouts.

    Attributes:
      folder: where the layouts' folders are.
      files: the single files: path within their folder, and label.
      num_classes: labels are below it.
      shards: the number of tar shards, and of TFRecord files.
      content_bytes: the bytes of all files of a layout.
    """

    folder: str
    files: Tuple[Tuple[str, int], ...]
    num_classes: int
    shards: int
    content_bytes: Dict[str, int]


class Reading(NamedTuple):
    """A way to read images.

    Attributes:
      layout: `FILES`, `TAR` or `TFRECORD`.
      latency_ms: how long each request to the object store waits; None for files of this machine.
      read_ahead: files that are read at a time, `--num_files_infeed`.
    """

    layout: str
    latency_ms: Optional[float]
    read_ahead: int


class Measurement(NamedTuple):
    """What was measured.

    Attributes:
      images: images that were read.
      images_per_second: by the clock.
      cpu_ms: CPU time of the reading process per image, in milliseconds: all threads, user and system.
      disk_kb: what that process had from a disk per image, in kB; the rest was in the page cache.
      store_cpu_ms: that of the object store's process; None without one.
      requests: requests to the object store per 1,000 images; None without one.
      most_at_once: the largest number of requests that were under way together; None without an object store.
    """

    images: int
    images_per_second: float
    cpu_ms: float
    disk_kb: float
    store_cpu_ms: Optional[float] = None
    requests: Optional[float] = None
    most_at_once: Optional[int] = None


def write(source: str, folder: str, images: int, images_per_shard: int) -> DataSet:
    """Stores the first training images of a data set of record files in each layout.

    Args:
      source: the folder of the record files.
      folder: where to, an empty folder.
      images: how many; fewer, if it has fewer.
      images_per_shard: in a shard, of either kind; the last one may have fewer.

    Raises:
      DataError: the source cannot be used.
    """
    paths = records.find_shards(source, records.TRAIN)
    images = min(images, sum(records.count_records(paths)))
    shards = -(-images // images_per_shard)
    serialized = itertools.islice(itertools.chain.from_iterable(map(records.serialized_in, paths)), images)
    files: List[Tuple[str, int]] = []
    os.mkdir(os.path.join(folder, TFRECORD))
    for shard in range(shards):
        path = records.shard_path(os.path.join(folder, TFRECORD), records.TRAIN, shard, shards)
        with tf.io.TFRecordWriter(path) as writer:
            for record in itertools.islice(serialized, images_per_shard):
                writer.write(record)
                feature = tf.train.Example.FromString(record).features.feature
                label = feature['image/class/label'].int64_list.value[0]
                name = os.path.join(f'{label:05d}', f'{len(files):08d}.jpg')
                _write_file(os.path.join(folder, FILES, name), feature['image/encoded'].bytes_list.value[0])
                files.append((name, label))
    # Looks at each image, too, and names one that cannot be used.
    tar_shards.convert(os.path.join(folder, TFRECORD), os.path.join(folder, TAR), 0, lambda line: None)
    # Only what is on the disk already can be taken out of the page cache.
    os.sync()
    content_bytes = {layout: _bytes_below(os.path.join(folder, layout)) for layout in (FILES, TAR, TFRECORD)}
    return DataSet(folder, tuple(files), 1 + max(label for _, label in files), shards, content_bytes)


def _write_file(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
        file.write(content)


def _bytes_below(folder: str) -> int:
    return sum(map(os.path.getsize, _files_below(folder)))


def _files_below(folder: str) -> Iterator[str]:
    return (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)


def _drop_from_page_cache(folder: str) -> None:
    for path in _files_below(folder):
        with open(path, 'rb') as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class SingleFiles(InputPipeline):
    """Training's input pipeline, but that each image is a file, and all are read in a new random order each epoch.

    Args:
      config: of the program; `num_files_infeed` files are read at a time.
      files: paths within `data_dir`, and labels.
    """

    def __init__(self, config: Config, files: Tuple[Tuple[str, int], ...]):
        super().__init__(True, config)
        self._files = files

    def _storage(self, host: int = 0, hosts: int = 1) -> tf.data.Dataset:
        paths = [os.path.join(self._config.data_dir, path) for path, _ in self._files]
        labels = tf.constant([label for _, label in self._files], tf.int32)
        files = tf.data.Dataset.from_tensor_slices((paths, labels))
        files = files.shuffle(len(paths)).repeat()
        return files.map(lambda path, label: (tf.io.read_file(path), label), self._config.num_files_infeed)

    def _preprocess(self, encoded: tf.Tensor, label: tf.Tensor = None) -> Tuple[tf.Tensor, tf.Tensor]:
        return preprocess_for_train(encoded, whole_image_box(), self._config), label


def pipeline(reading: Reading, data: DataSet) -> InputPipeline:
    """What reads images in a way: for ResNet-50, as `--preset=resnet50_imagenet` has them."""
    root = data.folder if reading.latency_ms is None else f's3://{object_store.BUCKET}'
    config = Config(
        **{
            **PRESETS['resnet50_imagenet'],
            'use_tpu': False,
            'data_dir': f'{root}/{reading.layout}',
            'data_format': 'tfrecord' if reading.layout == TFRECORD else 'tar',
            'num_classes': data.num_classes,
            'num_train_images': len(data.files),
            'train_batch_size': BATCH_SIZE,
            'num_files_infeed': reading.read_ahead,
            'followup_shuffle_buffer_size': _SHUFFLE_BUFFER,
        }
    )
    return SingleFiles(config, data.files) if reading.layout == FILES else InputPipeline(True, config)


def perform(reading: Reading, data: DataSet, seconds: float, store: Optional[str] = None) -> Measurement:
    """Measures in this process.

    Args:
      reading: how images are read.
      data: where they are.
      seconds: how long, at least: to the end of a batch.
      store: the address of the object store, if it is read; the environment leads there.

    Raises:
      DataError: the data set cannot be used.
      OSError: the store does not answer.
    """

    def tally() -> Tally:
        return object_store.tally(store) if store else Tally()

    # TensorFlow has a thread a core for operations, and one that reads a file waits there. A TPU's host has many.
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=reading.read_ahead + len(os.sched_getaffinity(0)))
    with tf.Graph().as_default(), tf.compat.v1.Session(config=threads) as session:
        dataset = pipeline(reading, data)({'batch_size': BATCH_SIZE})
        next_batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        before = tally()
        session.run(next_batch)
        begun, used, clock = tally(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        images, elapsed = 0, 0.0
        while elapsed < seconds:
            session.run(next_batch)
            images, elapsed = images + BATCH_SIZE, time.perf_counter() - clock
        usage, ended = resource.getrusage(resource.RUSAGE_SELF), tally()
    cpu = usage.ru_utime + usage.ru_stime - used.ru_utime - used.ru_stime
    from_disk = _DISK_BLOCK * (usage.ru_inblock - used.ru_inblock)
    measured = Measurement(images, images / elapsed, 1000 * cpu / images, from_disk / 1000 / images)
    if not store:
        return measured
    requests = sum(ended[:3]) - sum(before[:3])
    fetched = (ended.content_bytes - before.content_bytes) / data.content_bytes[reading.layout] * len(data.files)
    return measured._replace(
        store_cpu_ms=1000 * (ended.cpu_seconds - begun.cpu_seconds) / images,
        requests=1000 * requests / fetched,
        most_at_once=ended.most_at_once,
    )


_processes = multiprocessing.get_context('forkserver')
_processes.set_forkserver_preload([__name__])


def measure(reading: Reading, data: DataSet, seconds: float) -> Measurement:
    """Measures in a new process, with an object store of its own if it reads one.

    Raises:
      MeasurementError: it failed; the message says why.
    """
    _drop_from_page_cache(os.path.join(data.folder, reading.layout))
    with contextlib.ExitStack() as stack:
        environment: Dict[str, str] = {}
        if reading.latency_ms is not None:
            store = stack.enter_context(ObjectStore(data.folder, reading.latency_ms))
            environment = store.environment
        receiver, sender = _processes.Pipe(duplex=False)
        process = _processes.Process(target=_send, args=(sender, reading, data, seconds, environment), daemon=True)
        process.start()
        stack.callback(process.join)
        stack.callback(process.kill)
        sender.close()
        if not receiver.poll(seconds + _PATIENCE):
            raise MeasurementError(f'ended: not done after {seconds + _PATIENCE:.0f} seconds')
        try:
            outcome: Union[Measurement, str] = receiver.recv()
        except EOFError:
            process.join()
            raise MeasurementError(f'ended with exit code {process.exitcode}')
    if isinstance(outcome, str):
        raise MeasurementError(outcome)
    return outcome


def _send(sender: Connection, reading: Reading, data: DataSet, seconds: float, environment: Dict[str, str]) -> None:
    """What the process does: sends a measurement, or why there is none."""
    # Whoever started it is interrupted, too, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # TensorFlow's s3:// logs each refusal, and meets one at the end of each file that it reads.
    with open(os.devnull, 'w') as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    os.environ.update(environment)
    try:
        sender.send(perform(reading, data, seconds, environment.get('S3_ENDPOINT')))
    except (app.UsageError, OSError, tf.errors.OpError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        # Without the operations that TensorFlow names after it, and on one line.
        sender.send(' '.join(message.partition('[[')[0].split()))
