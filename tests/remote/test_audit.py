"""Tests of the audit of a data set in a remote store."""

import json
from typing import Any, Dict

import pytest

from data.audit.report import audit
from data.convert.tar_shards import conversion as tar_shards
from data.sources import Source
from tests.remote.faults import READ
from tests.remote.store import Store


def audited(store: Store, url: str, code: int, *flags: str) -> Dict[str, Any]:
    done = store.quick('data.audit', url, '--json', *flags)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.program
def test_remote_data_set__gives_the_local_report(store: Store, photo_dir: str) -> None:
    local = audit(Source(photo_dir), None, False, 1, lambda count: None)
    report = audited(store, store.upload(photo_dir, 'data'), 0)
    for key in ('splits', 'classes', 'fingerprint', 'other_files'):
        assert report[key] == local[key]


@pytest.mark.program
def test_remote_tar_shards__give_the_local_report_or_name_a_denied_shard(
    store: Store, photo_dir: str, tmp_path: Any
) -> None:
    tar_dir = str(tmp_path / 'tar')
    tar_shards.convert(photo_dir, tar_dir, 0, print)
    local = audit(Source(tar_dir, 'tar'), None, False, 1, lambda count: None)
    url = store.upload(tar_dir, 'data')
    report = audited(store, url, 0, '--data_format=tar')
    for key in ('splits', 'classes', 'fingerprint', 'other_files'):
        assert report[key] == local[key]
    store.faults.add(403, '/data/train-00000', [READ])
    (error,) = audited(store, url, 2, '--data_format=tar')['errors']
    assert 'data/train-00000-of-00002.tar, record 0: ' in error
    assert store.who in error


@pytest.mark.program
def test_denied_file__is_named_and_the_other_files_are_read(store: Store, photo_dir: str) -> None:
    store.faults.add(403, '/data/train-00000', [READ])
    report = audited(store, store.upload(photo_dir, 'data'), 2)
    (error,) = report['errors']
    assert 'data/train-00000-of-00002, record 0: ' in error
    assert store.who in error
    assert report['splits']['train']['records'] == 3
    assert report['splits']['validation']['records'] == 5
