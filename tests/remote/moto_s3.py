"""A local fake of Amazon S3: moto's server, with a log and injected errors."""

import io
import threading
from typing import Any, Dict, Iterable
from urllib.parse import parse_qs, unquote

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.remote.faults import BUCKET, DELETE, LIST, MIXED_UP, READ, STAT, WRITE, Faults

REGION = 'us-east-1'
# Credentials of the usual length; they belong to no account.
ACCESS_KEY_ID = 'AKIATESTTESTTESTTEST'
SECRET_ACCESS_KEY = 'secret-of-the-tests'

_OPERATIONS = {'GET': READ, 'HEAD': STAT, 'PUT': WRITE, 'POST': WRITE, 'DELETE': DELETE}
_CODES = {403: 'AccessDenied', 404: 'NoSuchKey', 503: 'SlowDown'}


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Prints nothing: `Faults` keeps the log."""


class MotoS3:
    """An S3 server in threads of this process."""

    def __init__(self) -> None:
        self.faults = Faults()
        self._moto = DomainDispatcherApplication(create_backend_app, 's3')
        # moto confuses the bodies of simultaneous requests.
        self._one_at_a_time = threading.Lock()
        self._server = make_server('127.0.0.1', 0, self._serve, threaded=True, request_handler=_QuietHandler)
        self.address = f'127.0.0.1:{self._server.server_port}'
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._client = boto3.client(
            's3',
            endpoint_url=f'http://{self.address}',
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()

    def create_bucket(self, bucket: str) -> None:
        """Creates an empty bucket."""
        self._client.create_bucket(Bucket=bucket)

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Creates or replaces an object."""
        self._client.put_object(Bucket=bucket, Key=name, Body=content)

    def objects(self, bucket: str) -> Dict[str, bytes]:
        """The names and contents of a bucket's objects."""
        pages = self._client.get_paginator('list_objects_v2').paginate(Bucket=bucket)
        names = [found['Key'] for page in pages for found in page.get('Contents', [])]
        return {name: self._client.get_object(Bucket=bucket, Key=name)['Body'].read() for name in names}

    def _serve(self, environ: Dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """The WSGI application: responds with an injected error, or passes the request to moto."""
        bucket, _, name = unquote(environ['PATH_INFO'].lstrip('/')).partition('/')
        query = {key: values[0] for key, values in parse_qs(environ['QUERY_STRING']).items()}
        operation = _OPERATIONS[environ['REQUEST_METHOD']]
        if not name:
            operation, name = (LIST, query.get('prefix', '')) if operation == READ else (BUCKET, '')
        path = f'{bucket}/{name}'

        def start(status: str, *rest: Any) -> Any:
            self.faults.record(operation, path, int(status.split()[0]))
            return start_response(status, *rest)

        refusal = self.faults.status(operation, path)
        # An unread body would be parsed as the next request.
        length = len(environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))) if refusal else 0
        if refusal == MIXED_UP:
            environ['wsgi.input'] = io.BytesIO(b'?' * length)
        if not refusal or refusal == MIXED_UP:
            with self._one_at_a_time:
                return [*self._moto(environ, start)]
        code = _CODES.get(refusal, 'Refused')
        content = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
        start(f'{refusal} {code}', [('Content-Type', 'application/xml'), ('Content-Length', str(len(content)))])
        return [] if environ['REQUEST_METHOD'] == 'HEAD' else [content]
