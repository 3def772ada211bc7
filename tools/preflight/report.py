"""The report of a preflight: values in sections, findings and a verdict, as text or as JSON."""

import contextlib
import json
from typing import Any, Dict, Iterator, List, Tuple

from absl import app

from compat import tf
from compat.messages import counted, in_rows

_MIB = 1 << 20


class Report:
    """A report that the checks fill in: values by section, each with a note for people, and findings.

    Errors keep the run from starting. `not_checked` lists the points that cannot be checked without a TPU.
    """

    def __init__(self, title: str):
        self.title = title
        self.sections: Dict[str, Dict[str, Tuple[Any, str]]] = {}
        self.errors: List[str] = []
        self.warnings: List[str] = []
        self.not_checked: List[str] = []
        self.error, self.warn = self.errors.append, self.warnings.append

    def add(self, section: str, note: str = '', **values: Any) -> None:
        """Adds values to a section, with a note that the text shows beside each of them."""
        self.sections.setdefault(section, {}).update({name: (value, note) for name, value in values.items()})

    @contextlib.contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Ends its body at an error of the user's flags or files, and adds its message."""
        try:
            yield
        except (app.UsageError, tf.errors.OpError) as error:
            self.error(str(getattr(error, 'message', error)))

    @property
    def verdict(self) -> str:
        """The last line of the text."""
        if self.errors:
            return f'may not start: {counted(len(self.errors), "problem")}'
        return 'may start' + (f', {counted(len(self.warnings), "warning")}' if self.warnings else '')

    def text(self) -> str:
        """Formats the report as text."""
        blocks = [
            (section.replace('_', ' '), [(name.replace('_', ' '), _text(name, *row)) for name, row in rows.items()])
            for section, rows in self.sections.items()
        ]
        findings = [('error', text) for text in self.errors] + [('warning', text) for text in self.warnings]
        blocks += [('findings', findings), ('not checked', [('', text) for text in self.not_checked])]
        texts = [f'{title}\n{in_rows(rows, "  ")}' for title, rows in blocks if rows]
        return '\n\n'.join([self.title, *texts, self.verdict])

    def json(self) -> str:
        """Formats the report as a JSON object of the sections, the findings and the verdict."""
        content: Dict[str, Any] = {
            section: {name: value for name, (value, _) in rows.items()} for section, rows in self.sections.items()
        }
        content.update(errors=self.errors, warnings=self.warnings)
        content.update(not_checked=self.not_checked, may_start=not self.errors)
        return json.dumps(content, indent=2)


def _text(name: str, value: Any, note: str) -> str:
    text = ''
    if isinstance(value, list):
        # The smallest and the largest number among the hosts, or names and flaws.
        are_numbers = any(isinstance(each, int) for each in value)
        text = ' to '.join(f'{each:,}' for each in dict.fromkeys(value)) if are_numbers else f'{len(value):,}'
    elif isinstance(value, (int, float)):
        text = f'{value:,}' if isinstance(value, int) else f'{value:,.2f}' if value >= 1 else f'{value:.4g}'
        if 'bytes' in name and value >= _MIB:
            text += f' ({value / _MIB:,.1f} MiB)'
    elif value not in (None, note):
        text = str(value)
    return ', '.join(filter(None, [text, note]))
