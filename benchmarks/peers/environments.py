"""The programs to compare with: the environments that have them, and rounds of measurements in these."""

import os
import pathlib
import subprocess
import sys
from typing import AbstractSet, Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, TypeVar

from benchmarks.measurement import answer_of, interleave
from console import processes
from console.screen import Screen
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine, OwnFlag

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TENSORFLOW = {'1.15': '.venv', '2.15': '.venv-2.15'}
_DEFAULT = '.venv-peers/bin/python'
PYTHONS = OwnFlag(str, _DEFAULT, 'Pythons with other libraries, comma-separated; the first that has a library runs it')

R = TypeVar('R')


class Peer(NamedTuple):
    """A program to measure.

    Attributes:
      library: the module that it needs.
      script: the script in this folder that measures it; empty for this program.
      version: the version of TensorFlow in whose environment it runs; empty for a Python that the user names.
    """

    library: str
    script: str = ''
    version: str = ''

    @property
    def how(self) -> str:
        """The way to install it."""
        if self.version:
            return f'./run --tf={self.version} true'
        return 'benchmarks/peers/requirements.txt says how; name its Python with --pythons'


class Subject(NamedTuple):
    """A program, and the kind of its measurement in words; empty if there is only one kind."""

    name: str
    kind: str = ''

    def __str__(self) -> str:
        return ', '.join(filter(None, self))


def with_tensorflow(**scripts: str) -> Dict[str, Peer]:
    """The peers NAME_VERSION in both versions of TensorFlow, from the scripts of each name."""
    return {
        f'{name}_{version}': Peer('tensorflow', script, version)
        for version in _TENSORFLOW
        for name, script in scripts.items()
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


def measure_installed(
    names: Sequence[str],
    kinds: Sequence[str],
    peers: Dict[str, Peer],
    own: Dict[str, Any],
    measure: Callable[[Subject, str], R],
    screen: Screen,
) -> Tuple[Dict[Subject, List[R]], Dict[Subject, str], bool]:
    """Measures the programs that are installed, in rounds.

    Args:
      names: the programs.
      kinds: the kinds of measurements of each.
      peers: all programs.
      own: the values of the flags `repeats` and `pythons`.
      measure: measures a subject with an interpreter, or raises MeasurementError.
      screen: shows the progress.

    Returns:
      The measurements of the subjects that never failed; the problems of the others; and whether any failed.
    """
    pythons = pythons_of(names, peers, own['pythons'])
    measured: Dict[Subject, List[R]] = {}
    failed: Dict[Subject, str] = {}
    subjects = [Subject(name, kind) for kind in kinds for name in pythons]
    interleave(
        subjects, own['repeats'], lambda each: measure(each, pythons[each.name]), screen.update, measured, failed
    )
    screen.clear()
    problems = {Subject(n, kind): f'not installed: {peers[n].how}' for kind in kinds for n in names if n not in pythons}
    problems.update({subject: f'failed: {reason}' for subject, reason in failed.items()})
    return {subject: found for subject, found in measured.items() if subject not in failed}, problems, bool(failed)


def pythons_of(names: Sequence[str], peers: Dict[str, Peer], pythons: str) -> Dict[str, str]:
    """The interpreter of each peer; those that are not installed are missing."""
    from console.tensorflow_versions import tf

    own = {version: str(ROOT / folder / 'bin' / 'python') for version, folder in _TENSORFLOW.items()}
    own['.'.join(tf.__version__.split('.')[:2])] = sys.executable
    found = {}
    for name in names:
        version = peers[name].version
        candidates = [own[version]] if version else [str(ROOT / path) for path in pythons.split(',')]
        interpreter = next((path for path in candidates if is_installed(path, peers[name].library)), None)
        if interpreter:
            found[name] = interpreter
    return found


def is_installed(python: str, library: str) -> bool:
    """Whether an interpreter exists and finds a module."""
    code = 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)'
    if not os.path.exists(python):
        return False
    done = subprocess.run([python, '-c', code, library], env=_environment(), stderr=subprocess.DEVNULL)
    return done.returncode == 0


def _environment() -> Dict[str, str]:
    """The environment of another Python, for which this one's packages are of no use."""
    return {name: value for name, value in os.environ.items() if not name.startswith('PYTHON')}


def call(python: str, script: str, specification: str) -> Dict[str, Any]:
    """Runs a script of this folder with a specification in JSON, and returns the result that it prints; see `meter`.

    Raises:
      MeasurementError: the script failed; the message is the last line of its errors.
    """
    command = [python, '-W', 'ignore', *processes.module(f'benchmarks.peers.{script}')[1:]]
    return answer_of(command, specification, _environment())
