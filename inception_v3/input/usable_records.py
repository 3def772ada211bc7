"""Preprocesses records of which some cannot be used, and names the unusable ones.

In evaluation, and in training without a seed, unusable records are left out. In training with a seed, they are
replaced, so that the other images of every batch stay the same: see `map_or_replace`.

A graph cannot catch the failure of an operation, but a data set can ignore it. Setting up such a data set takes as long
as preprocessing several images, and only one data set is processed at a time. Therefore a data set handles a group of
records.
"""

import os
import re
from typing import Any, Callable, Tuple

from compat import tf
from compat.graph_checks import require
from data.records import Record
from data.sources import common_folder
from inception_v3.config import Config
from inception_v3.input.ordered_records import GROUP_RECORDS
from inception_v3.input.padding import zeros_like

# Part of the message about records that cannot be replaced.
NONE_USABLE = 'consecutive records can be used'
# Separates the file from the position in a name.
SEPARATOR = '@'
NAME = re.compile(r'.+@\d+')
# More bytes than a path can have.
_LONGEST_PATH = 1 << 20

# Called with the paths, string [records], and the positions, int64 [records], of bad records.
_NameBad = Callable[[tf.Tensor, tf.Tensor], tf.Operation]


def map_or_skip(
    dataset: tf.data.Dataset, preprocess: Callable[..., Any], parallel_calls: int, name_bad: _NameBad
) -> tf.data.Dataset:
    """Preprocesses a data set of records with their places; leaves out and names the unusable ones.

    `preprocess` converts a record to (features, label), `parallel_calls` at a time.
    """

    def of_group(records: Record) -> Any:
        _, features, labels = _tried(records, GROUP_RECORDS, preprocess, parallel_calls, name_bad)
        return features, labels

    return dataset.batch(GROUP_RECORDS).map(of_group).prefetch(1).unbatch()


def map_or_replace(
    dataset: tf.data.Dataset, preprocess: Callable[..., Any], parallel_calls: int, name_bad: _NameBad, step: tf.Tensor
) -> tf.data.Dataset:
    """Preprocesses records in the order for a seed; replaces and names the unusable ones.

    A lane's consecutive records are a run. A bad record gets the image of the next usable record in its run,
    cyclically. So the batches stay the same for any number of hosts, and for any first step.

    The data set has groups of records with their places and keys, each [lanes, steps, width, …]: the records that
    several lanes supply for several steps. A run consists of a lane's records in these steps. The groups begin before
    `step`, the number of completed steps, at a multiple of `steps`.

    Returns:
      A data set of (features, label), in the order of steps. At run time, `tf.errors.InvalidArgumentError` is raised if
      no record of a run can be used.
    """
    lanes, steps, width = tf.data.get_output_shapes(dataset).serialized.as_list()
    run = steps * width
    # The images of a group arrive lane by lane, and leave step by step.
    leaving = tf.reshape(tf.transpose(tf.reshape(tf.range(lanes * run), [lanes, steps, width]), [1, 0, 2]), [-1])

    def of_group(group: Record) -> Any:
        serialized, path, position = (tf.reshape(each, [-1]) for each in group[:-1])
        records = Record(serialized, path, position, tf.reshape(group.key, [-1, 2]))
        usable, features, labels = _tried(records, lanes * run, preprocess, parallel_calls, name_bad)
        chosen = tf.gather(_replaced(usable, lanes, run), leaving)
        some = tf.gather(records.path, 0), tf.gather(records.path, lanes * run - 1)
        message = ['none of', run, f'{NONE_USABLE}, in one of the files from', *some]
        with tf.control_dependencies([require(tf.reduce_all(chosen >= 0), message)]):
            return tf.nest.map_structure(lambda each: tf.gather(each, tf.maximum(chosen, 0)), (features, labels))

    dataset = dataset.map(of_group).prefetch(1).unbatch()
    return dataset.skip(step % steps * lanes * width) if steps > 1 else dataset


