"""Recognizes compressed files by their first bytes, and knows how long their content is."""

import functools
import zlib

from console.tensorflow_versions import tf
from data import remote

GZIP, ZLIB = 'GZIP', 'ZLIB'
# The size of a gzip file's content is known modulo this number (RFC 1952, 2.3.1: ISIZE).
SIZE_MODULUS = 1 << 32
_HEAD_BYTES, _PIECE = 12, 1 << 16
# For zlib's functions.
_WINDOW_BITS = {ZLIB: zlib.MAX_WBITS, GZIP: zlib.MAX_WBITS + 16}


def head_of(path: str) -> bytes:
    """The first bytes of a file; raises RemoteError, or tf.errors.OpError for a local file."""
    with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
        return file.read(_HEAD_BYTES)


def kind_of(head: bytes) -> str:
    """The compression of a file with these first bytes, as TensorFlow names it: `GZIP`, `ZLIB`, or '' for neither."""
    if head.startswith(b'\x1f\x8b'):
        return GZIP
    # RFC 1950, 2.2: the method deflate, a window of up to 32 KiB, no dictionary, and a checksum of the two bytes.
    is_zlib = len(head) > 1 and head[0] & 0x8F == 8 and not head[1] & 0x20 and int.from_bytes(head[:2], 'big') % 31 == 0
    return ZLIB if is_zlib else ''


def content_bytes(path: str, kind: str) -> int:
    """The size of a file's content, modulo `SIZE_MODULUS`; -1 if it is damaged, or has more data after its end."""
    if not kind:
        return remote.size(path) % SIZE_MODULUS
    stream, count = zlib.decompressobj(_WINDOW_BITS[kind]), 0
    with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
        try:
            for piece in iter(functools.partial(file.read, _PIECE), b''):
                count += len(stream.decompress(piece))
        except zlib.error:
            return -1
    return count % SIZE_MODULUS if stream.eof and not stream.unused_data else -1


def claimed_bytes(path: str, kind: str) -> int:
    """The size of a file's content as its end claims; of a zlib file, which does not claim it, `content_bytes`."""
    if kind != GZIP:
        return content_bytes(path, kind)
    with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
        file.seek(max(0, remote.size(path) - 4))
        return int.from_bytes(file.read(4), 'little')
