"""The object store of the study of streaming: ranges, listings, counts."""

import contextlib
import http.client
import pathlib
import time
import xml.etree.ElementTree
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.processes import wait_for
from tools.studies.streaming import object_store
from tools.studies.streaming.object_store import BUCKET, Tally, serving


def ask(address: str, path: str, method: str = 'GET', **headers: str) -> Tuple[int, Dict[str, str], bytes]:
    """The status, headers and content of a store's answer to a request."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=20)) as connection:
        connection.request(method, f'/{path}', headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


CONTENT = np.random.RandomState(0).bytes(300_000)
NAMES = ['a/1', 'a/2', 'a/b/3', 'a/b/4', 'c d&<é', 'empty']


@pytest.fixture(scope='module')
def store(tmp_path_factory: Any) -> Iterator[str]:
    folder = tmp_path_factory.mktemp('store')
    (folder / 'outside').write_bytes(b'not served')
    served = folder / 'served'
    for name in NAMES:
        (served / name).parent.mkdir(parents=True, exist_ok=True)
        (served / name).write_bytes(b'' if name == 'empty' else CONTENT + name.encode())
    with serving(str(served), 0) as store:
        yield store


def test_store__serves_the_bytes_of_a_range(store: str) -> None:
    whole = CONTENT + b'a/1'
    for asked, first, last in (
        ('0-0', 0, 0),
        ('1000-250000', 1000, 250000),
        ('299999-', 299999, 300002),
        ('200000-99999999', 200000, 300002),
    ):
        status, headers, content = ask(store, f'{BUCKET}/a/1', Range=f'bytes={asked}')
        assert (status, content) == (206, whole[first : last + 1])
        assert headers['Content-Range'] == f'bytes {first}-{last}/{len(whole)}'


def test_store__serves_whole_files_and_sizes_and_refuses_other_paths(store: str) -> None:
    special = f'{BUCKET}/{quote("c d&<é")}'
    assert ask(store, special)[2] == CONTENT + 'c d&<é'.encode()
    status, headers, content = ask(store, special, 'HEAD')
    assert (status, content) == (200, b'')
    assert int(headers['Content-Length']) == len(CONTENT) + len('c d&<é'.encode())
    assert ask(store, f'{BUCKET}/empty')[::2] == (200, b'')
    assert ask(store, f'{BUCKET}/a/1', Range='bytes=300003-300004')[0] == 416
    for path in (f'{BUCKET}/a', f'{BUCKET}/none', f'{BUCKET}/../outside', f'{BUCKET}/a/../../outside'):
        status, _, content = ask(store, path)
        assert status == 404 and b'not served' not in content, path


def test_store__lists_each_name_once(store: str) -> None:
    def listed(query: str) -> Tuple[List[str], List[str]]:
        """The keys and the prefixes of a listing."""
        root = xml.etree.ElementTree.fromstring(ask(store, f'{BUCKET}?{query}')[2])
        assert root.findtext('IsTruncated') == 'false'
        keys, prefixes = root.iterfind('Contents/Key'), root.iterfind('CommonPrefixes/Prefix')
        return [each.text or '' for each in keys], [each.text or '' for each in prefixes]

    assert listed('') == (sorted(NAMES), [])
    assert listed('delimiter=/') == (['c d&<é', 'empty'], ['a/'])
    assert listed('delimiter=/&prefix=a/') == (['a/1', 'a/2'], ['a/b/'])
    assert listed('prefix=a/b') == (['a/b/3', 'a/b/4'], [])
    assert listed('prefix=none') == ([], [])


def test_store__delays_and_counts_requests_until_it_is_closed(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a').write_bytes(b'abc')
    with serving(str(tmp_path), 60) as store:
        assert object_store.tally(store)[:3] == Tally()[:3]
        begun = time.monotonic()
        ask(store, f'{BUCKET}/a', Range='bytes=0-1')
        assert time.monotonic() - begun >= 0.06
        wait_for(lambda: object_store.tally(store).requests == 1)
        # The largest number of concurrent requests is reset by each tally.
        assert object_store.tally(store)[:3] == (1, 2, 0)
    with pytest.raises(OSError, match='refused'):
        object_store.tally(store)
