"""Runs of the conversion of ImageNet, and the records that they make."""

import pathlib
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest

from console.tensorflow_versions import tf
from data import records
from tests.data.convert.imagenet.archives import Archives
from tests.data.convert.imagenet.conversion import convert

SPLITS = (records.TRAIN, records.VALIDATION)


class Stored(NamedTuple):
    """The fields of a record."""

    encoded: bytes
    label: int
    synset: str
    text: str
    size: Tuple[int, int]
    boxes: List[Tuple[float, ...]]
    box_labels: List[int]


def stored(data_dir: pathlib.Path, split: str) -> Dict[str, Stored]:
    """The records of a split, by the name of the image."""
    found = {}
    for path in records.find_shards(str(data_dir), split):
        for serialized in tf.io.tf_record_iterator(path):
            feature = tf.train.Example.FromString(serialized).features.feature
            corners = [feature[f'image/object/bbox/{c}'].float_list.value for c in ('xmin', 'ymin', 'xmax', 'ymax')]
            name = feature['image/filename'].bytes_list.value[0].decode()
            assert name not in found
            assert feature['image/format'].bytes_list.value[0] == b'JPEG'
            assert feature['image/colorspace'].bytes_list.value[0] == b'RGB'
            assert feature['image/channels'].int64_list.value[0] == 3
            found[name] = Stored(
                feature['image/encoded'].bytes_list.value[0],
                feature['image/class/label'].int64_list.value[0],
                feature['image/class/synset'].bytes_list.value[0].decode(),
                feature['image/class/text'].bytes_list.value[0].decode(),
                (feature['image/width'].int64_list.value[0], feature['image/height'].int64_list.value[0]),
                [*zip(*corners)],
                [*feature['image/object/class/label'].int64_list.value],
            )
    return found


def run_imagenet(data_dir: Any, *arguments: str, **others: Any) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(
        [sys.executable, '-m', 'data.convert.imagenet', str(data_dir), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        **others,
    )


def refusal(archives: Archives, data_dir: pathlib.Path, **options: Any) -> str:
    with pytest.raises(records.DataError) as error:
        convert(archives, data_dir, **options)
    return str(error.value)


def cut(path: pathlib.Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
