"""The report of a preflight: values in sections, findings and a verdict, as text or as JSON."""

import json
import textwrap
from typing import Any, Dict, List, NamedTuple, Optional

from console.messages import counted

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

    def add(self, section: str, key: str, value: Any, text: Optional[str] = None, label: Optional[str] = None) -> None:
        """Adds a value to a section; without a text a number with commas, without a label the key as words."""
        words = f'{value:,}' if text is None else text
        self.sections.setdefault(section, []).append(Row(key, value, label or key.replace('_', ' '), words))

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

    @property
    def may_start(self) -> bool:
        """Whether the report has no errors."""
        return not self.errors

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
        lines = [self.title]
        for section, rows in self.sections.items():
            lines += ['', section.replace('_', ' ')]
            for row in rows:
                lines += _wrapped(f'{_INDENT}{row.label:<{width}}  ', row.text)
        findings = [*(('error', text) for text in self.errors), *(('warning', text) for text in self.warnings)]
        lines += ['', 'findings'] if findings else []
        for kind, text in findings:
            lines += _wrapped(f'{_INDENT}{kind:<7}  ', text)
        lines += ['', 'not checked'] if self.not_checked else []
        for what in self.not_checked:
            lines += _wrapped(_INDENT, what)
        return '\n'.join([*lines, '', self.verdict])

    def json(self) -> str:
        """Formats the report as a JSON object of the sections, the findings and the verdict."""
        content: Dict[str, Any] = {name: {row.key: row.value for row in rows} for name, rows in self.sections.items()}
        content.update(errors=self.errors, warnings=self.warnings, missing_flags=self.missing)
        content.update(not_checked=self.not_checked, may_start=self.may_start)
        return json.dumps(content, indent=2)


def _wrapped(start: str, text: str) -> List[str]:
    """Lines of a text; long paths are not broken, so that they can be copied."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=' ' * max(len(start), 2 * len(_INDENT)),
        break_long_words=False,
        break_on_hyphens=False,
    )
