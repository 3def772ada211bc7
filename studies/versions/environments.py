"""Runs the parts of the comparison in the environments of both versions, through `./run --tf=VERSION`."""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any, List, Sequence

from benchmarks.measurement import MeasurementError
from console import processes
from console.errors import CommandError
from studies.versions.part import Job

VERSIONS = ('1.15', '2.15')
PART = 'studies.versions.part'

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_RUN = _ROOT / 'run'


def check() -> None:
    """Checks that the environments can be made.

    Raises:
      CommandError: the program is installed without the script `run`.
    """
    if not os.access(str(_RUN), os.X_OK):
        raise CommandError(
            f'{_RUN}: no such script. It makes the environments of both versions: run this command in a copy of the '
            "program's repository."
        )


def command(version: str, module: str, *arguments: str) -> List[str]:
    """The command that runs a module with a version of TensorFlow."""
    return [str(_RUN), f'--tf={version}', 'python', *processes.module(module, *arguments)[1:]]


def perform(version: str, jobs: Sequence[Job], module: str = PART) -> List[Any]:
    """Does jobs in a new process of a version, and returns their results.

    Args:
      version: one of `VERSIONS`.
      jobs: of `studies.versions.part`.
      module: the module to run, which takes jobs as `studies.versions.part` does.

    Raises:
      MeasurementError: a job failed.
    """
    with tempfile.TemporaryDirectory(prefix='versions-') as folder:
        file = pathlib.Path(folder, 'jobs.json')
        file.write_text(json.dumps(jobs))
        done = subprocess.run(command(version, module, str(file)), capture_output=True)
        if done.returncode:
            lines = done.stderr.decode(errors='replace').splitlines()
            reason = next((line for line in reversed(lines) if line.startswith('error: ')), (lines or [''])[-1])
            raise MeasurementError(f'TensorFlow {version}: exit code {done.returncode}: {reason}')
        return list(json.loads(file.read_text()))
