"""CIFAR-10 as the published example of streaming has it: 1,280,000 + 50,000 images in 640 + 50 tar shards.

  python -m data.cifar10 cifar-10-binary.tar.gz --data_dir=cifar10

The source is an archive as it is published, cifar-10-binary.tar.gz or cifar-10-python.tar.gz, or the folder that it
unpacks to. Both versions give the same shards, to the byte. Classes are numbered from 1 on; 0 is the background.

The example calls its images upsampled. Here the 50,000 training and 10,000 test images are repeated, 25.6 and 5 times:
in whole rounds, each in another order, and a last one of as many images of each class.

Pixels stay 32 x 32, in PNG files, which lose nothing, about 5 GB in all; the input pipeline resizes what it crops. The
example's speed, 1,522 images/s on each core of a TPU v3, is that of small images. --size=224 upsamples the pixels, too,
bicubically, to JPEG files of quality 95, about 12 GB, as does any other size.

A conversion that was stopped goes on with the same command: finished shards are kept. Each image is encoded once, on
all cores, and kept in memory for its copies.
"""

import argparse
import functools
import io
import json
import os
import signal
import sys
import tarfile
from typing import Callable, Dict, List

import numpy as np
import tensorflow as tf

from data import conversion, records, remote
from data.cifar10 import source as cifar10_source
from data.cifar10.source import CLASSES, SIDE, Cifar10
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.records import DataError
from data.tar import layout as tar_layout
from data.tar_shards import add_sample

IMAGES = {records.TRAIN: 1280000, records.VALIDATION: 50000}
SHARDS = {records.TRAIN: 640, records.VALIDATION: 50}
# Of an upsampled image more is a waste of disk, and of the 50,000 in memory.
LARGEST_SIZE = 512
_JPEG_QUALITY = 95
# Images that are handed to TensorFlow at a time.
_BATCH = 500
_SETTINGS_NAME = 'settings.json'

Say = Callable[[str], None]


def repeated(labels: np.ndarray, count: int) -> np.ndarray:
    """Repeats images until there are as many as are wanted: all of them equally often, and all classes.

    Args:
      labels: int [originals], their classes.
      count: how many there are to be.

    Returns:
      int64 [count], the original that each is: round after round of all, each in an order that mixes the classes, and
      the last of some, of whose classes none has more than another has by two; the same each time.
    """
    rounds, rest = divmod(count, len(labels))
    orders = [np.random.RandomState(number).permutation(len(labels)) for number in range(rounds + 1)]
    last = orders.pop()
    of_class = [last[labels[last] == label] for label in np.unique(labels)]
    # One of each class, then another of each, and so on.
    dealt = [original for place in range(len(last)) for original in (c[place] for c in of_class if place < len(c))]
    chosen = np.zeros(len(labels), bool)
    chosen[dealt[:rest]] = True
    return np.concatenate([*orders, last[chosen[last]]])


def convert(
    source: Cifar10, data_dir: str, size: int, images: Dict[str, int], shards: Dict[str, int], say: Say
) -> None:
    """Writes CIFAR-10 as tar shards, or goes on with what was begun.

    Args:
      source: the data set.
      data_dir: a folder, local or remote: new, empty, or begun by this.
      size: height and width of the images, in pixels: `SIDE` for those that they have.
      images: how many each split is to have.
      shards: the number of shards of each split, at most as many.
      say: is told what happens, in lines.

    Raises:
      DataError: the folder holds something else, or a shard cannot be written. What was finished is kept.
      RemoteError: a remote file is refused, or cannot be reached. What was finished is kept.
    """
    settings = {'CIFAR-10': f'that of SHA-256 {source.digest[:12]}', '--size': str(size)}
    for what, numbers in (('images', images), ('shards', shards)):
        settings.update({f'--{split}_{what}': str(number) for split, number in numbers.items()})
    finished = conversion.settings_in(os.path.join(data_dir, conversion.REPORT_NAME))
    if finished is not None:
        conversion.check_same(data_dir, finished, settings)
        say(f'{data_dir}: was finished before')
        return
    work_dir = os.path.join(data_dir, conversion.WORK_FOLDER)
    settings_path = os.path.join(work_dir, _SETTINGS_NAME)
    begun = conversion.settings_in(settings_path)
    if begun is not None:
        conversion.check_same(data_dir, begun, settings)
    else:
        conversion.make_dir(data_dir, work_dir)
    told = json.dumps({'settings': settings}).encode()
    with conversion.alone_in(work_dir):
        _write(settings_path, told, work_dir)
        written = [_write_split(source, split, data_dir, size, images[split], shards[split], say) for split in IMAGES]
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
        # The last: where it is, all is finished.
        _write(os.path.join(data_dir, conversion.REPORT_NAME), told, work_dir)
        tf.io.gfile.rmtree(work_dir)
    say(
        f'{info.train_images:,} training and {info.validation_images:,} validation images of {CLASSES} classes in '
        f'{data_dir}'
    )


