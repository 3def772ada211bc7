"""ImageNet's archives as record files: small ones of the real shape, through Beam's own processes."""

import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from data import dataset_info, records
from data.fingerprint import SplitFingerprint, fingerprint
from data.imagenet import __main__ as imagenet
from data.imagenet import source as imagenet_source
from data.imagenet.plan import Source
from data.record_checker import RecordChecker
from preprocessing.decoding import decode_image
from tests.data.imagenet import archives as imagenet_archives
from tests.data.imagenet.archives import LABELS, TEXTS, Archives
from tests.data.imagenet.conversion import SHARDS, convert, convert_here, files_of

SPLITS = (records.TRAIN, records.VALIDATION)


class Stored(NamedTuple):
    """What a record says of its image."""

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
        for serialized in tf.compat.v1.io.tf_record_iterator(path):
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
        [sys.executable, '-m', 'data.imagenet', str(data_dir), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        **others,
    )


def refusal(archives: Archives, data_dir: pathlib.Path, **options: Any) -> str:
    with pytest.raises(records.DataError) as error:
        convert(archives, data_dir, **options)
    return str(error.value)


@pytest.fixture
def archives(tmp_path: pathlib.Path) -> Archives:
    return imagenet_archives.make(tmp_path / 'in')


# What comes out.


