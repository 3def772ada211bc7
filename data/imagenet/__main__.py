r"""ImageNet-2012 as record files, 1,024 for training and 128 for validation, made by Apache Beam.

  python -m data.imagenet --train=ILSVRC2012_img_train.tar --validation=ILSVRC2012_img_val.tar \
      --validation_labels=ILSVRC2012_devkit_t12.tar.gz --bounding_boxes=ILSVRC2012_bbox_train_v2.tar.gz imagenet

Archives are read in place. Classes are numbered from 1 on, by synset; 0 is the background. JPEG files stay as they
are, byte for byte; what is CMYK, or PNG in disguise, becomes an RGB JPEG file of quality 100. Which image is in which
record file depends on their names alone, and mixes the classes.

A conversion that was stopped goes on with the same command: finished files are kept. On a cluster, the same command
takes --runner=RUNNER and, after --, what Beam is to know besides; there, all folders are in gs:// or s3://.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import os
import signal
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import tensorflow as tf

from data import conversion, records, remote
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.imagenet import beam as imagenet_beam
from data.imagenet import plan as imagenet_plan
from data.imagenet import shards as imagenet_shards
from data.imagenet.beam import DIRECT_RUNNER
from data.imagenet.plan import Plan, Source
from data.imagenet.shards import ShardReport
from data.records import DataError

IMAGES = {records.TRAIN: 1281167, records.VALIDATION: 50000}

_NAMED_AT_MOST = 10
_PARALLEL_REQUESTS = 32
# Seconds between two looks at how far it is.
_LOOK_EVERY = 1

Say = Callable[[str], None]


def convert(
    source: Source,
    data_dir: str,
    shards: Dict[str, int],
    expected: Dict[str, int],
    run: Callable[[Sequence[str], str, str], None],
    say: Say,
) -> None:
    """Writes ImageNet as a data set, or goes on with one that was begun.

    Args:
      source: where its parts are.
      data_dir: a folder, local or remote: new, empty, or begun by this.
      shards: the number of record files of each split, unless there are fewer images.
      expected: the number of images of each split.
      run: runs `imagenet_shards.convert` on each of the shards, given their names and its other arguments.
      say: is told what happens, in lines.

    Raises:
      DataError: something is missing, damaged or not as expected. What was finished is kept.
      RemoteError: a remote file is refused, or cannot be reached. What was finished is kept.
    """
    work_dir = os.path.join(data_dir, conversion.WORK_FOLDER)
    settings = imagenet_plan.settings_of(source, shards)
    finished = conversion.settings_in(os.path.join(data_dir, conversion.REPORT_NAME))
    if finished is not None:
        conversion.check_same(data_dir, finished, settings)
        say(f'{data_dir}: was finished before')
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
                    source, shards, expected, work_dir, lambda what: progress(f'looking for {what}', None)
                )
            plan.write(work_dir)
        for files, what in ((plan.foreign, 'files are no images'), (plan.bad_annotations, 'annotations are unusable')):
            if files:
                say(f'{len(files):,} {what}, and are left out: {_listed(files)}')
        reports = _reports(plan, data_dir, work_dir)
        pending = [shard for shard in plan.shards if shard not in reports or reports[shard].unreadable]
        if reports:
            say(f'{len(plan.shards) - len(pending):,} of {len(plan.shards):,} record files were finished before')
        if pending:
            imagenet_shards.forget(work_dir, pending)
            with conversion.progress() as progress, _watching(plan, pending, work_dir, progress):
                run(pending, data_dir, work_dir)
            imagenet_shards.raise_failure(work_dir)
            reports = _reports(plan, data_dir, work_dir)
        _finish(plan, reports, data_dir, expected, say)
        tf.io.gfile.rmtree(work_dir)


def _reports(plan: Plan, data_dir: str, work_dir: str) -> Dict[str, ShardReport]:
    """What was made of the shards that are there as they were written."""
    present = set(remote.names_in(data_dir) or ()) & set(plan.shards)

    def report(shard: str) -> Optional[ShardReport]:
        found = imagenet_shards.read_report(work_dir, shard)
        whole = found and found.file_bytes == remote.size(os.path.join(data_dir, shard))
        return found if whole else None

    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        found = dict(zip(present, pool.map(report, present)))
    return {shard: found[shard] for shard in plan.shards if found.get(shard)}  # type: ignore[misc]


def _finish(plan: Plan, reports: Dict[str, ShardReport], data_dir: str, expected: Dict[str, int], say: Say) -> None:
    """Adds up what was made of the shards, and describes the data set if that is as expected."""
    missing = sorted(set(plan.shards) - set(reports))
    if missing:
        raise DataError(f'{data_dir}: {len(missing)} record files were not made: {_listed(missing)}. Start again.')
    totals = {
        split: sum((reports[shard].fingerprint for shard in plan.of_split(split)), SplitFingerprint())
        for split in expected
    }
    converted: Dict[str, List[str]] = collections.defaultdict(list)
    for report in reports.values():
        for was, names in report.converted.items():
            converted[was] += names
    unreadable = [name for report in reports.values() for name in report.unreadable]
    for was, names in sorted(converted.items()):
        say(f'{len(names):,} images were {was}, and are RGB JPEG files now: {_listed(names)}')
    say('bounding boxes: ' + (', '.join(f'{count:,} {what}' for what, count in plan.boxes.items() if count) or 'none'))
    for split, total in totals.items():
        if total.images != expected[split]:
            undecodable = f': {len(unreadable):,} cannot be decoded, {_listed(unreadable)}' if unreadable else ''
            raise DataError(
                f'{data_dir}: {total.images:,} {split} images were written, and not {expected[split]:,}{undecodable}. '
                'Mend what is broken and start the same command again, or do without, with '
                f'--{split}_images={total.images}. What is finished is kept.'
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
    )
    done = {
        'settings': plan.settings,
        'images': {split: total.images for split, total in totals.items()},
        'converted': converted,
        'unreadable': unreadable,
        'boxes': plan.boxes,
        'foreign': plan.foreign,
        'bad_annotations': plan.bad_annotations,
    }
    info.write(data_dir)
    # The last: where it is, all is finished.
    imagenet_shards.write_json(os.path.join(data_dir, conversion.REPORT_NAME), done)
    say(
        f'{info.train_images:,} training and {info.validation_images:,} validation images of {info.num_classes - 1:,} '
        f'classes in {data_dir}'
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ', '.join(names[:_NAMED_AT_MOST]) + (
        f' and {more:,} more (all in {conversion.REPORT_NAME})' if more > 0 else ''
    )


@contextlib.contextmanager
def _watching(plan: Plan, pending: Sequence[str], work_dir: str, progress: Callable) -> Iterator[None]:
    """Tells how far the conversion is, wherever it runs: by the shards whose reports are there."""
    tell = progress('converting images', sum(plan.shards[shard] for shard in pending))
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_LOOK_EVERY):
            with contextlib.suppress(tf.errors.OpError, remote.RemoteError):
                names = set(remote.names_in(work_dir) or ())
                tell(sum(plan.shards[shard] for shard in pending if shard + imagenet_shards.REPORT_ENDING in names))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='python -m data.imagenet', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('data_dir', help='the folder to make, for the record files; local, gs:// or s3://')
    parser.add_argument(
        '--train',
        required=True,
        help='training images: the archive (n01440764.tar and so on in it), or a folder of such archives or of folders',
    )
    parser.add_argument(
        '--validation', required=True, help='validation images: the archive, or a folder of images or of folders n…'
    )
    parser.add_argument(
        '--validation_labels',
        help='classes of the validation images, unless they lie in folders n…: the development kit (archive or '
        'folder), or a text file of their synsets in the order of the images',
    )
    parser.add_argument(
        '--bounding_boxes',
        action='append',
        default=[],
        help='an archive or folder of XML annotations, or a CSV file of filename,xmin,ymin,xmax,ymax in fractions of '
        'the image (may be given several times)',
    )
    parser.add_argument(
        '--synset_names',
        help='names of the classes: the development kit, or a text file with a synset and its name in each line '
        '(default: those of the development kit, if that has the labels, or the synsets)',
    )
    for split, number in records.DOCUMENTED_SHARDS.items():
        parser.add_argument(f'--{split}_shards', type=int, default=number, help=f'{split} files (default {number})')
    for split, number in IMAGES.items():
        parser.add_argument(
            f'--{split}_images', type=int, default=number, help=f'{split} images to expect (default {number:,})'
        )
    parser.add_argument(
        '--processes', type=int, help=f'processes of the {DIRECT_RUNNER} (default: the cores, {_cores()} here)'
    )
    parser.add_argument('--runner', default=DIRECT_RUNNER, help=f'what runs it, by its name in Beam ({DIRECT_RUNNER})')
    return parser


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _per_split(arguments: argparse.Namespace, what: str) -> Dict[str, int]:
    return {split: getattr(arguments, f'{split}_{what}') for split in (records.TRAIN, records.VALIDATION)}


def main() -> None:
    """Converts what is named on the command line."""
    ours, beams = sys.argv[1:], []  # type: List[str], List[str]
    if '--' in ours:
        separator = ours.index('--')
        ours, beams = ours[:separator], ours[separator + 1 :]
    parser = _parser()
    arguments = parser.parse_args(ours)
    shards, expected = _per_split(arguments, 'shards'), _per_split(arguments, 'images')
    if min(*shards.values(), *expected.values()) < 1:
        parser.error('--train_shards, --validation_shards, --train_images and --validation_images: must be at least 1.')
    if arguments.processes is not None and (arguments.processes < 1 or arguments.runner != DIRECT_RUNNER):
        parser.error(f'--processes={arguments.processes}: must be at least 1, and --runner={DIRECT_RUNNER}.')
    if arguments.runner == DIRECT_RUNNER:
        beams += ['--direct_running_mode=multi_processing', f'--direct_num_workers={arguments.processes or _cores()}']
    source = Source(**{name: getattr(arguments, name) for name in Source._fields})

    def run(*work: Any) -> None:
        imagenet_beam.run(arguments.runner, beams, *work)

    # What a machine sends when it is shut down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code, message = 0, ''
    try:
        imagenet_beam.check(arguments.runner, beams)
        convert(source, arguments.data_dir, shards, expected, run, lambda line: print(line, file=sys.stderr))
    except KeyboardInterrupt:
        code, message = 130, 'interrupted; the same command goes on, and keeps what is finished'
    except (imagenet_beam.BeamError, remote.UnreachableError) as error:
        code, message = 1, str(error)
    except (DataError, remote.RemoteError) as error:
        code, message = 2, str(error)
    if code:
        parser.exit(code, f'{parser.prog}: {message}\n')


if __name__ == '__main__':
    main()
