"""Reads all files of a data set in parallel, and reports their content and problems."""

import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import time
from typing import Any, Counter, Dict, List, Optional, Sequence, Tuple

import numpy as np

from data import checks, dataset_info, records
from data.sources import Source
from data.tf_example import Fields
from tools.datasets.audit import shard as shard_audit
from tools.datasets.audit.findings import KINDS, judge
from tools.datasets.audit.shard import LISTED_AT_MOST, FileContent
from tools.datasets.conversion import Progress, StartProgress
from tools.datasets.fingerprints import SplitFingerprint, fingerprint

SPLITS = (records.TRAIN, records.VALIDATION)

# The classes that a run assumes if a data set has no description: ImageNet's, with the background.
DOCUMENTED_CLASSES = 1001
_POLL_SECONDS = 0.2


def audit(
    source: Source,
    num_classes: Optional[int],
    processes: int,
    progress: StartProgress,
) -> Dict[str, Any]:
    """Reads every record of a data set, in several processes, and returns the report, as `--json` prints it.

    `num_classes` is by default the number in `dataset.json`, or 1001. `progress` is as in `conversion`.
    """
    start = time.monotonic()
    paths: Dict[str, List[str]] = {}
    errors: Dict[str, str] = {}
    info = None
    for split in SPLITS:
        try:
            paths[split] = source.find(split) if source.is_named([split]) else []
        except records.DataError as error:
            paths[split], errors[split] = [], str(error)
    if not any(paths.values()):
        raise records.DataError(next(iter(errors.values())))
    try:
        info = dataset_info.read(source.data_dir) if source.data_dir else None
    except records.DataError as error:
        errors[dataset_info.FILE_NAME] = str(error)
    if info and not info.validation_images:
        errors.pop(records.VALIDATION, None)
    num_classes = num_classes or (info.num_classes if info else DOCUMENTED_CLASSES)

    all_paths = [*{path: 0 for split in SPLITS for path in paths[split]}]
    # With patterns, the description may be of other files.
    described = None if source.train_files or source.eval_files else info
    expected = described.train_images + described.validation_images if described else None
    move = progress('reading records', expected)
    of_path = _read(all_paths, (source.data_format, source.fields, num_classes), processes, move)
    contents = {split: [of_path[path] for path in paths[split]] for split in SPLITS}
    images = {split: [content.images for content in contents[split]] for split in SPLITS}
    taken = fingerprint(
        *(sum((content.fingerprint for content in contents[split]), SplitFingerprint()) for split in SPLITS)
    )
    counts = (info.train_images, info.validation_images) if info else (None, None)
    classes = _classes(images, num_classes, info.class_names if info else [])
    report: Dict[str, Any] = {
        'data_dir': str(source),
        'data_format': source.data_format,
        'is_counted': any(source.patterns(split) or (paths[split] and source.folder(split)) for split in SPLITS),
        'label_offset': source.fields.label_offset,
        'name': info.name if info else None,
        'num_classes': num_classes,
        'fingerprint': {
            'taken': taken,
            'dataset_json': info.fingerprint or None if info else None,
            'agree': taken == info.fingerprint if info and info.fingerprint else None,
        },
        'splits': {
            split: {
                'files': len(paths[split]),
                'missing_files': checks.missing(source, split, paths[split]) if paths[split] else [],
                **_described(contents[split], count),
            }
            for split, count in zip(SPLITS, counts)
        },
        'duplicates': _duplicates(paths, images),
        'classes': classes,
        'counts_agree': _agree(classes, described),
        'other_files': sorted(
            {name for split in SPLITS if paths[split] for name in checks.unused(source, split, paths[split])}
        ),
    }
    found, warnings = judge(report)
    seconds = time.monotonic() - start
    return {
        **report,
        'seconds': round(seconds, 1),
        'records_per_second': round(sum(split['records'] for split in report['splits'].values()) / seconds),
        'errors': [*errors.values(), *found],
        'warnings': warnings,
        # Without training files, nothing is known of training.
        'can_be_trained_on': not errors and not found if source.is_named([records.TRAIN]) else None,
    }


def _read(
    paths: Sequence[str], arguments: Tuple[str, Fields, int], processes: int, move: Progress
) -> Dict[str, FileContent]:
    """The content of each file; `arguments` are the first arguments of `ShardAuditor`."""
    # TensorFlow does not survive a fork once it has threads, and takes seconds to load in each process. The fork server
    # loads it once, and starts no threads. The first package makes it find the others, whatever files this folder has.
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['inception_v3_tpu', shard_audit.__name__])
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
                move(read.value)
            return {path: future.result() for path, future in futures.items()}
        except concurrent.futures.process.BrokenProcessPool:
            raise records.DataError('A process that read the files was killed, perhaps because memory ran out.')
        finally:
            for future in futures.values():
                future.cancel()
            read.value = shard_audit.STOP


