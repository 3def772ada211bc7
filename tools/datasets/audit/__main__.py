"""Audits a data set: reads every record, and reports the content, all problems, and whether training can use it.

Every image is decoded whole, because damage inside images cannot be found otherwise. --data_format=tar audits tar
shards. --train_files, --eval_files, --image_key, --label_key and --label_offset are those of the run. --croissant also
writes croissant.json, beside dataset.json. Exit code 2 means that training would fail, or that there is no data set.
"""

import argparse
import json
import sys
from typing import Any, Dict, Iterator, List, Tuple

from compat.errors import DONE, FIX
from compat.messages import counted, printable
from console import program
from console.command_line import check_given_once
from console.paths import check_folder
from console.processes import usable_cores
from console.screen import Screen
from data.braces import FILE_FLAGS
from tools import extras
from tools.datasets import field_flags
from tools.parsers import new_parser, number_of

# The most rows for classes.
_CLASSES_SHOWN = 24
# The properties of a data set that a Croissant description has and dataset.json lacks, by flag.
_PROPERTIES = {
    'license': ('license', "URL of the data set's licence"),
    'url': ('url', 'URL of its page'),
    'citation': ('citeAs', 'text of its citation'),
    'published': ('datePublished', 'date of publication, YYYY-MM-DD'),
    'release': ('version', 'number of its release, such as 1.0.0'),
}


def _arguments() -> argparse.Namespace:
    cores = usable_cores()
    parser = new_parser('audit', __doc__)
    # The source, with the names and the defaults of a run's flags.
    add = parser.add_argument
    add(
        'data_dir', nargs='?', default='', help='the folder of the data set; local, gs:// or, on TensorFlow 1.15, s3://'
    )
    formats = ['tfrecord', 'tar']
    add('--data_format', choices=formats, default='tfrecord', help='format of the files (default: tfrecord)')
    for split, flag in FILE_FLAGS.items():
        add(f'--{flag}', default='', metavar='PATTERNS', help=f'the {split} files, such as NAME-{{000..639}}.tar')
    field_flags.add_flags(parser)
    add('--json', action='store_true', help='print the complete report as JSON')
    add(
        '--num_classes',
        type=number_of(int, 2),
        help="labels must be less than this (default: as in dataset.json, or ImageNet's 1001, with the background)",
    )
    per_core = f'processes that read files (default: one per core, {cores} here)'
    add('--processes', type=number_of(int, 1), default=cores, help=per_core)
    add('--croissant', action='store_true', help='also write a Croissant description, croissant.json; it has:')
    for flag, (_, text) in _PROPERTIES.items():
        add(f'--{flag}', help=f'with --croissant, the {text}')
    arguments = parser.parse_args()
    if any(getattr(arguments, flag) for flag in _PROPERTIES) and not arguments.croissant:
        parser.error(f'{", ".join(f"--{flag}" for flag in _PROPERTIES)}: need --croissant.')
    if not (arguments.data_dir or arguments.train_files or arguments.eval_files):
        parser.error('name the folder of the data set, or its files with --train_files and --eval_files.')
    return arguments


