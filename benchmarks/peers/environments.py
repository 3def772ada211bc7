"""Common parts of the comparisons with other libraries: environments, scripts in them, rounds of measurements."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import AbstractSet, Any, Callable, Dict, Hashable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from benchmarks.measurement import MeasurementError
from console.tensorflow_versions import tf
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine

ROOT = pathlib.Path(__file__).resolve().parents[2]
_VERSIONS = ('1.15', '2.15')

S = TypeVar('S', bound=Hashable)
R = TypeVar('R')


class Peer(NamedTuple):
    """A program to measure.

    Attributes:
      environment: 1.15, 2.15, torch or dali: the environment that runs it.
      module: the module that it needs there.
      how: the way to install it.
    """

    environment: str
    module: str
    how: str


def with_tensorflow(*names: str) -> Dict[str, Peer]:
    """The peers NAME_VERSION that need TensorFlow, in both versions of it."""
    return {
        f'{name}_{version}': Peer(version, 'tensorflow', f'./run --tf={version} true')
        for version in _VERSIONS
        for name in names
    }


def with_pytorch(module: str) -> Peer:
    """A peer that needs a module of the environment of PyTorch."""
    return Peer('torch', module, './run --frameworks true')


def pythons(torch_python: Optional[str]) -> Dict[str, str]:
    """The interpreters of the environments by name; a file of this name may not exist."""
    folders = {'1.15': '.venv', '2.15': '.venv-2.15', 'torch': '.venv-frameworks', 'dali': '.venv-dali'}
    found = {name: str(ROOT / folder / 'bin' / 'python') for name, folder in folders.items()}
    found['.'.join(tf.__version__.split('.')[:2])] = sys.executable
    return {**found, 'torch': torch_python or found['torch']}


def is_installed(python: str, module: str) -> bool:
    """Whether an interpreter exists and finds a module."""
    code = 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)'
    if not os.path.exists(python):
        return False
    done = subprocess.run([python, '-c', code, module], env=_environment(), stderr=subprocess.DEVNULL)
    return done.returncode == 0


def missing(names: Sequence[str], peers: Dict[str, Peer], found: Dict[str, str]) -> Dict[str, str]:
    """The peers that are not installed in the interpreters of `pythons`, with the way to install them."""
    return {
        name: peers[name].how for name in names if not is_installed(found[peers[name].environment], peers[name].module)
    }


def check_flags(command_line: CommandLine, allowed: AbstractSet[str]) -> None:
    """Refuses flags of a run that other libraries cannot follow.

    Raises:
      ConfigError: a flag is not among those allowed.
    """
    for flag in [*(['preset'] if command_line.preset else []), *sorted(command_line.given - allowed)]:
        raise ConfigError(
            f'--{flag}: the other libraries cannot follow it. Omit the flag. '
            f'Allowed here: {", ".join(sorted(allowed))}.'
        )


def _environment() -> Dict[str, str]:
    """The environment of another Python, for which this one's packages are of no use."""
    return {name: value for name, value in os.environ.items() if not name.startswith('PYTHON')}


def call(python: str, script: str, spec: Dict[str, Any]) -> str:
    """Runs a script with a specification as its argument, a path of a JSON file, and returns its last line.

    Raises:
      MeasurementError: the script failed; the message is the last line of its errors.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'spec.json')
        pathlib.Path(path).write_text(json.dumps(spec))
        command = [python, '-W', 'ignore', script, path]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        raise MeasurementError([f'exit code {done.returncode}', *done.stderr.strip().splitlines()][-1])
    return (done.stdout.strip().splitlines() or [''])[-1]


def interleave(
    subjects: Sequence[S], repeats: int, measure: Callable[[S], R], progress: Callable[[str, S], None]
) -> Tuple[Dict[S, List[R]], Dict[S, str]]:
    """Measures every subject once in each round, so that other load on the machine affects all alike.

    Args:
      subjects: what to measure.
      repeats: number of rounds.
      measure: measures a subject, or raises MeasurementError; then it is not measured again.
      progress: called with the round in words and the subject before each measurement.

    Returns:
      The results of the subjects that never failed, and the reasons of the others.
    """
    results: Dict[S, List[R]] = {subject: [] for subject in subjects}
    failed: Dict[S, str] = {}
    for repeat in range(repeats):
        for subject in [*results]:
            progress(f'round {repeat + 1} of {repeats}', subject)
            try:
                results[subject].append(measure(subject))
            except MeasurementError as error:
                failed[subject] = str(error)
                del results[subject]
    return results, failed