def test_the_command_converts_the_archives_on_beam(archives: Archives, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / 'out' / 'records'
    done = run_imagenet(data_dir, *archives.arguments(), '--train_shards=3', '--validation_shards=2', '--processes=2')
    assert (done.returncode, done.stdout) == (0, '')
    assert done.stderr.endswith(f'24 training and 8 validation images of 4 classes in {data_dir}\n')
    # Nothing but what it has to say: no warnings of other packages, no tracebacks.
    assert len(done.stderr.split('\n')) == 5, done.stderr
    for split, images in zip(SPLITS, (24, 8)):
        assert len(records.find_shards(str(data_dir), split)) == SHARDS[split]
        assert len(stored(data_dir, split)) == images
    # Beam or not, the files are the same.
    convert(archives, tmp_path / 'here')
    assert files_of(data_dir) == files_of(tmp_path / 'here')
    again = run_imagenet(data_dir, *archives.arguments(), '--train_shards=3', '--validation_shards=2')
    assert (again.returncode, again.stderr) == (0, f'{data_dir}: already finished\n')


def test_every_image_comes_out_once_with_its_class(archives: Archives, tmp_path: pathlib.Path) -> None:
    said = convert(archives, tmp_path / 'out')
    found = {split: stored(tmp_path / 'out', split) for split in SPLITS}
    assert {*found['train']} == {name for images in archives.train.values() for name, _ in images}
    assert {*found['validation']} == {name for name, _ in archives.validation}
    disguised = {
        name for images in archives.train.values() for name, _ in images[:2] if images is archives.train['n02123045']
    }
    for name, image in [*found['train'].items(), *found['validation'].items()]:
        synset = archives.synset(name)
        assert (image.label, image.synset, image.text) == (LABELS[synset], synset, TEXTS[synset])
        assert image.size == PIL.Image.open(io.BytesIO(archives.images[name])).size
        assert (image.encoded == archives.images[name]) == (name not in disguised)
        assert not image.boxes
    cmyk, png = (name for name, _ in archives.train['n02123045'][:2])
    assert said[:2] == [
        f'1 CMYK images were converted to RGB JPEG files: {cmyk}',
        f'1 PNG images were converted to RGB JPEG files: {png}',
    ]


def test_converted_images_look_as_they_did(archives: Archives, tmp_path: pathlib.Path) -> None:
    convert(archives, tmp_path / 'out')
    found = stored(tmp_path / 'out', records.TRAIN)
    for name, _ in archives.train['n02123045'][:2]:
        image = PIL.Image.open(io.BytesIO(found[name].encoded))
        assert (image.format, image.mode) == ('JPEG', 'RGB')
        before = np.array(PIL.Image.open(io.BytesIO(archives.images[name])).convert('RGB'), np.float32)
        # PNG: what JPEG of quality 100 with halved chroma loses; CMYK: with two programs' ways to RGB.
        assert np.abs(np.array(image, np.float32) - before).mean() < 3
    grey = archives.train['n02123045'][2][0]
    assert PIL.Image.open(io.BytesIO(found[grey].encoded)).mode == 'L'


def test_the_description_has_names_counts_and_the_fingerprint(archives: Archives, tmp_path: pathlib.Path) -> None:
    convert(archives, tmp_path / 'out')
    sums = []
    for split in SPLITS:
        total = 0
        images = stored(tmp_path / 'out', split).values()
        for image in images:
            total += int(hashlib.sha256(b'%d %s' % (image.label, image.encoded)).hexdigest(), 16)
        sums.append(SplitFingerprint(len(images), total % 2**256))
    info = dataset_info.read(str(tmp_path / 'out'))
    assert info == dataset_info.DatasetInfo(
        name='imagenet',
        source='ImageNet-2012 (ILSVRC2012), classification and localization',
        train_images=24,
        validation_images=8,
        num_classes=5,
        class_names=['background', 'tench, Tinca tinca', 'tabby, tabby cat', 'space shuttle', 'espresso'],
        fingerprint=fingerprint(*sums),
    )
    assert sorted(os.listdir(tmp_path / 'out')) == sorted(
        ['conversion.json', 'dataset.json', *files_of(tmp_path / 'out')]
    )


def test_training_can_use_every_record(archives: Archives, tmp_path: pathlib.Path) -> None:
    names = [images[3][0] for images in archives.train.values()]
    files = [
        (f'{name[:9]}/{name[:-5]}.xml', imagenet_archives.annotation(name[:9], [(-9, 0, 99, 70)])) for name in names
    ]
    (archives.folder / 'boxes.tgz').write_bytes(imagenet_archives.tar(files, 'w:gz'))
    convert(archives, tmp_path / 'out', bounding_boxes=[str(archives.folder / 'boxes.tgz')])
    checker = RecordChecker(5, decode_image)
    paths = [path for split in SPLITS for path in records.find_shards(str(tmp_path / 'out'), split)]
    assert [*checker.search(paths, print)] == []
    checker.close()


def test_shards_are_even_mixed_and_the_same_whatever_the_order(archives: Archives, tmp_path: pathlib.Path) -> None:
    large = imagenet_archives.make(tmp_path / 'large', per_class=30)
    convert(large, tmp_path / 'out', shards={records.TRAIN: 7, records.VALIDATION: 100})
    counts = []
    for path in records.find_shards(str(tmp_path / 'out'), records.TRAIN):
        examples = [tf.train.Example.FromString(s) for s in tf.compat.v1.io.tf_record_iterator(path)]
        labels = [example.features.feature['image/class/label'].int64_list.value[0] for example in examples]
        assert {*labels} == {1, 2, 3, 4}
        assert labels != sorted(labels)
        counts.append(len(labels))
    assert sorted(counts) == [17] * 6 + [18]
    assert len(records.find_shards(str(tmp_path / 'out'), records.VALIDATION)) == 8, 'none is empty'
    reversed_train = {synset: images[::-1] for synset, images in reversed(list(large.train.items()))}
    backwards = large._replace(folder=tmp_path / 'backwards', train=reversed_train).write()
    convert(backwards, tmp_path / 'again', shards={records.TRAIN: 7, records.VALIDATION: 100})
    assert files_of(tmp_path / 'again') == files_of(tmp_path / 'out')


@pytest.mark.parametrize('labels', ['synsets.txt', 'ILSVRC2012_devkit_t12', None])
def test_folders_and_archives_make_the_same_files(
    archives: Archives, tmp_path: pathlib.Path, labels: Optional[str]
) -> None:
    names = ''.join(f'{synset}\t{text}\n' for synset, text in TEXTS.items())
    (archives.folder / 'imagenet_metadata.txt').write_text(names)
    convert(archives, tmp_path / 'from archives')
    archives.extract(archives.folder)
    kit = archives.folder / 'ILSVRC2012_devkit_t12.tar.gz'
    subprocess.run(['tar', 'xf', str(kit), '-C', str(archives.folder)], check=True)
    validation = 'val'
    if labels is None:
        for name, _ in archives.validation:
            (archives.folder / 'sorted' / archives.synset(name)).mkdir(parents=True, exist_ok=True)
            (archives.folder / 'val' / name).rename(archives.folder / 'sorted' / archives.synset(name) / name)
        validation = 'sorted'
    options: Dict[str, Any] = {}
    if labels != 'ILSVRC2012_devkit_t12':
        options['synset_names'] = 'imagenet_metadata.txt'
    convert(
        archives, tmp_path / 'from folders', train='train', validation=validation, validation_labels=labels, **options
    )
    assert files_of(tmp_path / 'from folders') == files_of(tmp_path / 'from archives')


def test_without_names_the_synsets_are_the_names(archives: Archives, tmp_path: pathlib.Path) -> None:
    convert(archives, tmp_path / 'out', validation_labels='synsets.txt')
    info = dataset_info.read(str(tmp_path / 'out'))
    assert info and info.class_names == ['background', *sorted(LABELS)]


# Bounding boxes.


def test_boxes_are_ordered_clipped_and_of_the_class(archives: Archives, tmp_path: pathlib.Path) -> None:
    first, second, third = (name[:-5] for name, _ in archives.train['n01440764'][:3])
    validation = 'ILSVRC2012_val_00000001'
    synset = archives.synset(f'{validation}.JPEG')
    annotation = imagenet_archives.annotation
    train = [
        (f'n01440764/{first}.xml', annotation('n01440764', [(8, 6, 40, 30), (40, 45, 20, 15), (-8, 6, 100, 60)])),
        # Some dogs are called by their name, and not by their synset.
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
def test_csv_as_excel_writes_it(archives: Archives, tmp_path: pathlib.Path, header: str) -> None:
    name, _ = archives.train['n04266014'][0]
    path = archives.folder / 'boxes.csv'
    path.write_bytes(f'{header}{name},0.25,0.25,0.75,0.5\n'.replace('\n', '\r\n').encode('utf-8-sig'))
    convert(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert stored(tmp_path / 'out', records.TRAIN)[name].boxes == [(0.25, 0.25, 0.75, 0.5)]


def test_texts_may_begin_with_a_mark_of_their_encoding(archives: Archives, tmp_path: pathlib.Path) -> None:
    names = ''.join(f'{synset}\t{text}\n' for synset, text in TEXTS.items())
    (archives.folder / 'names.txt').write_bytes(names.encode('utf-8-sig'))
    labels = archives.folder / 'synsets.txt'
    labels.write_bytes(labels.read_text().encode('utf-8-sig'))
    convert(archives, tmp_path / 'out', validation_labels='synsets.txt', synset_names='names.txt')
    convert(archives, tmp_path / 'of the kit')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'of the kit')


@pytest.mark.parametrize('row', ['n1.JPEG,10,20,30,40', 'n1.JPEG,0.1,0.2,0.3', 'n1.JPEG,a,b,c,d', 'n1,0,nan,1,1'])
def test_csv_that_is_no_boxes_is_refused(archives: Archives, tmp_path: pathlib.Path, row: str) -> None:
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
        (
            b'n1.JPEG,0,0,1,1\nn2.JPEG,0,0,1,\x00\n',
            ', line 2: not CSV (line contains NUL',
        ),
        (
            'n1.JPEG,0,0,1,1\n'.encode('utf-16-le'),
            ', line 1: not CSV (line contains NUL',
        ),
        ('n1.JPEG,0,0,1,1\n'.encode('utf-16'), ': not a text file.'),
    ],
)
def test_csv_that_is_no_text_or_empty_is_refused(
    archives: Archives, tmp_path: pathlib.Path, content: bytes, expected: str
) -> None:
    path = archives.folder / 'boxes.csv'
    path.write_bytes(content)
    message = refusal(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert message.startswith(f'{path}{expected}')


def test_an_annotation_in_an_unknown_encoding_is_unusable(archives: Archives, tmp_path: pathlib.Path) -> None:
    name, _ = archives.train['n01440764'][0]
    sound = imagenet_archives.annotation('n01440764', [(8, 6, 40, 30)])
    files = [(f'{name[:-5]}.xml', sound), ('strange.xml', b'<?xml version="1.0" encoding="utf8x"?>' + sound)]
    path = archives.folder / 'boxes.tgz'
    path.write_bytes(imagenet_archives.tar(files, 'w:gz'))
    said = convert(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert said[0] == '1 annotations are invalid, and are left out: strange.xml (unknown encoding: utf8x)'
    np.testing.assert_allclose(stored(tmp_path / 'out', records.TRAIN)[name].boxes, [(0.1, 0.1, 0.5, 0.5)], atol=1e-7)


@pytest.mark.parametrize('place', ['boxes.tar', 'folder'])
def test_annotations_may_end_in_capitals(archives: Archives, tmp_path: pathlib.Path, place: str) -> None:
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


# What is refused, before anything is converted.


def test_other_counts_than_imagenets_are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    message = refusal(archives, tmp_path / 'out', expected=imagenet.IMAGES)
    assert message == (
        f'--train={archives.folder}/ILSVRC2012_img_train.tar: has 24 images; 1,281,167 are expected. If this number '
        'is right, pass --train_images=24.'
    )
    # Nothing of it is in the way of another try.
    convert(archives, tmp_path / 'out')


def cut(path: pathlib.Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def test_archives_cut_short_or_damaged_are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    path = archives.folder / 'ILSVRC2012_img_train.tar'
    whole = path.read_bytes()
    cut(path, len(whole) // 2)
    assert f'{path}: is truncated in n0' in refusal(archives, tmp_path / 'out')
    damaged = bytearray(whole)
    second = whole.index(archives.train['n02123045'][1][0].encode())
    damaged[second + 100] ^= 0x55
    path.write_bytes(damaged)
    assert f'{path}: damaged, or not an uncompressed tar archive (no valid header at byte {second:,})' in refusal(
        archives, tmp_path / 'out'
    )
    path.write_bytes(b'<html>404</html>' * 100)
    assert f'{path}: damaged, or not an uncompressed tar archive' in refusal(archives, tmp_path / 'out')


@pytest.mark.parametrize('size', [-512, -1024, -1536, -1, -100000])
def test_a_size_below_nothing_is_damage(archives: Archives, tmp_path: pathlib.Path, size: int) -> None:
    path = archives.folder / 'ILSVRC2012_img_val.tar'
    whole = path.read_bytes()
    place = whole.index(archives.validation[3][0].encode())
    path.write_bytes(imagenet_archives.with_size(whole, place, size))
    assert refusal(archives, tmp_path / 'out') == (
        f'{path}: damaged, or not an uncompressed tar archive (the header at byte {place:,} claims a size of '
        f'{size:,} bytes). Download it again.'
    )


def test_images_without_the_end_of_their_archive_are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    path = archives.folder / 'ILSVRC2012_img_val.tar'
    place = path.read_bytes().index(archives.validation[3][0].encode())
    cut(path, place)
    assert f'(no valid header at byte {place:,})' in refusal(archives, tmp_path / 'out')


# What makes a header that extends another one, a long name's or POSIX's, and what holds pieces of a file with holes.
@pytest.mark.parametrize('kind', [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.GNUTYPE_SPARSE])
@pytest.mark.parametrize('size', [-512, -(2**40), 2**62])
def test_a_size_that_no_member_can_have_is_damage(
    archives: Archives, tmp_path: pathlib.Path, kind: bytes, size: int
) -> None:
    whole = imagenet_archives.tar([('n01440764/n01440764_1.xml', imagenet_archives.annotation('n01440764', []))] * 3)
    place = whole.index(b'n01440764/', 512)
    changed = imagenet_archives.with_size(whole[: place + 156] + kind + whole[place + 157 :], place, size)
    for name, content in (('boxes.tar', changed), ('boxes.tar.gz', gzip.compress(changed))):
        (archives.folder / name).write_bytes(content)
        message = refusal(archives, tmp_path / 'out', bounding_boxes=[str(archives.folder / name)])
        assert message.startswith(f'{archives.folder / name}: damaged, or not a tar archive (')


def with_pax(size: int) -> bytes:
    """An archive of annotations, the second of whose headers is extended by one that says a size."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode='w', format=tarfile.PAX_FORMAT) as archive:
        for number in range(3):
            member = tarfile.TarInfo(f'{number}.xml')
            member.pax_headers = {'size': str(size)} if number == 1 else {}
            archive.addfile(member)
    return content.getvalue()


def header_damaged(archive: bytes) -> bytes:
    return flipped(archive, archive.index(b'n01440764_3') + 3)


def cut_at_a_header(archive: bytes) -> bytes:
    return archive[: archive.index(b'n01440764/n01440764_3')]


def with_another_corner(archive: bytes) -> bytes:
    """Compressed, with another number in the middle, of which the checksum alone tells."""
    stored = gzip.compress(archive, 0)
    return stored.replace(b'<xmin>3</xmin>', b'<xmin>9</xmin>')


@pytest.mark.parametrize(
    ('name', 'damage', 'expected'),
    [
        ('boxes.tar', header_damaged, 'no valid header at byte '),
        ('boxes.tgz', lambda archive: gzip.compress(header_damaged(archive)), 'no valid header at byte '),
        ('boxes.tar', cut_at_a_header, 'no valid header at byte '),
        ('boxes.tgz', lambda archive: gzip.compress(cut_at_a_header(archive)), 'no valid header at byte '),
        ('boxes.tar', lambda archive: archive[: archive.index(b'</annotation>')], 'unexpected end of data'),
        ('boxes.tgz', lambda archive: flipped(gzip.compress(archive), -6), 'CRC check failed'),
        ('boxes.tgz', with_another_corner, 'CRC check failed'),
        ('boxes.tgz', lambda archive: gzip.compress(archive)[:-8], 'Compressed file ended before'),
        ('boxes.tgz', lambda archive: lzma.compress(archive)[:-40], 'Compressed file ended before'),
        ('boxes.tgz', lambda archive: flipped(lzma.compress(archive, preset=0), -100), 'could not be opened'),
        ('boxes.tar', lambda archive: with_pax(-512), 'claims a size of -512 bytes'),
        ('boxes.tar', lambda archive: with_pax(2**70), 'bytes'),
        ('boxes.tar', lambda archive: b'', 'could not be opened'),
    ],
)
def test_boxes_of_a_damaged_archive_are_refused(
    archives: Archives, tmp_path: pathlib.Path, name: str, damage: Any, expected: str
) -> None:
    train = archives.train['n01440764']
    boxes = [imagenet_archives.annotation('n01440764', [(number, 2, 30, 40)]) for number in range(6)]
    files = [(f'n01440764/n01440764_{number}.xml', content) for number, content in enumerate(boxes)]
    sound = imagenet_archives.tar(files)
    path = archives.folder / name
    path.write_bytes(sound)
    assert len([*imagenet_source.read_boxes(str(path), [])]) == len(train) == 6
    path.write_bytes(damage(sound))
    message = refusal(archives, tmp_path / 'out', bounding_boxes=[str(path)])
    assert message.startswith(f'{path}: damaged, or not a tar archive (') and expected in message


def test_a_development_kit_is_read_to_its_checksum(archives: Archives, tmp_path: pathlib.Path) -> None:
    path = archives.folder / 'ILSVRC2012_devkit_t12.tar.gz'
    path.write_bytes(flipped(path.read_bytes(), -6))
    assert refusal(archives, tmp_path / 'out').startswith(f'{path}: damaged, or not a tar archive (CRC check failed')


@pytest.mark.parametrize(
    ('content', 'expected'),
    [
        ('n01440764\n' * 7, 'has labels for 7 images; there are 8.'),
        ('n01440764\n' * 7 + 'tench', "line 8: 'tench' is not a synset, such as n01440764."),
        (
            '490\n' * 8,
            "line 1: '490' is not a synset, such as n01440764. Numbers need the development kit",
        ),
        ('n01440764\n' * 7 + 'n00000001', '1 classes of validation images have no training images: n00000001.'),
    ],
)
def test_wrong_validation_labels_are_refused(
    archives: Archives, tmp_path: pathlib.Path, content: str, expected: str
) -> None:
    (archives.folder / 'labels.txt').write_text(content)
    assert expected in refusal(archives, tmp_path / 'out', validation_labels='labels.txt')


GROUND_TRUTH, META = 'data/ILSVRC2012_validation_ground_truth.txt', 'data/meta.mat'
# The header of MATLAB's files, whose version 7.3 is HDF5.
META_7_3 = b'MATLAB 7.3 MAT-file'.ljust(124) + b'\x00\x02IM'


def flipped(content: bytes, place: int) -> bytes:
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


@pytest.mark.parametrize(
    ('name', 'damage', 'expected'),
    [
        (META, lambda meta: meta[: len(meta) // 2], '(could not read bytes)'),
        (META, lambda meta: b'', '(Mat file appears to be empty)'),
        (META, lambda meta: flipped(meta, 200), '(Error -3 while decompressing data: '),
        (META, lambda meta: META_7_3, '(Please use HDF reader for matlab v7.3 files)'),
        (META, lambda meta: b'<html>404</html>' * 100, '(Unknown mat file type, '),
        (
            GROUND_TRUTH,
            lambda numbers: b'\xff\xfe' + numbers,
            'is not a text with a number per image. Download it again.',
        ),
    ],
)
def test_a_damaged_development_kit_is_refused(
    archives: Archives, tmp_path: pathlib.Path, name: str, damage: Any, expected: str, monkeypatch: Any, capsys: Any
) -> None:
    path = archives.folder / 'ILSVRC2012_devkit_t12.tar.gz'
    with tarfile.open(str(path)) as archive:
        kit = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    changed = f'ILSVRC2012_devkit_t12/{name}'
    path.write_bytes(imagenet_archives.tar({**kit, changed: damage(kit[changed])}.items(), 'w:gz'))
    monkeypatch.setattr(sys, 'argv', ['imagenet', *archives.arguments(), str(tmp_path / 'out')])
    assert imagenet.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f'error: {path}: {name} in it is ') and expected in line


def test_a_gap_among_the_validation_images_is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    fewer = archives._replace(validation=[image for image in archives.validation if '003' not in image[0]]).write()
    message = refusal(fewer, tmp_path / 'out')
    assert 'ILSVRC2012_val_00000004.JPEG is where ILSVRC2012_val_00000003.JPEG should be' in message


def test_an_image_that_is_there_twice_is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    images = archives.train['n01440764']
    name, _ = images[3]
    # As `tar -r` adds another version of a file.
    twice = archives._replace(train={**archives.train, 'n01440764': [*images, (name, images[4][1])]}).write()
    path = archives.folder / 'ILSVRC2012_img_train.tar'
    assert refusal(twice, tmp_path / 'out') == (
        f'--train={path}: {name} exists more than once among the images of n01440764: in {path}. Keep one, in a '
        'folder or an archive without the others.'
    )
    # An archive beside what was unpacked of it.
    archives.write().extract(archives.folder)
    beside = archives.folder / 'train' / 'n01440764.tar'
    beside.write_bytes(imagenet_archives.tar([images[3]]))
    message = refusal(archives, tmp_path / 'out', train='train', validation='val')
    assert f'in {beside} and {archives.folder / "train" / "n01440764" / name}. Keep one' in message
    # In another class it is another image.
    of_two = {'n01440764': [('1.JPEG', images[3][1])], 'n02123045': [('1.JPEG', images[4][1])]}
    of_two = {synset: [*archives.train[synset], *of_two.get(synset, [])] for synset in archives.train}
    archives._replace(train=of_two).write()
    assert 'has 26 images; 24 are expected' in refusal(archives, tmp_path / 'out')


def test_what_is_not_there_is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    for name in ('train', 'validation', 'validation_labels', 'synset_names'):
        message = refusal(archives, tmp_path / 'out', **{name: 'nowhere'})
        assert message.startswith(f'{archives.folder / "nowhere"}: ')
    assert '--validation_labels: is required' in refusal(archives, tmp_path / 'out', validation_labels=None)
    (tmp_path / 'thesis').mkdir()
    (tmp_path / 'thesis' / 'thesis.txt').touch()
    assert refusal(archives, tmp_path / 'thesis') == f'{tmp_path / "thesis"}: exists already. Name a new folder.'


def test_remote_archives_are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    source = Source('gs://bucket/train.tar', 'gs://bucket/val.tar', str(archives.folder / 'synsets.txt'))
    with pytest.raises(records.DataError, match=r'gs://bucket/train\.tar: remote archives are not supported'):
        imagenet.convert(source, str(tmp_path / 'out'), SHARDS, imagenet.IMAGES, convert_here, print)


def test_files_that_are_no_images_are_named(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    (archives.folder / 'train' / 'n01440764' / 'notes.txt').touch()
    (archives.folder / 'val' / '.DS_Store').touch()
    said = convert(archives, tmp_path / 'out', train='train', validation='val')
    assert said[0].startswith('2 files are not images, and are left out: ')
    assert 'n01440764/notes.txt' in said[0] and 'val/.DS_Store' in said[0]


# What is finished is kept.


def some_of(shards: Sequence[str], data_dir: str, work_dir: str) -> None:
    """A conversion that is stopped half-way."""
    convert_here(shards[:2], data_dir, work_dir)
    raise KeyboardInterrupt


def test_a_stopped_conversion_goes_on(archives: Archives, tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(archives, tmp_path / 'out', run=some_of)
    finished = {name: (tmp_path / 'out' / name).stat() for name in files_of(tmp_path / 'out')}
    assert len(finished) == 2
    assert not (tmp_path / 'out' / 'dataset.json').exists()
    said = convert(archives, tmp_path / 'out')
    assert said[0] == '2 of 5 record files are already finished'
    for name, before in finished.items():
        assert (tmp_path / 'out' / name).stat().st_mtime_ns == before.st_mtime_ns
    convert(archives, tmp_path / 'at once')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'at once')
    for name in ('dataset.json', 'conversion.json'):
        assert (tmp_path / 'out' / name).read_text() == (tmp_path / 'at once' / name).read_text()


@pytest.mark.parametrize(
    ('name', 'length'),
    [
        ('train-00000-of-00003', 1000),
        ('conversion/train-00000-of-00003.report', 0),
        ('conversion/train-00000-of-00003.report', 1),
        ('conversion/train-00000-of-00003.report', 50),
    ],
)
def test_a_finished_file_that_was_cut_short_is_made_again(
    archives: Archives, tmp_path: pathlib.Path, name: str, length: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(archives, tmp_path / 'out', run=some_of)
    cut(tmp_path / 'out' / name, length)
    said = convert(archives, tmp_path / 'out')
    assert said[0] == '1 of 5 record files are already finished'
    convert(archives, tmp_path / 'at once')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'at once')


def test_going_on_with_something_else_is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(archives, tmp_path / 'out', run=some_of)
    message = refusal(archives, tmp_path / 'out', shards={records.TRAIN: 5, records.VALIDATION: 2})
    assert f'{tmp_path / "out"}: was begun with other settings: --train_shards was 3, and is 5.' in message
    assert '--validation_labels was ' in refusal(archives, tmp_path / 'out', validation_labels='synsets.txt')
    # Of the same length, and another.
    labels = archives.folder / 'synsets.txt'
    convert(archives, tmp_path / 'labelled', validation_labels='synsets.txt')
    labels.write_text('\n'.join(reversed(labels.read_text().split())) + '\n')
    assert '--validation_labels was ' in refusal(archives, tmp_path / 'labelled', validation_labels='synsets.txt')


def test_unreadable_images_are_named_and_can_be_mended(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    name, content = archives.train['n07920052'][0]
    path = archives.folder / 'train' / 'n07920052' / name
    path.write_bytes(content[: len(content) // 2])
    options: Dict[str, Any] = {'train': 'train', 'validation': 'val'}
    message = refusal(archives, tmp_path / 'out', **options)
    assert '23 train images were written, and not 24: ' in message and '--train_images=23' in message
    assert f': 1 cannot be decoded, {path}. Mend' in message
    assert len(files_of(tmp_path / 'out')) == 5
    # Go without it ...
    expected = {records.TRAIN: 23, records.VALIDATION: 8}
    copy_tree(tmp_path / 'out', tmp_path / 'without')
    said = convert(archives, tmp_path / 'without', expected=expected, **options)
    assert said[0] == '4 of 5 record files are already finished'
    assert name not in stored(tmp_path / 'without', records.TRAIN)
    # ... or mend it.
    path.write_bytes(content)
    said = convert(archives, tmp_path / 'out', **options)
    assert said[0] == '4 of 5 record files are already finished'
    assert stored(tmp_path / 'out', records.TRAIN)[name].encoded == content


def copy_tree(source: pathlib.Path, target: pathlib.Path) -> None:
    subprocess.run(['cp', '-r', str(source), str(target)], check=True)


def test_an_image_that_is_gone_ends_it_and_what_is_finished_stays(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    name = archives.validation[0][0]

    def without(shards: Sequence[str], data_dir: str, work_dir: str) -> None:
        (archives.folder / 'val' / name).rename(archives.folder / name)
        convert_here(shards, data_dir, work_dir)

    message = refusal(archives, tmp_path / 'out', train='train', validation='val', run=without)
    assert re.search(rf'validation-0000\d-of-00002 was not made: {archives.folder}/val/{name}: cannot be read', message)
    assert len(files_of(tmp_path / 'out')) in (3, 4)
    (archives.folder / name).rename(archives.folder / 'val' / name)
    convert(archives, tmp_path / 'out', train='train', validation='val')
    assert len(stored(tmp_path / 'out', records.VALIDATION)) == 8


def test_a_full_disk_is_a_message_and_leaves_no_half_files(archives: Archives, tmp_path: pathlib.Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(shards: Sequence[str], data_dir: str, work_dir: str) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, hard))
        try:
            convert_here(shards, data_dir, work_dir)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    message = refusal(archives, tmp_path / 'out', shards={records.TRAIN: 1, records.VALIDATION: 8}, run=limited)
    assert message.startswith('train-00000-of-00001 was not made: ') and 'File too large' in message
    assert not [name for name in os.listdir(tmp_path / 'out' / 'conversion') if name.endswith('unfinished')]
    convert(archives, tmp_path / 'out', shards={records.TRAIN: 1, records.VALIDATION: 8})
    assert len(stored(tmp_path / 'out', records.TRAIN)) == 24


def wait_for_reports(work_dir: pathlib.Path, count: int, process: 'subprocess.Popen[str]') -> None:
    deadline = time.monotonic() + 120
    while len([*work_dir.glob('*.report')]) < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize('sent', [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_leaves_nothing_running_and_goes_on(tmp_path: pathlib.Path, sent: signal.Signals) -> None:
    archives = imagenet_archives.make(tmp_path / 'in', per_class=250)
    arguments = [*archives.arguments(), '--train_shards=100', '--validation_shards=2', '--processes=2']
    data_dir = tmp_path / 'out'
    command = [sys.executable, '-m', 'data.imagenet', str(data_dir), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for_reports(data_dir / 'conversion', 5, process)
    process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (75 if sent == signal.SIGTERM else -signal.SIGKILL)
    assert 'Traceback' not in said
    time.sleep(1)
    finished = {name: (data_dir / name).stat().st_mtime_ns for name in files_of(data_dir)}
    assert 4 <= len(finished) < 102
    time.sleep(1)
    assert len(files_of(data_dir)) == len(finished), 'something still runs'
    done = run_imagenet(data_dir, *arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(r'^\d+ of 102 record files are already finished$', done.stderr, re.MULTILINE)
    kept = [name for name, when in finished.items() if (data_dir / name).stat().st_mtime_ns == when]
    # The last ones may have had their names and no reports.
    assert len(kept) >= len(finished) - 2
    assert {name for split in SPLITS for name in stored(data_dir, split)} == {*archives.images}


def children(pid: int) -> List[int]:
    return [int(line) for line in subprocess.run(['pgrep', '-P', str(pid)], stdout=subprocess.PIPE).stdout.split()]


@pytest.mark.slow
def test_a_killed_process_of_beams_ends_the_command(tmp_path: pathlib.Path) -> None:
    archives = imagenet_archives.make(tmp_path / 'in', per_class=250)
    arguments = [*archives.arguments(), '--train_shards=100', '--validation_shards=2', '--processes=2']
    command = [sys.executable, '-m', 'data.imagenet', str(tmp_path / 'out'), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for_reports(tmp_path / 'out' / 'conversion', 3, process)
    (beam,) = children(process.pid)
    shells = children(beam)
    assert len(shells) == 2
    # The shell may have become the worker.
    os.kill((children(shells[0]) or shells)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert 'Apache Beam failed: one of its processes was killed' in said
    assert 'Traceback' not in said
    assert not children(beam)


def test_two_at_a_time_are_one_too_many(archives: Archives, tmp_path: pathlib.Path) -> None:
    def meanwhile(shards: Sequence[str], data_dir: str, work_dir: str) -> None:
        assert 'in use by another conversion' in refusal(archives, tmp_path / 'out')
        convert_here(shards, data_dir, work_dir)

    convert(archives, tmp_path / 'out', run=meanwhile)
    assert len(stored(tmp_path / 'out', records.TRAIN)) == 24


@pytest.mark.slow
def test_another_runner_takes_the_same_command(archives: Archives, tmp_path: pathlib.Path) -> None:
    port_file = tmp_path / 'port'
    server = subprocess.Popen(
        [sys.executable, '-m', 'apache_beam.runners.portability.local_job_service_main', f'--port_file={port_file}'],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not port_file.exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        options = [f'--job_endpoint=localhost:{port_file.read_text()}', '--environment_type=LOOPBACK']
        arguments = [*archives.arguments(), '--train_shards=3', '--validation_shards=2', '--runner=PortableRunner']
        done = run_imagenet(tmp_path / 'out', *arguments, '--', *options)
    finally:
        server.terminate()
        server.wait()
    assert done.returncode == 0, done.stderr
    convert(archives, tmp_path / 'here')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'here')


# The command's own.


@pytest.mark.parametrize(
    ('option', 'expected'),
    [
        (['--train_shards=0'], '--train_shards'),
        (['--validation_images=-1'], '--validation_images'),
        (['--processes=0'], '--processes=0'),
        (['--runner=PortableRunner', '--processes=2'], '--processes=2'),
        (['--runner=Nonsense'], 'Unexpected pipeline runner: Nonsense'),
        (['--', '--nonsense=1'], 'Beam has no option --nonsense.'),
        (['--', '--direct_num_workers=x'], 'argument --direct_num_workers'),
    ],
)
def test_values_out_of_range_are_refused(
    archives: Archives, option: List[str], expected: str, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(sys, 'argv', ['imagenet', *archives.arguments(), str(archives.folder / 'out'), *option])
    with pytest.raises(SystemExit) as stopped:
        sys.exit(imagenet.main())
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err
    assert not (archives.folder / 'out').exists()


def test_what_is_not_installed_is_named(archives: Archives, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, 'argv', ['imagenet', *archives.arguments(), str(archives.folder / 'out')])
    for name in [name for name in sys.modules if name.partition('.')[0] == 'apache_beam'] or ['apache_beam']:
        monkeypatch.setitem(sys.modules, name, None)
    assert imagenet.main() == 2
    message = r"error: apache_beam is not installed: pip install '.\[data\]'.\n"
    assert re.fullmatch(message, capsys.readouterr().err)
