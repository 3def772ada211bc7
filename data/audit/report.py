"""Reads all files of a data set in parallel, and reports their content and problems."""

import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from data import checks, dataset_info, record_counts, records, remote
from data.audit import shard as shard_audit
from data.audit.duplicates import find_duplicates
from data.audit.findings import judge
from data.audit.shard import Listed, ShardAudit
from data.convert import conversion
from data.dataset_info import DatasetInfo
from data.fingerprint import fingerprint
from data.sources import Source, common_folder
from data.tf_example import Fields

SPLITS = (records.TRAIN, records.VALIDATION)

# The classes that a run assumes if a data set has no description: ImageNet's, with the background.
DOCUMENTED_CLASSES = 1001
_POLL_SECONDS = 0.2


class Split(NamedTuple):
    """A split: its files, the names of missing ones, and the content."""

    paths: List[str]
    missing: List[str]
    content: ShardAudit


def audit(
    source: Source,
    num_classes: Optional[int],
    decode: bool,
    processes: int,
    progress: Callable[[int], None],
) -> Dict[str, Any]:
    """Reads every record of a data set, in several processes.

    Args:
      source: of the records.
      num_classes: the number of classes; labels must be lower; None: as in `dataset.json`, or 1001.
      decode: decode every image.
      processes: the largest number of processes.
      progress: called repeatedly with the number of records that have been read.

    Returns:
      The report, as `--json` prints it.

    Raises:
      DataError: the source has no files, or a process was killed.
      RemoteError: access to the folder is denied, or the store cannot be reached.
    """
    start = time.monotonic()
    paths, problems = _find(source)
    info, errors = None, []
    try:
        info = dataset_info.read(source.data_dir) if source.data_dir else None
    except records.DataError as error:
        errors.append(str(error))
    if info and not info.validation_images:
        problems.pop(records.VALIDATION, None)
    errors = [*problems.values(), *errors]
    if num_classes is None:
        num_classes = info.num_classes if info else DOCUMENTED_CLASSES
    arguments = (source.data_format, source.fields, num_classes, decode)
    contents = _read([*{path: 0 for split in SPLITS for path in paths[split]}], arguments, processes, progress)
    splits = {split: _split(source, split, paths[split], contents) for split in SPLITS}
    report: Dict[str, Any] = {
        'data_dir': str(source),
        'data_format': source.data_format,
        'is_counted': any(source.patterns(split) or (paths[split] and source.folder(split)) for split in SPLITS),
        'label_offset': source.fields.label_offset,
        'name': info.name if info else None,
        'num_classes': num_classes,
        **_content(splits, num_classes, info),
        'other_files': _other_files(source, paths),
        'decoded': decode,
    }
    found, warnings = judge(report)
    errors += found
    seconds = time.monotonic() - start
    count = sum(split.content.records for split in splits.values())
    return {
        **report,
        'seconds': round(seconds, 1),
        'records_per_second': round(count / seconds),
        'errors': errors,
        'warnings': warnings,
        'can_be_trained_on': not errors,
    }


def _find(source: Source) -> Tuple[Dict[str, List[str]], Dict[str, str]]:
    """The files of each split, and for each split without files an error message.

    Raises:
      DataError: neither split has files.
    """
    paths: Dict[str, List[str]] = {}
    problems = {}
    for split in SPLITS:
        try:
            paths[split] = source.find(split) if source.is_named([split]) else []
        except records.DataError as error:
            paths[split] = []
            problems[split] = str(error)
    if not any(paths.values()):
        raise records.DataError(next(iter(problems.values())))
    return paths, problems


def _split(source: Source, split: str, paths: List[str], contents: Dict[str, ShardAudit]) -> Split:
    missing = checks.missing(source, split, paths) if paths else []
    return Split(paths, missing, sum((contents[path] for path in paths), shard_audit.NOTHING))


def _other_files(source: Source, paths: Dict[str, List[str]]) -> List[str]:
    """The names in the folders of the files that are not part of the data set; with patterns, none."""
    if source.train_files or source.eval_files:
        return []
    known = {path for split in SPLITS for path in paths[split]}
    known |= {os.path.join(source.data_dir, name) for name in (dataset_info.FILE_NAME, conversion.REPORT_NAME)}
    folders = {os.path.dirname(path) for path in known}
    return [
        path[len(common_folder([*known])) :]
        for folder in sorted(folders)
        for path in (os.path.join(folder, name.rstrip('/')) for name in remote.names_in(folder) or ())
        if path not in known | folders and os.path.basename(path) != record_counts.FILE_NAME
    ]