def _tried(
    records: Record, most: int, preprocess: Callable[..., Any], parallel_calls: int, name_bad: _NameBad
) -> Tuple[tf.Tensor, Any, Any]:
    """Preprocesses a group of at most `most` records with their places.

    Returns:
      The indices of the usable records, int64 [usable], in order; their features and their labels, each [usable, …].
    """
    tries = tf.data.Dataset.from_tensor_slices(records).enumerate()
    tries = tries.map(lambda index, record: (index, *preprocess(record)), parallel_calls)
    usable = tries.apply(tf.data.experimental.ignore_errors()).batch(most)
    # If no record of the group is usable, the result is an empty batch.
    usable = usable.concatenate(zeros_like(usable)).take(1)
    indices, features, labels = tf.data.experimental.get_single_element(usable)
    bad, _ = tf.setdiff1d(tf.range(tf.size(records.position, out_type=tf.int64)), indices)

    def name_them() -> tf.Operation:
        return name_bad(tf.gather(records.path, bad), tf.gather(records.position, bad))

    with tf.control_dependencies([tf.cond(tf.size(bad) > 0, name_them, tf.no_op)]):
        return indices, tf.nest.map_structure(tf.identity, features), tf.nest.map_structure(tf.identity, labels)


def _replaced(usable: tf.Tensor, runs: int, run: int) -> tf.Tensor:
    """For each record of several runs, the index in `usable` of the record to use; -1 if its run has none.

    `usable`, int64 [usable], has the indices of the usable records; there are `runs` runs of `run` records.
    """
    places = tf.range(1, tf.size(usable) + 1)
    places = tf.reshape(tf.scatter_nd(usable[:, tf.newaxis], places, [runs * run]) - 1, [runs, run])
    # [runs, run, run]: for each record, the records of its run, starting with itself.
    following = tf.gather(places, (tf.range(run)[:, tf.newaxis] + tf.range(run)) % run, axis=1)
    first = tf.argmax(tf.cast(following >= 0, tf.int32), axis=2)
    return tf.reshape(tf.gather(following, first[:, :, tf.newaxis], batch_dims=2), [-1])


def folder_of(config: Config, split: str) -> str:
    """The folder in model_dir with a file for each skipped record of a split, named FILE@POSITION.

    With several machines, the file contains the number of the worker that skipped the record last; otherwise it is
    empty.
    """
    return os.path.join(str(config.model_dir), 'bad_records', split)


def name_bad_records(config: Config, split: str, paths: tf.Tensor, positions: tf.Tensor) -> tf.Operation:
    """Writes a file named after each bad record, see `folder_of`; fails if there are more than `max_bad_records`.

    It writes files because the hosts of a TPU run the input pipeline without Python. A record counts once, even if it
    is read again in the next epoch or by another host.

    There is at least one record. The paths are string [records], and the positions in these files are int64 [records].
    At run time, the operation raises `tf.errors.InvalidArgumentError` if there are too many.
    """
    folder = folder_of(config, split)
    begin = len(os.fsencode(common_folder(config.source.find(split))))
    # As in `Source.name_of`.
    file_names = tf.strings.substr(paths, begin, _LONGEST_PATH)
    for character, code in (('%', '%25'), ('/', '%2F')):
        file_names = tf.strings.regex_replace(file_names, character, code)
    names = tf.strings.join([folder, os.sep, file_names, SEPARATOR, tf.as_string(positions)])

    worker = str(config.task_index) if config.machines > 1 else ''

    def write(index: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(names[index], worker)]):
            return index + 1

    written = tf.while_loop(lambda index: index < tf.size(names), write, [0], parallel_iterations=1)
    # The pattern depends on the loop. With a constant pattern, TensorFlow's constant folding would list the files
    # before they are written.
    pattern = tf.strings.join([folder, os.sep, tf.strings.substr(names[0], 0, written * 0), '*@*'])
    count = tf.size(tf.io.matching_files(pattern))
    return require(count <= config.max_bad_records, ['more bad records than may be skipped:', count])
