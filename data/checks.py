"""Checks of a data set's files before they are read: names, kinds, sizes, and enough records with image and label.

Commands call these checks; the input pipeline relies on them.
"""

import itertools
import os
import re
from typing import List, Optional, Sequence

from compat import tf
from data import record_checker, record_counts, records, remote, tfrecord, tfrecord_files
from data.dataset_info import FILE_NAME
from data.record_checker import RecordChecker
from data.records import DataError
from data.sources import FOLDERS, Source
from data.tf_example import Fields

_COUNTED = re.compile(r'(.*)-(\d+)-of-(\d+)(.*)', re.DOTALL)
_NUMBERED = re.compile(r'(.*-)(\d+)(\.tar)?')
# The largest TFRecord data set, in bytes, whose record lengths are checked before a run; the check takes seconds.
_LARGEST_CHECKED = 16 << 30


def checker(data_format: str, num_classes: int, with_boxes: bool, fields: Fields) -> RecordChecker:
    """A checker of the records of a format; the other arguments are those of `RecordChecker`."""
    if data_format != 'tar':
        return RecordChecker(num_classes, with_boxes, fields)
    from data.tar.shard import SampleChecker

    return SampleChecker(num_classes, with_boxes, fields)


def check(source: Source, paths: Sequence[str], skipped: int) -> Optional[int]:
    """Raises DataError unless files have more records than may be skipped, and the first has its image and label.

    Returns the number of records, if it is known without reading the files.
    """
    count = check_not_empty(source.data_format, paths, skipped)
    if skipped:
        return count
    if source.data_format == 'tar':
        from data.tar import shard

        shard.check_keys(paths[0], source.fields)
    else:
        record_checker.check_keys(paths[0], source.fields)
    return count


def incomplete(split: str, names: Sequence[str], present: int) -> str:
    """A message about missing files of a split: their names, and the number of files that are present."""
    return (
        f'the data set is incomplete: {len(names)} of {len(names) + present} {split} files are missing, the first is '
        f'{names[0]}. The others are read.'
    )


def other_count(split: str, count: int, described: int) -> str:
    """A message about a split whose number of records differs from its description."""
    return f'{split} records: {count:,}; {FILE_NAME} says {described:,}.'


def missing(source: Source, split: str, paths: Sequence[str]) -> List[str]:
    """The names of the missing files, according to the names of the present ones."""
    names = {os.path.basename(path) for path in paths}
    series = {(m[1], len(m[2]), m[3], m[4]) for m in map(_COUNTED.fullmatch, names) if m}
    expected = {
        f'{begin}-{number:0{width}d}-of-{count}{end}'
        for begin, width, count, end in series
        if int(count) <= len(names) * 1000
        for number in range(int(count))
    }
    if not series and not source.patterns(split) and not source.folder(split):
        numbered = [m for m in map(_NUMBERED.fullmatch, names) if m]
        most = max((int(m[2]) for m in numbered), default=0)
        expected = {f'{m[1]}{number:0{len(m[2])}d}{m[3] or ""}' for m in numbered[:1] for number in range(most)}
    return sorted(expected - names)


def unused(source: Source, split: str, paths: Sequence[str]) -> List[str]:
    """The names of unread files beside those of a split: backups, descriptions, files of other kinds."""
    if source.patterns(split):
        return []
    folder, read = source.folder(split), {os.path.basename(path) for path in paths}
    names = [name for name in remote.names_in(folder or source.data_dir) or () if name not in read]
    if folder:
        return [name for name in names if name != record_counts.FILE_NAME]
    beside = [f'{name}/' for name in source.subfolders(FOLDERS[split], [name.rstrip('/') for name in names])]
    return [*sorted(name for name in names if name.startswith(f'{split}-')), *beside]


def check_not_empty(data_format: str, paths: Sequence[str], skipped: int = 0) -> Optional[int]:
    """Raises DataError unless files have more records than may be skipped: without any, the pipeline loops forever.

    Reads no more records than necessary. Also raises DataError for impossible lengths of local records, and for tar
    shards that are too large. Returns the number of records, if it is known.
    """
    check_are_files(paths)
    found = 0
    for path in paths:
        try:
            remote.check_readable(path)
            count_first = _count_first_samples if data_format == 'tar' else _count_first_records
            found += count_first(path, skipped + 1 - found)
        except tf.errors.OpError as error:
            raise DataError(f'{path}: cannot be read: {error.message}')
        if found > skipped:
            break
    where = f'{paths[0]}{" and the other files" if len(paths) > 1 else ""}'
    if not found:
        raise DataError(f'{where}: no records.')
    if found <= skipped:
        raise DataError(
            f'{where}: {found} records, and --max_bad_records={skipped} allows all of them to be skipped. Lower it.'
        )
    if data_format == 'tfrecord':
        return check_lengths(paths)
    from data.tar import shard

    for path, size in zip(paths, records.sizes_of(paths)):
        problem = shard.size_problem(path, size)
        if problem:
            raise DataError(f'{path}: {problem}')
    return None


def check_are_files(paths: Sequence[str]) -> None:
    """Raises DataError for a file that is not a regular one. Reading a named pipe would block forever."""
    for path in paths:
        kind = records.irregular_kind(path)
        if kind:
            raise DataError(f'{path}: cannot be read: it has the name of a data set file, but is {kind}.')


def _count_first_records(path: str, at_most: int) -> int:
    try:
        return sum(1 for _ in itertools.islice(tfrecord_files.serialized_in(path), at_most))
    except tf.errors.DataLossError as error:
        problem = 'not a record file, or damaged near its beginning, or compressed by another program than gzip'
        raise DataError(f'{path}: {problem}: {error.message}.')


def _count_first_samples(path: str, at_most: int) -> int:
    from data.tar import shard
    from data.tar.layout import Problem

    with shard.Shard(path) as content:
        first = [*itertools.islice(shard.with_note(path, content.everything()), at_most)]
    if first and first[0].problem is Problem.DAMAGED:
        raise DataError(f'{path}: not a tar file, or damaged at its beginning. Compressed shards must be unpacked.')
    return sum(not sample.problem.is_last for sample in first)


def check_lengths(paths: Sequence[str]) -> Optional[int]:
    """Raises DataError for impossible lengths in local TFRecord files of moderate size, which the pipeline misses.

    Returns the number of records; None for other files.
    """
    if any(map(remote.is_remote, paths)) or sum(records.sizes_of(paths)) > _LARGEST_CHECKED:
        return None
    plain = [path for path in paths if not tfrecord.compression_of(path)]
    count = sum(tfrecord_files.count_records(plain))
    return count if len(plain) == len(paths) else None