def _described(contents: Sequence[FileContent], expected: Optional[int]) -> Dict[str, Any]:
    """The part of the report about the records of a split; `expected` is their number in `dataset.json`."""
    images = np.concatenate([np.zeros([0], shard_audit.IMAGE), *(content.images for content in contents)])
    sizes = images['size'][images['size'].min(axis=1) > 0]

    def total(name: str) -> Counter[str]:
        return sum((getattr(content, name) for content in contents), collections.Counter())

    boxes, counts = total('boxes'), total('counts')
    problems: Dict[str, List[Dict[str, Any]]] = {kind: [] for kind in KINDS}
    for content in contents:
        for kind, place in content.problems:
            if len(problems[kind]) < LISTED_AT_MOST:
                problems[kind].append(place._asdict())
    return {
        'records': sum(content.records for content in contents),
        'records_expected': expected,
        'images': len(images),
        'width': _spread(sizes[:, 0]),
        'height': _spread(sizes[:, 1]),
        'encoded_bytes': {**_spread(images['bytes']), 'total': int(images['bytes'].sum())},
        'formats': dict(total('formats').most_common()),
        'fields': dict(sorted(total('fields').items())),
        'boxes': {kind: boxes[kind] for kind in ('boxes', 'outside')},
        **{kind: {'count': counts[kind], 'first': problems[kind]} for kind in KINDS},
    }


def _duplicates(paths: Dict[str, List[str]], images: Dict[str, List[np.ndarray]]) -> Dict[str, Any]:
    """Equal images, within and between the splits; the arguments are by split.

    Returns by split the number of its images that are copies of an earlier image; 'between': the number of validation
    images that are also training images; 'of_several_labels': the number of distinct images that have more than one
    label; 'first': the positions of up to `LISTED_AT_MOST` groups of equal images, and as many images of each.
    """
    files = [(split, path) for split in SPLITS for path in paths[split]]
    arrays = [array for split in SPLITS for array in images[split]]
    every = np.concatenate(arrays)
    file_of = np.repeat(np.arange(len(files)), [len(array) for array in arrays])
    _, group_of, sizes = np.unique(every['digest'], return_inverse=True, return_counts=True)
    groups: Dict[int, List[Dict[str, Any]]] = collections.defaultdict(list)
    for index in np.flatnonzero(sizes[group_of] > 1):
        split, path = files[file_of[index]]
        _, position, label, *_ = every[index].tolist()
        groups[group_of[index]].append({'split': split, 'path': path, 'position': position, 'label': label})
    counts = {**dict.fromkeys(SPLITS, 0), 'between': 0, 'of_several_labels': 0}
    for group in groups.values():
        in_split = collections.Counter(place['split'] for place in group)
        for split, count in in_split.items():
            counts[split] += count - 1
        counts['between'] += in_split[records.VALIDATION] * (len(in_split) > 1)
        counts['of_several_labels'] += len({place['label'] for place in group}) > 1
    return {**counts, 'first': [group[:LISTED_AT_MOST] for group in [*groups.values()][:LISTED_AT_MOST]]}


def _spread(values: np.ndarray) -> Dict[str, Optional[float]]:
    if not len(values):
        return {'min': None, 'median': None, 'max': None}
    return {'min': int(values.min()), 'median': float(np.median(values)), 'max': int(values.max())}


def _agree(classes: Sequence[Dict[str, Any]], info: Optional[dataset_info.DatasetInfo]) -> Optional[bool]:
    """Whether the description's numbers of training images per class are right; None if it has none."""
    described = info.train_images_per_class if info else []
    counts = {each['label']: each[records.TRAIN] for each in classes if each[records.TRAIN]}
    return counts == {label: count for label, count in enumerate(described) if count} if described else None


def _classes(images: Dict[str, List[np.ndarray]], num_classes: int, names: Sequence[str]) -> List[Dict[str, Any]]:
    """The number of images of each class, and of each label beyond the classes."""
    counts = {
        split: collections.Counter(label for array in images[split] for label in array['label'].tolist())
        for split in SPLITS
    }
    return [
        {
            'label': label,
            'name': names[label] if 0 <= label < len(names) else None,
            **{split: counts[split][label] for split in SPLITS},
        }
        for label in sorted({*range(num_classes), *counts[records.TRAIN], *counts[records.VALIDATION]})
    ]
