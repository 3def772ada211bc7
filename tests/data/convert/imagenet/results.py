"""Conversions of small ImageNet archives in this process, without Beam, and the records that they make."""

import pathlib
import subprocess
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from console.tensorflow_versions import tf
from data import records
from data.convert.imagenet import pipeline
from tests.data.convert.imagenet.archives import Archives

SPLITS = (records.TRAIN, records.VALIDATION)
SHARDS = {records.TRAIN: 3, records.VALIDATION: 2}


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
            texts = {name: each.bytes_list.value for name, each in feature.items()}
            numbers = {name: [*each.int64_list.value] for name, each in feature.items()}
            corners = [feature[f'image/object/bbox/{c}'].float_list.value for c in ('xmin', 'ymin', 'xmax', 'ymax')]
            name = texts['image/filename'][0].decode()
            assert name not in found
            assert (texts['image/format'], texts['image/colorspace']) == ([b'JPEG'], [b'RGB'])
            assert numbers['image/channels'] == [3]
            found[name] = Stored(
                texts['image/encoded'][0],
                numbers['image/class/label'][0],
                texts['image/class/synset'][0].decode(),
                texts['image/class/text'][0].decode(),
                (numbers['image/width'][0], numbers['image/height'][0]),
                [*zip(*corners)],
                numbers.get('image/object/class/label', []),
            )
    return found


def files_of(data_dir: pathlib.Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data_dir.iterdir() if '-of-' in path.name}


def convert_here(shards: Sequence[str], data_dir: str, work_dir: str, watch: Callable[[], None]) -> None:
    """Replaces Beam: converts the shards in this process, in order."""
    for shard in shards:
        pipeline.write_shard(shard, data_dir, work_dir)
        watch()


def convert(
    archives: Archives,
    data_dir: pathlib.Path,
    shards: Optional[Dict[str, int]] = None,
    expected: Optional[Dict[str, int]] = None,
    run: Any = convert_here,
    **source: Any,
) -> List[str]:
    """Converts archives without Beam, and returns the messages."""
    places: Dict[str, Any] = {
        'train': 'ILSVRC2012_img_train.tar',
        'validation': 'ILSVRC2012_img_val.tar',
        'validation_labels': 'ILSVRC2012_devkit_t12.tar.gz',
        **source,
    }
    paths = {name: str(archives.folder / place) if isinstance(place, str) else place for name, place in places.items()}
    counts = {records.TRAIN: sum(map(len, archives.train.values())), records.VALIDATION: len(archives.validation)}
    said: List[str] = []
    pipeline.convert(pipeline.Source(**paths), str(data_dir), shards or SHARDS, expected or counts, run, said.append)
    return said


def refusal(archives: Archives, data_dir: pathlib.Path, **options: Any) -> str:
    with pytest.raises(records.DataError) as error:
        convert(archives, data_dir, **options)
    return str(error.value)


def run_imagenet(data_dir: Any, *arguments: str) -> 'subprocess.CompletedProcess[str]':
    command = [sys.executable, '-m', 'data.convert.imagenet', str(data_dir), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)
