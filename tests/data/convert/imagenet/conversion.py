"""Converts small ImageNet archives in this process, without Beam."""

import pathlib
from typing import Any, Callable, Dict, List, Optional, Sequence

from data import records
from data.convert.imagenet import pipeline
from data.convert.imagenet import shards as imagenet_shards
from data.convert.imagenet.pipeline import Source
from tests.data.convert.imagenet.archives import Archives

SHARDS = {records.TRAIN: 3, records.VALIDATION: 2}


def files_of(data_dir: pathlib.Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data_dir.iterdir() if '-of-' in path.name}


def convert_here(shards: Sequence[str], data_dir: str, work_dir: str, watch: Callable[[], None]) -> None:
    """Replaces Beam: converts the shards in this process, in order."""
    for shard in shards:
        imagenet_shards.convert(shard, data_dir, work_dir)
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
    paths = {name: str(archives.folder / place) for name, place in places.items() if isinstance(place, str)}
    paths.update({name: place for name, place in places.items() if not isinstance(place, str)})
    counts = {records.TRAIN: sum(map(len, archives.train.values())), records.VALIDATION: len(archives.validation)}
    said: List[str] = []
    pipeline.convert(Source(**paths), str(data_dir), shards or SHARDS, expected or counts, run, said.append)
    return said
