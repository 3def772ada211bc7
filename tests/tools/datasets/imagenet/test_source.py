"""The parts of ImageNet: their forms, and those that are refused because they are damaged or contradict each other."""

import functools
import gzip
import io
import json
import pathlib
import tarfile
from typing import Any, List

import numpy as np
import pytest

from data import dataset_info
from data.records import DataError
from tests.support.commands import run
from tests.support.tar_files import tar_of
from tests.tools.datasets.imagenet import archives as imagenet_archives
from tests.tools.datasets.imagenet.archives import (
    KIT,
    LABELS,
    TRAIN,
    VALIDATION,
    Archives,
    annotation,
    convert,
    refusal,
    stored,
)
from tools.datasets import archives as tar_archives
from tools.datasets.imagenet import __main__ as imagenet
from tools.datasets.imagenet import source as imagenet_source

GROUND_TRUTH, META = 'data/ILSVRC2012_validation_ground_truth.txt', 'data/meta.mat'
# The header of MATLAB's files of version 7.3, which are HDF5.
META_7_3 = b'MATLAB 7.3 MAT-file'.ljust(124) + b'\x00\x02IM'


def flipped(content: bytes, place: int) -> bytes:
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


def test_counts_and_parts_that_do_not_fit__are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    train, out = f'--train={archives.folder}/{TRAIN}', tmp_path / 'out'
    # The published numbers of files.
    assert imagenet.SHARDS == {'train': 1024, 'validation': 128}
    assert refusal(archives, out, expected=imagenet.IMAGES) == (
        f'{train}: has 24 images; 1,281,167 are expected. If this number is right, pass --train_images=24.'
    )
    for name in ('train', 'validation', 'validation_labels'):
        assert refusal(archives, out, **{name: 'nowhere'}).startswith(f'{archives.folder / "nowhere"}: ')
    nowhere = f'{archives.folder}/nowhere.tar'
    assert refusal(archives, out, train=nowhere) == f'{nowhere}: cannot be read: No such file or directory.'
    assert '--validation_labels: is required' in refusal(archives, out, validation_labels=None)
    with pytest.raises(DataError, match=r'gs://bucket/val\.tar: remote archives are not supported'):
        [*imagenet_source.find_images('gs://bucket/val.tar', [])]
    unseen = archives._replace(validation_synsets=['n00001740', *archives.validation_synsets[1:]]).write()
    assert refusal(unseen, out) == '1 classes of validation images have no training images: n00001740.'
    fewer = archives._replace(validation=[image for image in archives.validation if '003' not in image[0]]).write()
    assert 'ILSVRC2012_val_00000004.JPEG was found instead of ILSVRC2012_val_00000003.JPEG' in refusal(fewer, out)
    archives.write().extract(archives.folder)
    message = refusal(archives, out, train='val', validation='val', expected={'train': 8, 'validation': 8})
    assert 'ILSVRC2012_val_00000001.JPEG is in no folder or archive of a class, such as n01440764.' in message
    for place, (name, _) in enumerate(archives.validation):
        target = archives.folder / 'val' / archives.synset(name)
        target.mkdir(exist_ok=True)
        (archives.folder / 'val' / name).rename(target / name)
        if place + 1 < len(archives.validation):
            message = refusal(archives, out, train='train', validation='val')
            assert 'some images are in a folder per class, and some are not.' in message
    # The refused conversions leave nothing that prevents a retry, but other files do.
    for number in range(10):
        (archives.folder / 'train' / 'n01440764' / f'{number}.txt').touch()
    said = convert(archives, out, train='train', validation='val', validation_labels=None)
    info = dataset_info.read(str(out))
    assert info and info.class_names == ['background', *sorted(LABELS)]
    assert said[0].startswith('10 files are not images, and are left out: ')
    assert said[0].endswith('n01440764/2.txt and 7 more (all in conversion.json)')
    (tmp_path / 'thesis').mkdir()
    (tmp_path / 'thesis' / 'thesis.txt').touch()
    assert refusal(archives, tmp_path / 'thesis') == f'{tmp_path / "thesis"}: exists already. Name a new folder.'


