"""An in-memory fake of Google Cloud Storage over HTTPS, with the requests of its APIs that TensorFlow sends.

It follows the documentation of the JSON and XML APIs: status codes, paged listings,
resumable uploads with status 308, and ranges. It checks neither credentials nor preconditions.
"""

import dataclasses
import json
import re
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.remote.faults import BUCKET, DELETE, LIST, READ, STAT, WRITE, Faults

HOSTS = ('storage.googleapis.com', 'www.googleapis.com')
# The account named in error messages.
ACCOUNT = 'tester@example.iam.gserviceaccount.com'
_PAGE = 1000
_REASONS = {401: 'authError', 404: 'notFound', 412: 'conditionNotMet', 503: 'backendError'}
_PERMISSIONS = {BUCKET: 'get', LIST: 'list', STAT: 'get', READ: 'get', WRITE: 'create', DELETE: 'delete'}
_BYTES = re.compile(r'bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)$')
_TIME = '2020-01-01T00:00:00.000Z'


@dataclasses.dataclass
class _Upload:
    """A resumable upload in progress."""

    bucket: str
    name: str
    content: bytes = b''


class _Response(NamedTuple):
    status: int
    content: bytes = b''
    headers: Iterable[Tuple[str, str]] = ()


class _RefusedError(Exception):
    """A request gets an error status as its response."""

    def __init__(self, status: int):
        super().__init__(status)
        self.status = status


def _json(value: Any, status: int = 200, headers: Iterable[Tuple[str, str]] = ()) -> _Response:
    return _Response(status, json.dumps(value).encode(), [('Content-Type', 'application/json'), *headers])


def _error(status: int) -> _Response:
    return _json({'error': {'code': status, 'message': _REASONS.get(status, 'invalid')}}, status)


def _refusal(status: int, operation: str) -> _Response:
    """The response for an injected error. With status 403, it names account and permission, as the service does."""
    if status != 403:
        return _error(status)
    noun = 'bucket' if operation == BUCKET else 'object'
    permission = f'storage.{noun}s.{_PERMISSIONS[operation]}'
    message = f'{ACCOUNT} does not have {permission} access to the Google Cloud Storage {noun}.'
    if operation == READ:
        # Contents are read through the XML API.
        error = f'<Code>AccessDenied</Code><Message>Access denied.</Message><Details>{message}</Details>'
        return _Response(403, f"<?xml version='1.0' encoding='UTF-8'?><Error>{error}</Error>".encode())
    return _json({'error': {'code': 403, 'message': message, 'errors': [{'reason': 'forbidden'}]}}, 403)


