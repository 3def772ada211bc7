"""The number of records in each file of a data set, counted once and kept in `.records.json` beside the files."""

import json
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from compat import tf
from compat.errors import CommandError
from compat.log import logger
from console import json_content
from data import records, remote

FILE_NAME = '.records.json'


class FileRecords(NamedTuple):
    """A file's size in bytes, and the number of its records."""

    bytes: int
    records: int


def count(paths: Sequence[str], count_records: Callable[[Sequence[str]], List[int]]) -> List[FileRecords]:
    """The number of records in each file: from the `.records.json` in its folder, else counted and written there.

    A file is counted again if its size differs from the one in `.records.json`. If `.records.json` cannot be written,
    the log says so, and the records are counted at each start.
    """
    names: Dict[str, List[str]] = {}
    for path in paths:
        folder, slash, name = path.rpartition('/')
        names.setdefault(f'{folder}{slash}', []).append(name)
    found = {
        f'{folder}{name}': content
        for folder, in_folder in names.items()
        for name, content in zip(in_folder, _count_in(folder, in_folder, count_records))
    }
    return [found[path] for path in paths]


def _count_in(
    folder: str, names: Sequence[str], count_records: Callable[[Sequence[str]], List[int]]
) -> List[FileRecords]:
    """The contents of files in a folder, which ends with a slash."""
    path = f'{folder}{FILE_NAME}'
    known = _read(path)
    try:
        sizes = records.sizes_of([f'{folder}{name}' for name in names])
    except tf.errors.OpError as error:
        raise records.DataError(f'{folder}: a file cannot be read: {error.message}')
    unknown = [i for i, name in enumerate(names) if name not in known or known[name].bytes != sizes[i]]
    if unknown:
        counts = count_records([f'{folder}{names[index]}' for index in unknown])
        # Keeps entries that another process has written in the meantime.
        known = _read(path)
        known.update({names[i]: FileRecords(sizes[i], number) for i, number in zip(unknown, counts)})
        try:
            write(folder, known)
        except (CommandError, OSError, tf.errors.OpError) as error:
            reason = str(error).partition('\n')[0]
            logger.info('%s: cannot be written, so the records are counted at each start: %s', path, reason)
    return [known[name] for name in names]


def _read(path: str) -> Dict[str, FileRecords]:
    """The entries of a `.records.json` by file name; none if it is missing, damaged or unreadable."""
    try:
        return json_content.from_json(remote.read(path) or b'{}', _known)
    except ValueError as error:
        logger.info('%s: is damaged, and is written anew: %s', path, error)
    except (CommandError, OSError, tf.errors.OpError) as error:
        logger.info('%s: cannot be read: %s', path, str(error).partition('\n')[0])
    return {}


def _known(content: Any) -> Dict[str, FileRecords]:
    found = {name: json_content.record(FileRecords, each) for name, each in content.items()}
    # A record has at least a byte.
    if not all(0 <= each.records <= each.bytes for each in found.values()):
        raise ValueError('a number of records is not possible')
    return found


def write(folder: str, known: Dict[str, FileRecords]) -> None:
    """Writes the `.records.json` of a folder, which ends with a slash: the files by their names relative to it."""
    # Imported here, because a data set needs it only once.
    from data import files

    lines = [f'  {json.dumps(name)}: {json.dumps(known[name]._asdict())}' for name in sorted(known)]
    files.write_whole(f'{folder}{FILE_NAME}', '{\n' + ',\n'.join(lines) + '\n}\n')
