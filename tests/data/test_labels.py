"""Labels that contradict the description of a data set, or those of the other split."""

import dataclasses
import pathlib
from typing import Any, List, Sequence

import pytest

from data import labels, records
from data.dataset_info import DatasetInfo
from data.labels import Labelled
from data.records import DataError
from data.sources import Source
from data.tf_example import Fields
from tests.data.written_records import fingerprint_of
from tests.support.records import write_records
from tests.support.tar_files import write_tar
from tools.datasets import fingerprints, image_example
from tools.datasets.fingerprints import SplitFingerprint, fingerprint

INFO = DatasetInfo('mine', 'here', 6, 2, 4, ['background', 'cat', 'dog', 'cup'])


def of(values: Sequence[int], texts: Sequence[str] = ()) -> List[Labelled]:
    return [Labelled(label, text, b'') for label, text in zip(values, [*texts, *[''] * len(values)])]


def write(folder: Any, split: str, values: Sequence[int], texts: Sequence[str] = ()) -> None:
    examples = [
        image_example.make_example(b'image %d' % number, 'JPEG', each.label, each.text, 1, 1, 'name')
        for number, each in enumerate(of(values, texts))
    ]
    write_records(folder, split, [example.SerializeToString() for example in examples])


def check(source: Source, info: DatasetInfo = INFO, split: str = records.TRAIN) -> None:
    labels.check_described(source, split, labels.sample(source, source.find(split)), info.class_names)


def test_labels_from_0__under_a_background_are_refused_with_what_to_do(tmp_path: pathlib.Path) -> None:
    write(tmp_path, 'train', [0, 1, 2, 0])
    source = Source(str(tmp_path))
    with pytest.raises(DataError, match=r'2 of 4 sampled train labels are 0, the background .* --label_offset=1,'):
        check(source)
    check(source._replace(fields=Fields(label_offset=1)))
    # Label 0 may be a class, and names may be unknown.
    for names in (['bird', 'cat', 'dog', 'cup'], [''] * 4):
        check(source, dataclasses.replace(INFO, class_names=names))


def test_sample__ends_at_a_damaged_record(tmp_path: pathlib.Path) -> None:
    write(tmp_path, 'train', [1, 2, 3])
    source = Source(str(tmp_path))
    (path,) = source.find('train')
    with open(path, 'r+b') as file:
        file.seek(-5, 2)
        file.write(b'?')
    assert [each.label for each in labels.sample(source, [path])] == [1, 2]


def test_count__is_of_all_classes_and_logs_its_progress(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    write(tmp_path, 'train', [0, 2, 1, 2, 7])
    source = Source(str(tmp_path), fields=Fields(label_offset=1))
    monkeypatch.setattr(labels, '_PROGRESS_EVERY', 6)
    (path,) = source.find('train')
    # Labels beyond the last class are not counted.
    assert labels.count(source, [path] * 4, 4) == [0, 4, 4, 8]
    (line,) = [record.getMessage() for record in caplog.records if 'counted' in record.getMessage()]
    assert line == 'counted the labels of 8 images in 2 of 4 files'


def test_labels_from_0__in_tar_shards_are_refused(tmp_path: pathlib.Path) -> None:
    files = [(f'{n}.{end}', content) for n in range(3) for end, content in (('jpg', b'image'), ('cls', b'%d' % n))]
    write_tar(tmp_path / 'train-00000.tar', files)
    source = Source(str(tmp_path), 'tar')
    with pytest.raises(DataError, match='1 of 3 sampled train labels are 0'):
        check(source)
    check(source._replace(fields=Fields(label_offset=1)))


def test_texts_of_records__that_name_other_classes_are_refused(tmp_path: pathlib.Path) -> None:
    # No label is 0, so only the texts show the shift.
    write(tmp_path, 'train', [1, 2, 3], ['dog', 'cup', 'else'])
    source = Source(str(tmp_path))
    with pytest.raises(DataError, match=r'2 of 2 .* label 1: dog in image/class/text, and cat in .* --label_offset=1,'):
        check(source)
    # Most texts agree; a name of two classes is ambiguous.
    write(tmp_path, 'train', [1, 2, 3], ['cat', 'dog', 'cat'])
    check(source)
    write(tmp_path, 'train', [1], ['dog'])
    check(source, DatasetInfo('mine', 'here', 1, 0, 4, ['background', 'cat', 'dog', 'dog']))


def test_sample__is_of_the_beginnings_of_eight_files(tmp_path: pathlib.Path) -> None:
    for number in range(20):
        write(tmp_path / 'one', 'train', [number + 1] * 300)
        (tmp_path / 'one' / 'train-00000-of-00001').rename(tmp_path / f'train-{number:05d}-of-00020')
    source = Source(str(tmp_path))
    sampled = [each.label for each in labels.sample(source, source.find('train'))]
    assert sampled == [number + 1 for number in range(0, 20, 3) for _ in range(200)]


@pytest.mark.parametrize(
    ('train', 'validation', 'is_suspect'),
    [
        ([1, 2, 3], [0, 1, 2], True),
        ([0, 1, 2], [1, 2, 3], True),
        # Validation lacks the last class.
        ([1, 2, 3], [0, 1], True),
        ([1, 2, 3], [1, 2, 3], False),
        ([0, 1, 2, 3], [1, 2, 3], False),
        ([1, 2, 3], [2, 3], False),
        ([1], [], False),
    ],
)
def test_splits__whose_labels_are_shifted_are_suspect(
    train: List[int], validation: List[int], is_suspect: bool
) -> None:
    assert bool(labels.shift_between(of(train), of(validation))) is is_suspect


def test_fingerprint__is_that_of_stored_images_and_labels(tmp_path: pathlib.Path) -> None:
    write(tmp_path, 'train', [1, 2])
    write(tmp_path, 'validation', [3])
    expected = fingerprint(
        fingerprint_of([Labelled(1, '', b'image 0'), Labelled(2, '', b'image 1')]),
        fingerprint_of([Labelled(3, '', b'image 0')]),
    )
    source = Source(str(tmp_path), fields=Fields(label_offset=1))
    assert fingerprints.fingerprint_of(source, INFO) == expected
    write(tmp_path, 'train', [1, 3])
    assert fingerprints.fingerprint_of(source, INFO) != expected
    # Without validation images, there need not be files of them.
    for path in tmp_path.glob('validation-*'):
        path.unlink()
    alone = fingerprint_of([Labelled(1, '', b'image 0'), Labelled(3, '', b'image 1')])
    info = dataclasses.replace(INFO, validation_images=0)
    assert fingerprints.fingerprint_of(source, info) == fingerprint(alone, SplitFingerprint())