class FakeGcs:
    """A server of buckets, with one thread per connection.

    Args:
      listener: a listening socket; closed by `close`.
      context: the TLS context with the server's certificate.

    Attributes:
      faults: the injected errors, and the log of requests.
      lock: held by who uses the other methods.
    """

    def __init__(self, listener: socket.socket, context: ssl.SSLContext):
        self.faults, self.lock = Faults(), threading.RLock()
        # Contents and generations.
        self._buckets: Dict[str, Dict[str, Tuple[bytes, int]]] = {}
        self._uploads: List[_Upload] = []
        self._generation = 0
        self._server = _Server(listener, context, self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def create_bucket(self, bucket: str) -> None:
        self._buckets[bucket] = {}

    def objects(self, bucket: str) -> Dict[str, bytes]:
        """The names and contents of a bucket's objects."""
        with self.lock:
            return {name: content for name, (content, _) in self._buckets[bucket].items()}

    def put(self, bucket: str, name: str, content: bytes) -> Any:
        """Creates or replaces an object; returns its metadata."""
        with self.lock:
            self._generation += 1
            self.contents(bucket)[name] = content, self._generation
            return self.describe(bucket, name)

    def contents(self, bucket: str) -> Dict[str, Tuple[bytes, int]]:
        """The contents and generations of a bucket's objects."""
        if bucket not in self._buckets:
            raise _RefusedError(404)
        return self._buckets[bucket]

    def find(self, bucket: str, name: str) -> Tuple[bytes, int]:
        found = self.contents(bucket).get(name)
        if not found:
            raise _RefusedError(404)
        return found

    def describe(self, bucket: str, name: str) -> Any:
        """The metadata of an object."""
        content, generation = self.find(bucket, name)
        sizes = {'size': str(len(content)), 'generation': str(generation)}
        return {'kind': 'storage#object', 'bucket': bucket, 'name': name, 'updated': _TIME, **sizes}

    def delete(self, bucket: str, name: str) -> None:
        self.find(bucket, name)
        del self._buckets[bucket][name]

    def copy(self, source: Tuple[str, str], target: Tuple[str, str]) -> Any:
        """Copies an object in a single request."""
        copied = self.put(*target, self.find(*source)[0])
        return {'kind': 'storage#rewriteResponse', 'done': True, 'resource': copied}

    def list(self, bucket: str, query: Dict[str, str]) -> Any:
        """A page of the objects whose names start with a prefix. A delimiter after it groups names into folders."""
        prefix, delimiter = query.get('prefix', ''), query.get('delimiter', '')
        entries = {}
        for name in self.contents(bucket):
            if name.startswith(prefix):
                end = name.find(delimiter, len(prefix)) if delimiter else -1
                entry = name if end < 0 else name[: end + len(delimiter)]
                entries[entry] = None if end >= 0 else self.describe(bucket, name)
        # A page token is the last name of the previous page.
        names = [entry for entry in sorted(entries) if entry > query.get('pageToken', '')]
        page = names[: int(query.get('maxResults', _PAGE))]
        listing: Dict[str, Any] = {
            'kind': 'storage#objects',
            'items': [entries[each] for each in page if entries[each]],
        }
        listing['prefixes'] = [entry for entry in page if not entries[entry]]
        if len(page) < len(names):
            listing['nextPageToken'] = page[-1]
        return listing

    def begin_upload(self, bucket: str, name: str) -> int:
        """Starts a resumable upload, and returns its ID."""
        self.contents(bucket)
        self._uploads.append(_Upload(bucket, name))
        return len(self._uploads) - 1

    def find_upload(self, upload: str) -> _Upload:
        if int(upload) >= len(self._uploads):
            raise _RefusedError(404)
        return self._uploads[int(upload)]

    def continue_upload(self, upload: _Upload, content_range: str, content: bytes) -> _Response:
        """Receives bytes of an upload: those of a range, or all of them. The last byte creates the object."""
        match = _BYTES.match(content_range or f'bytes 0-0/{len(content)}')
        if not match:
            return _error(400)
        start, _, total = match.groups()
        if start is not None:
            if int(start) > len(upload.content):
                return _error(400)
            upload.content = upload.content[: int(start)] + content
        if total == '*' or len(upload.content) < int(total):
            received = [('Range', f'bytes=0-{len(upload.content) - 1}')] if upload.content else []
            return _Response(308, headers=received)
        return _json(self.put(upload.bucket, upload.name, upload.content))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, context: ssl.SSLContext, gcs: FakeGcs):
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.context = context
        self.gcs = gcs

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The TLS handshake runs in the connection's own thread, so that a slow client does not block other clients.
        with self.context.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores broken connections, because tests kill clients."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    # Output is buffered: otherwise the body of a response would wait for the TCP acknowledgement of its headers.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: `Faults` keeps the log."""

    def handle_expect_100(self) -> bool:
        is_allowed = super().handle_expect_100()
        # The client holds its content back until it receives this, or for a second.
        self.wfile.flush()
        return is_allowed

    def do_GET(self) -> None:
        content = self._body()
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        gcs = self.server.gcs
        with gcs.lock:
            operation, path, upload = self._operation(url.path, query)
            refusal = gcs.faults.status(operation, path)
            try:
                if refusal:
                    if upload and content:
                        # As if the connection broke half way: the first half of the bytes arrives.
                        gcs.continue_upload(upload, self._content_range(), content[: len(content) // 2])
                    response = _refusal(refusal, operation)
                else:
                    response = self._serve(operation, path, query, upload, content)
            except _RefusedError as error:
                response = _error(error.status)
        gcs.faults.record(operation, path, response.status)
        self.send_response(response.status)
        for name, value in response.headers:
            self.send_header(name, value)
        if response.status != 204:
            self.send_header('Content-Length', str(len(response.content)))
        self.end_headers()
        self.wfile.write(response.content)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _operation(self, path: str, query: Dict[str, str]) -> Tuple[str, str, Optional[_Upload]]:
        """The operation of a request, its `BUCKET/OBJECT`, and the upload that it continues, if any."""
        parts = path.split('/')
        if parts[1] == 'upload':
            if 'upload_id' in query:
                upload = self.server.gcs.find_upload(query['upload_id'])
                return WRITE, f'{upload.bucket}/{upload.name}', upload
            return WRITE, f'{parts[5]}/{query["name"]}', None
        if parts[1:3] != ['storage', 'v1']:
            return READ, unquote(path[1:]), None
        bucket, rest = parts[4], parts[5:]
        if not rest:
            return BUCKET, bucket, None
        if rest == ['o']:
            return LIST, f'{bucket}/{query.get("prefix", "")}', None
        if 'rewriteTo' in rest:
            return WRITE, f'{rest[4]}/{unquote(rest[6])}', None
        return DELETE if self.command == 'DELETE' else STAT, f'{bucket}/{unquote(rest[1])}', None

    def _serve(
        self, operation: str, path: str, query: Dict[str, str], upload: Optional[_Upload], content: bytes
    ) -> _Response:
        gcs = self.server.gcs
        bucket, _, name = path.partition('/')
        if operation == BUCKET:
            gcs.contents(bucket)
            return _json({'kind': 'storage#bucket', 'name': bucket, 'location': 'US'})
        if operation == LIST:
            return _json(gcs.list(bucket, query))
        if operation == STAT:
            return _json(gcs.describe(bucket, name))
        if operation == DELETE:
            gcs.delete(bucket, name)
            return _Response(204)
        if operation == READ:
            return self._part(gcs.find(bucket, name)[0])
        if upload:
            return gcs.continue_upload(upload, self._content_range(), content)
        if '/rewriteTo/' in self.path:
            source: List[str] = urlsplit(self.path).path.split('/')
            return _json(gcs.copy((source[4], unquote(source[6])), (bucket, name)))
        if query['uploadType'] == 'media':
            return _json(gcs.put(bucket, name, content))
        session = gcs.begin_upload(bucket, name)
        host = self.headers['Host']
        return _json({}, 200, [('Location', f'https://{host}/upload/storage/v1/b/{bucket}/o?upload_id={session}')])

    def _content_range(self) -> str:
        return self.headers.get('Content-Range', '')

    def _part(self, content: bytes) -> _Response:
        match = re.match(r'bytes=(\d+)-(\d*)$', self.headers.get('Range', ''))
        if not match:
            return _Response(200, content)
        start, end = int(match[1]), min(int(match[2] or len(content)), len(content) - 1)
        if start >= len(content):
            return _error(416)
        return _Response(206, content[start : end + 1], [('Content-Range', f'bytes {start}-{end}/{len(content)}')])

    def _body(self) -> bytes:
        if self.headers.get('Transfer-Encoding') != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length', 0)))
        content = b''
        while True:
            size = int(self.rfile.readline().split(b';')[0], 16)
            content += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return content
