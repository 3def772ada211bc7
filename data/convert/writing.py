"""Writing the record files of a new data set to a local folder."""

import contextlib
import os
import shutil
import tempfile
from typing import Callable, Iterator, Sequence

from console.tensorflow_versions import tf
from data import remote
from data.fingerprint import SplitFingerprint
from data.records import DataError, shard_path


def check_can_be_made(data_dir: str) -> None:
    """Checks that a folder for a new data set is local, and is missing or empty.

    Raises:
      DataError: it is remote, or not empty.
    """
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


def write_shards(
    data_dir: str, split: str, examples: Sequence[Callable[[], tf.train.Example]], shards: int
) -> SplitFingerprint:
    """Writes examples to `shards` record files, in order. The numbers of examples per file differ by at most one.

    Args:
      data_dir: the folder, which must exist.
      split: `records.TRAIN` or `records.VALIDATION`.
      examples: functions that make the examples, so that only one is in memory at a time.
      shards: the number of files.

    Returns:
      The fingerprint of the examples that have an image and a label.

    Raises:
      DataError: a file cannot be written.
    """
    written = SplitFingerprint()
    for shard in range(shards):
        share = examples[len(examples) * shard // shards : len(examples) * (shard + 1) // shards]
        try:
            with tf.io.TFRecordWriter(shard_path(data_dir, split, shard, shards)) as writer:
                for make in share:
                    example = make()
                    # Otherwise the order of an Example's fields is random, and the same data gives different files.
                    writer.write(example.SerializeToString(deterministic=True))
                    feature = example.features.feature
                    label = feature['image/class/label'].int64_list.value
                    encoded = feature['image/encoded'].bytes_list.value
                    if label and encoded:
                        written = written.with_image(label[0], encoded[0])
        except tf.errors.OpError as error:
            raise DataError(f'{data_dir}: the {split} files cannot be written: {error.message}.')
    return written
