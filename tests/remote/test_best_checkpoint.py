"""The best checkpoint in a remote store: killed while it is replaced, refused, and read back."""

import json
from typing import Dict, List

import pytest

from tests.remote.faults import WRITE
from tests.remote.store import Store
from tests.support.best_checkpoints import NAMING, OPERATIONS

# In a process that can reach the store, what the tests of local folders do.
_KILL = """
import sys
from tests.support.best_checkpoints import check_killed
check_killed(sys.argv[1], [int(moment) for moment in sys.argv[2:]])
"""
_OFFER = """
import json, sys
from console.errors import CommandError
from tests.support.best_checkpoints import evaluated, kept, offer
try:
    offer(sys.argv[1], evaluated(int(sys.argv[2]), float(sys.argv[3])))
    said = ''
except CommandError as error:
    said = str(error)
print(json.dumps([kept(sys.argv[1]).step, said]))
"""


def offer(store: Store, step: int, top_1: float) -> List:
    """Offers a checkpoint: the step of the best after it, and what was refused."""
    done = store.python('-c', _OFFER, f'{store.url}/run', str(step), str(top_1))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_old_one_or_the_new_one_whole(store: Store) -> None:
    # Each file that is written to gs:// takes a second here: there, when the new one has just been named.
    moments = range(OPERATIONS) if store.scheme == 's3' else [NAMING]
    done = store.python('-c', _KILL, f'{store.url}/run', *map(str, moments))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_refusal_leaves_the_old_one_and_it_is_replaced_when_that_has_passed(s3: Store) -> None:
    assert offer(s3, 1, 0.25) == [1, '']
    before = best(s3)
    s3.faults.add(403, 'best/checkpoint', [WRITE])
    step, said = offer(s3, 2, 0.5)
    assert step == 1 and f'{s3.url}/run/best/checkpoint' in said
    after = best(s3)
    assert {name: after[name] for name in before} == before
    s3.faults.clear()
    assert offer(s3, 3, 0.75) == [3, '']
    assert {name.split('/')[2] for name in best(s3)} == {'checkpoint', 'step-3'}


def best(store: Store) -> Dict[str, bytes]:
    """What is in the folder of the best checkpoint; some stores list folders, too."""
    return {name: content for name, content in store.objects('run/best/').items() if not name.endswith('/')}
