"""Tests of the preflight's checks of data sets, folders, checkpoints, and weights that a run begins from."""

import json
import os
import pathlib
import shutil
import time
import types
from typing import Any, List

import pytest

from compat import tf
from data import labels, record_checker, records
from tests.support.photos import Photo, photo_example
from tests.support.preflights import FAKE, SMALL, errors_of, run, warnings_of
from tests.support.runs import FinishedRun, make_small_config
from tools.preflight import checks
from tools.preflight.report import Report


@pytest.fixture
def copied(photo_dir: str, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the photographs' data set: two files in each split."""
    shutil.copytree(photo_dir, str(tmp_path / 'data'))
    return tmp_path / 'data'


def save_checkpoint(folder: pathlib.Path) -> None:
    """Saves a checkpoint without a network."""
    folder.mkdir()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / 'model.ckpt'), 0)


def test_folders__are_written_and_deleted(
    without_graphs: None, photo_dir: str, reachable: List[str], tmp_path: Any
) -> None:
    flags = [*reachable, f'--data_dir={photo_dir}']
    report = run(*flags, '--json').report
    storage = {'data_set': 'photos', 'data_dir': photo_dir, 'model_dir': f'{tmp_path}/model'}
    assert report['may_start'] and report['storage'] == storage
    assert os.listdir(f'{tmp_path}/model') == []
    (tmp_path / 'file').write_text('')
    for flag in ('--model_dir', '--export_dir'):
        (error,) = errors_of(*flags, f'{flag}={tmp_path}/file/below')
        assert f'{flag}={tmp_path}/file/below: cannot be written to' in error


@pytest.mark.parametrize('data_format', ['tfrecord', 'tar'])
def test_stand_in__has_the_files_of_the_format(data_format: str) -> None:
    with checks._stand_in(data_format, {records.TRAIN: 3, records.VALIDATION: 2}, 7) as (data_dir, model_dir):
        source = make_small_config(data_dir, data_format=data_format).source
        assert [len(source.find(split)) for split in (records.TRAIN, records.VALIDATION)] == [3, 2]
        assert os.listdir(model_dir) == []


