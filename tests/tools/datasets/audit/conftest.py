"""Data sets of photographs with known content, good and bad."""

import os
import pathlib
from typing import Any, List

import numpy as np
import pytest

from data import records
from tests.support.bad_records import DAMAGES
from tests.support.photos import Photo, encode_jpeg, photo_example
from tests.support.records import write_records
from tests.support.tar_files import write_tar
from tests.tools.datasets.audit.data_sets import Report, broken_inside, ppm_of, report_of, written
from tools.datasets.tar_shards import conversion as tar_shards


@pytest.fixture(scope='module')
def pieces(photos: List[Photo]) -> List[Photo]:
    """Twenty different pieces of photographs, at least 96 x 64 pixels each, labelled 1, 2, 3, 4, 5, 1 and so on."""
    found = []
    for index in range(20):
        photo = photos[index % 5]
        pixels = np.ascontiguousarray(photo.pixels[5 * index : 5 * index + 64 + index, 3 * index : 3 * index + 96])
        found.append(Photo(pixels, encode_jpeg(pixels), photo.label, photo.boxes))
    return found


@pytest.fixture(scope='module')
def good_dir(pieces: List[Photo], tmp_path_factory: Any) -> pathlib.Path:
    return written(tmp_path_factory.mktemp('good') / 'data', pieces[:15], pieces[15:])


@pytest.fixture(scope='module')
def good(good_dir: pathlib.Path) -> Report:
    return report_of(good_dir, processes=2)


@pytest.fixture(scope='module')
def bad_dir(photos: List[Photo], pieces: List[Photo], tmp_path_factory: Any) -> pathlib.Path:
    """A training file: ten good pieces, one piece per kind of `DAMAGES`, a non-Example, and a PNG damaged inside."""
    data_dir = written(tmp_path_factory.mktemp('bad') / 'data', pieces[:10], pieces[15:])
    for path in records.find_shards(str(data_dir), records.TRAIN):
        os.remove(path)
    examples = [photo_example(photo) for photo in [*pieces[:10], *[photos[1]] * len(DAMAGES)]]
    for example, (spoil, _) in zip(examples[10:], DAMAGES.values()):
        spoil(example)
    inside = photo_example(photos[2]._replace(encoded=broken_inside(photos[2]))).SerializeToString()
    contents = [example.SerializeToString() for example in examples]
    write_records(data_dir, records.TRAIN, [*contents, b'\xff\xff no protocol buffer', inside])
    return data_dir


@pytest.fixture(scope='module')
def tar_dir(good_dir: pathlib.Path, tmp_path_factory: Any) -> pathlib.Path:
    """The good data set as tar shards."""
    target = tmp_path_factory.mktemp('tar') / 'data'
    tar_shards.convert(str(good_dir), str(target), 0, print)
    return target


@pytest.fixture(scope='module')
def bad_tar_dir(pieces: List[Photo], tmp_path_factory: Any) -> pathlib.Path:
    """Three training files: good samples and one with each problem; not a tar file; truncated."""
    data_dir = tmp_path_factory.mktemp('tar') / 'bad'
    data_dir.mkdir()
    jpeg, ppm = pieces[0].encoded, ppm_of(pieces[1])
    images = [('00.jpg', jpeg), ('01.ppm', ppm), ('02.jpg', jpeg[:99]), ('03.ppm', ppm[:99]), ('04.png', b'')]
    images += [('05.jpg', jpeg), ('06.jpg', jpeg), ('06.png', jpeg), ('07.json', b'{}'), ('08.png', jpeg)]
    labels = {name[:2]: b'1' for name, _ in images if name[:2] != '08'}
    labels['05'] = b'6'
    files = [*images, *((f'{key}.cls', label) for key, label in labels.items()), ('README', b'?')]
    files += [('09.json', b'{}'), ('09.txt', b'')]
    write_tar(data_dir / 'train-00000.tar', sorted(files))
    (data_dir / 'train-00001.tar').write_bytes(b'a text' * 99)
    path = pathlib.Path(write_tar(data_dir / 'train-00003.tar', [('a.jpg', jpeg), ('a.cls', b'2'), ('b.jpg', jpeg)]))
    path.write_bytes(path.read_bytes()[: 3 * 512 + 2 * len(jpeg)])
    write_tar(data_dir / 'validation-00000.tar', [('a.jpg', pieces[2].encoded), ('a.cls', b'3')])
    return data_dir
