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
from typing import Any, Dict, Iterable, List, Optional, Tuple

from werkzeug.exceptions import BadRequest, HTTPException, NotFound, RequestedRangeNotSatisfiable
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from tests.remote.faults import BUCKET, DELETE, LIST, READ, STAT, WRITE, Faults

HOSTS = ('storage.googleapis.com', 'www.googleapis.com')
# The account named in error messages.
ACCOUNT = 'tester@example.iam.gserviceaccount.com'
_PAGE = 1000
_REASONS = {401: 'authError', 404: 'notFound', 412: 'conditionNotMet', 503: 'backendError'}
_PERMISSIONS = {BUCKET: 'get', LIST: 'list', STAT: 'get', READ: 'get', WRITE: 'create', DELETE: 'delete'}
_BYTES = re.compile(r'bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)$')
# A bucket and an object; for a copy, also those of the target.
_PLACES = re.compile(r'/b/([^/]+)(?:/o(?:/(.+?))?)?(?=/rewriteTo/|$)')
_TIME = '2020-01-01T00:00:00.000Z'


@dataclasses.dataclass
class _Upload:
    """A resumable upload in progress."""

    bucket: str
    name: str
    content: bytes = b''


def _json(value: Any, status: int = 200, headers: Iterable[Tuple[str, str]] = ()) -> Response:
    return Response(json.dumps(value), status, [*headers], content_type='application/json')


def _error(status: int) -> Response:
    return _json({'error': {'code': status, 'message': _REASONS.get(status, 'invalid')}}, status)


def _refusal(status: int, operation: str) -> Response:
    """The response for an injected error. With status 403, it names account and permission, as the service does."""
    if status != 403:
        return _error(status)
    noun = 'bucket' if operation == BUCKET else 'object'
    permission = f'storage.{noun}s.{_PERMISSIONS[operation]}'
    message = f'{ACCOUNT} does not have {permission} access to the Google Cloud Storage {noun}.'
    if operation == READ:
        # Contents are read through the XML API.
        error = f'<Code>AccessDenied</Code><Message>Access denied.</Message><Details>{message}</Details>'
        return Response(f"<?xml version='1.0' encoding='UTF-8'?><Error>{error}</Error>", 403)
    return _json({'error': {'code': 403, 'message': message, 'errors': [{'reason': 'forbidden'}]}}, 403)