def main() -> int:
    """Audits the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> int:
        check_folder(arguments.data_dir, 'data_dir')
        from data.sources import Source
        from tools.datasets import conversion
        from tools.datasets.audit import croissant
        from tools.datasets.audit.report import audit

        check_given_once(sys.argv[1:], [*FILE_FLAGS.values()])
        files = arguments.train_files, arguments.eval_files
        source = Source(arguments.data_dir, arguments.data_format, *files, field_flags.fields_of(arguments))
        described = croissant.description_of(source) if arguments.croissant else None
        with conversion.progress() as progress:
            report = audit(source, arguments.num_classes, arguments.processes, progress)
        if described and not report['errors']:
            given = {name: getattr(arguments, flag) for flag, (name, _) in _PROPERTIES.items()}
            known = {name: value for name, value in given.items() if value}
            missing = [f'--{flag}' for flag, (name, _) in _PROPERTIES.items() if name not in known]
            report['croissant'] = {**croissant.write(source, described, report, known), 'not_given': missing}
        if arguments.json:
            print(json.dumps(report, indent=2))
        else:
            print('\n'.join(map(printable, lines_of(report))))
        return FIX if report['errors'] else DONE

    return program.run(command)


def lines_of(report: Dict[str, Any]) -> Iterator[str]:
    """Yields the lines that show the report of `tools.datasets.audit.report.audit`."""
    splits = report['splits']
    yield f'{report["name"]}, {report["data_dir"]}' if report['name'] else report['data_dir']
    yield ''
    yield from _aligned([['', *splits], *([title, *values] for title, values in _measures([*splits.values()]))])
    yield ''
    yield from _aligned([['class', *splits], *_classes(report['classes'])])
    yield ''
    prints, duplicates = report['fingerprint'], report['duplicates']
    agreement = {True: "dataset.json's", False: "not dataset.json's", None: 'dataset.json has none'}[prints['agree']]
    yield f'fingerprint {prints["taken"]} ({agreement})'
    yield (
        f'copies      {duplicates["train"]:,} within train, {duplicates["validation"]:,} within validation, '
        f'{duplicates["between"]:,} between them'
    )
    yield f'read        in {report["seconds"]:,.1f} s, {report["records_per_second"]:,} records/s'
    if 'croissant' in report:
        written = report['croissant']
        unchecked = f'unchecked: {extras.command("archive")} on Python 3.9 or later'
        missing = f'; not given: {", ".join(written["not_given"])}' if written['not_given'] else ''
        checked = 'valid, says mlcroissant' if written['checked'] else unchecked
        yield f'croissant   {written["path"]} ({checked}){missing}'
    findings = []
    for kind in ('error', 'warning'):
        texts = report[f'{kind}s']
        yield from (f'{kind:<8} {text}' for text in texts)
        findings += [counted(len(texts), kind)] * bool(texts)
    audited = [split for split, found in splits.items() if found['files']]
    alone = f'{audited[0]} files alone: ' if len(audited) == 1 else ''
    can, purpose = 'cannot' if report['errors'] else 'can', 'trained on'
    if report['can_be_trained_on'] is None:
        purpose = 'evaluated'
    yield f'{alone}{can} be {purpose}' + (f': {", ".join(findings)}' if findings else '')


def _aligned(rows: List[List[str]]) -> Iterator[str]:
    """Yields lines with the cells of rows in columns; the first column is to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:]))]
        yield '  '.join(cells)


def _measures(splits: List[Dict[str, Any]]) -> Iterator[Tuple[str, List[str]]]:
    """Yields the titles and values of rows with a column for each split."""

    def spread(values: Dict[str, Any], unit: int = 1) -> str:
        if values['min'] is None:
            return '-'
        return '  '.join(f'{values[key] / unit:,.{0 if unit == 1 else 1}f}' for key in ('min', 'median', 'max'))

    of = [f' of {each["files"] + len(each["missing_files"]):,}' * bool(each['missing_files']) for each in splits]
    yield 'files', [f'{each["files"]:,}{of_all}' for each, of_all in zip(splits, of)]
    yield 'records', [f'{each["records"]:,}' for each in splits]
    yield 'width, px: min, median, max', [spread(each['width']) for each in splits]
    yield 'height, px', [spread(each['height']) for each in splits]
    yield 'image, kB', [spread(each['encoded_bytes'], 1000) for each in splits]
    yield 'all images, MB', [f'{each["encoded_bytes"]["total"] / 1e6:,.1f}' for each in splits]
    for kind in sorted({kind for each in splits for kind in each['formats']}):
        yield kind, [f'{each["formats"].get(kind, 0):,}' for each in splits]
    yield 'bounding boxes', [f'{each["boxes"]["boxes"]:,}' for each in splits]
    for kind in (kind for kind, value in splits[0].items() if isinstance(value, dict) and 'first' in value):
        yield kind.replace('_', ' '), [f'{each[kind]["count"]:,}' for each in splits]


def _classes(classes: List[Dict[str, Any]]) -> Iterator[List[str]]:
    """Yields the rows of the classes; if there are many, those with the fewest and the most training images."""
    shown = [each for each in classes if each['label'] or each['train'] or each['validation']]
    left_out = len(shown) - _CLASSES_SHOWN
    if left_out > 0:
        by_size = sorted(shown, key=lambda each: each['train'])
        shown = by_size[: _CLASSES_SHOWN // 2] + by_size[-_CLASSES_SHOWN // 2 :]
    for index, each in enumerate(shown):
        if left_out > 0 and index == len(shown) // 2:
            yield [f'…  {left_out:,} classes between', '', '']
        yield [f'{each["label"]}  {each["name"] or ""}', f'{each["train"]:,}', f'{each["validation"]:,}']


if __name__ == '__main__':
    sys.exit(main())
