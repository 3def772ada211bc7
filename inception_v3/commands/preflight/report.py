"""The report of a preflight: values in sections, findings and a verdict, as text or as JSON."""

import json
import textwrap
from typing import Any, Dict, List, NamedTuple, Optional

from console.messages import counted

_WIDTH = 110


class Row(NamedTuple):
    """A value: key and value for JSON, label and text for people."""

    key: str
    value: Any
    label: str
    text: str


class Report:
    """A report that the checks fill in.

    Attributes:
      title: first line of the text.
      sections: the rows of each section; its title in the text has spaces instead of underscores.
      errors: problems that keep the run from starting.
      warnings: other findings; the run may start in spite of them.
      missing: flags that the command line lacks and the run needs.
      not_checked: what a run needs, too, and no check can tell without a TPU.
    """

    def __init__(self, title: str):
        self.title = title
        self.sections: Dict[str, List[Row]] = {}
        self.errors: List[str] = []
        self.warnings: List[str] = []
        self.missing: List[str] = []
        self.not_checked: List[str] = []
        self.error, self.warn = self.errors.append, self.warnings.append

    def add(self, section: str, key: str, value: Any, text: Optional[str] = None, label: Optional[str] = None) -> None:
        """Adds a value to a section; without a text a number with commas, without a label the key as words."""
        words = f'{value:,}' if text is None else text
        self.sections.setdefault(section, []).append(Row(key, value, label or key.replace('_', ' '), words))

    def need(self, flag: str, text: str) -> None:
        """Adds a flag that the run needs and the command line lacks, with a warning."""
        self.missing.append(flag)
        self.warn(text)

    @property
    def verdict(self) -> str:
        """The last line of the text."""
        if self.errors:
            return f'may not start: {counted(len(self.errors), "problem")}'
        lacks = f' with {", ".join(self.missing)}, which this command line lacks' if self.missing else ''
        return f'may start{lacks}' + (f', {counted(len(self.warnings), "warning")}' if self.warnings else '')

    def text(self) -> str:
        """Formats the report as text."""
        width = max(len(row.label) for rows in self.sections.values() for row in rows)
        blocks = [
            (section.replace('_', ' '), [(f'{row.label:<{width}}  ', row.text) for row in rows])
            for section, rows in self.sections.items()
        ]
        findings = [('error    ', text) for text in self.errors] + [('warning  ', text) for text in self.warnings]
        blocks += [('findings', findings), ('not checked', [('', text) for text in self.not_checked])]
        lines = [self.title]
        for title, rows in blocks:
            lines += ['', title] if rows else []
            for start, text in rows:
                lines += textwrap.wrap(
                    text,
                    _WIDTH,
                    initial_indent=f'  {start}',
                    subsequent_indent=' ' * max(len(start) + 2, 4),
                    # Long paths are not broken, so that they can be copied.
                    break_long_words=False,
                    break_on_hyphens=False,
                )
        return '\n'.join([*lines, '', self.verdict])

    def json(self) -> str:
        """Formats the report as a JSON object of the sections, the findings and the verdict."""
        content: Dict[str, Any] = {name: {row.key: row.value for row in rows} for name, rows in self.sections.items()}
        content.update(errors=self.errors, warnings=self.warnings, missing_flags=self.missing)
        content.update(not_checked=self.not_checked, may_start=not self.errors)
        return json.dumps(content, indent=2)
