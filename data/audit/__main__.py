"""Audits a data set: reads every record, and reports what is there, what is wrong, and whether it can be trained on.

The headers of the images are read, and the checksums of PNGs; those of which something is missing at the end, or looks
unusual, are decoded. Damage inside of an image is seen with --decode alone, which decodes all. --data_format=tar audits
tar shards, as a run with that flag reads them. The exit code is 0 when the data set can be trained on, as far as was
looked, 1 when training would fail, and 2 when there is no data set to audit.
"""

import argparse
import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import json
import multiprocessing
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from data import conversion, dataset_info, records, remote
from data.audit import shard as shard_audit
from data.audit.findings import judge
from data.audit.shard import LISTED_AT_MOST, Listed, ShardAudit
from data.fingerprint import fingerprint
from data.formats import FORMATS, Format

SPLITS = (records.TRAIN, records.VALIDATION)

# What a run assumes of a data set that does not describe itself: ImageNet's, with the background.
_DOCUMENTED_CLASSES = 1001
_POLL_SECONDS = 0.2
_UNFIT, _MISTAKE, _INTERRUPTED = 1, 2, 130


class Split(NamedTuple):
    """A split: its files, those that are missing, and what is in them."""

    paths: List[str]
    missing: List[str]
    content: ShardAudit


def audit(
    data_dir: str,
    num_classes: Optional[int],
    decode: bool,
    processes: int,
    progress: Callable[[int], None],
    data_format: str = 'tfrecord',
) -> Dict[str, Any]:
    """Reads every record of a data set, in several processes.

    Args:
      data_dir: the folder of the record files, which may be remote.
      num_classes: labels must be below it; None: what `dataset.json` says, or 1001.
      decode: decode every image.
      processes: how many at the most.
      progress: is told now and then how many records have been read.
      data_format: that of the files, of `data.formats.FORMATS`.

    Returns:
      The report, as `--json` prints it.

    Raises:
      DataError: there is no data set in the folder, or a process was ended from outside.
      RemoteError: the folder may not be listed, or cannot be reached.
    """
    start = time.monotonic()
    files = FORMATS[data_format]
    paths, errors = _find(data_dir, files)
    info = None
    try:
        info = dataset_info.read(data_dir)
    except records.DataError as error:
        errors.append(str(error))
    if num_classes is None:
        num_classes = info.num_classes if info else _DOCUMENTED_CLASSES
    arguments = (data_format, num_classes, decode)
    contents = _read([path for split in SPLITS for path in paths[split]], arguments, processes, progress)
    splits = {
        split: Split(
            paths[split],
            files.missing_shards(data_dir, split, paths[split]) if paths[split] else [],
            sum((contents[path] for path in paths[split]), shard_audit.NOTHING),
        )
        for split in SPLITS
    }
    taken = fingerprint(*(splits[split].content.fingerprint for split in SPLITS))
    report: Dict[str, Any] = {
        'data_dir': data_dir,
        'data_format': data_format,
        'name': info.name if info else None,
        'num_classes': num_classes,
        'fingerprint': {
            'taken': taken,
            'dataset_json': info.fingerprint or None if info else None,
            'agree': taken == info.fingerprint if info and info.fingerprint else None,
        },
        'splits': {
            records.TRAIN: _describe(splits[records.TRAIN], info.train_images if info else None),
            records.VALIDATION: _describe(splits[records.VALIDATION], info.validation_images if info else None),
        },
        'duplicates': _duplicates(splits),
        'classes': _classes(splits, num_classes, info.class_names if info else []),
        'other_files': _other_files(data_dir, paths),
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


def _find(data_dir: str, files: Format) -> Tuple[Dict[str, List[str]], List[str]]:
    """The record files by split, and what is wrong with a split that has none; that both have none is a mistake."""
    paths: Dict[str, List[str]] = {}
    problems = []
    for split in SPLITS:
        try:
            paths[split] = files.find_shards(data_dir, split)
        except records.DataError as error:
            paths[split] = []
            problems.append(str(error))
    if not any(paths.values()):
        raise records.DataError(problems[0])
    return paths, problems


def _other_files(data_dir: str, paths: Dict[str, List[str]]) -> List[str]:
    """The names in the folder that belong to no data set."""
    known = {os.path.basename(path) for split in SPLITS for path in paths[split]}
    known |= {dataset_info.FILE_NAME, conversion.REPORT_NAME}
    return [name for name in remote.names_in(data_dir) or () if name.rstrip('/') not in known]


def _read(
    paths: Sequence[str], arguments: Tuple[str, int, bool], processes: int, progress: Callable[[int], None]
) -> Dict[str, ShardAudit]:
    """What is in each file; the arguments are the first of `ShardAuditor`'s."""
    # Processes that come of one that has done nothing but load TensorFlow: it does not survive a fork once it has
    # threads, and loading it in each costs seconds.
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
            raise records.DataError('A process that read the files was ended from outside; memory may be short.')
        finally:
            for future in futures.values():
                future.cancel()
            read.value = shard_audit.STOP


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
        'contradictions': _as_json(content.contradictions),
    }


def _spread(values: np.ndarray) -> Dict[str, Optional[float]]:
    if not len(values):
        return {'min': None, 'median': None, 'max': None}
    return {'min': int(values.min()), 'median': float(np.median(values)), 'max': int(values.max())}


