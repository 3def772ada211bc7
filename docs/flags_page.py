"""Writes docs/flags.md, the reference of the flags, from the fields of `Config` and the presets.

./run python -m docs.flags_page
"""

import dataclasses
import pathlib
from typing import Any, Dict, List, get_type_hints

from inception_v3.config import TYPE_NAMES, Config, plain_type, setting_of
from inception_v3.presets import DESCRIPTIONS, PRESETS

PAGE = pathlib.Path(__file__).resolve().parent / 'flags.md'

_HEAD = """# Flags

Every flag of `python -m inception_v3.main`, from the fields of `inception_v3.config.Config`. preflight, the benchmarks
and the trials of a study take the same flags. `--help` prints this list, too. `--preset=NAME` sets the values that the
other flags start from; a flag on the command line wins over the preset. `--helpshort` prints the presets alone, and
`--version` the version.

`./run python -m docs.flags_page` writes this page; do not edit it.
"""


def text() -> str:
    """Returns the page in Markdown."""
    types = get_type_hints(Config)
    groups: Dict[str, List[str]] = {}
    for field in dataclasses.fields(Config):
        setting = setting_of(field)
        kind = TYPE_NAMES[plain_type(types[field.name])]
        allowed = setting.allowed or kind
        row = f'| `--{field.name}` | {_value(field.default)} | {_cell(allowed)} | {_cell(setting.help)} |'
        groups.setdefault(setting.group, []).append(row)
    parts = [_HEAD]
    for group, rows in groups.items():
        parts += [f'\n## {group.capitalize()}\n', '| flag | default | allowed | meaning |', '|---|---|---|---|', *rows]
    parts.append('\n## Presets\n')
    for name, values in PRESETS.items():
        parts.append(f'\n### `--preset={name}`\n\n{_cell(DESCRIPTIONS[name])}\n')
        parts += [f'- `--{flag}={value}`' for flag, value in values.items()]
    return '\n'.join(parts) + '\n'


def _value(value: Any) -> str:
    if value is None or value == '':
        return '–'
    return f'`{value:.6g}`' if isinstance(value, float) else f'`{value}`'


def _cell(content: str) -> str:
    return content.replace('|', r'\|').replace('<', '&lt;')


if __name__ == '__main__':
    PAGE.write_text(text(), encoding='utf-8')
