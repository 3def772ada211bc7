"""Names the records that the input pipeline skips, by an empty file for each; `run.skipped_records` explains them."""

import os

from console.tensorflow_versions import tf
from data.sources import common_folder, source_of
from inception_v3.config import Config

# Between the file and the position in a name.
SEPARATOR = '@'
# More bytes than a path can have.
_LONGEST_PATH = 1 << 20


def folder_of(config: Config, split: str) -> str:
    """The folder of a split in model_dir: an empty file for each skipped record, named FILE@POSITION."""
    return os.path.join(str(config.model_dir), 'bad_records', split)


def name_bad_records(config: Config, split: str, paths: tf.Tensor, positions: tf.Tensor) -> tf.Operation:
    """Writes an empty file named after each bad record; fails if there are more than `max_bad_records`.

    It writes files because the hosts of a TPU run the input pipeline without Python. A record counts once, even if it
    is read again in the next epoch or by another host.

    The paths, string [records], are of at least one record, and the positions, int64 [records], are in these files. At
    run time, the operation raises `tf.errors.InvalidArgumentError` if there are too many.
    """
    folder = folder_of(config, split)
    begin = len(os.fsencode(common_folder(source_of(config).find(split))))
    # As in `Source.name_of`.
    file_names = tf.strings.substr(paths, begin, _LONGEST_PATH)
    for character, code in (('%', '%25'), ('/', '%2F')):
        file_names = tf.strings.regex_replace(file_names, character, code)
    names = tf.strings.join([folder, os.sep, file_names, SEPARATOR, tf.as_string(positions)])

    def write(index: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(names[index], '')]):
            return index + 1

    written = tf.while_loop(lambda index: index < tf.size(names), write, [0], parallel_iterations=1)
    # The pattern depends on the loop. With a constant pattern, TensorFlow's constant folding would list the files
    # before they are written.
    pattern = tf.strings.join([folder, os.sep, tf.strings.substr(names[0], 0, written * 0), '*@*'])
    count = tf.size(tf.io.matching_files(pattern))
    return tf.Assert(count <= config.max_bad_records, ['more bad records than may be skipped:', count])