def _as_json(found: Listed) -> Dict[str, Any]:
    return {'count': found.total, 'first': [bad_record._asdict() for bad_record in found.first]}


def _classes(splits: Dict[str, Split], num_classes: int, names: Sequence[str]) -> List[Dict[str, Any]]:
    """The images of every class, and of every label beyond."""
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


def _duplicates(splits: Dict[str, Split]) -> Dict[str, Any]:
    """Images whose files are the same, byte for byte."""
    paths = [path for split in SPLITS for path in splits[split].paths]
    arrays = [array for split in SPLITS for array in splits[split].content.images]
    images = np.concatenate(arrays)
    path_of = np.repeat(np.arange(len(paths)), [len(array) for array in arrays])
    in_train = path_of < len(splits[records.TRAIN].paths)
    # By digest, and among the same ones as they come.
    order = np.argsort(images['digest'], kind='stable')
    digests = images['digest'][order]
    starts = np.flatnonzero(np.append(True, digests[1:] != digests[:-1])[: len(images)])
    sizes = np.diff(np.append(starts, len(images)))

    def of_each(operation: np.ufunc, values: np.ndarray) -> np.ndarray:
        return operation.reduceat(values[order], starts) if len(starts) else np.zeros([0], np.int64)

    train = of_each(np.add, in_train.astype(np.int64))
    validation = sizes - train
    labels = images['label']
    differ = of_each(np.minimum, labels) != of_each(np.maximum, labels)
    between = (train > 0) & (validation > 0)
    several = np.flatnonzero(sizes > 1)
    # The worst ones first, and those in the order of the files.
    several = several[np.lexsort((order[starts[several]], ~between[several], ~differ[several]))]

    def named(group: np.ndarray) -> np.ndarray:
        """The first of the places of a group, in order; those that differ in split or label from all before first."""
        _, firsts = np.unique(np.stack([in_train[group], labels[group]]), return_index=True, axis=1)
        others = np.setdiff1d(np.arange(len(group)), firsts)
        return group[np.sort(np.concatenate([np.sort(firsts), others])[:LISTED_AT_MOST])]

    def place(index: int) -> Dict[str, Any]:
        return {
            'split': records.TRAIN if in_train[index] else records.VALIDATION,
            'path': paths[path_of[index]],
            'position': int(images['position'][index]),
            'label': int(labels[index]),
        }

    return {
        # Beyond the first of each.
        records.TRAIN: int(np.maximum(train - 1, 0).sum()),
        records.VALIDATION: int(np.maximum(validation - 1, 0).sum()),
        # Validation images that are training images, too.
        'between': int(validation[between].sum()),
        # Different images that have more than one label.
        'of_several_labels': int(differ.sum()),
        'first': [
            [place(index) for index in named(order[starts[group] : starts[group] + sizes[group]])]
            for group in several[:LISTED_AT_MOST]
        ],
    }


@contextlib.contextmanager
def _progress_bar(total: Optional[int]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal and rich is there to draw it."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (
        *(progress.TextColumn('reading'), progress.BarColumn(), progress.MofNCompleteColumn()),
        *(progress.TextColumn('records'), progress.TimeRemainingColumn()),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task('', total=total)
        yield lambda count: bar.update(task, completed=count)


def _expected_records(data_dir: str) -> Optional[int]:
    """How many records there are, if the data set says so; that it says it badly is told later."""
    with contextlib.suppress(records.DataError):
        info = dataset_info.read(data_dir)
        return info.train_images + info.validation_images if info else None
    return None


def main() -> None:
    """Audits the folder named on the command line."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        prog='python -m data.audit', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('data_dir', help='the folder of the record files, which may be at gs:// or s3://')
    parser.add_argument(
        '--data_format',
        choices=[*FORMATS],
        default='tfrecord',
        help='that of the files, as of a run (default: tfrecord)',
    )
    parser.add_argument('--json', action='store_true', help='print the report for programs, with all that it lists')
    parser.add_argument(
        '--decode',
        action='store_true',
        help='decode every image, as training will: only so is damage inside of it seen',
    )
    parser.add_argument(
        '--num_classes',
        type=int,
        help=f"labels must be below it (default: what dataset.json says, or ImageNet's {_DOCUMENTED_CLASSES})",
    )
    parser.add_argument(
        '--processes', type=int, default=cores, help=f'processes that read files (default: the cores here, {cores})'
    )
    arguments = parser.parse_args()
    if arguments.num_classes is not None and arguments.num_classes < 2:
        parser.error(f'--num_classes={arguments.num_classes}: must be at least 2, the background and a class.')
    if arguments.processes < 1:
        parser.error(f'--processes={arguments.processes}: must be at least 1.')
    try:
        if not arguments.json:
            try:
                from data.audit.table import print_report
            except ImportError:
                parser.error("the table needs rich, which is not installed: pip install '.[data]', or take --json.")
        with _progress_bar(_expected_records(arguments.data_dir)) as progress:
            report = audit(
                arguments.data_dir,
                arguments.num_classes,
                arguments.decode,
                arguments.processes,
                progress,
                arguments.data_format,
            )
    except (records.DataError, remote.RemoteError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(_INTERRUPTED, 'interrupted\n')
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(report)
    sys.exit(0 if report['can_be_trained_on'] else _UNFIT)


if __name__ == '__main__':
    main()
