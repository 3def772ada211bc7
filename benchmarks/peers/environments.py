"""Common parts of the comparisons with other libraries: environments, scripts in them, rounds of measurements."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import AbstractSet, Any, Callable, Dict, Hashable, List, NamedTuple, Sequence, Tuple, TypeVar

from benchmarks.measurement import MeasurementError
from console import processes
from console.tensorflow_versions import tf
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine, OwnFlag

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TENSORFLOW = {'1.15': '.venv', '2.15': '.venv-2.15'}
_DEFAULT = '.venv-peers/bin/python'
PYTHONS = OwnFlag(str, _DEFAULT, 'Pythons with other libraries, comma-separated; the first that has a library runs it')

S = TypeVar('S', bound=Hashable)
R = TypeVar('R')


class Peer(NamedTuple):
    """A program to measure.

    Attributes:
      library: the module that it needs.
      script: the script of `inception-v3 benchmark-peers` that measures it; empty for this program.
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


def with_tensorflow(**scripts: str) -> Dict[str, Peer]:
    """The peers NAME_VERSION in both versions of TensorFlow, from the scripts of each name."""
    return {
        f'{name}_{version}': Peer('tensorflow', script, version)
        for version in _TENSORFLOW
        for name, script in scripts.items()
    }


def pythons_of(names: Sequence[str], peers: Dict[str, Peer], pythons: str) -> Dict[str, str]:
    """The interpreter of each peer; those that are not installed are missing."""
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


def call(python: str, script: str, spec: Dict[str, Any]) -> Dict[str, Any]:
    """Runs a script of `benchmark-peers` with a specification, and returns the result that it prints; see `meter`.

    Raises:
      MeasurementError: the script failed; the message is the last line of its errors.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'spec.json')
        pathlib.Path(path).write_text(json.dumps(spec))
        command = [python, '-W', 'ignore', *processes.module(f'benchmarks.peers.{script}', path)[1:]]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        raise MeasurementError([f'exit code {done.returncode}', *done.stderr.strip().splitlines()][-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


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
