"""Writes the report of a comparison: a page, and a Markdown file with pictures."""

import os
from typing import Dict, List, Union

from console.messages import in_code, in_markdown
from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from studies.report import findings, tables
from studies.report.findings import Findings
from studies.report.page import page
from studies.report.pictures import PICTURES, pictures
from studies.report.runs import Comparison
from studies.report.sections import markdown_table
from studies.report.tables import Table

PAGE_FILE = 'report.html'
MARKDOWN_FILE = 'report.md'


def write(out: str, comparison: Comparison) -> None:
    """Writes the page, the Markdown file and its pictures, and replaces those of an earlier report.

    Runs that have not started, are still running or have failed are included, with their state.

    Args:
      out: the folder, created if missing; it may be at gs:// or s3://.
      comparison: the runs to report.

    Raises:
      RemoteError: a remote folder cannot be written to.
      tf.errors.OpError: a local folder cannot be written to.
    """
    found = findings.find(comparison)
    contents: Dict[str, Union[str, bytes]] = {**pictures(found), MARKDOWN_FILE: markdown(found), PAGE_FILE: page(found)}
    with remote.explained(out, remote.WRITE):
        tf.io.gfile.makedirs(out)
    for name, content in contents.items():
        write_whole(os.path.join(out, name), content)


def markdown(found: Findings) -> str:
    """The report as Markdown; it expects its pictures in the same folder."""
    finals, curves, schedule = (f'![{description}]({name})' for name, (description, _) in PICTURES.items())
    parts = [f'# {in_markdown(found.comparison.title)}', found.comparison.question, *found.comparison.notes]
    parts += [
        f'{tables.status(found.runs)}; written {tables.current_minute()}.',
        '## Results',
        'At the last step of training: mean ± sample standard deviation of the finished runs.',
        _table(tables.finals(found)),
        _table(tables.failed(found), '### Failed'),
        _table(tables.unfinished(found), '### Not finished'),
        finals,
        _table(tables.differences(found), '### Differences'),
        _table(tables.interquartile_means(found), ''),
        _table(tables.improvements(found), ''),
        '## Learning curves',
        curves,
        '## Schedule and speed',
        schedule,
        '## Commands',
        *_commands(found),
        '## Environment',
        _table(tables.environment(found.runs), '') or 'No run has started.',
        '## How to read this report',
        '\n'.join(f'- {note}' for note in tables.how_to_read(found)),
    ]
    return '\n\n'.join(part for part in parts if part) + '\n'


def _table(table: Table, title: str = '') -> str:
    """A table below its title; nothing if it is empty."""
    text = markdown_table(table.header, table.rows, table.numbers)
    return '\n\n'.join([title, text] if title else [text]) if table.rows else ''


def _commands(found: Findings) -> List[str]:
    parts = []
    for case in found.comparison.cases:
        lines = [f'# {in_code(run.name)}: {findings.state(run)}\n{in_code(run.command or "")}' for run in case.runs]
        code = '\n'.join(['```sh', *map(str.rstrip, lines), '```'])
        parts.append(f'<details><summary>{in_markdown(case.name)}</summary>\n\n{code}\n\n</details>')
    return parts
