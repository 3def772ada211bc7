"""Descriptions of data sets in Croissant."""

import hashlib
import json
import pathlib
import re
import shutil
from typing import Any, Dict

import pytest

from compat import tf
from data import dataset_info, records
from data.sources import Source
from data.tf_example import Fields
from tests.support.commands import run
from tests.tools.datasets.audit.data_sets import NAMES, Report
from tools.datasets.audit import __main__ as audit
from tools.datasets.audit import croissant

IS_2_15 = tf.__version__ >= '2'


@pytest.fixture
def data_dir(good_dir: pathlib.Path, tmp_path: pathlib.Path) -> str:
    return shutil.copytree(str(good_dir), str(tmp_path / 'data'))


def written(source: Source, report: Report, **given: str) -> Dict[str, Any]:
    result = croissant.write(source, croissant.description_of(source), report, given)
    # Where mlcroissant is installed, it has checked the description.
    assert result == {'path': f'{source.data_dir}/croissant.json', 'checked': IS_2_15}
    return json.loads(pathlib.Path(result['path']).read_text())


def test_tfrecords__are_described_with_files_classes_and_fields(data_dir: str, good: Report) -> None:
    source = Source(data_dir)
    content = written(source, good, license='https://example.org/licence')
    info = dataset_info.read(data_dir)
    assert info and info.fingerprint in content['description'] and info.source in content['description']
    assert (content['name'], content['license']) == ('pieces', 'https://example.org/licence')
    described = {
        each['contentUrl']: (each['contentSize'], each['sha256'])
        for each in content['distribution']
        if each['@type'] == 'cr:FileObject'
    }
    assert described == {
        path.name: (f'{path.stat().st_size} B', hashlib.sha256(path.read_bytes()).hexdigest())
        for path in pathlib.Path(data_dir).glob('*-of-*')
    }
    assert len(described) == 5
    sets = {each['@id']: each['includes'] for each in content['distribution'] if each['@type'] == 'cr:FileSet'}
    assert sets == {'train-files': ['train-*-of-*'], 'validation-files': ['validation-*-of-*']}
    classes, train, validation = content['recordSet']
    assert [each['classes/name'] for each in classes['data']] == NAMES
    assert [each['classes/label'] for each in classes['data']] == [*range(6)]
    assert (train['@id'], validation['@id']) == ('train', 'validation')
    fields = {field['source']['extract']['column']: field for field in train['field']}
    assert fields.keys() == good['splits']['train']['fields'].keys()
    assert {name: fields[name]['dataType'] for name in ('image/encoded', 'image/class/label', 'image/class/text')} == {
        'image/encoded': 'sc:ImageObject',
        'image/class/label': 'sc:Integer',
        'image/class/text': 'sc:Text',
    }
    assert {name for name in fields if fields[name].get('repeated')} == {
        name for name in fields if name.startswith('image/object/')
    }
    assert [name for name in fields if 'references' in fields[name]] == ['image/class/label']
    # A split without files is left out.
    for path in pathlib.Path(data_dir).glob('validation-*'):
        path.unlink()
    splits = {**good['splits'], 'validation': {**good['splits']['validation'], 'files': 0}}
    assert [each['@id'] for each in written(source, {**good, 'splits': splits})['recordSet']] == ['classes', 'train']


def test_label_offset__makes_labels_no_classes(data_dir: str, good: Report) -> None:
    content = written(Source(data_dir, fields=Fields(label_offset=1)), good)
    fields = [field for each in content['recordSet'] for field in each['field']]
    assert 'image/class/label' in [field['source']['extract']['column'] for field in fields if 'source' in field]
    assert not [field for field in fields if 'references' in field]


