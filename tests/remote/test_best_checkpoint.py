"""Tests of the best checkpoint in a remote store: kills during its replacement, and denied access."""

import json
from typing import Dict, List

import pytest

from tests.remote.faults import WRITE
from tests.remote.store import Store
from tests.support.best_checkpoints import NAMING, OPERATIONS

# These scripts run in a process that can reach the store.
_KILL = """
import sys
from tests.support.best_checkpoints import check_killed
check_killed(sys.argv[1], [int(operation) for operation in sys.argv[2:]])
"""
_OFFER = """
import json, sys
from console.errors import CommandError
from tests.support.best_checkpoints import evaluated, kept, offer
try:
    offer(sys.argv[1], evaluated(int(sys.argv[2]), float(sys.argv[3])))
    message = ''
except CommandError as error:
    message = str(error)
print(json.dumps([kept(sys.argv[1]).step, message]))
"""


def offer(store: Store, step: int, top_1: float) -> List:
    """Offers a checkpoint; returns the step of the best one afterwards, and the error message."""
    done = store.python('-c', _OFFER, f'{store.url}/run', str(step), str(top_1))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_keep__survives_a_kill_in_any_file_operation(store: Store) -> None:
    # Writing a file to gs:// takes about a second, so only the decisive operation is killed there.
    operations = range(OPERATIONS) if store.scheme == 's3' else [NAMING]
    done = store.python('-c', _KILL, f'{store.url}/run', *map(str, operations))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_denied_write__keeps_the_old_version(s3: Store) -> None:
    assert offer(s3, 1, 0.25) == [1, '']
    before = best(s3)
    s3.faults.add(403, 'best/checkpoint', [WRITE])
    step, message = offer(s3, 2, 0.5)
    assert step == 1 and f'{s3.url}/run/best/checkpoint' in message
    after = best(s3)
    assert {name: after[name] for name in before} == before
    s3.faults.clear()
    assert offer(s3, 3, 0.75) == [3, '']
    assert {name.split('/')[2] for name in best(s3)} == {'checkpoint', 'step-3'}


def best(store: Store) -> Dict[str, bytes]:
    """The contents of the files in the best checkpoint's folder, by name."""
    return {name: content for name, content in store.objects('run/best/').items() if not name.endswith('/')}