def test_damaged_archives_of_images__are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    whole = (archives.folder / TRAIN).read_bytes()
    second = whole.index(archives.train['n02123045'][1][0].encode())
    for content, expected in (
        (whole[: len(whole) // 2], f'{TRAIN}: is truncated in n0'),
        (flipped(whole, second + 100), f'uncompressed tar archive (no valid header at byte {second:,})'),
        (b'<html>404</html>' * 100, 'damaged, or not an uncompressed tar archive'),
    ):
        (archives.folder / TRAIN).write_bytes(content)
        assert expected in refusal(archives, tmp_path / 'out')
    (archives.folder / TRAIN).write_bytes(whole)
    path = archives.folder / VALIDATION
    whole = path.read_bytes()
    place = whole.index(archives.validation[3][0].encode())
    for size in (-512, -1):
        path.write_bytes(imagenet_archives.with_size(whole, place, size))
        assert refusal(archives, tmp_path / 'out') == (
            f'{path}: damaged, or not an uncompressed tar archive (the header at byte {place:,} claims a size of '
            f'{size:,} bytes). Download it again.'
        )
    path.write_bytes(whole[:place])
    assert f'(no valid header at byte {place:,})' in refusal(archives, tmp_path / 'out')
    image = imagenet_source.Image(str(path), place - 9, 10, 'a.JPEG', '')
    with pytest.raises(DataError, match=r'became shorter during the conversion: a\.JPEG is missing'):
        imagenet_source.read(image)


def test_members__are_not_kept_in_memory() -> None:
    content = io.BytesIO(tar_of([(f'{number}.xml', b'') for number in range(3)]))
    found = [(member.name, [*archive.members]) for archive, member in tar_archives.members(content, 'r:')]  # type: ignore[attr-defined]
    assert found == [('0.xml', []), ('1.xml', []), ('2.xml', [])]


def with_pax(size: int) -> bytes:
    """An archive of annotations with a pax header that gives a size for the second member."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode='w', format=tarfile.PAX_FORMAT) as archive:
        for number in range(3):
            member = tarfile.TarInfo(f'{number}.xml')
            member.pax_headers = {'size': str(size)} if number == 1 else {}
            archive.addfile(member)
    return content.getvalue()


def with_type(kind: bytes, size: int, archive: bytes) -> bytes:
    """An archive whose second member is an extension header or a sparse file, with an impossible size."""
    place = archive.index(b'n01440764/', 512)
    return imagenet_archives.with_size(archive[: place + 156] + kind + archive[place + 157 :], place, size)


def cut_at_a_header(archive: bytes) -> bytes:
    return archive[: archive.index(b'n01440764/n01440764_3')]


def with_another_corner(archive: bytes) -> bytes:
    """A compressed archive with one changed digit in the middle, which only the checksum reveals."""
    return gzip.compress(archive, 0).replace(b'<xmin>3</xmin>', b'<xmin>9</xmin>')


@pytest.mark.parametrize(
    ('name', 'damage', 'expected'),
    [
        ('boxes.tar', lambda archive: flipped(archive, archive.index(b'n01440764_3') + 3), 'no valid header at byte '),
        ('boxes.tar', functools.partial(with_type, tarfile.GNUTYPE_LONGNAME, -512), 'a size of -512 bytes'),
        ('boxes.tar', functools.partial(with_type, tarfile.GNUTYPE_SPARSE, 512), 'n01440764_1.xml is sparse'),
        ('boxes.tar', functools.partial(with_type, tarfile.REGTYPE, (1 << 26) + 1), 'has 67,108,865 bytes'),
        ('boxes.tgz', lambda archive: gzip.compress(cut_at_a_header(archive)), 'no valid header at byte '),
        ('boxes.tar', lambda archive: archive[: archive.index(b'</annotation>')], 'unexpected end of data'),
        ('boxes.tgz', with_another_corner, 'CRC check failed'),
        ('boxes.tgz', lambda archive: gzip.compress(archive)[:-8], 'Compressed file ended before'),
        ('boxes.tar', lambda archive: with_pax(-512), 'claims a size of -512 bytes'),
    ],
)
def test_boxes_of_a_damaged_archive_are_refused(tmp_path: pathlib.Path, name: str, damage: Any, expected: str) -> None:
    boxes = [annotation('n01440764', [(number, 2, 30, 40)]) for number in range(6)]
    sound = tar_of([(f'n01440764/n01440764_{n}.xml', content) for n, content in enumerate(boxes)])
    path = tmp_path / name
    path.write_bytes(sound)
    assert len([*imagenet_source.read_boxes(str(path), [])]) == 6
    path.write_bytes(damage(sound))
    with pytest.raises(DataError) as error:
        [*imagenet_source.read_boxes(str(path), [])]
    assert str(error.value).startswith(f'{path}: damaged, or not a tar archive (') and expected in str(error.value)


def test_labels_in_a_text_file__are_those_of_the_kit(archives: Archives, tmp_path: pathlib.Path) -> None:
    labels = archives.folder / 'labels.txt'
    labels.write_text(''.join(f'{synset}\n' for synset in archives.validation_synsets))
    (archives.folder / 'kit.tar').write_bytes(gzip.decompress((archives.folder / KIT).read_bytes()))
    convert(archives, tmp_path / 'text', validation_labels=labels.name)
    convert(archives, tmp_path / 'kit')
    # Archives of images may have any names.
    (archives.folder / VALIDATION).rename(archives.folder / 'images')
    convert(archives, tmp_path / 'unzipped', validation='images', validation_labels='kit.tar')
    (archives.folder / 'images').rename(archives.folder / VALIDATION)
    found, expected, unzipped = (
        {name: image.label for name, image in stored(tmp_path / folder, 'validation').items()}
        for folder in ('text', 'kit', 'unzipped')
    )
    assert found == expected == unzipped
    info = dataset_info.read(str(tmp_path / 'text'))
    assert info and info.class_names == ['background', *sorted(LABELS)]
    images = [imagenet_source.Image('a', 0, None, f'ILSVRC2012_val_{n:08d}.jpg', '') for n in range(8, 0, -1)]
    labelled = imagenet_source.label_validation(images, str(labels))
    assert [each.synset for each in labelled] == archives.validation_synsets
    for text, message in (('490\n' * 8, '490 is not a synset'), ('n01440764\n' * 7, 'has labels for 7 images; there')):
        labels.write_text(text)
        assert message in refusal(archives, tmp_path / 'out', validation_labels=labels.name)


@pytest.mark.parametrize(
    ('name', 'damage', 'expected'),
    [
        (META, lambda meta: meta[: len(meta) // 2], 'damaged, or not that of ImageNet-2012 (could not read bytes)'),
        (META, lambda meta: META_7_3, '(Please use HDF reader for matlab v7.3 files'),
        (META, None, 'not the development kit of ImageNet-2012: data/meta.mat is not in it.'),
        (GROUND_TRUTH, lambda numbers: b'\xff\xfe' + numbers, 'data/meta.mat has no synset for the numbers '),
        (GROUND_TRUTH, lambda numbers: b'1\n2\n3\n9\n' * 2, 'data/meta.mat has no synset for the numbers 9 in'),
        (GROUND_TRUTH, lambda numbers: b'1\n' * 7, 'has labels for 7 images; there are 8.'),
        ('', lambda kit: flipped(kit, -6), 'damaged, or not a tar archive (CRC check failed'),
    ],
)
def test_other_development_kits_are_refused(
    archives: Archives, tmp_path: pathlib.Path, name: str, damage: Any, expected: str
) -> None:
    path = archives.folder / KIT
    if name:
        with tarfile.open(str(path)) as archive:
            kit = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
        content = kit.pop(f'ILSVRC2012_devkit_t12/{name}')
        changed = [(f'ILSVRC2012_devkit_t12/{name}', damage(content))] if damage else []
        path.write_bytes(tar_of([*kit.items(), *changed], mode='w:gz'))
    else:
        path.write_bytes(damage(path.read_bytes()))
    done = run(imagenet.main, *archives.arguments(), tmp_path / 'out')
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f'error: {path}: ') and expected in line


def test_duplicate_image__is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    images = archives.train['n01440764']
    name, _ = images[3]
    # As after `tar -r` with a file that is already in the archive.
    twice = archives._replace(train={**archives.train, 'n01440764': [*images, (name, images[4][1])]}).write()
    path = archives.folder / TRAIN
    assert refusal(twice, tmp_path / 'out') == (
        f'--train={path}: {name} exists more than once among the images of n01440764: in {path}. Keep only one.'
    )
    # An archive beside its unpacked files.
    archives.write().extract(archives.folder)
    beside = archives.folder / 'train' / 'n01440764.tar'
    beside.write_bytes(tar_of([images[3]]))
    message = refusal(archives, tmp_path / 'out', train='train', validation='val')
    assert f'in {beside} and {archives.folder / "train" / "n01440764" / name}. Keep only one.' in message
    # The same name in another class is another image.
    of_two = {'n01440764': [('1.JPEG', images[3][1])], 'n02123045': [('1.JPEG', images[4][1])]}
    of_two = {synset: [*archives.train[synset], *of_two.get(synset, [])] for synset in archives.train}
    archives._replace(train=of_two).write()
    assert 'has 26 images; 24 are expected' in refusal(archives, tmp_path / 'out')


def test_boxes_are_ordered_clipped_and_of_the_class(archives: Archives, tmp_path: pathlib.Path) -> None:
    first, second, third = (name[:-5] for name, _ in archives.train['n01440764'][:3])
    validation = 'ILSVRC2012_val_00000001'
    train = [
        (f'n01440764/{first}.xml', annotation('n01440764', [(8, 6, 40, 30), (40, 45, 20, 15), (-8, 6, 100, 60)])),
        # Some annotations of dogs have a word instead of the synset.
        (f'n01440764/{second}.xml', annotation('newfoundl', [(0, 0, 40, 60), (20, 5, 20, 30), (90, 5, 99, 30)])),
        (f'n01440764/{third}.xml', annotation('n02123045', [(0, 0, 40, 60)])),
        ('n01440764/n01440764_99999.xml', annotation('n01440764', [(0, 0, 40, 60)])),
        ('n01440764/n01440764_99998.xml', b'<annotation><size><width>0</width><height>0</height></size></annotation>'),
        ('n01440764/n01440764_99997.xml', b'<annota'),
        ('strange.xml', b'<?xml version="1.0" encoding="utf8x"?>' + annotation('n01440764', [])),
        ('infinite.xml', annotation('n01440764', [(1, 2, 30, 40)]).replace(b'<xmin>1<', b'<xmin>nan<')),
    ]
    (archives.folder / 'train.tar.gz').write_bytes(tar_of(train, mode='w:gz'))
    # A folder, and the ending in upper case.
    (archives.folder / 'boxes' / 'val').mkdir(parents=True)
    (archives.folder / 'boxes' / 'val' / f'{validation}.XML').write_bytes(
        annotation(archives.synset(f'{validation}.JPEG'), [(20, 15, 60, 45)])
    )
    paths = [str(archives.folder / name) for name in ('train.tar.gz', 'boxes')]
    said = convert(archives, tmp_path / 'out', bounding_boxes=paths)
    expected = {
        first: [(0.1, 0.1, 0.5, 0.5), (0.25, 0.25, 0.5, 0.75), (0.0, 0.1, 1.0, 1.0)],
        second: [(0.0, 0.0, 0.5, 1.0)],
        validation: [(0.25, 0.25, 0.75, 0.75)],
    }
    for name, image in {**stored(tmp_path / 'out', 'train'), **stored(tmp_path / 'out', 'validation')}.items():
        boxes = expected.get(name[:-5], [])
        assert image.box_labels == [image.label] * len(boxes) and len(image.boxes) == len(boxes)
        np.testing.assert_allclose(image.boxes, boxes, atol=1e-7)
    assert said[0] == (
        '4 annotations are invalid, and are left out: n01440764/n01440764_99998.xml (of an image of 0 x 0 pixels), '
        'n01440764/n01440764_99997.xml (unclosed token: line 1, column 0), strange.xml (unknown encoding: utf8x) '
        'and 1 more (all in conversion.json)'
    )
    # Left out: two without area, one of another class, and one of no image here.
    assert 'bounding boxes: 5 written, 4 left out' in said
    counts = {'written': 5, 'left out': 4}
    assert json.loads((tmp_path / 'out' / 'conversion.json').read_text())['boxes'] == counts
    (archives.folder / 'none.tar').write_bytes(tar_of([('readme.txt', b'')]))
    with pytest.raises(DataError, match=r'none\.tar: no annotations\.'):
        [*imagenet_source.read_boxes(str(archives.folder / 'none.tar'), [])]
    # Invalid ones alone are annotations.
    bad: List[str] = []
    (archives.folder / 'bad.tar').write_bytes(tar_of([('bad.xml', b'<')]))
    assert [*imagenet_source.read_boxes(str(archives.folder / 'bad.tar'), bad)] == []
    assert [name.split()[0] for name in bad] == ['bad.xml']
