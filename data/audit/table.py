"""Prints the report of an audit as tables."""

import sys
from typing import Any, Dict, List, Tuple

from rich import box, markup
from rich.console import Console
from rich.table import Table

from console.messages import printable
from console.screen import raw
from data import records
from data.audit.findings import NAMED_AT_MOST

# The largest number of rows for classes. If there are more, those with the fewest and the most images are shown.
_CLASSES_SHOWN = 24
_BAR_WIDTH = 24
# The width of the output if it is not a terminal.
_PLAIN_WIDTH = 120
# The number of bad records that are shown, of each kind.
_PLACES_SHOWN = 20

Report = Dict[str, Any]


def print_report(report: Report) -> None:
    """Prints the report of `data.audit.report.audit` on standard output."""
    console = Console(highlight=False, file=raw(sys.stdout))
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH, file=raw(sys.stdout))
    name = f'{report["name"]}, ' if report['name'] else ''
    console.print(f'[bold]{_escaped(name + report["data_dir"])}[/bold]')
    console.print(_splits(report['splits']))
    console.print(_classes(report))
    for label, value in _identity(report):
        console.print(f'{label:<12}{_escaped(value)}', soft_wrap=True)
    for kind, colour in (('error', 'red'), ('warning', 'yellow')):
        for text in report[f'{kind}s']:
            # Without line breaks, so that a long path can be copied.
            console.print(f'[{colour}]{kind:<8}[/{colour}] {_escaped(text)}', soft_wrap=True)
    _print_places(console, report['splits'])
    verdict = 'can be trained on' if report['can_be_trained_on'] else 'cannot be trained on'
    if report['can_be_trained_on'] and not report['decoded']:
        verdict += ', according to image headers (without --nodecode, whole images are checked)'
    found = ', '.join(
        f'{len(report[f"{kind}s"])} {kind}{"s" * (len(report[f"{kind}s"]) > 1)}'
        for kind in ('error', 'warning')
        if report[f'{kind}s']
    )
    console.print(f'[bold]{verdict}[/bold]' + (f': {found}' if found else ''))


def _escaped(text: str) -> str:
    return markup.escape(printable(text))


def _splits(splits: Report) -> Table:
    table = Table('', box=box.SIMPLE, pad_edge=False)
    for split in splits:
        table.add_column(split, justify='right')

    rows: Dict[str, List[str]] = {
        'files': [_files(s) for s in splits.values()],
        'records': [f'{s["records"]:,}' for s in splits.values()],
        'width, px: min, median, max': [_spread(s['width']) for s in splits.values()],
        'height, px': [_spread(s['height']) for s in splits.values()],
        'image, kB': [_spread(s['encoded_bytes'], 1000) for s in splits.values()],
        'all images, MB': [f'{s["encoded_bytes"]["total"] / 1e6:,.1f}' for s in splits.values()],
    }
    for kind in sorted({kind for s in splits.values() for kind in s['formats']}):
        rows[kind] = [f'{s["formats"].get(kind, 0):,}' for s in splits.values()]
    rows['bounding boxes'] = [f'{s["boxes"]["boxes"]:,}' for s in splits.values()]
    for key in ('bad_files', 'bad_fields', 'bad_boxes', 'undecodable', 'damaged', 'rotated'):
        rows[key.replace('_', ' ')] = [f'{s[key]["count"]:,}' for s in splits.values()]
    for label, values in rows.items():
        table.add_row(label, *values)
    return table


def _files(split: Report) -> str:
    missing = len(split['missing_files'])
    return f'{split["files"]:,}' + (f' of {split["files"] + missing:,}' if missing else '')


def _spread(values: Report, unit: int = 1) -> str:
    if values['min'] is None:
        return '-'
    return '  '.join(f'{values[key] / unit:,.{0 if unit == 1 else 1}f}' for key in ('min', 'median', 'max'))


def _classes(report: Report) -> Table:
    classes = [c for c in report['classes'] if c['label'] or c[records.TRAIN] or c[records.VALIDATION]]
    table = Table('class', '', 'train', '', 'validation', box=box.SIMPLE, pad_edge=False)
    for column in (0, 2, 4):
        table.columns[column].justify = 'right'
    most = max([c[records.TRAIN] for c in classes] + [1])
    shown, left_out = classes, 0
    if len(classes) > _CLASSES_SHOWN:
        by_size = sorted(classes, key=lambda c: c[records.TRAIN])
        shown = by_size[: _CLASSES_SHOWN // 2] + by_size[-_CLASSES_SHOWN // 2 :]
        left_out = len(classes) - len(shown)
    for index, c in enumerate(shown):
        if left_out and index == len(shown) // 2:
            table.add_row('…', f'{left_out:,} classes between', '', '', '')
        bar = '█' * round(_BAR_WIDTH * c[records.TRAIN] / most)
        table.add_row(
            str(c['label']), _escaped(c['name'] or ''), f'{c[records.TRAIN]:,}', bar, f'{c[records.VALIDATION]:,}'
        )
    return table


def _identity(report: Report) -> List[Tuple[str, str]]:
    prints = report['fingerprint']
    agreement = {True: "dataset.json's", False: "not dataset.json's", None: 'dataset.json has none'}[prints['agree']]
    duplicates = report['duplicates']
    how = 'every image decoded' if report['decoded'] else 'headers read, as --nodecode says'
    return [
        ('fingerprint', f'{prints["taken"]} ({agreement})'),
        (
            'copies',
            f'{duplicates[records.TRAIN]:,} within train, {duplicates[records.VALIDATION]:,} within validation, '
            f'{duplicates["between"]:,} between them',
        ),
        ('read', f'in {report["seconds"]:,.1f} s, {report["records_per_second"]:,} records/s ({how})'),
    ]


def _print_places(console: Console, splits: Report) -> None:
    """Prints the positions of the bad records."""
    for key in ('bad_fields', 'bad_boxes', 'undecodable', 'damaged', 'rotated'):
        title = key.replace('_', ' ')
        # The findings list the first few.
        found = [place for split in splits.values() for place in split[key]['first'][NAMED_AT_MOST:]]
        for place in found[:_PLACES_SHOWN]:
            text = f'{place["path"]}, record {place["position"]}: {place["problem"]}'
            console.print(f'{title:<12}{_escaped(text)}', soft_wrap=True)
        listed = sum(max(split[key]['count'] - NAMED_AT_MOST, 0) for split in splits.values())
        if listed > _PLACES_SHOWN:
            console.print(f'{title:<12}and {listed - _PLACES_SHOWN:,} more; --json lists the first 1,000 of each split')
