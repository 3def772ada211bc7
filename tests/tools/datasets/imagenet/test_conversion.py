"""The conversion of ImageNet: images, labels, order and description of the record files; and the command."""

import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from typing import Any, List

import numpy as np
import PIL.Image
import pytest

from data import dataset_info, records
from data.record_checker import RecordChecker
from tests.data.written_records import examples, fingerprint_of
from tests.support.commands import run
from tests.support.images import with_orientation
from tests.tools.datasets.imagenet import archives as imagenet_archives
from tests.tools.datasets.imagenet.archives import (
    KIT,
    LABELS,
    PARTS,
    SHARDS,
    SPLITS,
    TEXTS,
    TRAIN,
    VALIDATION,
    Archives,
    convert,
    convert_here,
    files_of,
    run_imagenet,
    stored,
)
from tools.datasets.fingerprints import fingerprint
from tools.datasets.imagenet import __main__ as imagenet
from tools.datasets.imagenet import beam


def test_conversion__writes_every_image_once_with_its_class(archives: Archives, tmp_path: pathlib.Path) -> None:
    said = convert(archives, tmp_path / 'out')
    found = {split: stored(tmp_path / 'out', split) for split in SPLITS}
    assert {*found['train']} == {name for images in archives.train.values() for name, _ in images}
    assert {*found['validation']} == {name for name, _ in archives.validation}
    cmyk, png = (name for name, _ in archives.train['n02123045'][:2])
    for name, image in [*found['train'].items(), *found['validation'].items()]:
        synset = archives.synset(name)
        assert (image.label, image.synset, image.text) == (LABELS[synset], synset, TEXTS[synset])
        assert (image.width, image.height) == PIL.Image.open(io.BytesIO(archives.images[name])).size
        assert (image.encoded == archives.images[name]) == (name not in (cmyk, png))
        assert not image.boxes
    assert said[:2] == [
        f'1 image converted from CMYK to RGB JPEG files: {cmyk}',
        f'1 image converted from PNG to RGB JPEG files: {png}',
    ]
    for name in (cmyk, png):
        made = PIL.Image.open(io.BytesIO(found['train'][name].encoded))
        assert (made.format, made.mode) == ('JPEG', 'RGB')
        # Quality 100: every coefficient is kept.
        assert [*made.quantization[0]] == [1] * 64
        before = np.array(PIL.Image.open(io.BytesIO(archives.images[name])).convert('RGB'), np.float32)
        # Tolerances: for PNG, the loss of JPEG at quality 100 with subsampled chroma; for CMYK, also that of two
        # conversions to RGB.
        assert np.abs(np.array(made, np.float32) - before).mean() < 3
    grey = archives.train['n02123045'][2][0]
    assert PIL.Image.open(io.BytesIO(found['train'][grey].encoded)).mode == 'L'
    assert dataset_info.read(str(tmp_path / 'out')) == dataset_info.DatasetInfo(
        name='imagenet',
        source='ImageNet-2012 (ILSVRC2012), classification and localization',
        train_images=24,
        validation_images=8,
        num_classes=5,
        class_names=['background', 'tench, Tinca tinca', 'tabby, tabby cat', 'space shuttle', 'espresso'],
        fingerprint=fingerprint(*(fingerprint_of(found[split].values()) for split in SPLITS)),
        validation_records_per_file=[4, 4],
        train_images_per_class=[0, 6, 6, 6, 6],
    )
    assert {*os.listdir(tmp_path / 'out')} == {'conversion.json', 'dataset.json', *files_of(tmp_path / 'out')}
    checker = RecordChecker(5)
    paths = [path for split in SPLITS for path in records.find_shards(str(tmp_path / 'out'), split)]
    assert [*checker.search(paths, print)] == []
    checker.close()


