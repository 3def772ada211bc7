"""Small data sets of photographs for audits."""

import json
import pathlib
from typing import Any, Dict, List, Sequence

from data import records
from data.dataset_info import DatasetInfo
from data.sources import Source
from tests.data.written_records import fingerprint_of
from tests.support.images import saved
from tests.support.photos import Photo, photo_example
from tools.datasets import writing
from tools.datasets.audit.report import audit
from tools.datasets.fingerprints import fingerprint

Report = Dict[str, Any]


NAMES = ['background', 'cat', 'astronaut', 'coffee', 'rocket', 'half a cat']


def report_of(data_dir: Any, num_classes: Any = None, data_format: str = 'tfrecord', processes: int = 1) -> Report:
    told: List[int] = []
    report = audit(Source(str(data_dir), data_format), num_classes, processes, lambda what, total: told.append)
    assert told[-1] == sum(split['records'] for split in report['splits'].values())
    return json.loads(json.dumps(report))


def write(data_dir: Any, split: str, examples: Sequence[Any], shards: int) -> None:
    remaining = iter(examples)
    writing.write_shards(str(data_dir), split, [lambda: next(remaining)] * len(examples), shards)


def written(data_dir: pathlib.Path, train: Sequence[Photo], validation: Sequence[Photo]) -> pathlib.Path:
    """Writes a data set of photographs with a correct description."""
    data_dir.mkdir(exist_ok=True)
    write(data_dir, records.TRAIN, [photo_example(photo) for photo in train], 3)
    write(data_dir, records.VALIDATION, [photo_example(photo) for photo in validation], 2)
    taken = fingerprint(fingerprint_of(train), fingerprint_of(validation))
    DatasetInfo('pieces', 'scikit-image', len(train), len(validation), 6, NAMES, taken).write(str(data_dir))
    return data_dir


def broken_inside(photo: Photo) -> bytes:
    """A PNG with a changed byte in its pixels. TensorFlow decodes most such JPEGs."""
    png = bytearray(saved(photo.pixels[:64, :64], 'PNG'))
    start = png.index(b'IDAT')
    png[start + int.from_bytes(png[start - 4 : start], 'big') // 2] ^= 1
    return bytes(png)


def places(found: Report) -> List[int]:
    assert found['count'] == len(found['first'])
    return [place['position'] for place in found['first']]


def ppm_of(photo: Photo) -> bytes:
    height, width, _ = photo.pixels.shape
    return b'P6\n# %d pixels\n%d %d\n255\n' % (height * width, width, height) + photo.pixels.tobytes()
