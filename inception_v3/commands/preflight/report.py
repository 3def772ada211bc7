"""The report of a preflight: values in sections, findings and a verdict, as text or as JSON."""

import json
import textwrap
from typing import Any, Dict, List, NamedTuple, Optional

_WIDTH = 110
_INDENT = ' ' * 2


class Row(NamedTuple):
    """A value: key and value for JSON, label and text for people."""

    key: str
    value: Any
    label: str
    text: str


class Report:
    """A report that the checks fill in.

    Args:
      title: first line of the text.

    Attributes:
      errors: problems that keep the run from starting.
      warnings: other findings; the run may start in spite of them.
      missing: flags that the command line lacks and the run needs.
      not_checked: what a run needs, too, and no check can tell without a TPU.
    """

    def __init__(self, title: str):
        self._title = title
        self._sections: Dict[str, List[Row]] = {}
        self.errors: List[str] = []
        self.warnings: List[str] = []
        self.missing: List[str] = []
        self.not_checked: List[str] = []

    def add(self, section: str, key: str, value: Any, text: Optional[str] = None, label: Optional[str] = None) -> None:
        """Adds a value to a section.

        Args:
          section: key of the section in JSON; the title in the text has spaces instead of underscores.
          key: key of the value in JSON.
          value: any value that JSON can represent.
          text: the value as text; None formats a number with commas.
          label: the name of the value in the text; None uses the key, with spaces instead of underscores.
        """
        words = f'{value:,}' if text is None else text
        self._sections.setdefault(section, []).append(Row(key, value, label or key.replace('_', ' '), words))

    def error(self, text: str) -> None:
        """Adds a problem that keeps the run from starting."""
        self.errors.append(text)

    def warn(self, text: str) -> None:
        """Adds a finding that the user may have intended."""
        self.warnings.append(text)

    def need(self, flag: str, text: str) -> None:
        """Adds a flag that the run needs and the command line lacks, with a warning."""
        self.missing.append(flag)
        self.warn(text)

    def leave_out(self, what: str) -> None:
        """Adds something that was not checked."""
        self.not_checked.append(what)

    @property
    def may_start(self) -> bool:
        """Whether the report has no errors."""
        return not self.errors

    @property
    def verdict(self) -> str:
        """The last line of the text."""
        if self.may_start and self.missing:
            words = f'may start with {", ".join(self.missing)}, which this command line lacks'
            return f'{words}{_count(", ", len(self.warnings), "warning")}'
        if self.may_start:
            return f'may start{_count(", ", len(self.warnings), "warning")}'
        return f'may not start{_count(": ", len(self.errors), "problem")}'

    def text(self) -> str:
        """Formats the report as text."""
        width = max(len(row.label) for rows in self._sections.values() for row in rows)
        lines = [self._title]
        for section, rows in self._sections.items():
            lines += ['', section.replace('_', ' ')]
            for row in rows:
                start = f'{_INDENT}{row.label:<{width}}  '
                lines += textwrap.wrap(row.text, _WIDTH, initial_indent=start, subsequent_indent=' ' * len(start))
        if self.errors or self.warnings:
            lines += ['', 'findings']
        for kind, texts in (('error', self.errors), ('warning', self.warnings)):
            for text in texts:
                start = f'{_INDENT}{kind:<7}  '
                # Long paths are not broken, so that they can be copied.
                lines += textwrap.wrap(
                    text,
                    _WIDTH,
                    initial_indent=start,
                    subsequent_indent=' ' * len(start),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
        if self.not_checked:
            lines += ['', 'not checked']
        for what in self.not_checked:
            lines += textwrap.wrap(what, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT * 2)
        return '\n'.join([*lines, '', self.verdict])

    def json(self) -> str:
        """Formats the report as a JSON object of the sections, the findings and the verdict."""
        sections = {name: {row.key: row.value for row in rows} for name, rows in self._sections.items()}
        findings = {
            'errors': self.errors,
            'warnings': self.warnings,
            'missing_flags': self.missing,
            'not_checked': self.not_checked,
            'may_start': self.may_start,
        }
        return json.dumps({**sections, **findings}, indent=2)


def _count(separator: str, count: int, noun: str) -> str:
    return f'{separator}{count} {noun}{"" if count == 1 else "s"}' if count else ''
