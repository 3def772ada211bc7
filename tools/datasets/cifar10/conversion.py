"""Reads CIFAR-10 as published, without trusting the files, and writes it, with repeated images, to tar shards.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. The binary version has five batches of 10,000
training images, one of test images, and the names of ten classes.
"""

import hashlib
import io
import json
import os
import tarfile
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np

from compat import tf
from console.processes import usable_cores
from data import records, remote
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.formats import FORMATS
from data.records import DataError
from tools.datasets import archives, conversion, fingerprints
from tools.datasets.conversion import Progress, Say, StartProgress
from tools.datasets.fingerprints import SplitFingerprint
from tools.datasets.writing import add_sample

SIDE = 32
CLASSES = 10
_BATCH_IMAGES = 10000
_IMAGE_BYTES = 3 * SIDE * SIDE
_BATCHES = {
    records.TRAIN: [f'data_batch_{number}.bin' for number in range(1, 6)],
    records.VALIDATION: ['test_batch.bin'],
}
_META = 'batches.meta.txt'
_FILES = [_META, *(name for names in _BATCHES.values() for name in names)]
_ADVICE = 'Download it again from https://www.cs.toronto.edu/~kriz/cifar.html.'
# Images per call of TensorFlow.
_ENCODED_AT_ONCE = 500
_SETTINGS_NAME = 'settings.json'


class Images(NamedTuple):
    """The images of a split, RGB, uint8 [images, 32, 32, 3]; and their labels, int64 [images], 0 to 9."""

    pixels: np.ndarray
    labels: np.ndarray


class Cifar10(NamedTuple):
    """The splits by name, the names of the classes by label, and SHA-256 of all pixels and labels in hexadecimal."""

    splits: Dict[str, Images]
    class_names: List[str]
    digest: str


def read(source: str) -> Cifar10:
    """Reads the data set from an archive, or the folder that it unpacks to, local or remote.

    Raises DataError unless it is the complete CIFAR-10 as published.
    """
    files = _files(source)
    missing = sorted({*_FILES} - {*files})
    if len(missing) == len(_FILES):
        raise DataError(
            f'{source}: not CIFAR-10 in its binary version: it has no data_batch_1.bin. Name the archive '
            'cifar-10-binary.tar.gz, or the folder that it unpacks to.'
        )
    if missing:
        raise DataError(f'{source}: incomplete CIFAR-10: {", ".join(missing)} missing. {_ADVICE}')
    splits = {}
    hashed = hashlib.sha256()
    for split, names in _BATCHES.items():
        parts = [_batch(files[name], f'{source}, {name}') for name in names]
        images = splits[split] = Images(*map(np.concatenate, zip(*parts)))
        hashed.update(images.pixels.tobytes() + images.labels.astype('<i8').tobytes())
    class_names = [line for line in files[_META].decode(errors='replace').splitlines() if line.strip()]
    if len(class_names) != CLASSES:
        raise DataError(f'{source}, {_META}: does not hold the names of {CLASSES} classes. {_ADVICE}')
    return Cifar10(splits, class_names, hashed.hexdigest())


def _files(source: str) -> Dict[str, bytes]:
    """The contents of the files of the data set that exist, by name without folder."""
    with remote.explained(source, remote.READ):
        is_folder = tf.io.gfile.isdir(source)
    if is_folder:
        names = {*_FILES} & {*(remote.names_in(source) or ())}
        return {name: archives.read_file(os.path.join(source, name)) for name in names}
    if not remote.exists(source):
        raise DataError(f'{source}: no such file or folder.')
    found = archives.files_in(source, lambda name: os.path.basename(name) in _FILES)
    return {os.path.basename(name): content for name, content in found}


