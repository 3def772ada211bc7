"""Tests of the messages for denied access, missing folders and unavailable stores."""

import concurrent.futures
from typing import Sequence

import pytest

from tests.remote.faults import BUCKET, DELETE, LIST, MIXED_UP, READ, STAT, WRITE
from tests.remote.store import Store, complaint, slow_in


@pytest.mark.program
@pytest.mark.parametrize(
    ('pattern', 'operations', 'parts'),
    [
        ('/data/$', [LIST], ['/data', 'may not list it']),
        ('/data/dataset.json', [STAT, READ], ['/data/dataset.json', 'read']),
        ('/data/train-00000', [READ], ['/data/train-00000-of-00002', 'read']),
        ('/model', [WRITE], ['--model_dir={url}/model: cannot', 'may not write it']),
        ('/model/.probe', [DELETE], ['--model_dir={url}/model', 'may not delete it']),
        ('/model/$', [LIST], ['--model_dir={url}/model', 'may not list it']),
        ('/export', [WRITE], ['--export_dir={url}/export: cannot', 'may not write it']),
        ('/model/checkpoint', [READ], ['/model/checkpoint', 'read']),
    ],
)
def test_denied_access__names_account_operation_and_path(
    store: Store, photo_dir: str, pattern: str, operations: Sequence[str], parts: Sequence[str]
) -> None:
    arguments = [*store.flags(photo_dir), f'--export_dir={store.url}/export']
    store.put('model/checkpoint', b'model_checkpoint_path: "model.ckpt-2"\n')
    store.faults.add(403, pattern, operations)
    message = complaint(store.quick_main(*arguments))
    for part in [*parts, '{url}', store.who]:
        assert part.format(url=store.url) in message, message
    # The message names the role or permission to grant, and no secret.
    assert 'roles/storage.object' in message if store.scheme == 'gs' else 's3:' in message
    assert 'secret-of-the-tests' not in message


@pytest.mark.program
@pytest.mark.parametrize('flag', ['data_dir', 'model_dir', 'export_dir'])
def test_missing_bucket__is_named(store: Store, photo_dir: str, flag: str) -> None:
    missing = f'{store.scheme}://no-such-bucket'
    message = complaint(store.quick_main(*store.flags(photo_dir), f'--{flag}={missing}/there'))
    assert f'{missing}/there: the bucket {missing} does not exist.' in message


@pytest.mark.program
def test_missing_folder__is_not_reported_as_denied_access(store: Store, photo_dir: str) -> None:
    message = complaint(store.quick_main(*store.flags(photo_dir), f'--data_dir={store.url}/elsewhere'))
    assert f'--data_dir={store.url}/elsewhere: no such folder' in message


@pytest.mark.program
def test_listing__needs_no_permission_to_describe_the_bucket(gs: Store) -> None:
    gs.put('train-00000-of-00001', b'')
    gs.faults.add(403, f'^{gs.bucket}$', [BUCKET])
    listed = gs.python('-c', f'from data import remote; print(remote.names_in("{gs.url}"))')
    assert listed.stdout == "['train-00000-of-00001']\n", listed.stderr


@pytest.mark.slow
def test_failing_store__ends_the_command_after_retries(gs: Store, s3: Store, photo_dir: str) -> None:
    stores = gs, s3
    given = [store.flags(photo_dir) for store in stores]
    for store in stores:
        store.faults.add(503, '/data/')
    # The retries wait for more than a minute, so both stores fail at the same time.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ended = [*pool.map(lambda store, arguments: store.quick_main(*arguments), stores, given)]
    for store, done in zip(stores, ended):
        message = complaint(done, code=1)
        assert f'{store.url}/data' in message and 'cannot be reached after several retries' in message
        # The first attempt and ten retries.
        failed = store.faults.log(status=503)
        assert failed[:11] == [failed[0]] * 11


@pytest.mark.slow
def test_denied_access_to_a_file_of_evaluation__is_named_before_training(store: Store, photo_dir: str) -> None:
    # A sample of the labels of both files is read first.
    arguments = store.flags(photo_dir)
    store.faults.add(403, '/data/validation-00001', [READ])
    message = complaint(store.quick_main(*arguments))
    assert f'{store.url}/data/validation-00001-of-00002' in message and store.who in message


@slow_in('s3')
def test_denied_write_of_a_checkpoint__keeps_the_previous_checkpoint(store: Store, photo_dir: str) -> None:
    arguments = store.flags(photo_dir)
    store.faults.add(403, 'model.ckpt-4', [WRITE])
    message = complaint(store.quick_main(*arguments))
    assert 'may not write it' in message and store.who in message and f'{store.url}/model' in message
    assert 'The checkpoint of step 2 is kept, and the same command resumes from it.' in message
    assert b'"step": 2' in store.objects()['model/results.jsonl']

    # The second command cannot write the result of an evaluation. It keeps the checkpoint, and the third command
    # evaluates that.
    store.faults.clear()
    store.faults.add(403, 'results.jsonl', [WRITE])
    message = complaint(store.quick_main(*arguments))
    assert f'{store.url}/model/results.jsonl' in message and 'may not write it' in message
    assert 'The checkpoint of step 4 is kept' in message
    store.faults.clear()
    done = store.quick_main(*arguments)
    assert done.returncode == 0, done.stderr
    assert 'nothing is left to train' in done.stderr
    assert store.objects()['model/results.jsonl'].count(b'"images": 5') == 2


@pytest.mark.program
def test_content_of_another_file__is_replaced_or_refused(s3: Store) -> None:
    s3.faults.add(MIXED_UP, 'once', [WRITE], times=2)
    s3.faults.add(MIXED_UP, 'always', [WRITE])
    write = 'from console.outputs import write\nwrite("{}/{}", "text")'
    first = s3.python('-c', write.format(s3.url, 'once'))
    assert first.returncode == 0, first.stderr
    second = s3.python('-c', write.format(s3.url, 'always'))
    assert f'{s3.url}/always: cannot be written: 3 times, the file that was read back was another.' in second.stderr
    assert s3.objects() == {'once': b'text'}