def test_data__reading_a_first_file_shows_progress(photo_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: List[str] = []
    screen: Any = types.SimpleNamespace(update=texts.append)
    monkeypatch.setattr(record_checker, '_PROGRESS_EVERY', 2)
    config, report = make_small_config(photo_dir, num_classes=6, mode='train'), Report('')
    assert checks._count_shards(config, report, screen) == {'train': 2} and not report.errors
    assert texts == [f'2 records checked, now in {photo_dir}/train-00000-of-00002']


def test_data__first_files_are_read(without_graphs: None, copied: pathlib.Path, reachable: List[str]) -> None:
    flags = [*reachable, f'--data_dir={copied}']
    first, second = (copied / f'validation-0000{number}-of-00002' for number in (0, 1))
    with open(first, 'r+b') as file:
        file.seek(100)
        file.write(b'damage')
    (error,) = errors_of(*flags)
    assert str(first) in error and 'damaged' in error
    first.unlink()
    second.unlink()
    (error,) = errors_of(*flags)
    assert 'no validation files' in error
    # A run that only trains needs no validation files; a missing training file is a warning.
    (copied / 'train-00000-of-00002').unlink()
    warning, count = warnings_of(*flags, '--mode=train')
    assert '1 of 2 train files are missing' in warning and 'train-00000-of-00002' in warning
    assert 'train records: 3; dataset.json says 5.' in count
    (copied / 'dataset.json').write_text('{}')
    (error,) = errors_of(*flags, '--mode=train')
    assert 'dataset.json: not a valid description' in error


def test_data__a_host_without_records_is_an_error(without_graphs: None, copied: pathlib.Path, tmp_path: Any) -> None:
    (copied / 'train-00001-of-00002').write_bytes(b'')
    flags = [*SMALL, '--tpu=emulated:2x2', f'--model_dir={tmp_path}/model', f'--data_dir={copied}', '--mode=train']
    (error,) = errors_of(*flags)
    assert 'train-00001-of-00002' in error


def test_data__fewer_files_than_hosts_still_has_its_graph_built(
    one_layer: None, copied: pathlib.Path, tmp_path: Any
) -> None:
    on_tpu = ['--tpu=emulated:3x3', '--num_shards=3', '--train_batch_size=6', '--eval_batch_size=6']
    report = run(*SMALL, *on_tpu, f'--data_dir={copied}', f'--model_dir={tmp_path}/model', '--json').report
    assert '2 train files for 3 TPU hosts' in report['errors'][0]
    assert report['training']['batch_per_host'] == 2


def test_data__a_described_local_data_set_is_read_for_any_tpu(without_graphs: None, copied: pathlib.Path) -> None:
    flags = [*SMALL, '--topology=v2-8', '--json', f'--data_dir={copied}']
    report = run(*flags).report
    assert "a Cloud TPU's hosts" in report['errors'][0] and report['storage']['data_set'] == 'photos'
    (copied / 'dataset.json').unlink()
    assert run(*flags, '--num_classes=11').report['storage']['data_set'] is None
    text = run(*flags[:-2], flags[-1], '--num_classes=11').out
    assert 'no dataset.json; 1,281,167 training and 50,000 validation images, 11 classes' in ' '.join(text.split())


def test_unreachable_folder__is_not_touched(without_graphs: None, tmp_path: Any) -> None:
    save_checkpoint(tmp_path / 'model')
    report = run(*FAKE, '--topology=v2-8', f'--model_dir={tmp_path}/model', '--json').report
    assert "a Cloud TPU's hosts" in report['errors'][0] and report['storage'] == {'data_dir': None}
    assert run(*FAKE, '--topology=v2-8', f'--model_dir={tmp_path}/new').code == 2
    assert not (tmp_path / 'new').exists()


def test_class_weights__of_some_labels_are_an_error(without_graphs: None, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'weights.csv'
    path.write_text('0,1\n')
    flags = [*FAKE, '--mode=train', '--num_classes=11', '--tpu=emulated:2', f'--model_dir={tmp_path}/model']
    assert errors_of(*flags, f'--class_weights={path}') == [
        f'--class_weights={path}: has no weight for 10 of 10 labels: 1, 2, 3, 4, 5, and 5 more.'
    ]


def test_class_weights__need_no_labels_to_build_the_graph(
    one_layer: None, without_files: None, few_digits_dir: str, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    weights = tmp_path / 'weights.csv'
    weights.write_text(''.join(f'{label},2\n' for label in range(11)))
    flags = [*SMALL, '--mode=train', '--num_classes=11', '--train_batch_size=16']
    emulated = [*flags, '--tpu=emulated:2', f'--model_dir={tmp_path}/model']
    report = run(*FAKE, *emulated, f'--class_weights={weights}', '--json').report
    assert report['may_start'] and not any('balanced' in text for text in report['not_checked'])
    (_, error) = errors_of(*FAKE, *flags, '--topology=v2-8', '--class_weights=mine=1,2')
    assert 'has 2 numbers for 11 classes' in error
    # Digits that the run will make, and a data set that is elsewhere; the labels of one that is here are not counted.
    monkeypatch.setattr(labels, 'count', None)
    monkeypatch.chdir(tmp_path)
    copy = pathlib.Path(shutil.copytree(few_digits_dir, str(tmp_path / 'copy')))
    content = json.loads((copy / 'dataset.json').read_text())
    del content['train_images_per_class']
    (copy / 'dataset.json').write_text(json.dumps(content))
    for data in ([*emulated, '--preset=digits'], emulated, [*emulated, f'--data_dir={copy}']):
        report = run(*data, '--class_weights=balanced', '--json').report
        assert report['may_start'] and report['training']['batch'] == 16, report
        assert any('--class_weights=balanced: a run computes them' in text for text in report['not_checked'])


def test_data__at_most_three_bad_records_are_named(
    without_graphs: None, copied: pathlib.Path, photos: List[Photo], reachable: List[str]
) -> None:
    example = photo_example(photos[0])
    example.features.feature['image/encoded'].bytes_list.value[:] = [b'no image']
    with tf.io.TFRecordWriter(records.shard_path(str(copied), records.TRAIN, 0, 2)) as writer:
        for each in (*[example] * 4, photo_example(photos[0])):
            writer.write(each.SerializeToString())
    for allowed, find in ((0, errors_of), (3, errors_of), (4, warnings_of)):
        found = find(*reachable, f'--data_dir={copied}', '--mode=train', f'--max_bad_records={allowed}')
        findings = [each for each in found if 'dataset.json says' not in each]
        assert [f'train-00000-of-00002, record {number}: ' in finding for number, finding in enumerate(findings)] == [
            True
        ] * 3
        assert all(f'at most {allowed} records (--max_bad_records)' in finding for finding in findings)


def test_checkpoint__of_another_network_is_an_error(one_layer: None, reachable: List[str], tmp_path: Any) -> None:
    save_checkpoint(tmp_path / 'model')
    report = run(*reachable, '--use_data=fake', '--mode=train', '--json').report
    assert report['storage']['checkpoint'] == f'{tmp_path}/model/model.ckpt-0'
    (error,) = report['errors']
    assert 'model.ckpt-0: does not fit this run' in error


def test_bucket_without_an_answer__is_reported_in_time(without_graphs: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks, '_ANSWER_SECONDS', 0.1)
    monkeypatch.setattr(checks, '_look_up', lambda folder: time.sleep(5))
    names = ('model_dir', 'data_dir', 'export_dir', 'init_from')
    errors = errors_of(*SMALL, '--topology=v2-8', *[f'--{name}=gs://no-such-bucket/{name}' for name in names])
    assert sorted(error.partition('=')[0] for error in errors if 'no answer within 0.1 seconds' in error) == sorted(
        f'--{name}' for name in names
    )


@pytest.fixture
def beginning(finished_run: FinishedRun, one_layer: None, tmp_path: Any) -> List[str]:
    """Flags of training from the weights of the finished run."""
    on_tpu = ['--tpu=emulated:2', '--num_shards=2', '--train_batch_size=16', '--mode=train', '--num_classes=7']
    return [*FAKE, *on_tpu, f'--model_dir={tmp_path}/model', f'--init_from={finished_run.config.model_dir}']


def test_weights__loaded_and_left_new_are_reported(beginning: List[str]) -> None:
    result = run(*beginning, '--init_except=Logits,Nothing', '--json')
    weights = result.report['weights']
    # 16 filters of 3 x 3 x 3, a shift, a mean and a variance for each.
    assert weights['loaded'] == f'4 variables of the network with {16 * 27 + 3 * 16} values'
    assert weights['left_new'] == 'Logits/biases (excepted), Logits/weights (excepted)'
    assert 'model.ckpt-5' in weights['begins_from']
    assert '--init_except: no variable matches Nothing.' in result.report['warnings']


def test_weights__that_do_not_fit_keep_the_run_from_starting(beginning: List[str], tmp_path: Any) -> None:
    (error,) = errors_of(*beginning, '--init_except=Layer')
    assert 'Logits/biases has the shape [11], not [7]' in error
    (error,) = errors_of(*beginning, f'--init_from={tmp_path}/nothing')
    assert error.startswith(f'--init_from={tmp_path}/nothing: no complete checkpoint')


def test_weights__of_a_run_that_resumes_are_not_read(
    beginning: List[str], finished_run: FinishedRun, tmp_path: Any, without_graphs: None
) -> None:
    shutil.copytree(str(finished_run.config.model_dir), tmp_path / 'model')
    report = run(*beginning, f'--init_from={tmp_path}/nothing', '--json').report
    assert report['may_start'] and 'which the run resumes; --init_from is not' in report['weights']['begins_from']
