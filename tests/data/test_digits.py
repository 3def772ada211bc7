"""The files of the digits data set, against scikit-learn's own images."""

import io
import os
import pathlib
import re
import sys
from typing import Any, Dict, List, NamedTuple

import numpy as np
import PIL.Image
import pytest
from sklearn.datasets import load_digits

from console.errors import CommandError
from console.tensorflow_versions import tf
from data import dataset_info, encoding, records
from data.audit.report import audit
from data.convert import digits
from data.sources import Source
from preprocessing.decoding import decode_image
from tests.support.commands import largest_file, run

SPLITS = (records.TRAIN, records.VALIDATION)


class Stored(NamedTuple):
    """A record with its decoded image."""

    feature: Any
    pixels: np.ndarray
    shard: int

    def number(self) -> int:
        """The image's index in `load_digits`, from its file name."""
        name = self.feature['image/filename'].bytes_list.value[0].decode()
        match = re.fullmatch(r'digit-(\d{4})', name)
        assert match
        return int(match.group(1))

    def label(self) -> int:
        return self.feature['image/class/label'].int64_list.value[0]


@pytest.fixture(scope='module')
def stored(digits_dir: str) -> Dict[str, List[Stored]]:
    return records_of(digits_dir)


def records_of(digits_dir: str) -> Dict[str, List[Stored]]:
    """All records with their decoded images, by split."""
    found: Dict[str, List[Stored]] = {}
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = tf.placeholder(tf.string, [])
        decoded = decode_image(encoded)
        for split in SPLITS:
            found[split] = []
            for shard, path in enumerate(records.find_shards(digits_dir, split)):
                for serialized in tf.io.tf_record_iterator(path):
                    feature = tf.train.Example.FromString(serialized).features.feature
                    pixels = session.run(decoded, {encoded: feature['image/encoded'].bytes_list.value[0]})
                    found[split].append(Stored(feature, pixels, shard))
    return found


def small(image: Stored) -> np.ndarray:
    """The original 8 x 8 image, from 0 to 16: the mean of each 8 x 8 square within the margin of 8 pixels."""
    return image.pixels[8:72, 8:72].astype(float).reshape([8, 8, 8, 8, 3]).mean(axis=(1, 3, 4)) / 16


def test_every_image_is_there_once_with_its_label_and_its_pixels(
    digits_dir: str, stored: Dict[str, List[Stored]]
) -> None:
    originals = load_digits()
    images = stored[records.TRAIN] + stored[records.VALIDATION]
    assert sorted(image.number() for image in images) == list(range(1797))
    for image in images:
        assert image.label() == originals.target[image.number()] + 1
        # JPEG changes the mean of a square by a grey level or two, of sixteen; white, 16, is 255 / 16.
        np.testing.assert_allclose(small(image), originals.images[image.number()], atol=0.2)
        # The central crop of evaluation, 87.5 % of 80 pixels, keeps the digit: the rest is black, to JPEG's precision.
        outside = image.pixels.copy()
        outside[5:75, 5:75] = 0
        assert outside.max() <= 3 and image.pixels.max() > 150
        (encoded,) = image.feature['image/encoded'].bytes_list.value
        label, name = image.label(), f'digit-{image.number():04d}'
        expected = encoding.make_example(encoded, 'JPEG', label, str(label - 1), 80, 80, name)
        assert dict(image.feature) == dict(expected.features.feature)
        assert image.pixels.shape == (80, 80, 3)
    luma = PIL.Image.open(io.BytesIO(images[0].feature['image/encoded'].bytes_list.value[0])).quantization[0]
    # Quality 95: ITU T.81, table K.1, begins with 16 and 11, and libjpeg multiplies it by (200 - 2 * 95) %.
    assert luma[:2] == [2, 1]