def _write_split(
    source: Cifar10, split: str, data_dir: str, size: int, count: int, shards: int, say: Say
) -> SplitFingerprint:
    """Writes the shards of a split that are not there, and returns the fingerprint of all."""
    images = source.splits[split]
    originals = repeated(images.labels, count)
    paths = [tar_layout.shard_path(data_dir, split, shard, shards) for shard in range(shards)]
    present = set(remote.names_in(data_dir) or ())
    if os.path.basename(paths[0]) in present:
        done = sum(os.path.basename(path) in present for path in paths)
        say(f'{done:,} of {shards:,} {split} shards were finished before')
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
        conversion.write_whole(path, content, work_dir)
    except tf.errors.OpError as error:
        raise DataError(
            f'{path}: cannot be written: {error.message}. What is finished is kept, and the same command goes on.'
        )


def _extension(size: int) -> str:
    return 'png' if size == SIDE else 'jpg'


def _encode(pixels: np.ndarray, size: int, move: conversion.Progress) -> List[bytes]:
    """The files of images, uint8 [images, 32, 32, 3], encoded on all cores."""
    cores = len(os.sched_getaffinity(0))
    with tf.Graph().as_default() as graph:
        batch = tf.compat.v1.placeholder(tf.uint8, [None, SIDE, SIDE, 3])
        resized, encode = batch, tf.image.encode_png
        if size != SIDE:
            larger = tf.compat.v1.image.resize_bicubic(batch, [size, size], half_pixel_centers=True)
            resized = tf.cast(tf.clip_by_value(tf.round(larger), 0, 255), tf.uint8)
            encode = functools.partial(tf.image.encode_jpeg, quality=_JPEG_QUALITY)
        files = tf.map_fn(encode, resized, tf.string, parallel_iterations=cores, back_prop=False)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=cores, inter_op_parallelism_threads=cores)
    encoded: List[bytes] = []
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        for first in range(0, len(pixels), _BATCH):
            encoded += session.run(files, {batch: pixels[first : first + _BATCH]}).tolist()
            move(len(encoded))
    return encoded


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='python -m data.cifar10', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('source', help='the archive, or the folder that it unpacks to')
    parser.add_argument('--data_dir', required=True, help='the folder to make, for the shards; local, gs:// or s3://')
    parser.add_argument(
        '--size',
        type=int,
        default=SIDE,
        help=f'height and width of the images, in pixels, {SIDE} to {LARGEST_SIZE} (default {SIDE}: as they are)',
    )
    for split, number in IMAGES.items():
        parser.add_argument(f'--{split}_images', type=int, default=number, help=f'{split} images (default {number:,})')
    for split, number in SHARDS.items():
        parser.add_argument(f'--{split}_shards', type=int, default=number, help=f'{split} shards (default {number})')
    return parser


def main() -> None:
    """Converts what is named on the command line."""
    parser = _parser()
    arguments = parser.parse_args()
    images, shards = (
        {split: getattr(arguments, f'{split}_{what}') for split in IMAGES} for what in ('images', 'shards')
    )
    if not SIDE <= arguments.size <= LARGEST_SIZE:
        parser.error(f'--size={arguments.size}: must be {SIDE} to {LARGEST_SIZE}.')
    for split in IMAGES:
        if not 1 <= shards[split] <= images[split]:
            parser.error(
                f'--{split}_shards={shards[split]}: must be at least 1, and at most --{split}_images={images[split]}.'
            )
    # What a machine sends when it is shut down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code, message = 0, ''
    try:
        source = cifar10_source.read(arguments.source)
        convert(source, arguments.data_dir, arguments.size, images, shards, lambda line: print(line, file=sys.stderr))
    except KeyboardInterrupt:
        code, message = 130, 'interrupted; the same command goes on, and keeps what is finished'
    except remote.UnreachableError as error:
        code, message = 1, str(error)
    except (DataError, remote.RemoteError) as error:
        code, message = 2, str(error)
    if code:
        parser.exit(code, f'{parser.prog}: {message}\n')


if __name__ == '__main__':
    main()
