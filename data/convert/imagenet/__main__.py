r"""Converts ImageNet-2012 to record files with Apache Beam: 1,024 for training and 128 for validation.

  inception-v3 imagenet --train=ILSVRC2012_img_train.tar --validation=ILSVRC2012_img_val.tar \
      --validation_labels=ILSVRC2012_devkit_t12.tar.gz --bounding_boxes=ILSVRC2012_bbox_train_v2.tar.gz imagenet

Archives are not unpacked. Classes are numbered from 1, in the order of their synsets; 0 is the background. JPEG files
are copied byte for byte; a CMYK image, or a PNG or GIF image with a JPEG name, becomes an RGB JPEG file of quality
100. The order of the images depends only on their names, and mixes the classes.

An interrupted conversion resumes with the same command: finished files are kept. On a cluster, add --runner=RUNNER and,
after --, Beam's own options; all folders must be at gs:// or s3://.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import functools
import os
import sys
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from console import program
from console.command_line import new_parser
from console.messages import counted
from console.paths import expanded
from console.screen import Screen
from console.tensorflow_versions import tf
from data import records, remote
from data.convert import conversion
from data.convert.imagenet import beam as imagenet_beam
from data.convert.imagenet import plan as imagenet_plan
from data.convert.imagenet import shards as imagenet_shards
from data.convert.imagenet.beam import DIRECT_RUNNER
from data.convert.imagenet.plan import Plan, Source
from data.convert.imagenet.shards import ShardReport
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.records import DataError

IMAGES = {records.TRAIN: 1281167, records.VALIDATION: 50000}

_NAMED_AT_MOST = 10
_PARALLEL_REQUESTS = 32
# Seconds between two updates of the progress.
_POLL_SECONDS = 1

Say = Callable[[str], None]


def convert(
    source: Source,
    data_dir: str,
    shards: Dict[str, int],
    expected: Dict[str, int],
    run: Callable[[Sequence[str], str, str], None],
    say: Say,
) -> None:
    """Converts ImageNet to record files, or resumes a conversion.

    Args:
      source: the paths of ImageNet's parts.
      data_dir: a local or remote folder: new, empty, or with an unfinished conversion.
      shards: the number of record files of each split, reduced to the number of images if that is lower.
      expected: the number of images of each split.
      run: called with the names of shards, `data_dir` and a work folder; runs `shards.convert` on each shard.
      say: called with messages about the progress.

    Raises:
      DataError: a part is missing, damaged or not as expected. Finished files are kept.
      RemoteError: access to a remote file is denied, or the store cannot be reached. Finished files are kept.
    """
    work_dir = os.path.join(data_dir, conversion.WORK_FOLDER)
    settings = imagenet_plan.settings_of(source, shards)
    finished = conversion.settings_in(os.path.join(data_dir, conversion.REPORT_NAME))
    if finished is not None:
        conversion.check_same(data_dir, finished, settings)
        say(f'{data_dir}: already finished')
        return
    plan = imagenet_plan.read(work_dir)
    if plan:
        conversion.check_same(data_dir, plan.settings, settings)
    else:
        conversion.make_dir(data_dir, work_dir)
    with conversion.alone_in(work_dir):
        if not plan:
            with conversion.progress() as progress:
                plan = imagenet_plan.make(
                    source, shards, expected, work_dir, lambda what: progress(f'finding {what}', None)
                )
            plan.write(work_dir)
        for files, what in ((plan.foreign, 'files are not images'), (plan.bad_annotations, 'annotations are invalid')):
            if files:
                say(f'{len(files):,} {what}, and are left out: {_listed(files)}')
        reports = _reports(plan, data_dir, work_dir)
        pending = [shard for shard in plan.shards if shard not in reports or reports[shard].unreadable]
        if reports:
            say(f'{len(plan.shards) - len(pending):,} of {len(plan.shards):,} record files are already finished')
        if pending:
            imagenet_shards.forget(work_dir, pending)
            with conversion.progress() as progress, _watching(plan, pending, work_dir, progress):
                run(pending, data_dir, work_dir)
            imagenet_shards.raise_failure(work_dir)
            reports = _reports(plan, data_dir, work_dir)
        _finish(plan, reports, data_dir, expected, say)
        tf.io.gfile.rmtree(work_dir)


def _reports(plan: Plan, data_dir: str, work_dir: str) -> Dict[str, ShardReport]:
    """The reports of the finished shards whose record files are complete."""
    present = set(remote.names_in(data_dir) or ()) & set(plan.shards)

    def report(shard: str) -> Optional[ShardReport]:
        found = imagenet_shards.read_report(work_dir, shard)
        whole = found and found.file_bytes == remote.size(os.path.join(data_dir, shard))
        return found if whole else None

    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        found = dict(zip(present, pool.map(report, present)))
    return {shard: found[shard] for shard in plan.shards if found.get(shard)}  # type: ignore[misc]


def _finish(plan: Plan, reports: Dict[str, ShardReport], data_dir: str, expected: Dict[str, int], say: Say) -> None:
    """Checks the number of images that were written, and writes the description of the data set.

    Raises:
      DataError: a shard or an image is missing.
    """
    missing = sorted(set(plan.shards) - set(reports))
    if missing:
        raise DataError(
            f'{data_dir}: {len(missing)} record files were not written: {_listed(missing)}. Run the same command again.'
        )
    totals = {
        split: sum((reports[shard].fingerprint for shard in plan.of_split(split)), SplitFingerprint())
        for split in expected
    }
    converted = _joined(report.converted for report in reports.values())
    notes = _joined(report.notes for report in reports.values())
    unreadable = [name for report in reports.values() for name in report.unreadable]
    for was, names in sorted(converted.items()):
        say(f'{counted(len(names), f"{was} image")} converted to RGB JPEG files: {_listed(names)}')
    for note, names in sorted(notes.items()):
        say(f'{counted(len(names), "image")} {note}: {_listed(names)}')
    say('bounding boxes: ' + (', '.join(f'{count:,} {what}' for what, count in plan.boxes.items() if count) or 'none'))
    for split, total in totals.items():
        if total.images != expected[split]:
            undecodable = f': {len(unreadable):,} cannot be decoded, {_listed(unreadable)}' if unreadable else ''
            raise DataError(
                f'{data_dir}: {total.images:,} {split} images were written; {expected[split]:,} are expected'
                f'{undecodable}. Repair them and run the same command again, or accept this number with '
                f'--{split}_images={total.images}. Finished files are kept.'
            )
    if unreadable:
        say(f'{len(unreadable):,} images cannot be decoded, and are left out: {_listed(unreadable)}')
    info = DatasetInfo(
        name='imagenet',
        source='ImageNet-2012 (ILSVRC2012), classification and localization',
        train_images=totals[records.TRAIN].images,
        validation_images=totals[records.VALIDATION].images,
        num_classes=len(plan.class_names),
        class_names=plan.class_names,
        fingerprint=fingerprint(totals[records.TRAIN], totals[records.VALIDATION]),
        validation_records_per_file=[
            reports[shard].fingerprint.images for shard in sorted(plan.of_split(records.VALIDATION))
        ],
    )
    done = {
        **{name: getattr(plan, name) for name in ('settings', 'boxes', 'foreign', 'bad_annotations')},
        'images': {split: total.images for split, total in totals.items()},
        **{'converted': converted, 'unreadable': unreadable, 'notes': notes},
    }
    info.write(data_dir)
    # Written last: it marks the conversion as finished.
    imagenet_shards.write_json(os.path.join(data_dir, conversion.REPORT_NAME), done)
    say(
        f'{info.train_images:,} training and {info.validation_images:,} validation images of {info.num_classes - 1:,} '
        f'classes in {data_dir}'
    )


def _joined(parts: Iterable[Dict[str, List[str]]]) -> Dict[str, List[str]]:
    """The lists of several dictionaries, joined by key."""
    joined: Dict[str, List[str]] = collections.defaultdict(list)
    for part in parts:
        for key, names in part.items():
            joined[key] += names
    return joined


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ', '.join(names[:_NAMED_AT_MOST]) + (
        f' and {more:,} more (all in {conversion.REPORT_NAME})' if more > 0 else ''
    )


@contextlib.contextmanager
def _watching(plan: Plan, pending: Sequence[str], work_dir: str, progress: Callable) -> Iterator[None]:
    """Shows progress during the block by counting the reports of shards, on whatever machines Beam runs."""
    move = progress('converting images', sum(plan.shards[shard] for shard in pending))
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_POLL_SECONDS):
            with contextlib.suppress(tf.errors.OpError, remote.RemoteError):
                names = set(remote.names_in(work_dir) or ())
                move(sum(plan.shards[shard] for shard in pending if shard + imagenet_shards.REPORT_ENDING in names))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('imagenet', __doc__)
    parser.add_argument('data_dir', help='new folder for the record files; local, gs:// or s3://')
    parser.add_argument(
        '--train',
        required=True,
        help='training images: the archive (of archives n….tar), or a folder of such archives or of folders n…',
    )
    parser.add_argument(
        '--validation', required=True, help='validation images: the archive, or a folder of images or of folders n…'
    )
    parser.add_argument(
        '--validation_labels',
        help='classes of the validation images, unless they are in folders n…: the development kit (archive or '
        'folder), or a text file of their synsets in the order of the images',
    )
    parser.add_argument(
        '--bounding_boxes',
        action='append',
        default=[],
        help='an archive or folder of XML annotations, or a CSV file of filename,xmin,ymin,xmax,ymax in fractions of '
        'the image (repeatable)',
    )
    parser.add_argument(
        '--synset_names',
        help='names of the classes: the development kit, or a text file with a synset and its name in each line '
        '(default: from the development kit if that is --validation_labels, otherwise the synsets)',
    )
    for split, number in records.DOCUMENTED_SHARDS.items():
        parser.add_argument(f'--{split}_shards', type=int, default=number, help=f'{split} files (default {number})')
    for split, number in IMAGES.items():
        parser.add_argument(
            f'--{split}_images',
            type=int,
            default=number,
            help=f'expected {split} images (default {number:,})',
        )
    parser.add_argument(
        '--processes',
        type=int,
        help=f'processes of the {DIRECT_RUNNER} (default: one per core, {_cores()} here)',
    )
    parser.add_argument('--runner', default=DIRECT_RUNNER, help=f"Beam's runner, by name (default {DIRECT_RUNNER})")
    return parser


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _per_split(arguments: argparse.Namespace, what: str) -> Dict[str, int]:
    return {split: getattr(arguments, f'{split}_{what}') for split in (records.TRAIN, records.VALIDATION)}


def main() -> int:
    """Converts the parts named on the command line."""
    own, of_beam = expanded(), []  # type: List[str], List[str]
    if '--' in own:
        separator = own.index('--')
        own, of_beam = own[:separator], own[separator + 1 :]
    parser = _parser()
    arguments = parser.parse_args(own)
    shards, expected = _per_split(arguments, 'shards'), _per_split(arguments, 'images')
    if min(*shards.values(), *expected.values()) < 1:
        parser.error('--train_shards, --validation_shards, --train_images and --validation_images: must be at least 1.')
    if arguments.processes is not None and (arguments.processes < 1 or arguments.runner != DIRECT_RUNNER):
        parser.error(f'--processes={arguments.processes}: must be at least 1, and requires --runner={DIRECT_RUNNER}.')
    if arguments.runner == DIRECT_RUNNER:
        processes = arguments.processes or _cores()
        of_beam += ['--direct_running_mode=multi_processing', f'--direct_num_workers={processes}']
    source = Source(**{name: getattr(arguments, name) for name in Source._fields})

    def run(*work: Any) -> None:
        imagenet_beam.run(arguments.runner, of_beam, *work)

    def command(screen: Screen) -> None:
        with conversion.resumable():
            imagenet_beam.check(arguments.runner, of_beam)
            say = functools.partial(print, file=sys.stderr)
            convert(source, arguments.data_dir, shards, expected, run, say)

    return program.run(command, f'interrupted; {conversion.RESUMABLE}')


if __name__ == '__main__':
    sys.exit(main())
