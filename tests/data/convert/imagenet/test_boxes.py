"""The bounding boxes of ImageNet, from XML annotations and CSV files."""

import json
import pathlib

import numpy as np
import pytest

from data import records
from tests.data.convert.imagenet import archives as imagenet_archives
from tests.data.convert.imagenet.archives import TEXTS, Archives
from tests.data.convert.imagenet.conversion import convert, files_of
from tests.data.convert.imagenet.results import refusal, stored


def test_boxes_are_ordered_clipped_and_of_the_class(archives: Archives, tmp_path: pathlib.Path) -> None:
    first, second, third = (name[:-5] for name, _ in archives.train['n01440764'][:3])
    validation = 'ILSVRC2012_val_00000001'
    synset = archives.synset(f'{validation}.JPEG')
    annotation = imagenet_archives.annotation
    train = [
        (f'n01440764/{first}.xml', annotation('n01440764', [(8, 6, 40, 30), (40, 45, 20, 15), (-8, 6, 100, 60)])),
        # Some annotations of dogs have a word instead of the synset.
        (f'n01440764/{second}.xml', annotation('tench', [(0, 0, 40, 60), (20, 5, 20, 30), (90, 5, 99, 30)])),
        (f'n01440764/{third}.xml', annotation('n02123045', [(0, 0, 40, 60)])),
        ('n01440764/n01440764_99999.xml', annotation('n01440764', [(0, 0, 40, 60)])),
        ('n01440764/n01440764_99998.xml', b'<annotation><size><width>0</width><height>0</height></size></annotation>'),
        ('n01440764/n01440764_99997.xml', b'<annota'),
    ]
    (archives.folder / 'train.tar.gz').write_bytes(imagenet_archives.tar(train, 'w:gz'))
    val = [(f'val/{validation}.xml', annotation(synset, [(20, 15, 60, 45)]))]
    (archives.folder / 'val.tgz').write_bytes(imagenet_archives.tar(val, 'w:gz'))
    said = convert(
        archives,
        tmp_path / 'out',
        bounding_boxes=[str(archives.folder / 'train.tar.gz'), str(archives.folder / 'val.tgz')],
    )
    found = {**stored(tmp_path / 'out', records.TRAIN), **stored(tmp_path / 'out', records.VALIDATION)}
    expected = {
        first: [(0.1, 0.1, 0.5, 0.5), (0.25, 0.25, 0.5, 0.75), (0.0, 0.1, 1.0, 1.0)],
        second: [(0.0, 0.0, 0.5, 1.0)],
        validation: [(0.25, 0.25, 0.75, 0.75)],
    }
    for name, image in found.items():
        boxes = expected.get(name[:-5], [])
        assert image.box_labels == [image.label] * len(boxes)
        assert len(image.boxes) == len(boxes)
        np.testing.assert_allclose(image.boxes, boxes, atol=1e-7)
    assert said[0] == (
        '2 annotations are invalid, and are left out: n01440764/n01440764_99998.xml (of an image of 0 x 0 pixels), '
        'n01440764/n01440764_99997.xml (unclosed token: line 1, column 0)'
    )
    report = json.loads((tmp_path / 'out' / 'conversion.json').read_text())
    assert report['boxes'] == {
        'written': 5,
        'ordered': 1,
        'clipped': 1,
        'empty': 2,
        'of another class': 1,
        'of no image here': 1,
    }