def test_report__names_all_that_is_unusual(archives: Archives, tmp_path: pathlib.Path) -> None:
    (damaged, whole), (_, _), *rotated = archives.train['n07920052']
    kept = {damaged: whole[: len(whole) * 3 // 4] + b'\xff\xd9'}
    kept.update({name: with_orientation(content, 6) for name, content in rotated})
    others = {name: content for name, content in archives.train['n07920052'] if name not in kept}
    train = {**archives.train, 'n07920052': [*kept.items(), *others.items()]}
    archives._replace(train=train, validation=[*archives.validation, ('notes.txt', b'')]).write()
    with tarfile.open(str(archives.folder / VALIDATION), 'a') as archive:
        # A folder is no file that is left out.
        folder = tarfile.TarInfo('val')
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    said = convert(archives, tmp_path / 'out')
    assert 'bounding boxes: none' in said
    assert f'1 image with damaged pixels, kept as they are: {damaged}' in said
    assert any(line.startswith('4 images with an EXIF orientation, which training ignores: ') for line in said)
    found = stored(tmp_path / 'out', records.TRAIN)
    assert {name: found[name].encoded for name in kept} == kept
    report = json.loads((tmp_path / 'out' / 'conversion.json').read_text())
    # The images of several record files.
    report['notes'] = {note: sorted(names) for note, names in report['notes'].items()}
    kit = (archives.folder / KIT).read_bytes()
    place = {
        name: f'{archives.folder / name} ({os.path.getsize(archives.folder / name):,} bytes)' for name in PARTS.values()
    }
    (cmyk, _), (png, _) = archives.train['n02123045'][:2]
    assert report == {
        'settings': {
            '--train': place[TRAIN],
            '--validation': place[VALIDATION],
            '--validation_labels': f'{place[KIT]} SHA-256 {hashlib.sha256(kit).hexdigest()[:16]}',
            **{'--bounding_boxes': 'none', '--train_shards': '3', '--validation_shards': '2'},
        },
        'boxes': {'left out': 0},
        'foreign': [f'{archives.folder / VALIDATION}: notes.txt'],
        'bad_annotations': [],
        'images': {'train': 24, 'validation': 8},
        'converted': {'CMYK': [cmyk], 'PNG': [png]},
        'unreadable': [],
        'notes': {
            'with damaged pixels, kept as they are': [damaged],
            'with an EXIF orientation, which training ignores': sorted(name for name, _ in rotated),
        },
    }


def test_shards__are_even_mixed_and_independent_of_the_order(archives: Archives, tmp_path: pathlib.Path) -> None:
    large = imagenet_archives.make(tmp_path / 'large', per_class=30)
    # Images of several classes may have the same name.
    train = {
        synset: [(f'{n}.JPEG', each) for n, (_, each) in enumerate(large.train[synset], 1)] for synset in large.train
    }
    large = large._replace(train=train).write()
    convert(large, tmp_path / 'out', shards={records.TRAIN: 7, records.VALIDATION: 100})
    counts = []
    for path in records.find_shards(str(tmp_path / 'out'), records.TRAIN):
        labels = [example.features.feature['image/class/label'].int64_list.value[0] for example in examples(path)]
        assert {*labels} == {1, 2, 3, 4}
        assert labels != sorted(labels)
        counts.append(len(labels))
    assert sorted(counts) == [17] * 6 + [18]
    assert len(records.find_shards(str(tmp_path / 'out'), records.VALIDATION)) == 8, 'none is empty'
    reversed_train = {synset: images[::-1] for synset, images in reversed(list(large.train.items()))}
    backwards = large._replace(folder=tmp_path / 'backwards', train=reversed_train).write()
    convert(backwards, tmp_path / 'again', shards={records.TRAIN: 7, records.VALIDATION: 100})
    assert files_of(tmp_path / 'again') == files_of(tmp_path / 'out')


@pytest.mark.parametrize('is_sorted', [False, True])
def test_source__folders_and_archives_give_equal_files(
    archives: Archives, tmp_path: pathlib.Path, is_sorted: bool
) -> None:
    convert(archives, tmp_path / 'from archives')
    archives.extract(archives.folder)
    kit = archives.folder / 'ILSVRC2012_devkit_t12.tar.gz'
    subprocess.run(['tar', 'xf', str(kit), '-C', str(archives.folder)], check=True)
    if is_sorted:
        # The kit then names the classes alone.
        for name, _ in archives.validation:
            (archives.folder / 'val' / archives.synset(name)).mkdir(exist_ok=True)
            (archives.folder / 'val' / name).rename(archives.folder / 'val' / archives.synset(name) / name)
    kit_folder = 'ILSVRC2012_devkit_t12'
    convert(archives, tmp_path / 'from folders', train='train', validation='val', validation_labels=kit_folder)
    assert files_of(tmp_path / 'from folders') == files_of(tmp_path / 'from archives')


CORES = len(os.sched_getaffinity(0))


@pytest.mark.program
def test_the_command_converts_the_archives_on_beam(archives: Archives, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / 'out' / 'records'
    done = run_imagenet(data_dir, *archives.arguments(), '--train_shards=3', '--validation_shards=2', '--processes=2')
    assert (done.returncode, done.stdout) == (0, '')
    assert done.stderr.endswith(f'24 training and 8 validation images of 4 classes in {data_dir}\n')
    # Besides progress, only the command's own messages: no warnings of other packages, no tracebacks.
    messages = [line for line in done.stderr.splitlines() if ' converting images: ' not in line]
    assert len(messages) == 4, done.stderr
    for split, images in zip(SPLITS, (24, 8)):
        assert len(records.find_shards(str(data_dir), split)) == SHARDS[split]
        assert len(stored(data_dir, split)) == images
    # The files are the same as without Beam.
    convert(archives, tmp_path / 'here')
    assert files_of(data_dir) == files_of(tmp_path / 'here')


@pytest.mark.parametrize(
    ('given', 'runner', 'options'),
    [
        (['--processes=3'], 'DirectRunner', ['--direct_running_mode=multi_processing', '--direct_num_workers=3']),
        (
            ['--', '--temp_location=~/x'],
            'DirectRunner',
            [
                *(f'--temp_location={os.path.expanduser("~/x")}', '--direct_running_mode=multi_processing'),
                f'--direct_num_workers={CORES}',
            ],
        ),
        (
            ['--runner=PortableRunner', '--', '--job_endpoint=host:1', '--for_the_cluster=x'],
            'PortableRunner',
            ['--job_endpoint=host:1', '--for_the_cluster=x'],
        ),
    ],
)
def test_command__passes_options_to_beam(
    given: List[str], runner: str, options: List[str], archives: Archives, monkeypatch: Any
) -> None:
    runs: List[Any] = []

    def run_beam(name: str, of_beam: List[str], *work: Any) -> None:
        runs.append((name, of_beam))
        convert_here(*work)

    monkeypatch.setattr(beam, 'run', run_beam)
    data_dir = archives.folder / 'out'
    arguments = [*archives.arguments(), '--train_shards=3', '--validation_shards=2', str(data_dir), *given]
    done = run(imagenet.main, *arguments)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    assert runs == [(runner, options)]
    assert done.stderr.endswith(f'24 training and 8 validation images of 4 classes in {data_dir}\n')
    assert not (data_dir / 'conversion').exists()
    again = run(imagenet.main, *arguments)
    assert (again.returncode, again.stderr) == (0, f'{data_dir}: already finished\n') and len(runs) == 1


@pytest.mark.parametrize(
    ('option', 'expected'),
    [
        (['--train_shards=0'], '--train_shards'),
        (['--runner=PortableRunner', '--processes=2'], '--processes=2'),
        (['--runner=Nonsense'], 'Unexpected pipeline runner: Nonsense'),
        (['--', '--nonsense=1'], 'Beam has no option --nonsense.'),
        (['--', '--direct_num_workers=x'], 'argument --direct_num_workers'),
    ],
)
def test_values_out_of_range_are_refused(archives: Archives, option: List[str], expected: str) -> None:
    done = run(imagenet.main, *archives.arguments(), archives.folder / 'out', *option)
    assert done.returncode == 2 and expected in done.stderr
    assert not (archives.folder / 'out').exists()


def test_command__names_a_missing_package(archives: Archives, monkeypatch: Any) -> None:
    for name in [name for name in sys.modules if name.partition('.')[0] == 'apache_beam'] or ['apache_beam']:
        monkeypatch.setitem(sys.modules, name, None)
    done = run(imagenet.main, *archives.arguments(), archives.folder / 'out')
    assert done == (2, '', "error: apache_beam: not installed: pip install 'inception-v3-tpu[data]'\n")
