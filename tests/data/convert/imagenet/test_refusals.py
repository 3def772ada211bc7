"""Messages about parts of ImageNet that contradict each other, and failures during a conversion."""

import json
import pathlib
import tarfile
from typing import Any, List

import pytest

from data import records, remote
from data.convert import archives as tar_archives
from data.convert.imagenet import pipeline
from data.convert.imagenet import shards as imagenet_shards
from data.convert.imagenet import source as imagenet_source
from data.convert.imagenet.source import Image
from data.records import DataError
from tests.data.convert.imagenet import archives as imagenet_archives
from tests.data.convert.imagenet.archives import TEXTS, Archives
from tests.data.convert.imagenet.results import refusal

EIGHT = {records.TRAIN: 8, records.VALIDATION: 8}


def test_training_images_without_a_class__are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    message = refusal(archives, tmp_path / 'out', train='val', validation='val', expected=EIGHT)
    assert 'ILSVRC2012_val_00000001.JPEG is in no folder or archive of a class, such as n01440764.' in message


def test_validation_classes__are_given_once_and_for_all_images(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    for place, (name, _) in enumerate(archives.validation):
        target = archives.folder / 'val' / archives.synset(name)
        target.mkdir(exist_ok=True)
        (archives.folder / 'val' / name).rename(target / name)
        message = refusal(archives, tmp_path / 'out', train='train', validation='val')
        if place + 1 < len(archives.validation):
            assert 'some images are in a folder per class, and some are not.' in message
    assert 'are already in a folder per class. Omit --validation_labels.' in message


def test_classes_without_a_name__are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    path = archives.folder / 'names.txt'
    path.write_text('n01440764 tench\nn02123045 tabby\n')
    message = refusal(archives, tmp_path / 'out', synset_names='names.txt')
    assert message == f'{path}: has no name for 2 classes: n04266014, n07920052.'
    path.write_text(''.join(f'{synset} {text}\n' for synset, text in TEXTS.items()) + 'n00000001  \n')
    assert f'{path}, line 6: ' in refusal(archives, tmp_path / 'out', synset_names='names.txt')


def kit(archives: Archives, *files: Any) -> str:
    path = archives.folder / 'ILSVRC2012_devkit_t12.tar.gz'
    path.write_bytes(
        imagenet_archives.tar([(f'ILSVRC2012_devkit_t12/data/{name}', text) for name, text in files], 'w:gz')
    )
    return str(path)


def test_other_development_kits__are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    path = kit(archives, ('readme.txt', b''))
    message = refusal(archives, tmp_path / 'out')
    assert message.startswith(f'{path}: not the development kit of ImageNet-2012: data/meta.mat is not in it.')
    numbers = ('ILSVRC2012_validation_ground_truth.txt', b'1\n2\n3\n9\n' * 2)
    kit(archives, numbers, ('meta.mat', imagenet_archives.meta_mat()))
    assert 'data/meta.mat has no synset for the numbers 9 in' in refusal(archives, tmp_path / 'out')


def test_annotations__must_be_there_and_finite(archives: Archives) -> None:
    path = archives.folder / 'boxes.tar'
    path.write_bytes(imagenet_archives.tar([('readme.txt', b'')]))
    with pytest.raises(DataError, match=r'boxes\.tar: no annotations\.'):
        [*imagenet_source.read_boxes(str(path), [])]
    annotation = imagenet_archives.annotation('n01440764', [(1, 2, 30, 40)])
    flat = annotation.replace(b'<height>60</height>', b'<height>0</height>')
    files = [('a.xml', annotation.replace(b'<xmin>1<', b'<xmin>nan<')), ('b.xml', flat), ('c.xml', annotation)]
    path.write_bytes(imagenet_archives.tar(files))
    bad: List[str] = []
    ((name, box),) = imagenet_source.read_boxes(str(path), bad)
    assert (name, box.name) == ('c', 'n01440764') and box.corners == (1 / 80, 2 / 60, 30 / 80, 40 / 60)
    assert bad == ['a.xml (corners that are not finite)', 'b.xml (of an image of 80 x 0 pixels)']


@pytest.mark.parametrize(
    ('corners', 'is_refused'),
    [('-1,0,2,1', False), ('-1.01,0,1,1', True), ('0,0,1,2.01', True), ('10,20,300,400', True)],
)
def test_csv_corners__are_at_most_one_image_away(corners: str, is_refused: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'boxes.csv'
    path.write_text(f'filename,xmin,ymin,xmax,ymax\na.JPEG,{corners}\n')
    if is_refused:
        with pytest.raises(DataError, match=r'line 2: .* is far outside the image'):
            [*imagenet_source.read_boxes(str(path), [])]
    else:
        ((name, box),) = imagenet_source.read_boxes(str(path), [])
        assert (name, box.corners) == ('a', (-1, 0, 2, 1))


def test_image_in_an_archive__is_read_at_its_place(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.tar'
    path.write_bytes(b'0123456789')
    assert imagenet_source.read(Image(str(path), 3, 4, 'a.JPEG', '')) == b'3456'
    with pytest.raises(DataError, match=r'became shorter during the conversion: a\.JPEG is missing'):
        imagenet_source.read(Image(str(path), 7, 4, 'a.JPEG', ''))


def test_failure__keeps_its_kind_and_ends_the_other_conversions(tmp_path: pathlib.Path) -> None:
    pipeline.raise_failure(str(tmp_path))
    for is_transient, kind in ((True, remote.UnreachableError), (False, DataError)):
        (tmp_path / 'failure').write_text(json.dumps([is_transient, 'the reason']))
        with pytest.raises(kind, match='the reason'):
            pipeline.raise_failure(str(tmp_path))
    # There is no plan of this shard, and nobody looks for it.
    imagenet_shards.convert('train-00000-of-00001', str(tmp_path), str(tmp_path))
    assert 'the reason' in (tmp_path / 'failure').read_text()
    pipeline._forget(str(tmp_path), [])
    assert not (tmp_path / 'failure').exists()
    imagenet_shards.convert('train-00000-of-00001', str(tmp_path), str(tmp_path))
    assert 'train-00000-of-00001 was not written: ' in (tmp_path / 'failure').read_text()


def test_names__beyond_ten_are_in_the_report() -> None:
    names = [str(number) for number in range(12)]
    assert pipeline._listed(names[:10]) == ', '.join(names[:10])
    assert pipeline._listed(names).endswith('8, 9 and 2 more (all in conversion.json)')


def test_content_of_archives__is_bounded() -> None:
    member: Any = tarfile.TarInfo('a.xml')
    member.size = 1 << 26
    tar_archives._check_content(member)
    member.size += 1
    with pytest.raises(tarfile.ReadError, match=r'a\.xml has 67,108,865 bytes'):
        tar_archives._check_content(member)
    member.size, member.sparse = 20, [(0, 10), (10, 10)]
    tar_archives._check_content(member)
    member.sparse = [(0, 10), (9, 10)]
    with pytest.raises(tarfile.ReadError, match=r'a\.xml has overlapping pieces'):
        tar_archives._check_content(member)