def test_boxes_in_csv(archives: Archives, tmp_path: pathlib.Path) -> None:
    first, second = (name for name, _ in archives.train['n04266014'][:2])
    path = archives.folder / 'boxes.csv'
    path.write_text(f'{first},0.1,0.2,0.3,0.4\n{first},0.5,0.6,1.01,0.8\n{second},0.25,0.25,0.75,0.5\n')
    convert(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    found = stored(tmp_path / 'out', records.TRAIN)
    np.testing.assert_allclose(found[first].boxes, [(0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 1.0, 0.8)], atol=1e-7)
    np.testing.assert_allclose(found[second].boxes, [(0.25, 0.25, 0.75, 0.5)], atol=1e-7)


@pytest.mark.parametrize('header', ['', 'filename,xmin,ymin,xmax,ymax\n'])
def test_csv__as_excel_writes_it(archives: Archives, tmp_path: pathlib.Path, header: str) -> None:
    name, _ = archives.train['n04266014'][0]
    path = archives.folder / 'boxes.csv'
    path.write_bytes(f'{header}{name},0.25,0.25,0.75,0.5\n'.replace('\n', '\r\n').encode('utf-8-sig'))
    convert(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert stored(tmp_path / 'out', records.TRAIN)[name].boxes == [(0.25, 0.25, 0.75, 0.5)]


def test_texts__may_begin_with_a_byte_order_mark(archives: Archives, tmp_path: pathlib.Path) -> None:
    names = ''.join(f'{synset}\t{text}\n' for synset, text in TEXTS.items())
    (archives.folder / 'names.txt').write_bytes(names.encode('utf-8-sig'))
    labels = archives.folder / 'synsets.txt'
    labels.write_bytes(labels.read_text().encode('utf-8-sig'))
    convert(archives, tmp_path / 'out', validation_labels='synsets.txt', synset_names='names.txt')
    convert(archives, tmp_path / 'of the kit')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'of the kit')


@pytest.mark.parametrize('row', ['n1.JPEG,10,20,30,40', 'n1.JPEG,0.1,0.2,0.3', 'n1.JPEG,a,b,c,d', 'n1,0,nan,1,1'])
def test_csv__invalid_boxes_are_refused(archives: Archives, tmp_path: pathlib.Path, row: str) -> None:
    path = archives.folder / 'boxes.csv'
    path.write_text(f'n01440764_1.JPEG,0.1,0.2,0.3,0.4\n{row}\n')
    message = refusal(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert message.startswith(f"{path}, line 2: '{row}' is ")


@pytest.mark.parametrize(
    ('content', 'expected'),
    [
        (b'', ': no bounding boxes. It must have lines filename,xmin,ymin,xmax,ymax.'),
        (
            b'filename,xmin,ymin,xmax,ymax\n\n',
            ': no bounding boxes. It must have lines filename,xmin,ymin,xmax,ymax.',
        ),
        (b'n1.JPEG,0,0,1,1\rn2.JPEG,0,0,1,1\r', ', line 1: not CSV (new-line character seen in unquoted field'),
        # The rest of the message depends on the version of Python: from 3.11, its module csv accepts NUL.
        (b'n1.JPEG,0,0,1,1\nn2.JPEG,0,0,1,\x00\n', ', line 2: '),
        ('n1.JPEG,0,0,1,1\n'.encode('utf-16-le'), ', line 1: '),
        ('n1.JPEG,0,0,1,1\n'.encode('utf-16'), ': not a text file.'),
    ],
)
def test_csv__empty_or_not_text_is_refused(
    archives: Archives, tmp_path: pathlib.Path, content: bytes, expected: str
) -> None:
    path = archives.folder / 'boxes.csv'
    path.write_bytes(content)
    message = refusal(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert message.startswith(f'{path}{expected}')


def test_annotation_in_an_unknown_encoding__is_left_out(archives: Archives, tmp_path: pathlib.Path) -> None:
    name, _ = archives.train['n01440764'][0]
    sound = imagenet_archives.annotation('n01440764', [(8, 6, 40, 30)])
    files = [(f'{name[:-5]}.xml', sound), ('strange.xml', b'<?xml version="1.0" encoding="utf8x"?>' + sound)]
    path = archives.folder / 'boxes.tgz'
    path.write_bytes(imagenet_archives.tar(files, 'w:gz'))
    said = convert(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert said[0] == '1 annotations are invalid, and are left out: strange.xml (unknown encoding: utf8x)'
    np.testing.assert_allclose(stored(tmp_path / 'out', records.TRAIN)[name].boxes, [(0.1, 0.1, 0.5, 0.5)], atol=1e-7)


@pytest.mark.parametrize('place', ['boxes.tar', 'folder'])
def test_annotations__may_have_upper_case_endings(archives: Archives, tmp_path: pathlib.Path, place: str) -> None:
    name, _ = archives.train['n01440764'][0]
    path, inside = archives.folder / place, f'n01440764/{name[:-5]}.XML'
    content = imagenet_archives.annotation('n01440764', [(8, 6, 40, 30)])
    if place == 'folder':
        (path / 'n01440764').mkdir(parents=True)
        (path / inside).write_bytes(content)
    else:
        path.write_bytes(imagenet_archives.tar([(inside, content)]))
    convert(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    np.testing.assert_allclose(stored(tmp_path / 'out', records.TRAIN)[name].boxes, [(0.1, 0.1, 0.5, 0.5)], atol=1e-7)
