"""A process that runs one Python module after the other, so that TensorFlow is imported once for many commands.

It reads a JSON list per line from standard input, a module and its arguments, and prints a JSON list per line: exit
code, standard output and standard error.
"""

import json
import runpy
import subprocess
import sys
from typing import Any, Dict, List

from tests.support import commands
from tests.support.commands import Done


class Resident:
    """The process, whose command line begins with `enter`. It starts with the first command."""

    def __init__(self, enter: List[str], environment: Dict[str, str]):
        self._command = [*enter, sys.executable, '-W', 'ignore', '-m', 'tests.remote.resident']
        self._environment = environment
        self._process: Any = None

    def run(self, module: str, *arguments: str) -> Done:
        """Runs `python -m MODULE ARGUMENTS`."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        print(json.dumps([module, *arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f'the process that ran {module} has ended with exit code {self._process.wait()}'
        return Done(*json.loads(answer))

    def close(self) -> None:
        """Ends the process."""
        if self._process:
            self._process.communicate()


def _run(module: str, arguments: List[str]) -> Done:
    def main() -> int:
        runpy.run_module(module, run_name='__main__', alter_sys=True)
        return 0

    with tf.Graph().as_default():
        return commands.run(main, *arguments)


if __name__ == '__main__':
    import compat.settings  # isort: skip  # noqa: F401
    from compat import tf

    for line in sys.stdin:
        name, *given = json.loads(line)
        print(json.dumps(_run(name, given)), flush=True)
