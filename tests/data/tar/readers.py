"""Both readers of tar shards, and shards to read."""

import os
import pathlib
import tarfile
from typing import Any, List
from unittest import mock

from compat import tf
from data.tar import reader as tar_reader
from data.tar.layout import BLOCK, DOCUMENTED_LABEL, Label, Problem
from data.tar.shard import Shard

TAR_FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
# Too long for one field of a header, and for two fields.
FOLDERS = ['', 'd' * 80 + '/' + 'e' * 60 + '/', 'f' * 300 + '/']


class Reader:
    """The input pipeline's reader, built once: it reads the same path again and again.

    Args:
      path: the path of the shards to read, one after the other.
      label: the place of the labels.
    """

    def __init__(self, path: str, label: Label = DOCUMENTED_LABEL) -> None:
        self.path, self.label = path, label
        with tf.Graph().as_default() as graph:
            # Pieces of few blocks, not all of them whole: headers, contents and the end cross pieces in all ways.
            with mock.patch.multiple(tar_reader, PIECE=700, _CHUNK=100):
                in_pieces = self._iterator()
            # A small shard is one window, even if it is loaded whole.
            with mock.patch.object(tar_reader, 'is_read_whole', lambda path: True):
                as_a_whole = self._iterator()
            iterators = (self._iterator(), in_pieces, as_a_whole)
            self._next = [iterator.get_next() for iterator in iterators]
        self._session = tf.Session(graph=graph)
        self._session.run([iterator.initializer for iterator in iterators])

    def _iterator(self) -> tf.data.Iterator:
        paths = tf.data.Dataset.from_tensors(self.path).repeat()
        options = tf.data.Options()
        # One default optimization reads ahead, before the file has its next content.
        options.experimental_optimization.apply_default_optimizations = False
        return tf.data.make_initializable_iterator(paths.flat_map(self._samples_and_end).with_options(options))

    @tf.autograph.experimental.do_not_convert
    def _samples_and_end(self, path: tf.Tensor) -> tf.data.Dataset:
        size = tf.reshape(tf.numpy_function(os.path.getsize, [path], tf.int64), [])
        samples = tar_reader.reader('', 1 << 20, self.label)(path, size).map(lambda sample: (False, sample))
        return samples.concatenate(tf.data.Dataset.from_tensors((True, '')))

    def read(self, shard: bytes) -> List[bytes]:
        pathlib.Path(self.path).write_bytes(shard)
        samples, *others = map(self._all, self._next)
        assert others == [samples] * 2
        return samples

    def _all(self, following: Any) -> List[bytes]:
        samples: List[bytes] = []
        while True:
            is_end, sample = self._session.run(following)
            if is_end:
                return samples
            samples.append(sample)


def fine(label: int, image: bytes) -> bytes:
    return b'%020d' % label + image


def bad(problem: Problem) -> bytes:
    return str(problem).encode()


def both(reader: Reader, shard: bytes) -> List[bytes]:
    """The samples of the input pipeline; fails unless the Python reader finds the same."""
    found = reader.read(shard)
    with Shard(reader.path) as content:
        assert found == [
            fine(sample.label, content.read(sample.image.start, sample.image.size))
            if sample.image
            else bad(sample.problem)
            for sample in content.samples(reader.label)
        ]
    return found


def header(name: str, size_field: bytes, content: bytes = b'', kind: bytes = tarfile.REGTYPE) -> bytes:
    """A member with a given size field in its header."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    block[124:136], block[156:157] = size_field, kind
    block[148:156] = b' ' * 8
    block[148:156] = b'%06o\0 ' % sum(block)
    return bytes(block) + content + b'\0' * (-len(content) % BLOCK)


def member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A member with the size of its content in its header."""
    return header(name, b'%011o\0' % len(content), content, kind)


END = b'\0' * 2 * BLOCK
