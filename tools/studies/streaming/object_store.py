"""Serves the files of a folder over HTTP on 127.0.0.1, as an object store that TensorFlow reads as s3://.

The store answers requests to list and to read, each after a delay, and counts them. It needs no authentication. It runs
in threads of this process, which must not read from it.
"""

import contextlib
import json
import os
import re
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tools.benchmarks.measurement import cpu_seconds

BUCKET = 'studies'
# A request for this path gets the `Tally` without a delay, and is not counted.
_TALLY = '/?tally'
_RANGE = re.compile(r'bytes=(\d+)-(\d*)$')
# Seconds that the store may take to answer.
_TIMEOUT = 30


class Tally(NamedTuple):
    """Requests answered so far, bytes of content sent, and seconds of CPU time of the store's process.

    `most_at_once` is the largest number of concurrent requests since the last tally.
    """

    requests: int = 0
    content_bytes: int = 0
    most_at_once: int = 0
    cpu_seconds: float = 0.0


@contextlib.contextmanager
def serving(folder: str, latency_ms: float) -> Iterator[str]:
    """Serves the files that are in a folder now as s3://studies/PATH, and yields the store's address."""
    with _Server(folder, latency_ms / 1000) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f'127.0.0.1:{server.server_port}'
        finally:
            server.shutdown()


def environment_of(address: str) -> Dict[str, str]:
    """Environment variables with which TensorFlow finds a store; set them before it opens an s3:// file."""
    return {
        'S3_ENDPOINT': address,
        'S3_USE_HTTPS': '0',
        'AWS_REGION': 'us-east-1',
        # Without credentials, the client would ask Amazon's metadata service for them.
        'AWS_ACCESS_KEY_ID': 'nobody',
        'AWS_SECRET_ACCESS_KEY': 'nothing',
        # A proxy cannot reach this machine's loopback.
        'no_proxy': '127.0.0.1',
    }


def tally(address: str) -> Tally:
    """The tally of the store at an address; raises OSError if it does not answer."""
    # Bypass a configured proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f'http://{address}{_TALLY}', timeout=_TIMEOUT) as answer:
        return Tally(**json.loads(answer.read().decode()))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Backlog of connections: a reader may open one for each file at the same time.
    request_queue_size = 256

    def __init__(self, folder: str, latency: float):
        super().__init__(('127.0.0.1', 0), _Handler)
        # Only these files are served, so a name cannot lead outside the folder.
        paths = sorted(os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
        self.sizes = {os.path.relpath(path, folder): os.path.getsize(path) for path in paths}
        self.folder = folder
        self.latency = latency
        self._lock = threading.Lock()
        self._requests = self._content_bytes = self._at_once = self._most_at_once = 0

    def count(self, begun: int = 0, ended: int = 0, content_bytes: int = 0) -> None:
        """Counts requests that begin and that end, and the bytes sent."""
        with self._lock:
            self._requests += ended
            self._content_bytes += content_bytes
            self._at_once += begun - ended
            self._most_at_once = max(self._most_at_once, self._at_once)

    def tally(self) -> Tally:
        """The requests so far."""
        with self._lock:
            most, self._most_at_once = self._most_at_once, self._at_once
            return Tally(self._requests, self._content_bytes, most, cpu_seconds())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors: a client that was killed closes its connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    # With Nagle's algorithm, an answer's content waits for the acknowledgement of its headers.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing; `Tally` counts requests."""

    def do_GET(self) -> None:
        if self.path == _TALLY:
            self._answer(200, json.dumps(self.server.tally()._asdict()))
            return
        url = urlsplit(self.path)
        name = unquote(url.path[1:]).partition('/')[2]
        self.server.count(begun=1)
        sent = 0
        try:
            time.sleep(self.server.latency)
            if name:
                sent = self._content(name)
            else:
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                self._answer(200, self._listing(query.get('prefix', ''), query.get('delimiter', '')))
        finally:
            self.server.count(ended=1, content_bytes=sent)

    do_HEAD = do_GET  # noqa: N815

    def _content(self, name: str) -> int:
        """Answers with a file or a range of it, and returns the number of bytes sent."""
        size = self.server.sizes.get(name)
        match = _RANGE.match(self.headers.get('Range', ''))
        start = int(match.group(1)) if match else 0
        if size is None or (match and start >= size):
            status, code = (404, 'NoSuchKey') if size is None else (416, 'InvalidRange')
            self._answer(status, f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>')
            return 0
        end = min(int(match.group(2)) if match and match.group(2) else size - 1, size - 1)
        self.send_response(206 if match else 200)
        if match:
            self.send_header('Content-Range', f'bytes {start}-{end}/{size}')
        self.send_header('Accept-Ranges', 'bytes')
        self.send_header('Content-Length', str(end + 1 - start))
        self.send_header('Last-Modified', self.date_time_string(0))
        self.end_headers()
        if self.command == 'HEAD' or end < start:
            return 0
        self.wfile.flush()
        with open(os.path.join(self.server.folder, name), 'rb') as file:
            return self.connection.sendfile(file, start, end + 1 - start)

    def _listing(self, prefix: str, delimiter: str) -> str:
        """All names with a prefix; names that continue after the delimiter are grouped by common prefix."""
        entries: Dict[str, str] = {}
        for name, size in self.server.sizes.items():
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            if name.startswith(prefix) and end < 0:
                entries[name] = f'<Contents><Key>{escape(name)}</Key><Size>{size}</Size></Contents>'
            elif name.startswith(prefix):
                common = name[: end + len(delimiter)]
                entries[common] = f'<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>'
        heading = f'<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>'
        return f'<?xml version="1.0"?><ListBucketResult>{heading}{"".join(entries.values())}</ListBucketResult>'

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/xml')
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)
