"""Record files with given numbers of records, and the fields of the records of images."""

from typing import Any, Iterable, List, NamedTuple, Tuple

from compat import tf
from data import records
from tools.datasets.fingerprints import SplitFingerprint
from tools.datasets.image_example import Box


def written(data_dir: Any, split: str, counts: List[int]) -> List[str]:
    """Record files with `counts` empty records each."""
    paths = []
    for shard, count in enumerate(counts):
        paths.append(records.shard_path(str(data_dir), split, shard, len(counts)))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                writer.write(b'')
    return paths


def read(path: str) -> List[bytes]:
    return list(tf.io.tf_record_iterator(path))


def examples(path: str) -> List[tf.train.Example]:
    return [*map(tf.train.Example.FromString, read(path))]


def fingerprint_of(images: Iterable[Any]) -> SplitFingerprint:
    """The fingerprint of images with the fields `label` and `encoded`."""
    return sum((SplitFingerprint().with_image(each.label, each.encoded) for each in images), SplitFingerprint())


class Stored(NamedTuple):
    """The fields of the record of an image."""

    encoded: bytes
    image_format: str
    label: int
    text: str
    synset: str
    width: int
    height: int
    filename: str
    boxes: List[Tuple[float, ...]]
    box_labels: List[int]


def stored(data_dir: Any, split: str) -> List[Stored]:
    """The records of a split, in order."""
    paths = records.find_shards(str(data_dir), split)
    return [_image_of(example) for path in paths for example in examples(path)]


def _image_of(example: tf.train.Example) -> Stored:
    feature = example.features.feature

    def values(key: str) -> List[Any]:
        each = feature[f'image/{key}']
        return [*each.bytes_list.value, *each.int64_list.value, *each.float_list.value]

    assert (values('colorspace'), values('channels')) == ([b'RGB'], [3])
    texts = [(values(key) or [b''])[0].decode() for key in ('format', 'class/text', 'class/synset', 'filename')]
    (encoded,), (label,), (width,), (height,) = map(values, ('encoded', 'class/label', 'width', 'height'))
    image_format, text, synset, name = texts
    boxes = [*zip(*(values(f'object/bbox/{corner}') for corner in Box._fields))]
    box_labels = values('object/class/label')
    return Stored(encoded, image_format, label, text, synset, width, height, name, boxes, box_labels)