def _batch(content: bytes, where: str) -> Images:
    size = _BATCH_IMAGES * (1 + _IMAGE_BYTES)
    if len(content) != size:
        raise DataError(f'{where}: {len(content):,} bytes; {_BATCH_IMAGES:,} images have {size:,}. {_ADVICE}')
    rows = np.frombuffer(content, np.uint8).reshape(_BATCH_IMAGES, 1 + _IMAGE_BYTES)
    labels = rows[:, 0].astype(np.int64)
    wrong = np.flatnonzero(labels >= CLASSES)
    if len(wrong):
        raise DataError(
            f'{where}: {len(wrong):,} of {_BATCH_IMAGES:,} labels are not in 0 to {CLASSES - 1} (first: image '
            f'{wrong[0]:,}). {_ADVICE}'
        )
    return Images(rows[:, 1:].reshape(_BATCH_IMAGES, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels)


def convert(source: Cifar10, data_dir: str, images: Dict[str, int], shards: Dict[str, int], say: Say) -> None:
    """Converts CIFAR-10 to tar shards, or resumes a conversion.

    The numbers of images and of shards are by split.
    """
    # The size is recorded, because an earlier version had other sizes.
    settings = {'CIFAR-10': f'that of SHA-256 {source.digest[:12]}', '--size': str(SIDE)}
    for what, numbers in (('images', images), ('shards', shards)):
        settings.update({f'--{split}_{what}': str(number) for split, number in numbers.items()})

    def work(work_dir: str, progress: StartProgress) -> Tuple[DatasetInfo, Dict[str, Any]]:
        write_whole(os.path.join(work_dir, _SETTINGS_NAME), json.dumps({'settings': settings}), work_dir)
        present = {*(remote.names_in(data_dir) or ())}
        written = []
        for split, count in images.items():
            paths = [FORMATS['tar'].shard_path(data_dir, split, shard, shards[split]) for shard in range(shards[split])]
            missing = [os.path.basename(path) not in present for path in paths]
            if not all(missing):
                say(f'{missing.count(False):,} of {len(paths):,} {split} shards are already finished')
            numbers = repeated(source.splits[split].labels, count)
            move = progress(f'encoding {split} images', min(count, len(source.splits[split].labels)))
            samples = _samples(source.splits[split], numbers, move)
            move = progress(f'writing {split} images', count)
            for path, is_missing, share in zip(paths, missing, records.shares(count, len(paths))):
                if is_missing:
                    content = io.BytesIO()
                    with tarfile.open(fileobj=content, mode='w', format=tarfile.USTAR_FORMAT) as archive:
                        for number in share:
                            sample = samples[numbers[number]]
                            add_sample(archive, f'{number:08d}', sample.label, 'png', sample.encoded)
                    write_whole(path, content.getvalue(), work_dir)
                move(share.stop)
            written.append(sum((samples[number].fingerprint for number in numbers.tolist()), SplitFingerprint()))
        origin = 'CIFAR-10 (Krizhevsky, 2009), 50,000 training and 10,000 test images, repeated'
        return fingerprints.described('cifar10', origin, source.class_names, *written), {}

    conversion.run(data_dir, _SETTINGS_NAME, settings, work, say)


def repeated(labels: np.ndarray, count: int) -> np.ndarray:
    """The indices of images with these labels, repeated up to a number, every image and every class equally often.

    Each repetition has all originals, in its own order that mixes the classes. In a partial last repetition, the
    numbers of images per class differ by at most one. The result is deterministic.
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


class _Sample(NamedTuple):
    """An encoded image, its label, from 1 on, and their fingerprint."""

    encoded: bytes
    label: int
    fingerprint: SplitFingerprint


def _samples(images: Images, numbers: np.ndarray, move: Progress) -> Dict[int, _Sample]:
    """Encodes the images with some numbers, which may be repeated, once each, on all cores."""
    cores = usable_cores()
    with tf.Graph().as_default() as graph:
        batch = tf.placeholder(tf.uint8, [None, SIDE, SIDE, 3])
        encoded_files = tf.map_fn(tf.image.encode_png, batch, tf.string, parallel_iterations=cores, back_prop=False)
    config = tf.ConfigProto(intra_op_parallelism_threads=cores, inter_op_parallelism_threads=cores)
    samples: Dict[int, _Sample] = {}
    used = np.unique(numbers)
    with tf.Session(graph=graph, config=config) as session:
        for first in range(0, len(used), _ENCODED_AT_ONCE):
            part = used[first : first + _ENCODED_AT_ONCE]
            for number, encoded in zip(
                part.tolist(), session.run(encoded_files, {batch: images.pixels[part]}).tolist()
            ):
                label = 1 + int(images.labels[number])
                samples[number] = _Sample(encoded, label, SplitFingerprint().with_image(label, encoded))
            move(len(samples))
    return samples
