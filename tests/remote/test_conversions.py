"""Test of a conversion of ImageNet from a remote store into a remote store."""

import pathlib

import pytest

from tests.remote.store import Store
from tests.support.tar_files import tar_of
from tests.tools.datasets.imagenet import archives as imagenet_archives
from tests.tools.datasets.imagenet.archives import convert, files_of


# One store: `test_data_sets.py` and `test_runs.py` try the functions by which the conversion lists, reads, writes and
# renames in both.
@pytest.mark.nightly
def test_remote_folders__are_converted_to_remote_record_files(gs: Store, tmp_path: pathlib.Path) -> None:
    store = gs
    archives = imagenet_archives.make(tmp_path / 'in', per_class=3, validation=4)
    archives.extract(tmp_path / 'images')
    files = [
        (f'{synset}/{name[:-5]}.xml', imagenet_archives.annotation(synset, [(8, 6, 40, 30)]))
        for synset, images in archives.train.items()
        for name, _ in images
    ]
    boxes = archives.folder / 'boxes.tgz'
    boxes.write_bytes(tar_of(files, mode='w:gz'))
    for path in (tmp_path / 'images').rglob('*.JPEG'):
        store.put(f'images/{path.relative_to(tmp_path / "images")}', path.read_bytes())
    store.put('kit.tar.gz', (archives.folder / 'ILSVRC2012_devkit_t12.tar.gz').read_bytes())
    store.put('boxes.tgz', boxes.read_bytes())
    arguments = [
        f'--train={store.url}/images/train',
        f'--validation={store.url}/images/val',
        f'--validation_labels={store.url}/kit.tar.gz',
        f'--bounding_boxes={store.url}/boxes.tgz',
        '--train_images=12',
        '--validation_images=4',
        '--train_shards=3',
        '--validation_shards=2',
        f'{store.url}/records',
    ]
    done = store.python('-m', 'tools.datasets.imagenet', *arguments)
    assert done.returncode == 0, done.stderr
    assert 'bounding boxes: 12 written' in done.stderr
    store.download('records', tmp_path / 'records')
    convert(archives, tmp_path / 'local', bounding_boxes=[str(boxes)])
    assert files_of(tmp_path / 'records') == files_of(tmp_path / 'local')
    # No intermediate files are left.
    assert not {name for name in store.objects('records') if 'conversion/' in name}
    again = store.python('-m', 'tools.datasets.imagenet', *arguments)
    assert (again.returncode, again.stderr) == (0, f'{store.url}/records: already finished\n')
