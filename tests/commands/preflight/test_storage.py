"""Tests of the preflight's checks of data sets, folders and checkpoints."""

import os
import shutil
from typing import Any, List

import pytest

from console.tensorflow_versions import tf
from data import records
from inception_v3.commands.preflight import graphs, storage
from inception_v3.commands.preflight.report import Report
from inception_v3.config import Config
from tests.support.photos import Photo, photo_example
from tests.support.preflights import FAKE, SMALL, errors_of, run, warnings_of


def test_data__fewer_files_than_hosts_is_an_error(
    capsys: Any, one_layer: None, photo_dir: str, reachable: List[str]
) -> None:
    flags = [*reachable, '--topology=v2-32', f'--data_dir={photo_dir}', '--json']
    (error,) = errors_of(capsys, *flags, '--mode=train')
    assert '2 train files for 4 TPU hosts' in error
    # In an evaluation, the other hosts feed padding.
    warnings = warnings_of(capsys, *flags, '--mode=eval')
    assert any('2 validation files for 4 hosts: 2 hosts have no images' in warning for warning in warnings)


def test_folders__written_and_deleted(
    capsys: Any, without_graphs: None, photo_dir: str, reachable: List[str], tmp_path: Any
) -> None:
    flags = [*reachable, f'--data_dir={photo_dir}']
    report = run(capsys, *flags, '--json').report
    storage = {'data_set': 'photos', 'data_dir': photo_dir, 'model_dir': f'{tmp_path}/model'}
    assert report['may_start'] and report['storage'] == storage
    assert os.listdir(f'{tmp_path}/model') == []
    (tmp_path / 'file').write_text('')
    (error,) = errors_of(capsys, *flags, f'--model_dir={tmp_path}/file/model')
    assert f'--model_dir={tmp_path}/file/model: cannot be written to' in error
    (error,) = errors_of(capsys, *flags, f'--export_dir={tmp_path}/file/export')
    assert f'--export_dir={tmp_path}/file/export: cannot be written to' in error


def test_data__first_files_are_read(
    capsys: Any, without_graphs: None, photo_dir: str, reachable: List[str], tmp_path: Any
) -> None:
    data_dir = str(tmp_path / 'data')
    shutil.copytree(photo_dir, data_dir)
    flags = [*reachable, f'--data_dir={data_dir}']
    path = records.shard_path(data_dir, records.VALIDATION, 0, 2)
    with open(path, 'r+b') as file:
        file.seek(100)
        file.write(b'damage')
    (error,) = errors_of(capsys, *flags)
    assert path in error and 'damaged' in error
    os.remove(records.shard_path(data_dir, records.VALIDATION, 0, 2))
    os.remove(records.shard_path(data_dir, records.VALIDATION, 1, 2))
    (error,) = errors_of(capsys, *flags)
    assert 'no validation files' in error
    # A run that only trains needs no validation files; a missing training file is a warning.
    os.remove(records.shard_path(data_dir, records.TRAIN, 0, 2))
    (warning,) = warnings_of(capsys, *flags, '--mode=train')
    assert '1 of 2 train files are missing' in warning and 'train-00000-of-00002' in warning
    with open(os.path.join(data_dir, 'dataset.json'), 'w') as file:
        file.write('{}')
    (error,) = errors_of(capsys, *flags, '--mode=train')
    assert 'dataset.json: not a valid description' in error


def test_data__a_host_without_records_is_an_error(
    capsys: Any, without_graphs: None, photo_dir: str, reachable: List[str], tmp_path: Any
) -> None:
    data_dir = str(tmp_path / 'data')
    shutil.copytree(photo_dir, data_dir)
    flags = [*reachable, '--topology=v2-32', f'--data_dir={data_dir}', '--mode=train']
    for shard in (2, 3):
        shutil.copy(records.shard_path(data_dir, records.TRAIN, 0, 2), records.shard_path(data_dir, 'train', shard, 4))
    for shard in (0, 1):
        os.rename(
            records.shard_path(data_dir, records.TRAIN, shard, 2), records.shard_path(data_dir, records.TRAIN, shard, 4)
        )
    assert run(capsys, *flags).code == 0
    with open(records.shard_path(data_dir, records.TRAIN, 1, 4), 'w'):
        pass
    (error,) = errors_of(capsys, *flags)
    assert 'train-00001-of-00004' in error


