"""Tests of the best checkpoint, the trainer's lock, damaged checkpoints and leftovers in a remote store."""

import json
import time

from inception_v3.run.trainer_lock import STALE_AFTER
from tests.remote.store import Store, slow_in
from tests.support.best_checkpoints import NAMING, OPERATIONS

# These scripts run in a process that can reach the store.
_KILL = """
import sys
from tests.support.best_checkpoints import check_killed
check_killed(sys.argv[1], [int(operation) for operation in sys.argv[2:]])
"""


@slow_in('gs')
def test_keep__survives_a_kill_in_any_file_operation(store: Store) -> None:
    # Writing a file to gs:// takes about a second, so only the decisive operation is killed there.
    operations = range(OPERATIONS) if store.scheme == 's3' else [NAMING]
    done = store.python('-c', _KILL, f'{store.url}/run', *map(str, operations))
    assert done.returncode == 0, done.stderr


@slow_in('s3')
def test_remote_model_dir__is_locked_repaired_and_cleaned(store: Store, digits_dir: str) -> None:
    data_dir = store.upload(digits_dir, 'data')
    program = ['-m', 'tests.support.one_layer_program', '--preset=digits', f'--data_dir={data_dir}']
    program += ['--eval_total_size=64']
    program += [f'--model_dir={store.url}/run', f'--export_dir={store.url}/export', '--train_steps_per_eval=2']
    claim = {'host': 'far', 'process': 7, 'since': 'noon', 'machine': 'other', 'birth': '1'}

    store.put('run/trainer.json', json.dumps({**claim, 'renewed': time.time()}).encode())
    refused = store.python(*program, '--train_steps=3')
    assert refused.returncode == 1, refused.stderr
    assert 'in use by process 7 on far, since noon.' in refused.stderr
    assert [name for name in store.objects('run/') if not name.endswith('/')] == ['run/trainer.json']

    # A claim expires unless it is renewed.
    store.put('run/trainer.json', json.dumps({**claim, 'renewed': time.time() - STALE_AFTER - 1}).encode())
    first = store.python(*program, '--train_steps=3')
    assert first.returncode == 0, first.stderr
    assert 'run/trainer.json' not in store.objects()
    assert not [name for name in store.objects() if 'unfinished' in name or 'tmp' in name or '_temp_' in name]
    assert [name for name in store.objects('export/') if name.endswith('/saved_model.pb')]

    (newest,) = [name for name in store.objects('run/') if name.startswith('run/model.ckpt-3.data')]
    content = bytearray(store.objects()[newest])
    content[-9] ^= 1
    store.put(newest, bytes(content))
    store.put('run/model.ckpt-9.data-00000-of-00001', b'half')
    store.put('run/saving.unfinished', b'model.ckpt-9')
    again = store.python(*program, '--train_steps=3', '--skip_damaged_checkpoints')
    assert again.returncode == 0, again.stderr
    assert f'skipped, and moved into {store.url}/run/passed_over: {store.url}/run/model.ckpt-3' in again.stderr
    assert f'resuming from {store.url}/run/model.ckpt-2' in again.stderr
    names = store.objects('run/')
    assert names[newest] != bytes(content) and names[newest.replace('run/', 'run/passed_over/')] == bytes(content)
    assert 'run/model.ckpt-9.data-00000-of-00001' not in names
