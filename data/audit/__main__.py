"""Audits a data set: reads every record, and reports the content, all problems, and whether training can use it.

Every image is decoded whole, which is the way to find damage inside images. With --nodecode, only the headers of images
and the checksums of PNGs are read, and an image is decoded if its header is unusual or its end is missing.
--data_format=tar audits tar shards. --train_files, --eval_files, --image_key, --label_key and --label_offset are those
of the run. Exit code 2 means that training would fail, or that there is no data set.
"""

import argparse
import contextlib
import json
import os
import sys
from typing import Optional

from console import extras, program
from console.command_line import new_parser
from console.errors import DONE, FIX
from console.paths import expanded
from console.screen import Screen
from data import dataset_info, records
from data.audit.report import DOCUMENTED_CLASSES, audit
from data.braces import check_given_once
from data.convert import conversion
from data.formats import FORMATS
from data.sources import FILE_FLAGS, Source, source_of
from data.tf_example import Fields


def _expected_records(source: Source) -> Optional[int]:
    """The number of records according to the data set's description. The audit itself reports an invalid one."""
    with contextlib.suppress(records.DataError):
        has_patterns = source.train_files or source.eval_files
        info = None if has_patterns else dataset_info.read(source.data_dir)
        return info.train_images + info.validation_images if info else None
    return None


def _add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that describe a source, with the names and the defaults of a run's flags."""
    add, fields = parser.add_argument, Fields()
    add('data_dir', nargs='?', default='', help='the folder of the data set; local, gs:// or s3://')
    add('--data_format', choices=[*FORMATS], default='tfrecord', help='format of the files (default: tfrecord)')
    for flag, kind in (('train_files', 'training'), ('eval_files', 'validation')):
        add(f'--{flag}', default='', metavar='PATTERNS', help=f'the {kind} files, such as NAME-{{000..639}}.tar')
    add('--image_key', default=fields.image, help=f'key of the encoded image in TFRecords (default: {fields.image})')
    add(
        '--label_key',
        default=fields.label,
        help=f'key of the label in TFRecords (default: {fields.label}); in tar, its extension or json:KEY',
    )
    add('--label_offset', type=int, default=0, help='number to add to each label (default: 0)')


def _arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = new_parser('audit', __doc__)
    _add_source(parser)
    parser.add_argument('--json', action='store_true', help='print the complete report as JSON')
    decoding = parser.add_mutually_exclusive_group()
    decoding.add_argument(
        '--decode', action='store_true', default=True, help='decode every image, to find damage inside it (default)'
    )
    decoding.add_argument(
        '--nodecode', action='store_false', dest='decode', help='read only the headers of images, which is faster'
    )
    parser.add_argument(
        '--num_classes',
        type=int,
        help=f"labels must be less than this (default: as in dataset.json, or ImageNet's {DOCUMENTED_CLASSES})",
    )
    parser.add_argument(
        '--processes', type=int, default=cores, help=f'processes that read files (default: one per core, {cores} here)'
    )
    arguments = parser.parse_args(expanded())
    if not (arguments.data_dir or arguments.train_files or arguments.eval_files):
        parser.error('name the folder of the data set, or its files with --train_files and --eval_files.')
    if arguments.num_classes is not None and arguments.num_classes < 2:
        parser.error(f'--num_classes={arguments.num_classes}: must be at least 2, the background and a class.')
    if arguments.processes < 1:
        parser.error(f'--processes={arguments.processes}: must be at least 1.')
    return arguments


def main() -> int:
    """Audits the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> int:
        check_given_once(sys.argv[1:], [*FILE_FLAGS.values()])
        if not arguments.json:
            try:
                from data.audit.table import print_report
            except ImportError:
                raise records.DataError(
                    f'the table needs rich: {extras.command("data")}, or print the report with --json.'
                )
        source = source_of(arguments)
        with conversion.progress() as progress:
            report = audit(
                source,
                arguments.num_classes,
                arguments.decode,
                arguments.processes,
                progress('reading records', _expected_records(source)),
            )
        if arguments.json:
            print(json.dumps(report, indent=2))
        else:
            print_report(report)
        return DONE if report['can_be_trained_on'] else FIX

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main())
