"""Tests that the fake of Google Cloud Storage follows the documentation of the service."""

import http.client
import json
import socket
import ssl
from typing import Any, Callable, Dict, Iterator, NamedTuple
from urllib.parse import quote

import pytest
import trustme

from tests.remote.fake_gcs import ACCOUNT, FakeGcs
from tests.remote.faults import READ, WRITE

HOST = 'localhost'
OBJECTS = '/storage/v1/b/b/o'
UPLOAD = '/upload/storage/v1/b/b/o'


class Reply(NamedTuple):
    """The status, headers and body of a response."""

    status: int
    headers: Dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client(NamedTuple):
    """The server, and a function that sends requests over one connection."""

    gcs: FakeGcs
    request: Callable[..., Reply]


@pytest.fixture
def client() -> Iterator[Client]:
    authority = trustme.CA()
    server_context, client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert(HOST).configure_cert(server_context)
    authority.configure_trust(client_context)
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    listener.listen(8)
    gcs = FakeGcs(listener, server_context)
    gcs.create_bucket('b')
    connection = http.client.HTTPSConnection(HOST, listener.getsockname()[1], context=client_context, timeout=10)

    def request(method: str, path: str, body: bytes = b'', **headers: str) -> Reply:
        connection.request(method, path, body, {name.replace('_', '-'): value for name, value in headers.items()})
        response = connection.getresponse()
        return Reply(response.status, dict(response.getheaders()), response.read())

    yield Client(gcs, request)
    connection.close()
    gcs.close()


def test_listing__has_pages_and_folders(client: Client) -> None:
    for name in ('a', 'd/1', 'd/2', 'e/1', 'f'):
        client.gcs.put('b', name, b'')
    names, token = [], ''
    for _ in range(4):
        page = client.request('GET', f'{OBJECTS}?delimiter=/&maxResults=1&pageToken={quote(token)}').json
        names += [item['name'] for item in page['items']] + page['prefixes']
        token = page.get('nextPageToken', '')
    assert (names, token) == (['a', 'd/', 'e/', 'f'], '')
    below = client.request('GET', f'{OBJECTS}?prefix=d/').json
    assert [item['name'] for item in below['items']] == ['d/1', 'd/2'] and 'nextPageToken' not in below
    assert client.request('GET', '/storage/v1/b/other/o').status == 404


def test_read__returns_the_requested_range(client: Client) -> None:
    client.gcs.put('b', 'd/x y', b'0123456789')
    assert client.request('GET', '/b/d/x%20y').body == b'0123456789'
    part = client.request('GET', '/b/d/x%20y', Range='bytes=3-5')
    assert (part.status, part.body, part.headers['Content-Range']) == (206, b'345', 'bytes 3-5/10')
    assert client.request('GET', '/b/d/x%20y', Range='bytes=8-99').body == b'89'
    assert client.request('GET', '/b/d/x%20y', Range='bytes=10-11').status == 416
    assert client.request('GET', '/b/nothing').status == 404
    assert client.request('GET', f'{OBJECTS}/d%2Fx%20y').json['size'] == '10'


def test_upload__resumes(client: Client) -> None:
    begun = client.request('POST', f'{UPLOAD}?uploadType=resumable&name=d%2Fx')
    session = begun.headers['Location'].partition(HOST)[2].partition('/')[2]
    session = f'/{session}'
    assert client.request('PUT', session, Content_Range='bytes */10').headers.get('Range') is None
    first = client.request('PUT', session, b'01234567', Content_Range='bytes 0-7/10')
    assert (first.status, first.headers['Range']) == (308, 'bytes=0-7')
    assert client.gcs.objects('b') == {}
    # Bytes after a gap are refused. Bytes that are sent twice are stored once.
    assert client.request('PUT', session, b'9', Content_Range='bytes 9-9/10').status == 400
    assert client.request('PUT', session, b'6789', Content_Range='bytes 6-9/10').status == 200
    assert client.gcs.objects('b') == {'d/x': b'0123456789'}

    client.gcs.faults.add(503, 'd/y', [WRITE], after=1, times=1)
    begun = client.request('POST', f'{UPLOAD}?uploadType=resumable&name=d%2Fy')
    session = '/' + begun.headers['Location'].partition(HOST)[2].partition('/')[2]
    assert client.request('PUT', session, b'0123', Content_Range='bytes 0-3/4').status == 503
    assert client.request('PUT', session, Content_Range='bytes */4').headers['Range'] == 'bytes=0-1'


def test_preconditions__refuse_another_generation(client: Client) -> None:
    upload = f'{UPLOAD}?uploadType=media&name=x'
    assert client.request('POST', f'{upload}&ifGenerationMatch=0', b'1').status == 200
    assert client.request('POST', f'{upload}&ifGenerationMatch=0', b'2').status == 412
    generation = client.request('GET', f'{OBJECTS}/x').json['generation']
    assert client.request('POST', f'{upload}&ifGenerationMatch={generation}', b'3').status == 200
    assert client.request('DELETE', f'{OBJECTS}/x?ifGenerationMatch={generation}').status == 412
    copy = f'{OBJECTS}/x/rewriteTo/b/b/o/y'
    assert client.request('POST', f'{copy}?ifSourceGenerationMatch={generation}').status == 412
    assert client.request('POST', copy).json['done']
    assert client.request('DELETE', f'{OBJECTS}/x').status == 204
    assert client.request('DELETE', f'{OBJECTS}/x').status == 404
    assert client.gcs.objects('b') == {'y': b'3'}


def test_faults__apply_to_matching_requests_and_are_logged(client: Client) -> None:
    client.gcs.put('b', 'x', b'1')
    client.gcs.faults.add(403, '^b/x$', [READ], after=1, times=2)
    replies = [client.request('GET', '/b/x') for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 403, 403, 200]
    assert f'{ACCOUNT} does not have storage.objects.get access'.encode() in replies[1].body
    assert client.request('GET', f'{OBJECTS}/x').status == 200
    assert len(client.gcs.faults.log('x', READ)) == 4
    assert len(client.gcs.faults.log(status=403)) == 2
