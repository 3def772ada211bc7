"""A bucket in the fake Google Cloud Storage or Amazon S3, with one interface for both."""

import itertools
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from tests.remote import fake_gcs, moto_s3
from tests.remote.faults import Faults
from tests.remote.resident import Resident
from tests.support.commands import Done

# Prefixes of environment variables with a developer's credentials and settings, which the commands must not see.
_HIDDEN_VARIABLES = ('AWS_', 'S3_', 'GCS_', 'GOOGLE_', 'CLOUDSDK_', 'TF_')

_PROGRAM = 'tests.support.one_layer_program'
SCHEMES = ('gs', 's3')
_BUCKETS = (f'bucket-{number}' for number in itertools.count(1))


def visible(environment: Dict[str, str]) -> Dict[str, str]:
    """The environment variables of a command: those of this process without credentials, and the given ones."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN_VARIABLES)}
    return {**inherited, **environment}


class Store:
    """A new bucket, and functions that run commands with access to it; `who` is the account of error messages."""

    def __init__(self, scheme: str, server: Any, enter: List[str], environment: Dict[str, str], resident: Resident):
        self._server, self._enter, self._environment, self._resident = server, enter, environment, resident
        self.scheme = scheme
        self.who = fake_gcs.ACCOUNT if scheme == 'gs' else moto_s3.ACCESS_KEY_ID
        self.bucket = next(_BUCKETS)
        self.url = f'{scheme}://{self.bucket}'
        server.create_bucket(self.bucket)
        self.faults: Faults = server.faults
        self.faults.clear()

    def upload(self, folder: str, name: str) -> str:
        """Uploads the files of a folder, and returns the URL of the copy."""
        for path in pathlib.Path(folder).iterdir():
            self._server.put(self.bucket, f'{name}/{path.name}', path.read_bytes())
        return f'{self.url}/{name}'

    def flags(self, folder: str, *settings: str) -> List[str]:
        """The flags of a small run on a copy of a local data set, with its model in the store."""
        return [*SMALL, *settings, f'--data_dir={self.upload(folder, "data")}', f'--model_dir={self.url}/model']

    def put(self, name: str, content: bytes) -> None:
        """Creates or replaces an object."""
        self._server.put(self.bucket, name, content)

    def objects(self, prefix: str = '') -> Dict[str, bytes]:
        """The names and contents of the objects with a prefix."""
        found = self._server.objects(self.bucket).items()
        return {name: content for name, content in found if name.startswith(prefix)}

    def download(self, prefix: str, folder: pathlib.Path) -> None:
        """Downloads the objects with a prefix into a folder, named without the prefix."""
        for name, content in self.objects(prefix).items():
            path = folder / name[len(prefix) :].lstrip('/')
            if not name.endswith('/'):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def python(self, *arguments: str) -> 'subprocess.CompletedProcess[str]':
        """Runs Python in a process that can reach the store."""
        return subprocess.run(
            [*self._enter, sys.executable, '-W', 'ignore', *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def quick(self, module: str, *arguments: str) -> Done:
        """Runs `python -m MODULE ARGUMENTS` in a process that can reach the store, and that runs many commands."""
        return self._resident.run(module, *arguments)

    def quick_main(self, *flags: str) -> Done:
        """Runs the program with a network of one layer, in a process that runs many commands."""
        return self.quick(_PROGRAM, *flags)


def slow_in(scheme: str) -> Any:
    """Marks a test of whole runs: it is slow in a store of this scheme, and runs nightly in the other one."""
    marks = {each: pytest.mark.slow if each == scheme else pytest.mark.nightly for each in SCHEMES}
    stores = [pytest.param(each, marks=mark) for each, mark in marks.items()]
    return pytest.mark.parametrize('store', stores, indirect=True)


SMALL = [
    *('--use_tpu=False', '--height=75', '--width=75', '--depth_multiplier=0.01', '--num_parallel_calls=2'),
    *('--train_batch_size=2', '--eval_batch_size=5', '--train_steps=4', '--train_steps_per_eval=2'),
]


def complaint(done: Any, code: int = 2) -> str:
    """Returns the error message of a failed command, after checking its exit code and that there is no traceback."""
    assert done.returncode == code, done.stderr
    assert 'Traceback' not in done.stderr
    assert done.stdout == ''
    (message,) = [line for line in done.stderr.splitlines() if line.startswith('error: ')]
    return message
