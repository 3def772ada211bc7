"""The report as a Markdown file with pictures."""

from typing import Callable, Dict, List, Tuple

from console.messages import in_code, in_markdown
from studies.report import figures, findings, markdown_table, tables
from studies.report.findings import Findings
from studies.report.tables import Table

_PICTURES: Tuple[Tuple[str, str, Callable[[Findings], bytes]], ...] = (
    ('finals.png', 'results at the last step, and differences between cases', figures.finals),
    ('curves.png', 'learning curves', figures.curves),
    ('schedule.png', 'learning rate by step, and images per second', figures.schedule_and_speed),
)


def pictures(found: Findings) -> Dict[str, bytes]:
    """The pictures: contents of PNG files, by name."""
    return {name: draw(found) for name, _, draw in _PICTURES}


def text(found: Findings) -> str:
    """The text; it expects its pictures in the same folder."""
    finals, curves, schedule = (f'![{description}]({name})' for name, description, _ in _PICTURES)
    comparison = found.comparison
    parts = [f'# {in_markdown(comparison.title)}', comparison.question, *comparison.notes]
    parts += [
        f'{tables.status(found.runs)}; written {tables.current_minute()}.',
        '## Results',
        'At the last step of training: mean ± sample standard deviation of the finished runs.',
        _table(tables.finals(found)),
    ]
    for title, table in (('Failed', tables.failed(found)), ('Not finished', tables.unfinished(found))):
        if table.rows:
            parts += [f'### {title}', _table(table)]
    parts.append(finals)
    differences = tables.differences(found)
    if differences.rows:
        parts += ['### Differences', _table(differences)]
    for table in (tables.interquartile_means(found), tables.improvements(found)):
        if table.rows:
            parts.append(_table(table))
    parts += ['## Learning curves', curves, '## Schedule and speed', schedule, '## Commands', *_commands(found)]
    environment = tables.environment(found.runs)
    parts += ['## Environment', _table(environment) if environment.rows else 'No run has started.']
    parts += ['## How to read this report', '\n'.join(f'- {note}' for note in tables.how_to_read(found))]
    return '\n\n'.join(part for part in parts if part) + '\n'


def _commands(found: Findings) -> List[str]:
    parts = []
    for each in found.cases:
        lines = [
            f'# {in_code(run.name)}: {findings.state(run)}\n{in_code(run.command or "")}'.rstrip()
            for run in each.case.runs
        ]
        parts.append(
            f'<details><summary>{in_markdown(each.case.name)}</summary>\n\n'
            + '\n'.join(['```sh', *lines, '```'])
            + '\n\n</details>'
        )
    return parts


def _table(table: Table) -> str:
    return markdown_table.table(table.header, [row.cells for row in table.rows], table.numbers)
