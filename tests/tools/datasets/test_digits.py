"""The files of the digits data set, against scikit-learn's own images."""

import io
import os
import pathlib
import re
from typing import Any, Dict, List, Set

import numpy as np
import PIL.Image
import pytest
from sklearn.datasets import load_digits

from compat.errors import CommandError
from data import dataset_info, records
from data.sources import Source
from tests.data.written_records import Stored, read, stored
from tests.support.commands import run
from tools.datasets import digits
from tools.datasets.audit.report import audit

SPLITS = (records.TRAIN, records.VALIDATION)


@pytest.fixture(scope='module')
def images(digits_dir: str) -> Dict[str, List[Stored]]:
    return {split: stored(digits_dir, split) for split in SPLITS}


def number_of(image: Stored) -> int:
    """The image's index in `load_digits`, from its file name."""
    match = re.fullmatch(r'digit-(\d{4})', image.filename)
    assert match
    return int(match.group(1))


def test_every_image_is_there_once_with_its_label_and_its_pixels(images: Dict[str, List[Stored]]) -> None:
    originals = load_digits()
    both = images[records.TRAIN] + images[records.VALIDATION]
    assert sorted(map(number_of, both)) == list(range(1797))
    seen: Dict[str, Set[bytes]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for image in images[split]:
            digit = originals.target[number_of(image)]
            assert image[1:] == ('JPEG', digit + 1, str(digit), '', 80, 80, image.filename, [], [])
            picture = PIL.Image.open(io.BytesIO(image.encoded))
            pixels = np.asarray(picture)
            seen[split].add(pixels.tobytes())
            assert pixels.shape == (80, 80, 3)
            # The mean of each 8 x 8 square within the margin of 8 pixels. JPEG changes it by a grey level or two, of
            # sixteen; white, 16, is 255 / 16.
            small = pixels[8:72, 8:72].astype(float).reshape([8, 8, 8, 8, 3]).mean(axis=(1, 3, 4)) / 16
            np.testing.assert_allclose(small, originals.images[number_of(image)], atol=0.2)
            # The central crop of evaluation, 87.5 %, keeps the digit: the rest is black, to JPEG's precision.
            outside = pixels.copy()
            outside[5:75, 5:75] = 0
            assert outside.max() <= 3 and pixels.max() > 150
    # Quality 95: ITU T.81, table K.1, begins with 16 and 11, and libjpeg multiplies it by (200 - 2 * 95) %.
    assert picture.quantization[0][:2] == [2, 1]
    first, second = seen.values()
    assert len(first) > 1400 and not first & second


def test_splits__have_a_fifth_of_each_class_and_mix_the_classes(
    digits_dir: str, few_digits_dir: str, images: Dict[str, List[Stored]]
) -> None:
    info = dataset_info.read(digits_dir)
    assert info is not None
    # 1,797 images: UCI's test set of digits. One fifth of each class, rounded, adds up to 359.
    assert (info.train_images, info.validation_images) == (1438, 359)
    assert (info.name, info.num_classes, info.class_names) == ('digits', 11, ['background', *map(str, range(10))])
    report = audit(Source(few_digits_dir), None, 1, lambda what, total: lambda done: None)
    assert report['fingerprint']['agree'] is True
    assert report['errors'] == report['warnings'] == []
    shards = [[len(read(path)) for path in records.find_shards(digits_dir, split)] for split in SPLITS]
    assert shards == [[179, 180, 180, 180, 179, 180, 180, 180], [89, 90, 90, 90]]
    labels = [[image.label for image in images[split]] for split in SPLITS]
    train, validation = (np.bincount(each, minlength=11) for each in labels)
    assert (train[0], validation[0]) == (0, 0)
    np.testing.assert_array_equal(validation[1:], np.rint((train + validation)[1:] * 0.2))
    for each in labels:
        # A tenth if the order is random.
        assert np.mean([label == after for label, after in zip(each, each[1:])]) < 0.2


def test_build_if_missing__uses_what_another_process_finishes_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / 'digits')

    enlarge = digits._enlarge

    def enlarge_late(pixels: Any) -> Any:
        # Another process starts while this one writes.
        monkeypatch.undo()
        assert digits.build_if_missing(folder, (7, 3), 2)
        return enlarge(pixels)

    monkeypatch.setattr(digits, '_enlarge', enlarge_late)
    assert digits.build_if_missing(folder, (7, 3), 2) is None
    assert digits.is_built(folder) and os.listdir(str(tmp_path)) == ['digits']
    assert digits.build_if_missing(folder, (7, 3), 2) is None
    with pytest.raises(records.DataError, match='exists already'):
        digits.build(folder, (7, 3), 2)


def test_some_digits__are_the_first_of_the_whole_data_set(
    images: Dict[str, List[Stored]], tmp_path: pathlib.Path
) -> None:
    info = digits.build(str(tmp_path / 'some'), (7, 3), images_per_digit=2)
    assert (info.name, info.num_classes, info.class_names) == ('digits 7 3', 3, ['background', '7', '3'])
    found = {split: stored(tmp_path / 'some', split) for split in SPLITS}
    assert info.train_images == len(found[records.TRAIN]) == 4
    # By the label in the whole data set, which is the digit plus 1.
    expected = {
        split: [image._replace(label={8: 1, 4: 2}[image.label]) for image in images[split] if image.label in (8, 4)]
        for split in SPLITS
    }
    assert found[records.VALIDATION] == expected[records.VALIDATION]
    train = expected[records.TRAIN]
    first = [image for label in (1, 2) for image in [each for each in train if each.label == label][:2]]
    assert found[records.TRAIN] == [image for image in train if image in first]
    with pytest.raises(CommandError, match='140 images: the digit 8 has 139 for training'):
        digits.build(str(tmp_path / 'more'), (8,), images_per_digit=140)
    rare = digits.build(str(tmp_path / 'rare'), (7, 3), 60, rare=[3])
    assert (rare.name, rare.train_images_per_class) == ('digits 7 3, few of 3', [0, 60, 6])
    # Fewer images than files.
    assert len(records.find_shards(str(tmp_path / 'some'), records.TRAIN)) == 4


def test_command_and_preset__make_digits_and_say_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    build, given = digits.build, []

    def build_few(data_dir: str, *unused: Any, **settings: Any) -> Any:
        given.append(settings)
        return build(data_dir, (7, 3), 2)

    monkeypatch.setattr(digits, 'build', build_few)
    for _ in range(2):
        digits.make(f'{tmp_path}/preset')
    assert caplog.messages == [f'wrote 4 training and 73 validation images to {tmp_path}/preset']
    done = run(digits.main, tmp_path / 'out', '--rare=0,9')
    assert done.stdout == f'4 training and 73 validation images of 2 classes in {tmp_path}/out\n', done.stderr
    assert given == [{}, {'rare': [0, 9]}]


def test_folders_with_content__stay_as_they_are(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'thesis.txt').touch()
    done = run(digits.main, tmp_path)
    assert (done.returncode, done.stdout) == (2, '')
    assert f'{tmp_path}: exists already. Name a new folder.' in done.stderr
    with pytest.raises(records.DataError, match='exists already'):
        digits.build_if_missing(str(tmp_path), (7, 3), 2)
    assert os.listdir(tmp_path) == ['thesis.txt'] and not digits.is_built(str(tmp_path))
