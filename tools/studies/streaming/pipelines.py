"""Stores the same images in three layouts, and measures training's input pipeline on each.

Run as `python -m tools.studies.streaming.pipelines`, it makes a measurement of `tools.studies.streaming.measurement`.
"""

import itertools
import json
import os
import resource
import sys
import time
from typing import Optional, Tuple

from absl import app

from compat import tf
from console.processes import usable_cores
from data import records, tfrecord_files
from inception_v3.config import Config
from inception_v3.input.infeed import Features, Infeed
from inception_v3.input_pipeline import InputPipeline, images_at_a_time
from inception_v3.presets import PRESETS
from preprocessing.decoding import image_shape
from preprocessing.steps import whole_image_box
from tools.benchmarks import command
from tools.benchmarks.measurement import cpu_seconds, reason_of
from tools.datasets.tar_shards import conversion as tar_shards
from tools.studies.streaming import object_store
from tools.studies.streaming.measurement import (
    BATCH_SIZE,
    FILES,
    LAYOUTS,
    TAR,
    TFRECORD,
    DataSet,
    Measurement,
    Reading,
    files_below,
)
from tools.studies.streaming.object_store import Tally

# The unit of getrusage's ru_inblock, in bytes.
_DISK_BLOCK = 512
# Smaller than the program's default of 1,000 records, which would delay the first batch, but no later one.
_SHUFFLE_BUFFER = 64


def write(source: str, folder: str, images: int, images_per_shard: int) -> DataSet:
    """Stores the first training images of the TFRecord files in `source` in each layout, in an empty folder.

    The data set may have fewer images than `images`, and its last shards fewer than `images_per_shard`.

    Raises:
      DataError: the data set cannot be used.
    """
    paths = records.find_shards(source, records.TRAIN)
    images = min(images, sum(tfrecord_files.count_records(paths)))
    shards = -(-images // images_per_shard)
    serialized = itertools.islice(itertools.chain.from_iterable(map(tfrecord_files.serialized_in, paths)), images)
    os.mkdir(os.path.join(folder, TFRECORD))
    for shard in range(shards):
        path = records.shard_path(os.path.join(folder, TFRECORD), records.TRAIN, shard, shards)
        with tf.io.TFRecordWriter(path) as writer:
            for record in itertools.islice(serialized, images_per_shard):
                writer.write(record)
    files = command.write_files(os.path.join(folder, TFRECORD), os.path.join(folder, FILES))
    # The conversion also checks each image, and names one that cannot be used.
    tar_shards.convert(os.path.join(folder, TFRECORD), os.path.join(folder, TAR), 0, lambda line: None)
    # Only pages that were written to the disk can be dropped from the page cache.
    os.sync()
    content_bytes = {each: sum(map(os.path.getsize, files_below(os.path.join(folder, each)))) for each in LAYOUTS}
    return DataSet(folder, tuple(files), 1 + max(label for _, label in files), shards, content_bytes)


class SingleFiles(InputPipeline):
    """Training's input pipeline for single files, given by path within `data_dir` and label, in random order."""

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
        infeed = Infeed(self._config)

        def preprocess(encoded: tf.Tensor, label: tf.Tensor) -> Tuple[Features, tf.Tensor]:
            shape = image_shape(encoded)
            distortion = infeed.preprocessing.draw(shape, whole_image_box())
            resized = infeed.preprocessing.resize_encoded(encoded, shape, distortion)
            return infeed.for_training(resized, distortion), label

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
    return (
        SingleFiles(config, data.files) if reading.layout == FILES else InputPipeline(is_training=True, config=config)
    )


def perform(reading: Reading, data: DataSet, seconds: float, store: Optional[str]) -> Measurement:
    """Measures whole batches in this process, for at least `seconds`.

    `store` is the address of the object store if one is read; the environment variables must point to it.

    Returns:
      images: number of images read.
      images_per_second: throughput.
      cpu_ms: CPU time per image, of all threads of this process.
      disk_kb: kB per image from a disk rather than from the page cache.
      store_cpu_ms: CPU time of the store per image; None without a store, like the next two.
      requests: requests to the store per 1,000 images.
      most_at_once: largest number of concurrent requests.

    Raises:
      DataError: the data set cannot be used.
      OSError: the store does not answer.
    """

    def tally() -> Tally:
        return object_store.tally(store) if store else Tally()

    # Reading a whole file blocks an inter-op thread. TensorFlow has one per core; a TPU's host has many.
    threads = tf.ConfigProto(inter_op_parallelism_threads=reading.read_ahead + usable_cores())
    with tf.Graph().as_default(), tf.Session(config=threads) as session:
        dataset = pipeline(reading, data)({'batch_size': BATCH_SIZE})
        next_batch = tf.data.make_one_shot_iterator(dataset).get_next()
        before = tally()
        session.run(next_batch)
        first_batch, cpu, blocks, begun = tally(), cpu_seconds(), _disk_blocks(), time.perf_counter()
        images, elapsed = 0, 0.0
        while elapsed < seconds:
            session.run(next_batch)
            images, elapsed = images + BATCH_SIZE, time.perf_counter() - begun
        cpu, blocks, ended = cpu_seconds() - cpu, _disk_blocks() - blocks, tally()
    fetched = (ended.content_bytes - before.content_bytes) / data.content_bytes[reading.layout] * len(data.files)
    return {
        'images': images,
        'images_per_second': images / elapsed,
        'cpu_ms': 1000 * cpu / images,
        'disk_kb': _DISK_BLOCK * blocks / 1000 / images,
        'store_cpu_ms': 1000 * (ended.cpu_seconds - first_batch.cpu_seconds) / images if store else None,
        'requests': 1000 * (ended.requests - before.requests) / fetched if store else None,
        'most_at_once': ended.most_at_once if store else None,
    }


def _disk_blocks() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock


def main() -> None:
    """Prints the measurement that standard input describes, or the reason for a failure as an error."""
    reading, data, seconds, store = json.loads(sys.stdin.read())
    try:
        print(json.dumps(perform(Reading(*reading), DataSet(*data), seconds, store)))
    except (app.UsageError, OSError, tf.errors.OpError) as error:
        sys.exit(reason_of(error))


if __name__ == '__main__':
    main()
