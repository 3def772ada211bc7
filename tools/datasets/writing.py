"""Making a new data set: the division of images into splits, TFRecord files, and tar shards."""

import collections
import contextlib
import functools
import hashlib
import io
import itertools
import os
import shutil
import tarfile
import tempfile
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from google.protobuf import json_format

from compat import tf
from data import remote
from data.dataset_info import DatasetInfo
from data.records import TRAIN, VALIDATION, DataError, shard_path, shares
from data.tar.layout import LABEL_EXTENSION
from tools.datasets import fingerprints, image_example
from tools.datasets.conversion import Progress, StartProgress, watched
from tools.datasets.fingerprints import SplitFingerprint

# The extension of the file with a record's fields other than image and label, for the conversion back.
FIELDS_EXTENSION = 'json'
_EXTENSIONS = {'JPEG': 'jpg', 'PNG': 'png'}
ENCODED, LABEL = 'image/encoded', 'image/class/label'


def check_can_be_made(data_dir: str) -> None:
    """Raises DataError unless the folder of a new data set is local, and missing or empty."""
    if remote.is_remote(data_dir):
        raise DataError(
            f'{data_dir}: must be a local folder. Write the data set to one, and copy it: gsutil -m cp -r '
            f'FOLDER {data_dir}, or aws s3 cp --recursive FOLDER {data_dir}.'
        )
    if os.path.lexists(data_dir) and not (os.path.isdir(data_dir) and not os.listdir(data_dir)):
        raise DataError(f'{data_dir}: exists already. Name a new folder.')


@contextlib.contextmanager
def new_data_dir(data_dir: str) -> Iterator[str]:
    """Yields a temporary folder to write a data set to, and renames it to `data_dir` when the block succeeds.

    An interrupted command therefore leaves nothing that looks like a data set.

    Raises:
      DataError: `data_dir` is not empty, is remote, or cannot be made.
    """
    check_can_be_made(data_dir)
    # A rename does not replace a link to an empty folder.
    target = os.path.realpath(data_dir)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        unfinished = tempfile.mkdtemp(prefix='.unfinished-', dir=os.path.dirname(target))
    except OSError as error:
        raise DataError(f'{data_dir}: cannot be made: {error.strerror}.')
    try:
        yield unfinished
        os.chmod(unfinished, 0o755)
        try:
            os.rename(unfinished, target)
        except OSError as error:
            raise DataError(f'{data_dir}: cannot be made: {error.strerror}.')
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_data_set(
    data_dir: str,
    name: str,
    source: str,
    classes: Sequence[str],
    examples: Sequence[Sequence[Callable[[], tf.train.Example]]],
    shards: Sequence[int],
    progress: StartProgress = lambda what, total: lambda done: None,
) -> DatasetInfo:
    """Writes record files and their description to a new or empty folder, and returns the description.

    Name, source and classes are those of `DatasetInfo.of`. `examples` are functions that make the Examples of each
    split, and `shards` the largest numbers of its files, of which none is empty. `progress` is as in `conversion`.
    """
    with new_data_dir(data_dir) as unfinished:
        written = []
        for split, of_split, most in zip((TRAIN, VALIDATION), examples, shards):
            move = progress(f'writing {split} images', len(of_split))
            written.append(write_shards(unfinished, split, of_split, min(most, len(of_split)), move))
        return fingerprints.described(name, source, classes, *written).write(unfinished)


def write_shards(
    data_dir: str,
    split: str,
    examples: Sequence[Callable[[], tf.train.Example]],
    shards: int,
    move: Progress = lambda done: None,
) -> SplitFingerprint:
    """Writes the examples of a split to `shards` record files, in order, by `shares`.

    The examples are made by functions, so that only one is in memory at a time; `move` is called with the number of
    them so far. Returns the fingerprint of those that have an image and a label.
    """
    written, remaining = SplitFingerprint(), watched(examples, move)
    for shard, share in enumerate(shares(len(examples), shards)):
        made = (make() for make in itertools.islice(remaining, len(share)))
        written += write_file(shard_path(data_dir, split, shard, shards), made)
    return written


