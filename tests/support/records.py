"""Writes and reads record files, and frames records by hand."""

import os
import struct
from typing import Any, Iterator, List, Tuple

from compat import tf
from data import records
from inception_v3.config import Config


def validation_set(config: Config) -> Iterator[Tuple[bytes, int]]:
    """The encoded images and labels of a validation set, in order."""
    for path in records.find_shards(config.data_dir, records.VALIDATION):
        for serialized in tf.io.tf_record_iterator(path):
            feature = tf.train.Example.FromString(serialized).features.feature
            yield feature['image/encoded'].bytes_list.value[0], feature['image/class/label'].int64_list.value[0]


def write_records(data_dir: Any, split: str, contents: List[bytes]) -> None:
    """Writes a data set's split as a single record file."""
    os.makedirs(str(data_dir), exist_ok=True)
    with tf.io.TFRecordWriter(records.shard_path(str(data_dir), split, 0, 1)) as writer:
        for content in contents:
            writer.write(content)


def masked_crc32c(content: bytes) -> int:
    """The masked CRC-32C of TFRecord files, by polynomial division: independent of the program's method."""
    bits = ''.join(f'{byte:08b}'[::-1] for byte in content)
    number = int(bits, 2) << 32 ^ 0xFFFFFFFF << len(bits)
    for at in range(len(bits) + 31, 31, -1):
        if number >> at & 1:
            number ^= 0x11EDC6F41 << at - 32
    crc = int(f'{number:032b}'[::-1], 2) ^ 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record: bytes, length: int) -> bytes:
    """A record in the framing of TFRecord files, with the given length and without a checksum of the content."""
    head = struct.pack('<Q', length)
    return head + struct.pack('<I', masked_crc32c(head)) + record + bytes(4)
