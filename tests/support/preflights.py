"""Preflights in this process."""

import json
from typing import Any, Dict, List, NamedTuple

from inception_v3.commands.preflight import __main__ as preflight

# The smallest images of Inception v3: most tests do not depend on their size.
SMALL = ['--height=75', '--width=75']
# Without files to list, graphs are built sooner.
FAKE = [*SMALL, '--use_data=fake']


class Result(NamedTuple):
    """The exit code and the output of a preflight."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Dict[str, Any]:
        """The object that --json prints."""
        return json.loads(self.out)


def run(capsys: Any, *arguments: str) -> Result:
    """Runs a preflight with these arguments."""
    code = preflight.main(['preflight', *arguments])
    return Result(code, *capsys.readouterr())


def errors_of(capsys: Any, *arguments: str) -> List[str]:
    """Runs a preflight that must fail, and returns its errors."""
    result = run(capsys, *arguments, '--json')
    assert result.out, result.err
    assert result.code == 2 and not result.report['may_start']
    return result.report['errors']


def warnings_of(capsys: Any, *arguments: str) -> List[str]:
    """Runs a preflight that must pass, and returns its warnings."""
    result = run(capsys, *arguments, '--json')
    assert result.code == 0, result.out
    assert result.report['may_start']
    return result.report['warnings']