def test_data__a_described_data_set_is_read_though_the_tpu_cannot_reach_it(
    capsys: Any, without_graphs: None, photo_dir: str, tmp_path: Any
) -> None:
    flags = [*SMALL, '--topology=v2-8', '--json']
    result = run(capsys, *flags, f'--data_dir={photo_dir}')
    (error,) = result.report['errors']
    assert "this machine's disk" in error and result.report['storage']['data_set'] == 'photos'
    # Without a description, the assumption is named.
    shutil.copytree(photo_dir, str(tmp_path / 'data'))
    os.remove(tmp_path / 'data' / 'dataset.json')
    result = run(capsys, *flags, f'--data_dir={tmp_path}/data', '--num_classes=11')
    (warning,) = [each for each in result.report['warnings'] if 'no dataset.json' in each]
    assert '1,281,167 training and 50,000 validation images of 11 classes are assumed' in warning
    assert 'Give --num_train_images, --num_eval_images if' in warning
    assert result.report['storage']['data_set'] is None


def test_unreachable_folder__not_touched(capsys: Any, without_graphs: None, tmp_path: Any) -> None:
    (tmp_path / 'model').mkdir()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / 'model' / 'model.ckpt'), 0)
    result = run(capsys, *FAKE, '--topology=v2-8', f'--model_dir={tmp_path}/model', '--json')
    (error,) = result.report['errors']
    assert "this machine's disk" in error
    assert result.report['storage'] == {'data_dir': None}
    assert run(capsys, *FAKE, '--topology=v2-8', f'--model_dir={tmp_path}/new').code == 2
    assert not (tmp_path / 'new').exists()


def test_data__at_most_three_bad_records_are_named(
    capsys: Any, without_graphs: None, photo_dir: str, photos: List[Photo], reachable: List[str], tmp_path: Any
) -> None:
    data_dir = str(tmp_path / 'data')
    shutil.copytree(photo_dir, data_dir)
    example = photo_example(photos[0])
    example.features.feature['image/encoded'].bytes_list.value[:] = [b'no image']
    with tf.io.TFRecordWriter(records.shard_path(data_dir, records.TRAIN, 0, 2)) as writer:
        for _ in range(4):
            writer.write(example.SerializeToString())
        writer.write(photo_example(photos[0]).SerializeToString())
    flags = [*reachable, f'--data_dir={data_dir}', '--mode=train']
    named = [f'train-00000-of-00002, record {number}: ' for number in range(3)]
    for allowed, find in ((0, errors_of), (3, errors_of), (4, warnings_of)):
        findings = find(capsys, *flags, f'--max_bad_records={allowed}')
        assert len(findings) == 3
        for part, finding in zip(named, findings):
            assert part in finding and f'at most {allowed} records (--max_bad_records)' in finding


def test_checkpoint__of_another_network_is_an_error(
    capsys: Any, one_layer: None, reachable: List[str], tmp_path: Any
) -> None:
    (tmp_path / 'model').mkdir()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / 'model' / 'model.ckpt'), 0)
    result = run(capsys, *reachable, '--use_data=fake', '--mode=train', '--json')
    assert result.report['storage']['checkpoint'] == f'{tmp_path}/model/model.ckpt-0'
    (error,) = result.report['errors']
    assert result.code == 2 and 'model.ckpt-0: does not fit this run' in error


@pytest.mark.program
def test_bucket_without_an_answer__reported_in_time(capsys: Any, without_graphs: None, monkeypatch: Any) -> None:
    monkeypatch.setattr('inception_v3.commands.preflight.storage._ANSWER_SECONDS', 1)
    folders = ['--model_dir=gs://no-such-bucket/run', '--data_dir=gs://no-such-bucket/records']
    errors = errors_of(capsys, *SMALL, '--topology=v2-8', *folders)
    assert ['no answer within 1 seconds' in error for error in errors] == [True, True]


@pytest.mark.program
def test_timeout__does_not_count_loading_tensorflow(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / 'sitecustomize.py').write_text('import time; time.sleep(6)')
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))
    monkeypatch.setattr('inception_v3.commands.preflight.storage._ANSWER_SECONDS', 5)
    report = Report('storage')
    assert storage.unanswered({'model_dir': f'file://{tmp_path}'}, report) == set()
    assert report.may_start


def test_temporary_folders__removed(capsys: Any, one_layer: None, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    built = []
    build = graphs.build

    def record(config: Config, *others: Any) -> tf.Graph:
        built.append(config)
        return build(config, *others)

    monkeypatch.setattr(graphs, 'build', record)
    assert run(capsys, *FAKE, '--topology=v2-8').code == 0
    folders = [folder for config in built for folder in (config.data_dir, str(config.model_dir))]
    assert len(folders) == 4 and not any(os.path.exists(folder) for folder in folders)
    assert os.listdir(str(tmp_path)) == []
