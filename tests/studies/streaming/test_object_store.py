"""The object store of the study of streaming: ranges, listings, delays, counts."""

import concurrent.futures
import contextlib
import http.client
import pathlib
import time
import xml.etree.ElementTree
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import quote

import numpy as np
import pytest

from studies.streaming import object_store
from studies.streaming.object_store import BUCKET, Tally, serving

LATENCY_MS = 60.0


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
    with serving(str(served), LATENCY_MS) as store:
        yield store


def test_store__range_is_these_bytes_of_the_file(store: str) -> None:
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


def test_store__whole_files_sizes_and_refusals(store: str) -> None:
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


def test_store__listing_has_each_name_once(store: str) -> None:
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


def test_store__delays_requests_independently_and_counts_them(store: str) -> None:
    before = object_store.tally(store)
    begun = time.monotonic()
    for _ in range(4):
        ask(store, f'{BUCKET}/a/1', Range='bytes=0-99')
    in_turn = time.monotonic() - begun
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        [*pool.map(lambda _: ask(store, f'{BUCKET}/a/2', 'HEAD'), range(16))]
    after = object_store.tally(store)
    assert in_turn >= 4 * LATENCY_MS / 1000
    assert after.requests - before.requests == 4 + 16
    assert after.content_bytes - before.content_bytes == 400
    assert 2 <= after.most_at_once <= 16
    # The peak is reset by each tally.
    assert object_store.tally(store).most_at_once == 0


def test_store__ends_when_it_is_closed(tmp_path: pathlib.Path) -> None:
    with serving(str(tmp_path), 0) as store:
        assert object_store.tally(store)[:3] == Tally()[:3]
    with pytest.raises(OSError, match='refused'):
        object_store.tally(store)
