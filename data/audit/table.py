"""Prints the report of an audit as tables."""

import sys
from typing import Any, Dict, List

from rich import box, markup
from rich.console import Console
from rich.table import Table

from console import extras
from console.messages import counted, printable
from console.screen import raw
from data.audit.findings import KINDS

# The largest number of rows for classes. If there are more, those with the fewest and the most images are shown.
_CLASSES_SHOWN = 24
# The width of the output if it is not a terminal.
_PLAIN_WIDTH = 120

Report = Dict[str, Any]


def print_report(report: Report) -> None:
    """Prints the report of `data.audit.report.audit` on standard output."""
    console = Console(highlight=False, file=raw(sys.stdout))
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH, file=raw(sys.stdout))
    name = f'{report["name"]}, ' if report['name'] else ''
    console.print(f'[bold]{_escaped(name + report["data_dir"])}[/bold]')
    console.print(_splits(report['splits']))
    console.print(_classes(report['classes']))

    def line(text: str, title: str = '', style: str = '') -> None:
        # Without line breaks, so that a long path can be copied.
        console.print(f'[{style}]{title}[/{style}]' if style else title, _escaped(text), sep='', soft_wrap=True)

    prints, duplicates = report['fingerprint'], report['duplicates']
    agreement = {True: "dataset.json's", False: "not dataset.json's", None: 'dataset.json has none'}[prints['agree']]
    line(f'{prints["taken"]} ({agreement})', 'fingerprint ')
    line(
        f'{duplicates["train"]:,} within train, {duplicates["validation"]:,} within validation, '
        f'{duplicates["between"]:,} between them',
        'copies      ',
    )
    line(f'in {report["seconds"]:,.1f} s, {report["records_per_second"]:,} records/s', 'read        ')
    if 'croissant' in report:
        written = report['croissant']
        checked = (
            'valid, says mlcroissant'
            if written['checked']
            else f'unchecked: {extras.command("archive")} on Python 3.9 or later'
        )
        missing = f'; not given: {", ".join(written["not_given"])}' if written['not_given'] else ''
        line(f'{written["path"]} ({checked}){missing}', 'croissant   ')
    findings = []
    for kind, colour in (('error', 'red'), ('warning', 'yellow')):
        texts = report[f'{kind}s']
        for text in texts:
            line(text, f'{kind:<8} ', colour)
        findings += [counted(len(texts), kind)] * bool(texts)
    verdict = 'can be trained on' if report['can_be_trained_on'] else 'cannot be trained on'
    console.print(f'[bold]{verdict}[/bold]' + (f': {", ".join(findings)}' if findings else ''))


def _escaped(text: str) -> str:
    return markup.escape(printable(text))


def _splits(splits: Report) -> Table:
    table = Table('', box=box.SIMPLE, pad_edge=False)
    for split in splits:
        table.add_column(split, justify='right')
    described = [*splits.values()]
    formats = sorted({kind for split in described for kind in split['formats']})
    for title, values in (
        ('files', map(_files, described)),
        ('records', (f'{s["records"]:,}' for s in described)),
        ('width, px: min, median, max', (_spread(s['width']) for s in described)),
        ('height, px', (_spread(s['height']) for s in described)),
        ('image, kB', (_spread(s['encoded_bytes'], 1000) for s in described)),
        ('all images, MB', (f'{s["encoded_bytes"]["total"] / 1e6:,.1f}' for s in described)),
        *((kind, [f'{s["formats"].get(kind, 0):,}' for s in described]) for kind in formats),
        ('bounding boxes', (f'{s["boxes"]["boxes"]:,}' for s in described)),
        *((kind.replace('_', ' '), [f'{s[kind]["count"]:,}' for s in described]) for kind in KINDS),
    ):
        table.add_row(title, *values)
    return table


def _files(split: Report) -> str:
    missing = len(split['missing_files'])
    return f'{split["files"]:,}' + (f' of {split["files"] + missing:,}' if missing else '')


def _spread(values: Report, unit: int = 1) -> str:
    if values['min'] is None:
        return '-'
    return '  '.join(f'{values[key] / unit:,.{0 if unit == 1 else 1}f}' for key in ('min', 'median', 'max'))


def _classes(classes: List[Report]) -> Table:
    table = Table('class', '', 'train', 'validation', box=box.SIMPLE, pad_edge=False)
    for column in (0, 2, 3):
        table.columns[column].justify = 'right'
    shown = [c for c in classes if c['label'] or c['train'] or c['validation']]
    left_out = len(shown) - _CLASSES_SHOWN
    if left_out > 0:
        by_size = sorted(shown, key=lambda c: c['train'])
        shown = by_size[: _CLASSES_SHOWN // 2] + by_size[-_CLASSES_SHOWN // 2 :]
    for index, c in enumerate(shown):
        if left_out > 0 and index == len(shown) // 2:
            table.add_row('…', f'{left_out:,} classes between', '', '')
        table.add_row(str(c['label']), _escaped(c['name'] or ''), f'{c["train"]:,}', f'{c["validation"]:,}')
    return table