def write_file(path: str, examples: Iterable[tf.train.Example], first: int = 0) -> SplitFingerprint:
    """Writes a tar shard, if the name ends so, or else a record file, and returns the fingerprint.

    A tar shard holds images in JPEG or PNG files, numbered from `first` on, and all fields of their Examples.
    """
    written = SplitFingerprint()
    is_tar = path.endswith('.tar')
    try:
        open_tar = functools.partial(tarfile.open, mode='w', format=tarfile.USTAR_FORMAT)
        with remote.explained(path, remote.WRITE), (open_tar if is_tar else tf.io.TFRecordWriter)(path) as file:
            for number, example in enumerate(examples, first):
                label, encoded = label_and_image(example)
                if label is not None and encoded:
                    written = written.with_image(label, encoded)
                if is_tar:
                    kept = tf.train.Example()
                    kept.CopyFrom(example)
                    del kept.features.feature[ENCODED], kept.features.feature[LABEL]
                    fields = json_format.MessageToJson(kept, indent=None, sort_keys=True).encode()
                    add_sample(file, f'{number:08d}', label or 0, str(extension_of(encoded)), encoded, fields)
                else:
                    # Otherwise the order of an Example's fields is random, and the same data gives different files.
                    file.write(example.SerializeToString(deterministic=True))
    except OSError as error:
        raise DataError(f'{path}: cannot be written: {error.strerror}.')
    except tf.errors.OpError as error:
        raise DataError(f'{path}: cannot be written: {error.message}.')
    return written


def label_and_image(example: tf.train.Example) -> Tuple[Optional[int], bytes]:
    """The label of an Example, None if it has none, and its encoded image, empty if it has none."""
    feature = example.features.feature
    labels, images = feature[LABEL].int64_list.value, feature[ENCODED].bytes_list.value
    return labels[0] if labels else None, images[0] if images else b''


def extension_of(encoded: bytes) -> Optional[str]:
    """The extension of a decodable image in a tar shard; None for a GIF file, which shards cannot hold."""
    return _EXTENSIONS.get(image_example.format_of(encoded))


def add_sample(
    archive: tarfile.TarFile, key: str, label: int, extension: str, encoded: bytes, fields: Optional[bytes] = None
) -> None:
    """Adds a sample to a shard in POSIX's format: an image, its label, and the other fields of its Example as JSON."""
    files = {extension: encoded, LABEL_EXTENSION: b'%d' % label, FIELDS_EXTENSION: fields}
    for each, content in files.items():
        if content is not None:
            header = tarfile.TarInfo(f'{key}.{each}')
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))


def digest(content: bytes) -> bytes:
    """The SHA-256 digest of a content: of an image file, its identity."""
    return hashlib.sha256(content).digest()


def split_by_content(digests: Sequence[bytes], labels: Sequence[int], fraction: float) -> Tuple[List[int], List[int]]:
    """Divides images, given by digest and label: the indices of the training and of the validation images.

    Equal contents stay together, and each class contributes the same share of its contents, rounded to the nearest
    whole number, for validation. The order mixes the classes, and depends on the contents alone.
    """
    copies: Dict[bytes, List[int]] = collections.defaultdict(list)
    for index, content in enumerate(digests):
        copies[content].append(index)
    of_class: Dict[int, List[bytes]] = collections.defaultdict(list)
    for content in sorted(copies):
        of_class[min(labels[index] for index in copies[content])].append(content)
    validation = {content for contents in of_class.values() for content in contents[: round(fraction * len(contents))]}
    # Digests are pseudo-random, so that their order mixes the classes.
    return (
        [index for content in sorted(set(copies) - validation) for index in copies[content]],
        [index for content in sorted(validation) for index in copies[content]],
    )
