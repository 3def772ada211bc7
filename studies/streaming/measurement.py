"""Stores the same images in three layouts, and measures training's input pipeline on each.

The layouts are single files in class folders, tar shards, and TFRecord files. `measure` reads one of them in a new
process with the program's input pipeline, from the local file system or from an object store on this machine. The
process is forked from one that has only loaded TensorFlow, so that its CPU time is the pipeline's alone.

Before each measurement the files are dropped from the page cache, where a data set as large as ImageNet would not fit.
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

from absl import app

from benchmarks.measurement import MeasurementError, reason_of
from console.tensorflow_versions import tf
from data import records, tfrecord
from data.convert.tar_shards import conversion as tar_shards
from inception_v3.config import Config
from inception_v3.input import device_images
from inception_v3.input.record_preprocessing import training_image
from inception_v3.input_pipeline import InputPipeline, images_at_a_time
from inception_v3.presets import PRESETS
from preprocessing.inception_preprocessing import whole_image_box
from studies.streaming import object_store
from studies.streaming.object_store import ObjectStore, Tally

# The layouts, and the names of their folders.
FILES, TAR, TFRECORD = 'files', 'tar', 'tfrecord'

BATCH_SIZE = 8
# The unit of getrusage's ru_inblock, in bytes.
_DISK_BLOCK = 512
# Smaller than the program's default of 1,000 records, which would delay the first batch, but no later one.
_SHUFFLE_BUFFER = 64
# Seconds beyond its planned duration after which a measurement counts as hung.
_TIMEOUT = 300


class DataSet(NamedTuple):
    """Images stored in each of the layouts.

    Attributes:
      folder: parent of the layouts' folders.
      files: path within its folder and label of each single file.
      num_classes: number of classes; labels are below it.
      shards: number of tar shards, and of TFRecord files.
      content_bytes: total size of a layout's files, in bytes.
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
      latency_ms: delay of each request to the object store, in ms; None: local files.
      read_ahead: number of files that are read at a time, `--num_files_infeed`.
    """

    layout: str
    latency_ms: Optional[float]
    read_ahead: int


class Measurement(NamedTuple):
    """The result of a measurement. The last three are None without an object store.

    Attributes:
      images: number of images read.
      images_per_second: throughput.
      cpu_ms: CPU time of the reading process per image, in milliseconds: all threads, user and system.
      disk_kb: kB per image that the reading process got from a disk rather than the page cache.
      store_cpu_ms: CPU time of the object store's process per image, in milliseconds.
      requests: requests to the object store per 1,000 images.
      most_at_once: largest number of concurrent requests.
    """

    images: int
    images_per_second: float
    cpu_ms: float
    disk_kb: float
    store_cpu_ms: Optional[float] = None
    requests: Optional[float] = None
    most_at_once: Optional[int] = None


def write(source: str, folder: str, images: int, images_per_shard: int) -> DataSet:
    """Stores the first training images of a TFRecord data set in each layout.

    Args:
      source: the folder of the TFRecord files.
      folder: an empty folder for the layouts.
      images: number of images; all images if there are fewer.
      images_per_shard: images in a tar or TFRecord file; the last one may have fewer.

    Raises:
      DataError: the data set cannot be used.
    """
    paths = records.find_shards(source, records.TRAIN)
    images = min(images, sum(tfrecord.count_records(paths)))
    shards = -(-images // images_per_shard)
    serialized = itertools.islice(itertools.chain.from_iterable(map(tfrecord.serialized_in, paths)), images)
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
    # The conversion also checks each image, and names one that cannot be used.
    tar_shards.convert(os.path.join(folder, TFRECORD), os.path.join(folder, TAR), 0, lambda line: None)
    # Only pages that were written to the disk can be dropped from the page cache.
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
    """Training's input pipeline for images in single files, which are read in a new random order each epoch.

    Args:
      config: the program's configuration; `num_files_infeed` files are read at a time.
      files: path within `data_dir` and label of each file.
    """

    def __init__(self, config: Config, files: Tuple[Tuple[str, int], ...]):
        super().__init__(True, config)
        self._files = files

    @tf.autograph.experimental.do_not_convert
    def storage(self, host: int = 0, hosts: int = 1) -> tf.data.Dataset:
        """Reads (encoded image, label), in a new random order in each epoch."""
        paths = [os.path.join(self._config.data_dir, path) for path, _ in self._files]
        labels = tf.constant([label for _, label in self._files], tf.int32)
        files = tf.data.Dataset.from_tensor_slices((paths, labels))
        files = files.shuffle(len(paths)).repeat()
        return files.map(lambda path, label: (tf.io.read_file(path), label), self._config.num_files_infeed)

    @tf.autograph.experimental.do_not_convert
    def preprocessing(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Converts (encoded image, label), as `storage` returns them, to a data set of (features, label)."""

        def preprocess(encoded: tf.Tensor, label: tf.Tensor) -> Tuple[device_images.Features, tf.Tensor]:
            return training_image(encoded, whole_image_box(), self._config), label

        return dataset.map(preprocess, images_at_a_time(self._config))