def _read(
    paths: Sequence[str], arguments: Tuple[str, Fields, int, bool], processes: int, progress: Callable[[int], None]
) -> Dict[str, ShardAudit]:
    """The content of each file; `arguments` are the first arguments of `ShardAuditor`."""
    # TensorFlow does not survive a fork once it has threads, and takes seconds to load in each process. The fork server
    # loads it once, and starts no threads.
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload([shard_audit.__name__])
    read: Any = context.Value('q', 0)
    pool = concurrent.futures.ProcessPoolExecutor(
        min(processes, len(paths)), context, shard_audit.start_process, (*arguments, read)
    )
    with pool:
        futures = {path: pool.submit(shard_audit.audit_in_process, path) for path in paths}
        try:
            unfinished = {*futures.values()}
            while unfinished:
                _, unfinished = concurrent.futures.wait(unfinished, _POLL_SECONDS)
                progress(read.value)
            return {path: future.result() for path, future in futures.items()}
        except concurrent.futures.process.BrokenProcessPool:
            raise records.DataError('A process that read the files was killed, perhaps because memory ran out.')
        finally:
            for future in futures.values():
                future.cancel()
            read.value = shard_audit.STOP


def _content(splits: Dict[str, Split], num_classes: int, info: Optional[DatasetInfo]) -> Dict[str, Any]:
    """The part of the report about the content of the files."""
    taken = fingerprint(*(splits[split].content.fingerprint for split in SPLITS))
    return {
        'fingerprint': {
            'taken': taken,
            'dataset_json': info.fingerprint or None if info else None,
            'agree': taken == info.fingerprint if info and info.fingerprint else None,
        },
        'splits': {
            records.TRAIN: _describe(splits[records.TRAIN], info.train_images if info else None),
            records.VALIDATION: _describe(splits[records.VALIDATION], info.validation_images if info else None),
        },
        'duplicates': find_duplicates(
            {split: splits[split].paths for split in SPLITS}, {split: splits[split].content.images for split in SPLITS}
        ),
        'classes': _classes(splits, num_classes, info.class_names if info else []),
    }


def _describe(split: Split, expected: Optional[int]) -> Dict[str, Any]:
    content = split.content
    images = np.concatenate([np.zeros([0], shard_audit.IMAGE), *content.images])
    sizes = images['size'][images['size'].min(axis=1) > 0]
    return {
        'files': len(split.paths),
        'missing_files': split.missing,
        'records': content.records,
        'records_expected': expected,
        'images': len(images),
        'width': _spread(sizes[:, 0]),
        'height': _spread(sizes[:, 1]),
        'encoded_bytes': {**_spread(images['bytes']), 'total': int(images['bytes'].sum())},
        'formats': dict(content.formats.most_common()),
        'fields': dict(sorted(content.fields.items())),
        'boxes': content.boxes._asdict(),
        'bad_files': _as_json(content.bad_files),
        'bad_fields': _as_json(content.bad_fields),
        'bad_boxes': _as_json(content.bad_boxes),
        'undecodable': _as_json(content.undecodable),
        'damaged': _as_json(content.damaged),
        'rotated': _as_json(content.rotated),
        'contradictions': _as_json(content.contradictions),
        'left_out': _as_json(content.left_out),
    }


def _spread(values: np.ndarray) -> Dict[str, Optional[float]]:
    if not len(values):
        return {'min': None, 'median': None, 'max': None}
    return {'min': int(values.min()), 'median': float(np.median(values)), 'max': int(values.max())}


def _as_json(found: Listed) -> Dict[str, Any]:
    return {'count': found.total, 'first': [bad_record._asdict() for bad_record in found.first]}


def _classes(splits: Dict[str, Split], num_classes: int, names: Sequence[str]) -> List[Dict[str, Any]]:
    """The number of images of each class, and of each label beyond the classes."""
    counts = {
        split: collections.Counter(
            dict(zip(*(column.tolist() for column in np.unique(_labels(splits[split]), return_counts=True))))
        )
        for split in SPLITS
    }
    labels = sorted({*range(num_classes), *(label for split in SPLITS for label in counts[split])})
    return [
        {
            'label': label,
            'name': names[label] if 0 <= label < len(names) else None,
            **{split: counts[split][label] for split in SPLITS},
        }
        for label in labels
    ]


def _labels(split: Split) -> np.ndarray:
    return np.concatenate([np.zeros([0], np.int64), *(images['label'] for images in split.content.images)])