def test_splits__have_a_fifth_of_each_class_and_mix_the_classes(
    digits_dir: str, stored: Dict[str, List[Stored]]
) -> None:
    info = dataset_info.read(digits_dir)
    assert info is not None
    # 1,797 images: UCI's test set of digits. One fifth of each class, rounded, adds up to 359.
    assert (info.train_images, info.validation_images) == (1438, 359)
    assert (info.name, info.num_classes, info.class_names) == ('digits', 11, ['background', *map(str, range(10))])
    report = audit(Source(digits_dir), None, False, 1, lambda count: None)
    assert report['fingerprint']['agree'] is True
    assert report['errors'] == report['warnings'] == []
    shards = [np.bincount([image.shard for image in stored[split]]).tolist() for split in SPLITS]
    assert shards == [[179, 180, 180, 180, 179, 180, 180, 180], [89, 90, 90, 90]]
    train, validation = (np.bincount([image.label() for image in stored[split]], minlength=11) for split in SPLITS)
    assert (train[0], validation[0]) == (0, 0)
    np.testing.assert_array_equal(validation[1:], np.rint((train + validation)[1:] * 0.2))
    for split in SPLITS:
        labels = [image.label() for image in stored[split]]
        # A tenth if the order is random.
        assert np.mean([label == after for label, after in zip(labels, labels[1:])]) < 0.2
    first, second = ({image.pixels.tobytes() for image in stored[split]} for split in SPLITS)
    assert len(first) > 1400 and not first & second


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
    stored: Dict[str, List[Stored]], tmp_path: pathlib.Path
) -> None:
    info = digits.build(str(tmp_path / 'some'), (7, 3), images_per_digit=2)
    assert (info.name, info.num_classes, info.class_names) == ('digits 7 3', 3, ['background', '7', '3'])
    found = records_of(str(tmp_path / 'some'))
    assert info.train_images == len(found[records.TRAIN]) == 4
    label_of = {8: 1, 4: 2}  # by the label in the whole data set, which is the digit plus 1

    def listed(split: str, images: List[Stored]) -> List[Any]:
        return [(image.number(), label_of[image.label()]) for image in images if image.label() in label_of]

    train = listed(records.TRAIN, stored[records.TRAIN])
    first = {number for label in (1, 2) for number in [n for n, own in train if own == label][:2]}
    own = {split: [(image.number(), image.label()) for image in found[split]] for split in SPLITS}
    assert own[records.TRAIN] == [pair for pair in train if pair[0] in first]
    assert own[records.VALIDATION] == listed(records.VALIDATION, stored[records.VALIDATION])
    for image in found[records.TRAIN]:
        assert image.feature['image/class/text'].bytes_list.value[0] == {1: b'7', 2: b'3'}[image.label()]
    with pytest.raises(CommandError, match='--images_per_digit=140: there are 139 training images of the digit 8'):
        digits.build(str(tmp_path / 'more'), (8,), images_per_digit=140)
    # Fewer images than files.
    assert len(records.find_shards(str(tmp_path / 'some'), records.TRAIN)) == 4


@pytest.mark.parametrize('flag', ['--digits=55', '--digits=x', '--images_per_digit=0'])
def test_command__refuses_digits_that_are_none(flag: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, 'argv', ['digits', 'folder', flag])
    with pytest.raises(SystemExit) as ended:
        digits.main()
    assert ended.value.code == 2
    assert flag.split('=')[0] in capsys.readouterr().err


def test_folders_that_cannot_be_written__stay_as_they_are(tmp_path: pathlib.Path) -> None:
    with largest_file(40000):
        done = run(digits.main, tmp_path / 'digits')
    assert (done.returncode, done.stdout) == (2, '') and 'Traceback' not in done.stderr
    assert 'cannot be written' in done.stderr and 'File too large' in done.stderr
    assert os.listdir(tmp_path) == []
    (tmp_path / 'thesis.txt').touch()
    done = run(digits.main, tmp_path)
    assert (done.returncode, done.stdout) == (2, '')
    assert f'{tmp_path}: exists already. Name a new folder.' in done.stderr
    with pytest.raises(records.DataError, match='exists already'):
        digits.build_if_missing(str(tmp_path), (7, 3), 2)
    assert os.listdir(tmp_path) == ['thesis.txt'] and not digits.is_built(str(tmp_path))