def pipeline(reading: Reading, data: DataSet) -> InputPipeline:
    """The input pipeline of a reading, for ResNet-50 with `--preset=resnet50_imagenet`."""
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
      reading: the way to read images.
      data: the stored images.
      seconds: minimum duration; a measurement ends with a batch.
      store: address of the object store, if it is read; the environment variables must lead to it.

    Raises:
      DataError: the data set cannot be used.
      OSError: the store does not answer.
    """

    def tally() -> Tally:
        return object_store.tally(store) if store else Tally()

    # Reading a whole file blocks an inter-op thread. TensorFlow has one per core; a TPU's host has many.
    threads = tf.ConfigProto(inter_op_parallelism_threads=reading.read_ahead + len(os.sched_getaffinity(0)))
    with tf.Graph().as_default(), tf.Session(config=threads) as session:
        dataset = pipeline(reading, data)({'batch_size': BATCH_SIZE})
        next_batch = tf.data.make_one_shot_iterator(dataset).get_next()
        before = tally()
        session.run(next_batch)
        first_batch, used, clock = tally(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
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
        store_cpu_ms=1000 * (ended.cpu_seconds - first_batch.cpu_seconds) / images,
        requests=1000 * requests / fetched,
        most_at_once=ended.most_at_once,
    )


_processes = multiprocessing.get_context('forkserver')
_processes.set_forkserver_preload([__name__])


def measure(reading: Reading, data: DataSet, seconds: float) -> Measurement:
    """Measures in a new process, with an object store of its own for remote readings.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    _drop_from_page_cache(os.path.join(data.folder, reading.layout))
    with contextlib.ExitStack() as stack:
        environment: Dict[str, str] = {}
        if reading.latency_ms is not None:
            store = stack.enter_context(ObjectStore(data.folder, reading.latency_ms))
            environment = store.environment
        receiver, sender = _processes.Pipe(duplex=False)
        process = _processes.Process(target=_send, args=(sender, reading, data, seconds, environment), daemon=True)
        with _interrupted_afterwards():
            process.start()
        stack.callback(process.join)
        stack.callback(process.kill)
        sender.close()
        if not receiver.poll(seconds + _TIMEOUT):
            raise MeasurementError(f'timed out after {seconds + _TIMEOUT:.0f} seconds')
        try:
            outcome: Union[Measurement, str] = receiver.recv()
        except EOFError:
            process.join()
            raise MeasurementError(f'ended with exit code {process.exitcode}')
    if isinstance(outcome, str):
        raise MeasurementError(outcome)
    return outcome


@contextlib.contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Lets Ctrl-C wait for the end of the block: a process that is half started would print a traceback."""
    came: List[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _send(sender: Connection, reading: Reading, data: DataSet, seconds: float, environment: Dict[str, str]) -> None:
    """The measuring process: sends a measurement, or the reason for a failure as a string."""
    # The parent also receives Ctrl-C, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # TensorFlow's s3:// logs each refused request; the last request of each file is refused.
    with open(os.devnull, 'w') as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    os.environ.update(environment)
    try:
        sender.send(perform(reading, data, seconds, environment.get('S3_ENDPOINT')))
    except (app.UsageError, OSError, tf.errors.OpError) as error:
        sender.send(reason_of(error))
