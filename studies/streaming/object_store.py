"""Serves the files of a folder over HTTP on 127.0.0.1, as an object store that TensorFlow reads as s3://.

python -m studies.streaming.object_store FOLDER LATENCY_MS

The store answers requests to list and to read, each after a delay, and counts them. It prints its address, and serves
until its standard input is closed, so that it ends with the process that started it. It needs no authentication.
"""

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, NamedTuple, Tuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from console import processes

BUCKET = 'studies'
# A request for this path gets the `Tally` without a delay, and is not counted.
_TALLY = '/?tally'
_RANGE = re.compile(r'bytes=(\d+)-(\d*)$')
# Seconds that the process may take to answer or to end.
_TIMEOUT = 30


class Tally(NamedTuple):
    """The requests that a store has answered so far.

    Attributes:
      requests: requests for a listing, and for the size or the content of an object.
      content_bytes: bytes of content sent.
      most_at_once: largest number of concurrent requests since the last tally.
      cpu_seconds: CPU time of the store's process, in seconds.
    """

    requests: int = 0
    content_bytes: int = 0
    most_at_once: int = 0
    cpu_seconds: float = 0.0


class ObjectStore:
    """A store in a process of its own; `s3://studies/PATH` reads the files that are in a folder when it starts.

    Args:
      folder: the folder.
      latency_ms: delay of each request, in ms.

    Attributes:
      address: host and port.
      environment: environment variables with which TensorFlow finds the store; set them before it opens an s3:// file.

    Raises:
      OSError: the process does not start.
    """

    def __init__(self, folder: str, latency_ms: float):
        command, pipe = processes.module('studies.streaming.object_store', folder, str(latency_ms)), subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, universal_newlines=True)
        assert self._process.stdout
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.close()
            raise OSError(f'the object store did not start: exit code {self._process.returncode}')
        self.environment = {
            'S3_ENDPOINT': self.address,
            'S3_USE_HTTPS': '0',
            'AWS_REGION': 'us-east-1',
            # Without credentials, the client would ask Amazon's metadata service for them.
            'AWS_ACCESS_KEY_ID': 'nobody',
            'AWS_SECRET_ACCESS_KEY': 'nothing',
            # A proxy cannot reach this machine's loopback.
            'no_proxy': '127.0.0.1',
        }

    def __enter__(self) -> 'ObjectStore':
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        try:
            # This closes the process's standard input.
            self._process.communicate(timeout=_TIMEOUT)
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise


def tally(address: str) -> Tally:
    """The tally of the store at an address.

    Raises:
      OSError: the store does not answer.
    """
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
        self._at_once = 0
        self._tally = Tally()

    def begin(self) -> None:
        """Counts a request that begins."""
        with self._lock:
            self._at_once += 1
            self._tally = self._tally._replace(most_at_once=max(self._tally.most_at_once, self._at_once))

    def end(self, content_bytes: int) -> None:
        """Counts an answered request, and the bytes sent."""
        with self._lock:
            self._at_once -= 1
            count, total = self._tally.requests + 1, self._tally.content_bytes + content_bytes
            self._tally = self._tally._replace(requests=count, content_bytes=total)

    def tally(self) -> Tally:
        """The requests so far."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        with self._lock:
            tally = self._tally._replace(cpu_seconds=usage.ru_utime + usage.ru_stime)
            self._tally = self._tally._replace(most_at_once=self._at_once)
        return tally

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
            self._answer(200, 'application/json', json.dumps(self.server.tally()._asdict()).encode())
            return
        url = urlsplit(self.path)
        bucket, _, name = unquote(url.path[1:]).partition('/')
        self.server.begin()
        sent = 0
        try:
            time.sleep(self.server.latency)
            if bucket != BUCKET:
                self._refuse(404, 'NoSuchBucket')
            elif name:
                sent = self._content(name)
            else:
                self._answer(200, 'application/xml', self._listing(parse_qs(url.query)))
        finally:
            self.server.end(sent)

    do_HEAD = do_GET  # noqa: N815

    def _content(self, name: str) -> int:
        """Answers with a file or a range of it, and returns the number of bytes sent."""
        if name not in self.server.sizes:
            self._refuse(404, 'NoSuchKey')
            return 0
        size = self.server.sizes[name]
        match = _RANGE.match(self.headers.get('Range', ''))
        start = int(match.group(1)) if match else 0
        if match and start >= size:
            self._refuse(416, 'InvalidRange')
            return 0
        end = min(int(match.group(2)) if match and match.group(2) else size - 1, size - 1)
        self.send_response(206 if match else 200)
        if match:
            self.send_header('Content-Range', f'bytes {start}-{end}/{size}')
        self.send_header('Accept-Ranges', 'bytes')
        self.send_header('Content-Type', 'application/octet-stream')
        self.send_header('Content-Length', str(end + 1 - start))
        self.send_header('Last-Modified', self.date_time_string(0))
        self.end_headers()
        if self.command == 'HEAD' or end < start:
            return 0
        self.wfile.flush()
        with open(os.path.join(self.server.folder, name), 'rb') as file:
            return self.connection.sendfile(file, start, end + 1 - start)

    def _listing(self, query: Dict[str, List[str]]) -> bytes:
        """A page of the names with a prefix; names that continue after the delimiter are grouped by common prefix."""
        prefix, delimiter, marker = (query.get(key, [''])[0] for key in ('prefix', 'delimiter', 'marker'))
        entries: Dict[str, Tuple[str, str]] = {}
        for name in self.server.sizes:
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            entry = name if end < 0 else name[: end + len(delimiter)]
            if not name.startswith(prefix) or entry <= marker or entry in entries:
                continue
            size = f'<Size>{self.server.sizes[name]}</Size>'
            entries[entry] = ('Contents', size) if end < 0 else ('CommonPrefixes', '')
        page = sorted(entries)[: int(query.get('max-keys', ['1000'])[0])]
        is_truncated = len(page) < len(entries)
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<ListBucketResult>']
        lines.append(f'<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><Marker>{escape(marker)}</Marker>')
        lines.append(f'<IsTruncated>{str(is_truncated).lower()}</IsTruncated>')
        if is_truncated and page:
            lines.append(f'<NextMarker>{escape(page[-1])}</NextMarker>')
        for entry in page:
            kind, size = entries[entry]
            field = 'Key' if kind == 'Contents' else 'Prefix'
            lines.append(f'<{kind}><{field}>{escape(entry)}</{field}>{size}</{kind}>')
        return '\n'.join([*lines, '</ListBucketResult>']).encode()

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, 'application/xml', f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'.encode())

    def _answer(self, status: int, content_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header('Content-Type', content_type)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)


def main(folder: str, latency_ms: str) -> None:
    """Serves a folder until standard input is closed."""
    server = _Server(folder, float(latency_ms) / 1000)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f'127.0.0.1:{server.server_port}', flush=True)
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        # The parent process also receives Ctrl-C, and then closes this standard input.
        sys.stdin.read()


if __name__ == '__main__':
    main(*sys.argv[1:])
