"""The source of a data set's records: its files in one of three forms, and the fields of its records.

1. Named files: `--data_dir` holds `train-00000-of-01024` … and `validation-00000-of-00128` …, or tar files.
2. Folders: `--data_dir` holds `train/` and one of `validation/`, `val/`, `valid/`, `eval/`, `test/`, with files of any
   names.
3. Patterns: `--train_files` and `--eval_files` name the files, of one split or of both.

Named files take precedence over folders, patterns over both.
"""

import itertools
import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from compat import tf
from compat.messages import full, shown
from data import file_patterns, record_counts, remote
from data.braces import FILE_FLAGS, expand
from data.formats import FORMATS, Format
from data.records import TRAIN, VALIDATION, DataError
from data.tf_example import DOCUMENTED_FIELDS, Fields

# The folders of each split. `test` is used for validation only if there is no other of these folders.
FOLDERS = {TRAIN: ('train',), VALIDATION: ('validation', 'val', 'valid', 'eval', 'test')}
# Files in such a folder that hold no records: descriptions, indices, pages, images, archives, sources.
_NO_RECORDS = re.compile(
    r'[._].*|README|LICENSE|.*\.(json|txt|md|csv|tsv|xml|ya?ml|idx|index|crc|sha256|md5|html?|pdf|log|py|npz?|'
    r'jpe?g|png|gif|bmp|webp|zip|tgz|tar\.\w+)',
    re.IGNORECASE,
)
_LISTED_AT_MOST = 5


