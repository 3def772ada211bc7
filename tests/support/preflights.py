"""Preflights in this process."""

import json
import sys
from typing import Any, Dict, List, NamedTuple

from tests.support import commands
from tools.preflight import __main__ as preflight

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


def run(*arguments: str) -> Result:
    """Runs a preflight with these arguments."""
    return Result(*commands.run(lambda: preflight.main(sys.argv), *arguments))


def errors_of(*arguments: str) -> List[str]:
    """Runs a preflight that must fail, and returns its errors."""
    result = run(*arguments, '--json')
    assert result.out, result.err
    assert result.code == 2 and not result.report['may_start']
    return result.report['errors']


def warnings_of(*arguments: str) -> List[str]:
    """Runs a preflight that must pass, and returns its warnings."""
    result = run(*arguments, '--json')
    assert result.code == 0, result.out
    assert result.report['may_start']
    return result.report['warnings']
