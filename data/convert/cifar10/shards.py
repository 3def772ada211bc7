"""Writes CIFAR-10, with repeated images, to tar shards."""

import functools
import io
import json
import os
import tarfile
from typing import Callable, Dict, List

import numpy as np

from console.tensorflow_versions import tf
from data import records, remote
from data.convert import conversion
from data.convert.cifar10.source import CLASSES, SIDE, Cifar10
from data.convert.tar_shards.conversion import add_sample
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.fingerprint import SplitFingerprint, fingerprint
from data.records import DataError
from data.tar.files import shard_path

_JPEG_QUALITY = 95
# Images per call of TensorFlow.
_BATCH = 500
_SETTINGS_NAME = 'settings.json'

Say = Callable[[str], None]


def repeated(labels: np.ndarray, count: int) -> np.ndarray:
    """Repeats images up to a number, every image and every class equally often.

    Args:
      labels: int [originals], their classes.
      count: the number of images.

    Returns:
      int64 [count], the indices of the originals. Each repetition has all originals, in its own order that mixes the
      classes. In a partial last repetition, the numbers of images per class differ by at most one. The result is
      deterministic.
    """
    rounds, rest = divmod(count, len(labels))
    orders = [np.random.RandomState(number).permutation(len(labels)) for number in range(rounds + 1)]
    last = orders.pop()
    of_class = [last[labels[last] == label] for label in np.unique(labels)]
    # Takes one image of each class in turn.
    dealt = [original for place in range(len(last)) for original in (c[place] for c in of_class if place < len(c))]
    chosen = np.zeros(len(labels), bool)
    chosen[dealt[:rest]] = True
    return np.concatenate([*orders, last[chosen[last]]])


def convert(
    source: Cifar10, data_dir: str, size: int, images: Dict[str, int], shards: Dict[str, int], say: Say
) -> None:
    """Converts CIFAR-10 to tar shards, or resumes a conversion.

    Args:
      source: the data set.
      data_dir: a local or remote folder: new, empty, or with an unfinished conversion.
      size: height and width of the images, in pixels: `SIDE` for the original ones.
      images: the number of images of each split.
      shards: the number of shards of each split, at most the number of images.
      say: called with messages about the progress.

    Raises:
      DataError: the folder holds other files, or a shard cannot be written. Finished shards are kept.
      RemoteError: access to a remote file is denied, or the store cannot be reached. Finished shards are kept.
    """
    settings = {'CIFAR-10': f'that of SHA-256 {source.digest[:12]}', '--size': str(size)}
    for what, numbers in (('images', images), ('shards', shards)):
        settings.update({f'--{split}_{what}': str(number) for split, number in numbers.items()})
    work_dir = conversion.start(data_dir, _SETTINGS_NAME, settings, say)
    if work_dir is None:
        return
    report = json.dumps({'settings': settings}).encode()
    with conversion.alone_in(work_dir):
        _write(os.path.join(work_dir, _SETTINGS_NAME), report, work_dir)
        written = [_write_split(source, split, data_dir, size, images[split], shards[split], say) for split in images]
        info = DatasetInfo(
            name='cifar10',
            source='CIFAR-10 (Krizhevsky, 2009), 50,000 training and 10,000 test images, repeated',
            train_images=images[records.TRAIN],
            validation_images=images[records.VALIDATION],
            num_classes=1 + CLASSES,
            class_names=['background', *source.class_names],
            fingerprint=fingerprint(*written),
        )
        info.write(data_dir)
        # Written last: it marks the conversion as finished.
        _write(os.path.join(data_dir, conversion.REPORT_NAME), report, work_dir)
        tf.io.gfile.rmtree(work_dir)
    say(
        f'{info.train_images:,} training and {info.validation_images:,} validation images of {CLASSES} classes in '
        f'{data_dir}'
    )


def _write_split(
    source: Cifar10, split: str, data_dir: str, size: int, count: int, shards: int, say: Say
) -> SplitFingerprint:
    """Writes the missing shards of a split, and returns the fingerprint of the whole split."""
    images = source.splits[split]
    originals = repeated(images.labels, count)
    paths = [shard_path(data_dir, split, shard, shards) for shard in range(shards)]
    present = set(remote.names_in(data_dir) or ())
    if os.path.basename(paths[0]) in present:
        done = sum(os.path.basename(path) in present for path in paths)
        say(f'{done:,} of {shards:,} {split} shards are already finished')
    used = np.unique(originals)
    with conversion.progress() as start:
        move = start(f'encoding {split} images', len(used))
        encoded = dict(zip(used.tolist(), _encode(images.pixels[used], size, move)))
        fingerprints = {
            original: SplitFingerprint().with_image(1 + int(images.labels[original]), encoded[original])
            for original in encoded
        }
        move = start(f'writing {split} images', count)
        for shard, path in enumerate(paths):
            first, end = count * shard // shards, count * (shard + 1) // shards
            if os.path.basename(path) not in present:
                content = io.BytesIO()
                with tarfile.open(fileobj=content, mode='w', format=tarfile.USTAR_FORMAT) as archive:
                    for number, original in enumerate(originals[first:end].tolist(), first):
                        label = 1 + int(images.labels[original])
                        add_sample(archive, f'{number:08d}', label, _extension(size), encoded[original], {})
                _write(path, content.getvalue(), os.path.join(data_dir, conversion.WORK_FOLDER))
            move(end)
    return sum((fingerprints[original] for original in originals.tolist()), SplitFingerprint())


def _write(path: str, content: bytes, work_dir: str) -> None:
    try:
        write_whole(path, content, work_dir)
    except tf.errors.OpError as error:
        raise DataError(
            f'{path}: cannot be written: {error.message}. The same command resumes and keeps finished files.'
        )


def _extension(size: int) -> str:
    return 'png' if size == SIDE else 'jpg'


def _encode(pixels: np.ndarray, size: int, move: conversion.Progress) -> List[bytes]:
    """Encodes images, uint8 [images, 32, 32, 3], on all cores, and returns the bytes of their files."""
    cores = len(os.sched_getaffinity(0))
    with tf.Graph().as_default() as graph:
        batch = tf.placeholder(tf.uint8, [None, SIDE, SIDE, 3])
        resized, encode = batch, tf.image.encode_png
        if size != SIDE:
            larger = tf.image.resize_bicubic(batch, [size, size], half_pixel_centers=True)
            resized = tf.cast(tf.clip_by_value(tf.round(larger), 0, 255), tf.uint8)
            encode = functools.partial(tf.image.encode_jpeg, quality=_JPEG_QUALITY)
        files = tf.map_fn(encode, resized, tf.string, parallel_iterations=cores, back_prop=False)
    config = tf.ConfigProto(intra_op_parallelism_threads=cores, inter_op_parallelism_threads=cores)
    encoded: List[bytes] = []
    with tf.Session(graph=graph, config=config) as session:
        for first in range(0, len(pixels), _BATCH):
            encoded += session.run(files, {batch: pixels[first : first + _BATCH]}).tolist()
            move(len(encoded))
    return encoded