class Source(NamedTuple):
    """The files of a data set, and the fields of its records.

    Relative patterns of `train_files` and `eval_files` begin in `data_dir`. A split without patterns is in `data_dir`:
    named files, or a folder. `data_format` is a key of `FORMATS`.
    """

    data_dir: str = ''
    data_format: str = 'tfrecord'
    train_files: str = ''
    eval_files: str = ''
    fields: Fields = DOCUMENTED_FIELDS

    @property
    def format(self) -> Format:
        """The functions of the format."""
        return FORMATS[self.data_format]

    def patterns(self, split: str) -> str:
        """The patterns of a split; empty if it has none."""
        return self.train_files if split == TRAIN else self.eval_files

    def is_named(self, splits: Sequence[str]) -> bool:
        """Whether flags say where the files of all these splits are."""
        return bool(self.data_dir) or all(map(self.patterns, splits))

    def flag(self, split: str) -> str:
        """The flag that leads to the files of a split, with its value, for messages."""
        patterns = self.patterns(split)
        return f'--{FILE_FLAGS[split]}={shown(patterns)}' if patterns else f'--data_dir={self.data_dir}'

    def __str__(self) -> str:
        listed = [self.data_dir] if self.data_dir else []
        return ', '.join([*listed, *(self.flag(split) for split in FILE_FLAGS if self.patterns(split))])

    def places(self, splits: Sequence[str]) -> Dict[str, str]:
        """The folders and patterns that lead to the files of splits, by flag: `data_dir`, `train_files`, `eval_files`.

        For a split with several patterns, it is the first one outside gs://, which the hosts of a TPU cannot reach.
        """
        found = {}
        for split in splits:
            paths = [file_patterns.located(p, self.data_dir) for p in self._expanded(split)]
            if paths:
                found[FILE_FLAGS[split]] = next((p for p in paths if not p.startswith(remote.GS)), paths[0])
            elif self.data_dir:
                found['data_dir'] = self.data_dir
        return found

    def place(self, split: str) -> str:
        """A folder or a pattern that is in the same store as the files of a split."""
        patterns = self._expanded(split)
        return file_patterns.located(patterns[0], self.data_dir) if patterns else self.data_dir

    def _expanded(self, split: str) -> List[str]:
        patterns = self.patterns(split)
        return expand(patterns, FILE_FLAGS[split]) if patterns else []

    def find(self, split: str) -> List[str]:
        """The paths of the files of a split, in the order of its patterns; without patterns, by name.

        Raises DataError if there are none, if named files are missing, or if they belong to several data sets.
        """
        patterns = self.patterns(split)
        if not patterns:
            folder = self.folder(split)
            return self._in_folder(folder, split) if folder else self.format.find_shards(self.data_dir, split)
        paths = file_patterns.find(patterns, self.data_dir, FILE_FLAGS[split])
        stores = sorted({path[: path.index('://') + 3] if '://' in path else 'this machine' for path in paths})
        if len(stores) > 1:
            raise DataError(f'{self.flag(split)}: names files on {" and ".join(stores)}. Keep a split in one place.')
        if self.data_format != 'tar' and all(path.endswith('.tar') for path in paths):
            raise DataError(f'{self.flag(split)}: names tar files, which --data_format=tar reads.')
        return _without_copies(paths)

    def folder(self, split: str) -> Optional[str]:
        """The folder with the files of a split, if `data_dir` has that form; raises DataError if it has several."""
        if self.patterns(split):
            return None
        try:
            names = [name.rstrip('/') for name in remote.names_in(self.data_dir) or ()]
        except tf.errors.OpError:
            return None  # `find_shards` explains it.
        if any(re.match(rf'{split}-\d', name) for name in names):
            return None
        folders = self.subfolders(FOLDERS[split], names)
        folders = [each for each in folders if each != 'test'] or folders
        if len(folders) > 1:
            raise DataError(
                f'--data_dir={self.data_dir}: several folders of {split} files: {", ".join(folders)}. Name the files '
                f"of one: --{FILE_FLAGS[split]}='{folders[0]}/*'."
            )
        return os.path.join(self.data_dir, folders[0]) if folders else None

    def subfolders(self, candidates: Sequence[str], names: Sequence[str]) -> List[str]:
        """The candidates that are folders in `data_dir`; `names` is its listing."""
        present = {*candidates} & {*names}
        return [each for each in sorted(present) if tf.io.gfile.isdir(os.path.join(self.data_dir, each))]

    def _in_folder(self, folder: str, split: str) -> List[str]:
        names = self._readable(folder)
        if names:
            return _without_copies([os.path.join(folder, name) for name in names])
        present = sorted({re.sub(r'\d+', '*', name) for name in remote.names_in(folder) or ()})
        holds = f'holds {", ".join(map(shown, present[:_LISTED_AT_MOST]))}' if present else 'is empty'
        advice = f'Name the files of another place with --{FILE_FLAGS[split]}; images need inception-v3 from-folder.'
        if any(name.endswith('.tar') for name in present) and self.data_format != 'tar':
            advice = '--data_format=tar reads tar files.'
        raise DataError(f'--data_dir={self.data_dir}: no {split} files in {folder}, which {holds}. {advice}')

    def _readable(self, folder: str) -> List[str]:
        names = [name for name in remote.names_in(folder) or () if not name.endswith('/')]
        if not remote.is_remote(folder):
            names = [name for name in names if not os.path.isdir(os.path.join(folder, name))]
        is_tar = self.data_format == 'tar'
        return [n for n in names if not _NO_RECORDS.fullmatch(n) and n.endswith('.tar') == is_tar]

    def contents(self, paths: Sequence[str]) -> List[record_counts.FileRecords]:
        """The size of each file, and the number of its records; raises the errors of `record_counts.count`."""
        return record_counts.count(paths, self.format.count_records)

    def name_of(self, path: str, paths: Sequence[str]) -> str:
        """The name of a file, unique within its split even if that has several folders, and without slashes."""
        return path[len(common_folder(paths)) :].replace('%', '%25').replace('/', '%2F')


def _without_copies(paths: List[str]) -> List[str]:
    """The same paths; raises DataError if they name a file and its compressed copy, whose records would come twice."""
    twice = sorted({*paths} & {path[: -len('.gz')] for path in paths if path.endswith('.gz')})
    if twice:
        raise DataError(f'{full(twice[0])}: its compressed copy {full(twice[0])}.gz would be read, too. Keep one.')
    return paths


def common_folder(paths: Sequence[str]) -> str:
    """The beginning of the paths, up to the last slash that all have in common."""
    folders = [path.split('/')[:-1] for path in paths]
    common = itertools.takewhile(lambda parts: len({*parts}) == 1, zip(*folders))
    return ''.join(f'{parts[0]}/' for parts in common)
