"""An object store on this machine: the files of a folder, over HTTP on the loopback, as TensorFlow's s3:// reads them.

python -m studies.streaming.object_store FOLDER [--latency_ms=50]

It answers what is asked to list and to read, each request after a wait, and counts. It prints its address, and serves
until its standard input ends, so it does not outlive whoever started it. It asks nobody who they are.
"""

import argparse
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

BUCKET = 'studies'
# Who asks this, is told the `Tally` at once, and is not counted.
_TALLY = '/?tally'
_RANGE = re.compile(r'bytes=(\d+)-(\d*)$')
# Seconds that a process has to start or to end.
_PATIENCE = 30


class Tally(NamedTuple):
    """What was asked of a store so far.

    Attributes:
      lists: requests for a listing that were answered.
      heads: those for the size of an object.
      gets: those for the content of an object, or a range of it.
      content_bytes: bytes of contents sent.
      most_at_once: the largest number of requests that were under way together, since the last tally.
      cpu_seconds: CPU time of the store's process.
    """

    lists: int = 0
    heads: int = 0
    gets: int = 0
    content_bytes: int = 0
    most_at_once: int = 0
    cpu_seconds: float = 0.0


class ObjectStore:
    """A store in a process of its own, which reads as `s3://studies/PATH` the files that are below a folder now.

    Args:
      folder: the folder.
      latency_ms: how long each request waits before it is answered.

    Attributes:
      address: its host and port.
      environment: what a process has to have in its environment, before its first file at s3://, to find the store.

    Raises:
      OSError: it does not start.
    """

    def __init__(self, folder: str, latency_ms: float):
        command = [sys.executable, '-m', 'studies.streaming.object_store', folder, f'--latency_ms={latency_ms}']
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
        )
        assert self._process.stdout
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.close()
            raise OSError(f'the object store did not start: exit code {self._process.returncode}')
        self.environment = {
            'S3_ENDPOINT': self.address,
            'S3_USE_HTTPS': '0',
            'AWS_REGION': 'us-east-1',
            # Without any, a machine of Amazon's would be asked for its own.
            'AWS_ACCESS_KEY_ID': 'nobody',
            'AWS_SECRET_ACCESS_KEY': 'nothing',
            # What leads to the world, if anything does, does not lead here.
            'no_proxy': '127.0.0.1',
        }

    def __enter__(self) -> 'ObjectStore':
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        try:
            # Its standard input ends.
            self._process.communicate(timeout=_PATIENCE)
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise


def tally(address: str) -> Tally:
    """What was asked of the store at an address so far.

    Raises:
      OSError: it does not answer.
    """
    # A proxy, if there is one, leads elsewhere.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f'http://{address}{_TALLY}', timeout=_PATIENCE) as answer:
        return Tally(**json.loads(answer.read().decode()))


class _File(NamedTuple):
    path: str
    size: int


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that wait to be accepted: a reader may open as many at once as it reads files.
    request_queue_size = 256

    def __init__(self, folder: str, latency: float):
        super().__init__(('127.0.0.1', 0), _Handler)
        # What is not among these is not served, whatever its name leads to.
        self.files: Dict[str, _File] = {}
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                self.files[os.path.relpath(path, folder)] = _File(path, os.path.getsize(path))
        self.names = sorted(self.files)
        self.latency = latency
        self._lock = threading.Lock()
        self._at_once = 0
        self._tally = Tally()

    def begin(self) -> None:
        """Counts a request as under way."""
        with self._lock:
            self._at_once += 1
            self._tally = self._tally._replace(most_at_once=max(self._tally.most_at_once, self._at_once))

    def end(self, kind: str, content_bytes: int) -> None:
        """Counts a request as answered, under the name of its field, with the bytes that it was given."""
        with self._lock:
            self._at_once -= 1
            count, total = getattr(self._tally, kind) + 1, self._tally.content_bytes + content_bytes
            self._tally = self._tally._replace(**{kind: count, 'content_bytes': total})

    def tally(self) -> Tally:
        """What was asked so far."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        with self._lock:
            told = self._tally._replace(cpu_seconds=usage.ru_utime + usage.ru_stime)
            self._tally = self._tally._replace(most_at_once=self._at_once)
        return told

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone, as one that was ended has, is nobody's business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    # Without it, the content of an answer waits for the acknowledgement of its headers.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: `Tally` counts."""

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
            self.server.end('heads' if self.command == 'HEAD' else 'gets' if name else 'lists', sent)

    do_HEAD = do_GET  # noqa: N815

    def _content(self, name: str) -> int:
        """Answers with a file or a range of it, and returns the bytes of that."""
        found = self.server.files.get(name)
        if not found:
            self._refuse(404, 'NoSuchKey')
            return 0
        match = _RANGE.match(self.headers.get('Range', ''))
        start = int(match.group(1)) if match else 0
        if match and start >= found.size:
            self._refuse(416, 'InvalidRange')
            return 0
        end = min(int(match.group(2)) if match and match.group(2) else found.size - 1, found.size - 1)
        self.send_response(206 if match else 200)
        if match:
            self.send_header('Content-Range', f'bytes {start}-{end}/{found.size}')
        self.send_header('Accept-Ranges', 'bytes')
        self.send_header('Content-Type', 'application/octet-stream')
        self.send_header('Content-Length', str(end + 1 - start))
        self.send_header('Last-Modified', self.date_time_string(0))
        self.end_headers()
        if self.command == 'HEAD' or end < start:
            return 0
        self.wfile.flush()
        with open(found.path, 'rb') as file:
            return self.connection.sendfile(file, start, end + 1 - start)

    def _listing(self, query: Dict[str, List[str]]) -> bytes:
        """A page of the names with a prefix; those that go on after the delimiter as one prefix each."""
        prefix, delimiter, marker = (query.get(key, [''])[0] for key in ('prefix', 'delimiter', 'marker'))
        entries: Dict[str, Tuple[str, str]] = {}
        for name in self.server.names:
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            entry = name if end < 0 else name[: end + len(delimiter)]
            if not name.startswith(prefix) or entry <= marker or entry in entries:
                continue
            size = f'<Size>{self.server.files[name].size}</Size>'
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


def main() -> None:
    """Serves what the command line names."""
    parser = argparse.ArgumentParser(
        prog='python -m studies.streaming.object_store',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('folder', help='the folder whose files are served')
    parser.add_argument('--latency_ms', type=float, default=0, help='wait of each request, in ms (default 0)')
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.folder):
        parser.error(f'{arguments.folder}: no such folder')
    if not 0 <= arguments.latency_ms <= 60000:
        parser.error(f'--latency_ms={arguments.latency_ms:g}: must be between 0 and 60000')
    server = _Server(arguments.folder, arguments.latency_ms / 1000)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f'127.0.0.1:{server.server_port}', flush=True)
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        # Whoever started it was interrupted, too, and ends its standard input.
        sys.stdin.read()


if __name__ == '__main__':
    main()
