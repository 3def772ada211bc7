"""Tests of what the tests stand on: the limit of CPU time, and data made once per session."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.shared import once

ROOT = Path(__file__).parent.parent

EXPENSIVE = """
import time
import pytest

def spend(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope='module')
def shared():
    spend(2)

def test_cheap(shared):
    pass

def test_expensive(shared):
    spend(2)
"""


@pytest.mark.program
@pytest.mark.parametrize('processes', ['0', '2'])
def test_max_cpu__fails_an_expensive_test_without_counting_shared_fixtures(processes: str, tmp_path: Any) -> None:
    (tmp_path / 'test_cost.py').write_text(EXPENSIVE)
    (tmp_path / 'empty.ini').touch()
    command = [sys.executable, '-m', 'pytest', '-p', 'tests.support.cpu_time', '--max-cpu=0.5', '-n', processes]
    result = subprocess.run(
        [*command, str(tmp_path), '-c', str(tmp_path / 'empty.ini'), '--rootdir', str(tmp_path)],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert result.returncode == 1
    assert '2 passed, 1 error' in result.stdout
    assert re.search(r'ERROR .*test_cost.py::test_expensive', result.stdout)
    assert re.search(r'[2-4]\.\d s of CPU time; at most [01]\.\d s are allowed', result.stdout)
    assert 'fixture shared' in result.stdout


def test_once__makes_a_folder_a_single_time(tmp_path_factory: Any) -> None:
    calls = []

    def make(folder: str) -> None:
        calls.append(folder)
        (Path(folder) / 'made').touch()

    folders = {once(tmp_path_factory, 'test-once', make) for _ in range(3)}
    assert len(calls) == len(folders) == 1
    assert (Path(folders.pop()) / 'made').exists()


def test_once__tries_again_after_a_failure(tmp_path_factory: Any) -> None:
    def fail(folder: str) -> None:
        (Path(folder) / 'half').touch()
        raise RuntimeError('failed')

    with pytest.raises(RuntimeError):
        once(tmp_path_factory, 'test-failure', fail)
    folder = once(tmp_path_factory, 'test-failure', lambda folder: None)
    assert not list(Path(folder).iterdir())
