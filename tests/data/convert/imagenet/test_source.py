"""Parts of ImageNet that are refused: damaged, incomplete or contradictory ones."""

import gzip
import io
import lzma
import pathlib
import sys
import tarfile
from typing import Any

import pytest

from data import records
from data.convert.imagenet import __main__ as imagenet
from data.convert.imagenet import pipeline
from data.convert.imagenet import source as imagenet_source
from data.convert.imagenet.pipeline import Source
from tests.data.convert.imagenet import archives as imagenet_archives
from tests.data.convert.imagenet.archives import Archives
from tests.data.convert.imagenet.conversion import SHARDS, convert, convert_here
from tests.data.convert.imagenet.results import cut, refusal


def test_unexpected_number_of_images__is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    message = refusal(archives, tmp_path / 'out', expected=imagenet.IMAGES)
    assert message == (
        f'--train={archives.folder}/ILSVRC2012_img_train.tar: has 24 images; 1,281,167 are expected. If this number '
        'is right, pass --train_images=24.'
    )
    # The refused conversion leaves nothing that prevents a retry.
    convert(archives, tmp_path / 'out')


def test_truncated_or_damaged_archive__is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
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
def test_negative_member_size__is_damage(archives: Archives, tmp_path: pathlib.Path, size: int) -> None:
    path = archives.folder / 'ILSVRC2012_img_val.tar'
    whole = path.read_bytes()
    place = whole.index(archives.validation[3][0].encode())
    path.write_bytes(imagenet_archives.with_size(whole, place, size))
    assert refusal(archives, tmp_path / 'out') == (
        f'{path}: damaged, or not an uncompressed tar archive (the header at byte {place:,} claims a size of '
        f'{size:,} bytes). Download it again.'
    )


def test_archive_without_end__is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    path = archives.folder / 'ILSVRC2012_img_val.tar'
    place = path.read_bytes().index(archives.validation[3][0].encode())
    cut(path, place)
    assert f'(no valid header at byte {place:,})' in refusal(archives, tmp_path / 'out')


# The types of extension headers (long name, pax) and of sparse files.
@pytest.mark.parametrize('kind', [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.GNUTYPE_SPARSE])
@pytest.mark.parametrize('size', [-512, -(2**40), 2**62])
def test_impossible_member_size__is_damage(archives: Archives, tmp_path: pathlib.Path, kind: bytes, size: int) -> None:
    whole = imagenet_archives.tar([('n01440764/n01440764_1.xml', imagenet_archives.annotation('n01440764', []))] * 3)
    place = whole.index(b'n01440764/', 512)
    changed = imagenet_archives.with_size(whole[: place + 156] + kind + whole[place + 157 :], place, size)
    for name, content in (('boxes.tar', changed), ('boxes.tar.gz', gzip.compress(changed))):
        (archives.folder / name).write_bytes(content)
        message = refusal(archives, tmp_path / 'out', bounding_boxes=[str(archives.folder / name)])
        assert message.startswith(f'{archives.folder / name}: damaged, or not a tar archive (')


def with_pax(size: int) -> bytes:
    """An archive of annotations with a pax header that gives a size for the second member."""
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
    """A compressed archive with one changed digit in the middle, which only the checksum reveals."""
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


def test_development_kit__checksum_is_verified(archives: Archives, tmp_path: pathlib.Path) -> None:
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


# The header of MATLAB's files of version 7.3, which are HDF5.
META_7_3 = b'MATLAB 7.3 MAT-file'.ljust(124) + b'\x00\x02IM'


def flipped(content: bytes, place: int) -> bytes:
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


@pytest.mark.parametrize(
    ('name', 'damage', 'expected'),
    [
        (META, lambda meta: meta[: len(meta) // 2], '(could not read bytes)'),
        (META, lambda meta: b'', '(Mat file appears to be '),
        (META, lambda meta: flipped(meta, 200), '(Error -3 while decompressing data: '),
        (META, lambda meta: META_7_3, '(Please use HDF reader for matlab v7.3 files'),
        (META, lambda meta: b'<html>404</html>' * 100, '(Unknown mat file type, '),
        (
            GROUND_TRUTH,
            lambda numbers: b'\xff\xfe' + numbers,
            'is not text with a number per image. Download it again.',
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
    assert 'ILSVRC2012_val_00000004.JPEG was found instead of ILSVRC2012_val_00000003.JPEG' in message


def test_duplicate_image__is_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
    images = archives.train['n01440764']
    name, _ = images[3]
    # As after `tar -r` with a file that is already in the archive.
    twice = archives._replace(train={**archives.train, 'n01440764': [*images, (name, images[4][1])]}).write()
    path = archives.folder / 'ILSVRC2012_img_train.tar'
    assert refusal(twice, tmp_path / 'out') == (
        f'--train={path}: {name} exists more than once among the images of n01440764: in {path}. Keep only one.'
    )
    # An archive beside its unpacked files.
    archives.write().extract(archives.folder)
    beside = archives.folder / 'train' / 'n01440764.tar'
    beside.write_bytes(imagenet_archives.tar([images[3]]))
    message = refusal(archives, tmp_path / 'out', train='train', validation='val')
    assert f'in {beside} and {archives.folder / "train" / "n01440764" / name}. Keep only one.' in message
    # The same name in another class is another image.
    of_two = {'n01440764': [('1.JPEG', images[3][1])], 'n02123045': [('1.JPEG', images[4][1])]}
    of_two = {synset: [*archives.train[synset], *of_two.get(synset, [])] for synset in archives.train}
    archives._replace(train=of_two).write()
    assert 'has 26 images; 24 are expected' in refusal(archives, tmp_path / 'out')


def test_missing_parts__are_refused(archives: Archives, tmp_path: pathlib.Path) -> None:
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
        pipeline.convert(source, str(tmp_path / 'out'), SHARDS, imagenet.IMAGES, convert_here, print)


def test_files_that_are_not_images__are_named(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    (archives.folder / 'train' / 'n01440764' / 'notes.txt').touch()
    (archives.folder / 'val' / '.DS_Store').touch()
    said = convert(archives, tmp_path / 'out', train='train', validation='val')
    assert said[0].startswith('2 files are not images, and are left out: ')
    assert 'n01440764/notes.txt' in said[0] and 'val/.DS_Store' in said[0]