class FakeGcs:
    """A server of buckets, with one thread per connection.

    Args:
      listener: a listening socket; closed by `close`.
      context: the TLS context with the server's certificate.

    Attributes:
      faults: the injected errors, and the log of requests.
      lock: must be held by callers of the other methods.
    """

    def __init__(self, listener: socket.socket, context: ssl.SSLContext):
        self.faults, self.lock = Faults(), threading.RLock()
        # Contents and generations.
        self._buckets: Dict[str, Dict[str, Tuple[bytes, int]]] = {}
        self._uploads: List[_Upload] = []
        self._generation = 0
        self._listener, self._server = listener, _Server(listener, context, Request.application(self._respond))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._listener.close()

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
            raise NotFound()
        return self._buckets[bucket]

    def find(self, bucket: str, name: str) -> Tuple[bytes, int]:
        found = self.contents(bucket).get(name)
        if not found:
            raise NotFound()
        return found

    def describe(self, bucket: str, name: str) -> Any:
        """The metadata of an object."""
        content, generation = self.find(bucket, name)
        sizes = {'size': str(len(content)), 'generation': str(generation)}
        return {'kind': 'storage#object', 'bucket': bucket, 'name': name, 'updated': _TIME, **sizes}

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

    def continue_upload(self, upload: _Upload, content_range: str, content: bytes) -> Response:
        """Receives a range of the bytes of an upload, or all of them. The last byte creates the object."""
        match = _BYTES.match(content_range or f'bytes 0-0/{len(content)}')
        if not match or int(match[1] or 0) > len(upload.content):
            raise BadRequest()
        start, _, total = match.groups()
        if start is not None:
            upload.content = upload.content[: int(start)] + content
        if total == '*' or len(upload.content) < int(total):
            received = [('Range', f'bytes=0-{len(upload.content) - 1}')] if upload.content else []
            return Response(b'', 308, received)
        return _json(self.put(upload.bucket, upload.name, upload.content))

    def _respond(self, request: Request) -> Response:
        content = request.get_data()
        with self.lock:
            operation, path, upload = self._operation(request)
            refusal = self.faults.status(operation, path)
            try:
                if not refusal:
                    response = self._serve(operation, path, request, upload)
                else:
                    if upload and content:
                        # As if the connection broke half way: the first half of the bytes arrives.
                        content_range = request.headers.get('Content-Range', '')
                        self.continue_upload(upload, content_range, content[: len(content) // 2])
                    response = _refusal(refusal, operation)
            except HTTPException as error:
                response = _error(error.code or 500)
        self.faults.record(operation, path, response.status_code)
        return response

    def _operation(self, request: Request) -> Tuple[str, str, Optional[_Upload]]:
        """The operation of a request, its `BUCKET/OBJECT`, and the upload that it continues, if any."""
        path, query = request.path, request.args
        if 'upload_id' in query:
            upload = self._uploads[int(query['upload_id'])]
            return WRITE, f'{upload.bucket}/{upload.name}', upload
        if not path.startswith(('/storage/v1/', '/upload/')):
            return READ, path[1:], None
        *sources, (bucket, name) = _PLACES.findall(path)
        if sources or path.startswith('/upload/'):
            return WRITE, f'{bucket}/{name or query["name"]}', None
        if name:
            return DELETE if request.method == 'DELETE' else STAT, f'{bucket}/{name}', None
        return (LIST, f'{bucket}/{query.get("prefix", "")}', None) if path.endswith('/o') else (BUCKET, bucket, None)

    def _serve(self, operation: str, path: str, request: Request, upload: Optional[_Upload]) -> Response:
        bucket, _, name = path.partition('/')
        content = request.get_data()
        if operation == BUCKET:
            self.contents(bucket)
            return _json({'kind': 'storage#bucket', 'name': bucket, 'location': 'US'})
        if operation == LIST:
            return _json(self.list(bucket, request.args.to_dict()))
        if operation == STAT:
            return _json(self.describe(bucket, name))
        if operation == DELETE:
            self.find(bucket, name)
            del self._buckets[bucket][name]
            return Response(b'', 204)
        if operation == READ:
            found = self.find(bucket, name)[0]
            if request.range and not found:
                raise RequestedRangeNotSatisfiable()
            return Response(found).make_conditional(request, accept_ranges=True, complete_length=len(found))
        if upload:
            return self.continue_upload(upload, request.headers.get('Content-Range', ''), content)
        if '/rewriteTo/' in request.path:
            copied = self.put(bucket, name, self.find(*_PLACES.findall(request.path)[0])[0])
            return _json({'kind': 'storage#rewriteResponse', 'done': True, 'resource': copied})
        if request.args['uploadType'] == 'media':
            return _json(self.put(bucket, name, content))
        self.contents(bucket)
        self._uploads.append(_Upload(bucket, name))
        location = f'https://{request.host}/upload/storage/v1/b/{bucket}/o?upload_id={len(self._uploads) - 1}'
        return _json({}, 200, [('Location', location)])


class _Handler(WSGIRequestHandler):
    disable_nagle_algorithm = True

    def log(self, type: str, message: str, *args: Any) -> None:
        """Prints nothing: `Faults` keeps the log."""


class _Server(ThreadedWSGIServer):
    def __init__(self, listener: socket.socket, context: ssl.SSLContext, application: Any):
        host, port = listener.getsockname()
        super().__init__(host, port, application, _Handler, fd=listener.fileno())
        self._context = context

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The TLS handshake runs in the connection's own thread, so that a slow client does not block other clients.
        with self._context.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores broken connections, because tests kill clients."""