def test_fields_and_labels__are_those_of_the_flags() -> None:
    # Of TFRecord files with their own keys; other fields are left out.
    source = Source('data', fields=Fields('jpg', 'n'))
    found = ['image/object/class/label', 'jpg', 'n', 'unknown']
    (file_set,), (record_set,) = croissant._of_tfrecords(source, 'train', ['train-00-of-02', 'train-01-of-02'], found)
    assert file_set['includes'] == ['train-*-of-*']
    assert [(f['name'], f['dataType'], f.get('repeated'), f.get('references')) for f in record_set['field']] == [
        ('image/object/class/label', 'sc:Integer', True, None),
        ('jpg', 'sc:ImageObject', None, None),
        ('n', 'sc:Integer', None, {'field': {'@id': 'classes/label'}}),
    ]
    # Of tar shards: images of all shards, by their keys, with a label of its own file, or in a JSON file.
    for label, names in (('txt', ['train', 'train-labels']), ('json:n', ['train'])):
        source = Source('data', 'tar', fields=Fields(label=label))
        file_sets, record_sets = croissant._of_tar(source, 'train', ['a.tar', 'b.tar'], [])
        assert [each['@id'] for each in record_sets] == names
        assert [(each['@id'], each['containedIn']) for each in file_sets] == [
            (f'{name}-files', [{'@id': 'a.tar'}, {'@id': 'b.tar'}]) for name in names
        ]
        assert file_sets[-1]['includes'] == (['*.txt'] if label == 'txt' else ['*.jpg', '*.jpeg', '*.png', '*.ppm'])
        for each in record_sets:
            key, content = each['field']
            assert content['source']['extract'] == {'fileProperty': 'content'}
            assert content['dataType'] == ('sc:Integer' if each['@id'] == 'train-labels' else 'sc:ImageObject')
            assert re.match(key['source']['transform']['regex'], '00.a.cls')[1] == '00'  # type: ignore[index]


def test_command__describes_tar_shards_that_mlcroissant_reads(tar_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data_dir = pathlib.Path(shutil.copytree(str(tar_dir), str(tmp_path / 'data')))
    given = ['--release=1.0.0', '--url=https://example.org', '--citation=Me, 2020', '--published=2020-01-31']
    done = run(audit.main, data_dir, '--data_format=tar', '--croissant', *given)
    assert done.returncode == 0, done.stderr
    path = data_dir / 'croissant.json'
    content = json.loads(path.read_text())
    properties = {'version': '1.0.0', 'url': 'https://example.org', 'citeAs': 'Me, 2020', 'datePublished': '2020-01-31'}
    assert {name: content.get(name) for name in properties} == properties
    checked = 'valid, says mlcroissant' if IS_2_15 else "unchecked: pip install 'inception-v3-tpu[archive]' on Python"
    assert f'{path} ({checked}' in done.stdout
    assert done.stdout.count('; not given: --license\n') == 1
    if IS_2_15:
        import mlcroissant

        dataset = mlcroissant.Dataset(str(path))
        labels = [each['validation-labels/label'] for each in dataset.records('validation-labels')]
        sizes = [each['validation/image'].size for each in dataset.records('validation')]
        # Pieces 15 to 19, in `conftest`: labels from 1 to 5, each 96 pixels wide, and a row more.
        assert sorted(labels) == [1, 2, 3, 4, 5]
        assert sorted(sizes) == [(96, 64 + index) for index in range(15, 20)]


def test_refusals__name_what_is_missing(data_dir: str, good: Report, tmp_path: pathlib.Path) -> None:
    done = run(audit.main, data_dir, '--license=x')
    assert done.returncode == 2 and 'need --croissant' in done.stderr
    done = run(audit.main, f'--train_files={data_dir}/train-*', '--croissant')
    assert (done.returncode, done.stdout) == (2, '') and 'dataset.json is missing' in done.stderr
    outside = Source(data_dir, train_files=shutil.copy(f'{data_dir}/train-00000-of-00003', str(tmp_path)))
    with pytest.raises(records.DataError, match=f'--croissant: {tmp_path}/train-00000-of-00003: is not in {data_dir}'):
        croissant.write(outside, croissant.description_of(outside), good, {})
