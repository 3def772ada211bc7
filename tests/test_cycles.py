"""Whole runs of the real TPUEstimator on the CPU, on real images, with a network of one layer."""

import dataclasses
import glob
import json
import os
import pathlib
import shutil
import threading
import time
from typing import Any, Dict, Iterator, List, Tuple
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from data import dataset_info, records
from data.records import DataError
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import starts
from inception_v3.model_dir.checkpoints import CheckpointError, step_of
from inception_v3.networks.registry import NETWORKS
from inception_v3.reporting.failures import TrainingError
from inception_v3.settings.data_set import check_files
from tests.support.photos import Photo, photo_example, set_boxes
from tests.support.records import validation_set, write_records
from tests.support.runs import ONE_LAYER, all_steps, evaluations, execute, forget, make_small_config
from tests.support.saved_models import classify

IMAGES = 359


@pytest.fixture(scope='module', autouse=True)
def _of_one_layer() -> Iterator[None]:
    """The course of a run is the same whatever its network."""
    with mock.patch.dict(NETWORKS, inception_v3=ONE_LAYER):
        yield


@pytest.fixture(scope='module')
def finished(digits_dir: str, tmp_path_factory: Any) -> Tuple[Config, str]:
    """A run that is done, with the summary that it ended with."""
    folder = tmp_path_factory.mktemp('finished')
    config = make_small_config(
        digits_dir,
        model_dir=str(folder / 'model'),
        export_dir=str(folder / 'export'),
        learning_rate=0.02,
        batch_norm_decay=0.1,
        moving_average_decay=0.5,
        train_steps=5,
        train_steps_per_eval=2,
        skip_host_call=False,
        save_summary_steps=2,
    )
    return config, execute(config)


@pytest.fixture
def copied(finished: Tuple[Config, str], tmp_path: Any) -> Config:
    """A copy of the run that is done, to be spoilt."""
    config, _ = finished
    shutil.copytree(str(config.model_dir), tmp_path / 'model')
    return dataclasses.replace(config, model_dir=str(tmp_path / 'model'), export_dir=None)


def steps(config: Config) -> List[int]:
    return [evaluation.step for evaluation in evaluations(config)]


def test_cycles__evaluate_after_each_and_end_at_train_steps(finished: Tuple[Config, str]) -> None:
    config, _ = finished
    assert steps(config) == [2, 4, 5]
    latest = tf.train.latest_checkpoint(config.model_dir)
    assert os.path.basename(latest) == 'model.ckpt-5'
    assert step_of(latest) == 5


def test_results__are_json_lines_with_the_documented_keys(finished: Tuple[Config, str]) -> None:
    config, _ = finished
    with open(os.path.join(str(config.model_dir), 'results.jsonl')) as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        assert line['checkpoint'] == f'model.ckpt-{line["step"]}'
        assert line['weights'] == 'average'
        assert line['images'] == IMAGES
        assert 0 <= line['top_1'] <= line['top_5'] <= 1
        # Fractions of 359 images.
        for name in ('top_1', 'top_5'):
            assert line[name] * IMAGES == pytest.approx(round(line[name] * IMAGES), abs=1e-3)
        assert line['cross_entropy'] > 0


def test_run__records_its_configuration_and_start(finished: Tuple[Config, str]) -> None:
    config, _ = finished
    with open(os.path.join(str(config.model_dir), 'config.json')) as file:
        assert Config.from_json(file.read()) == config
    # One start, of three cycles.
    (start,) = starts.read(str(config.model_dir))
    assert (start.step, start.checkpoint) == (0, '')
    assert start.versions['tensorflow'] == tf.__version__


def test_summary__names_results_and_paths(finished: Tuple[Config, str]) -> None:
    config, summary = finished
    last = evaluations(config)[-1]
    lines = {line.split('  ')[0]: line for line in summary.splitlines()}
    assert f'{last.top_1:.2%}' in lines['top-1']
    assert f'{last.top_5:.2%}' in lines['top-5']
    assert '359 images, average weights of step 5' in lines['evaluated']
    assert 'images/s' in lines['training']
    assert str(config.model_dir) in lines['results']
    assert str(config.export_dir) in lines['SavedModel']


def read_events(folder: str) -> Dict[str, Dict[int, float]]:
    values: Dict[str, Dict[int, float]] = {}
    for path in glob.glob(os.path.join(folder, 'events.*.v2')):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor)) if value.HasField('tensor') else value.simple_value
                values.setdefault(value.tag, {})[event.step] = number
    return values


def test_host_call__writes_loss_learning_rate_and_epoch(finished: Tuple[Config, str]) -> None:
    config, _ = finished
    events = read_events(str(config.model_dir))
    # Every second step, as save_summary_steps says, by the number of steps done before.
    assert set(events['loss']) == set(events['learning_rate']) == set(events['epoch']) == {0, 2, 4}
    assert events['learning_rate'][0] == pytest.approx(0.02 * 8 / 256)
    assert events['epoch'][4] == pytest.approx(4 * 8 / 1438)
    assert all(loss > 2 for loss in events['loss'].values())


@pytest.mark.parametrize('transpose_enabled', [False, True])
def test_saved_model__scores_as_the_evaluation_did(
    finished: Tuple[Config, str], copied: Config, tmp_path: Any, transpose_enabled: bool
) -> None:
    config, _ = finished
    if transpose_enabled:
        export_dir = str(tmp_path / 'export')
        config = dataclasses.replace(copied, mode='eval', transpose_enabled=True, export_dir=export_dir)
        execute(config)
    (saved_model,) = glob.glob(os.path.join(str(config.export_dir), '*'))
    encoded, labels = zip(*validation_set(config))
    outputs = classify(saved_model, list(encoded))
    evaluation = evaluations(config)[-1]
    assert (outputs['classes'] == labels).mean() == pytest.approx(evaluation.top_1)
    np.testing.assert_allclose(outputs['probabilities'].sum(1), 1, rtol=1e-5)
    names = [b'background', b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9']
    assert outputs['class_names'].tolist() == [names[label] for label in outputs['classes']]
    # The averages were exported, and not the weights that the checkpoint holds beside them.
    exported = tf.train.load_checkpoint(os.path.join(saved_model, 'variables', 'variables'))
    trained = tf.train.load_checkpoint(os.path.join(str(config.model_dir), 'model.ckpt-5'))
    kernel = 'Logits/weights'
    average = f'{kernel}/ExponentialMovingAverage'
    assert not exported.has_tensor(kernel)
    np.testing.assert_array_equal(exported.get_tensor(average), trained.get_tensor(average))
    assert (trained.get_tensor(kernel) != trained.get_tensor(average)).any()


def test_cycles__leave_a_finished_run_unchanged(copied: Config) -> None:
    before = {
        path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.join(str(copied.model_dir), 'model.ckpt-*'))
    }
    summary = execute(copied)
    after = {path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.join(str(copied.model_dir), 'model.ckpt-*'))}
    assert after == before
    assert steps(copied) == [2, 4, 5]
    assert '359 images' in summary and 'images/s' not in summary


def test_cycles__resume_at_the_last_checkpoint(copied: Config) -> None:
    # Killed in the second cycle: step 4 was never reached, and a line of the results is cut short.
    forget(copied, 4, 5)
    path = os.path.join(str(copied.model_dir), 'results.jsonl')
    with open(path) as file:
        first, second, _ = file.readlines()
    with open(path, 'w') as file:
        file.write(first + second[:20])
    kept = tf.train.load_checkpoint(os.path.join(str(copied.model_dir), 'model.ckpt-2'))
    execute(copied)
    assert steps(copied) == [2, 4, 5]
    assert all_steps(copied)[-1] == 5
    # It went on from the old weights and the old sums of RMSProp, which are 1 in a new run and fall by a tenth a step.
    moved = tf.train.load_checkpoint(os.path.join(str(copied.model_dir), 'model.ckpt-5'))
    assert np.abs(moved.get_tensor('Logits/weights') - kept.get_tensor('Logits/weights')).max() < 0.1
    mean_square = 'Layer/weights/RMSProp'
    assert (moved.get_tensor(mean_square) >= 0.9**3 * kept.get_tensor(mean_square) * (1 - 1e-5)).all()
    assert moved.get_tensor(mean_square).min() < 0.9**4


def test_cycles__make_up_a_missed_evaluation_without_training(copied: Config) -> None:
    path = os.path.join(str(copied.model_dir), 'results.jsonl')
    with open(path) as file:
        lines = file.readlines()
    with open(path, 'w') as file:
        file.writelines(lines[:-1])
    execute(copied)
    assert steps(copied) == [2, 4, 5]
    assert all_steps(copied)[-1] == 5
    again, first = evaluations(copied)[-1], json.loads(lines[-1])
    assert (again.top_1, again.cross_entropy) == pytest.approx((first['top_1'], first['cross_entropy']))


def test_cycles__extend_a_finished_run_by_more_steps(copied: Config) -> None:
    longer = dataclasses.replace(copied, train_steps=6)
    execute(longer)
    assert steps(longer) == [2, 4, 5, 6]
    with open(os.path.join(str(copied.model_dir), 'config.json')) as file:
        assert Config.from_json(file.read()) == longer


def test_evaluation__uses_raw_weights_without_moving_average(copied: Config) -> None:
    raw = dataclasses.replace(copied, mode='eval', moving_average=False)
    execute(raw)
    averaged, raw_result = evaluations(raw)[-2:]
    assert raw_result.weights == 'raw'
    assert raw_result.cross_entropy != averaged.cross_entropy


def test_follow__evaluates_each_checkpoint_with_its_own_averages(copied: Config) -> None:
    following = dataclasses.replace(copied, mode='eval', min_eval_interval=0, eval_timeout=120)
    forget(following, 5)

    def finish_later() -> None:
        while len(steps(following)) < 4:
            time.sleep(0.2)
        # The trainer writes its last checkpoint.
        forget_nothing = dataclasses.replace(following, mode='train')
        execute(forget_nothing)

    trainer = threading.Thread(target=finish_later)
    trainer.start()
    execute(following)
    trainer.join()
    # Three lines of the first run, then those of the follower.
    assert steps(following)[3:] == [4, 5]
    earlier = evaluations(following)[1]
    assert evaluations(following)[3].cross_entropy == pytest.approx(earlier.cross_entropy)


def test_cycles__write_the_graph_once_per_command(finished: Tuple[Config, str]) -> None:
    config, _ = finished
    folder = pathlib.Path(str(config.model_dir))
    events = [e for path in folder.glob('events.*') for e in tf.compat.v1.train.summary_iterator(str(path))]
    # Not in each of the three cycles; TensorFlow's writer begins with one of its own.
    assert len([e for e in events if e.graph_def]) == 2
    assert 'ApplyRMSProp' in (folder / 'graph.pbtxt').read_text()


def test_follow__obeys_min_eval_interval_and_eval_timeout(copied: Config, monkeypatch: Any) -> None:
    forget(copied, 5)
    start = time.monotonic()
    summary = execute(dataclasses.replace(copied, mode='eval', min_eval_interval=0, eval_timeout=3))
    # TensorFlow looks every second, and gives up when the next look would be too late.
    assert time.monotonic() - start > 2
    assert steps(copied)[3:] == [4]
    assert 'step 4' in summary
    asked: Dict[str, Any] = {}

    def remember(model_dir: str, **options: Any) -> Iterator[str]:
        asked.update(options)
        return iter([])

    monkeypatch.setattr(tf.train, 'checkpoints_iterator', remember)
    with pytest.raises(CheckpointError, match=r'--eval_timeout=11: no new checkpoint in .* none was evaluated'):
        execute(dataclasses.replace(copied, mode='eval', min_eval_interval=7, eval_timeout=11))
    assert (asked['min_interval_secs'], asked['timeout']) == (7, 11)
    assert asked['timeout_fn']()
    # TensorFlow waits on when the list of checkpoints cannot be read any more.
    with open(os.path.join(str(copied.model_dir), 'checkpoint'), 'w'):
        pass
    with pytest.raises(CheckpointError, match='lists no checkpoint'):
        asked['timeout_fn']()


def test_follow__skips_a_checkpoint_that_vanishes(copied: Config, monkeypatch: Any) -> None:
    def overtaken(model_dir: str, **options: Any) -> Iterator[str]:
        yield os.path.join(model_dir, 'model.ckpt-3')
        # Only half of it is gone when it is read.
        path = os.path.join(model_dir, 'model.ckpt-4')
        for data in glob.glob(f'{path}.data*'):
            os.remove(data)
        yield path
        yield os.path.join(model_dir, 'model.ckpt-5')

    monkeypatch.setattr(tf.train, 'checkpoints_iterator', overtaken)
    execute(dataclasses.replace(copied, mode='eval'))
    assert steps(copied)[3:] == [5]


def everything_in(config: Config) -> Dict[str, int]:
    return {path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.join(str(config.model_dir), '*.*'))}


@pytest.mark.parametrize(
    ('changes', 'part'),
    [
        ({'num_classes': 12}, r'Logits/biases has the shape \[11\], not \[12\]'),
        ({'num_classes': 12, 'train_steps': 5}, r'Logits/biases has the shape \[11\], not \[12\]'),
        ({'num_classes': 12, 'train_steps': 5, 'mode': 'train'}, r'Logits/biases has the shape \[11\], not \[12\]'),
        ({'num_classes': 12, 'mode': 'eval'}, r'Logits/biases has the shape \[11\], not \[12\]'),
        ({'optimizer': 'momentum'}, 'Momentum is missing'),
    ],
)
def test_cycles__refuse_a_checkpoint_of_another_network(copied: Config, tmp_path: Any, changes: Any, part: str) -> None:
    before = everything_in(copied)
    others = {'train_steps': 9, 'export_dir': str(tmp_path / 'export'), **changes}
    with pytest.raises(CheckpointError, match=part) as error:
        execute(dataclasses.replace(copied, **others))
    assert 'model.ckpt-5' in str(error.value) and 'config.json' in str(error.value)
    # The flags of the run that made it are still there to be read, and nothing was exported.
    after = everything_in(copied)
    assert {path: after[path] for path in before if 'events' not in path} == {
        path: before[path] for path in before if 'events' not in path
    }
    assert os.listdir(str(tmp_path / 'export')) == []


def spoil_state(folder: str) -> None:
    with open(os.path.join(folder, 'checkpoint'), 'w'):
        pass


def lose_data(folder: str) -> None:
    os.remove(os.path.join(folder, 'model.ckpt-5.data-00000-of-00001'))


def empty_index(folder: str) -> None:
    os.truncate(os.path.join(folder, 'model.ckpt-5.index'), 0)


def empty_data(folder: str) -> None:
    os.truncate(os.path.join(folder, 'model.ckpt-5.data-00000-of-00001'), 0)


@pytest.mark.parametrize('mode', ['train', 'train_and_eval', 'eval'])
@pytest.mark.parametrize('spoil', [spoil_state, lose_data, empty_index, empty_data])
def test_cycles__name_a_damaged_checkpoint(copied: Config, spoil: Any, mode: str) -> None:
    spoil(str(copied.model_dir))
    config = dataclasses.replace(copied, mode=mode, train_steps=9, min_eval_interval=0, eval_timeout=1)
    with pytest.raises(CheckpointError, match=r'/checkpoint: lists |model\.ckpt-5: is damaged'):
        execute(config)


def test_evaluation__repeats_with_other_weights(copied: Config, tmp_path: Any) -> None:
    summary = execute(dataclasses.replace(copied, moving_average=False, export_dir=str(tmp_path / 'export')))
    assert 'raw weights of step 5' in summary
    assert [(e.step, e.weights) for e in evaluations(copied)][-2:] == [(5, 'average'), (5, 'raw')]


def test_evaluation__repeats_with_other_settings(copied: Config, caplog: Any) -> None:
    caplog.set_level('INFO')
    otherwise = dataclasses.replace(copied, preprocessing='vgg')
    execute(otherwise)
    execute(otherwise)
    assert steps(copied) == [2, 4, 5, 5]
    assert evaluations(copied)[-1].changed == ('preprocessing: inception -> vgg',)
    assert 'settings that differ from those of the training: preprocessing: inception -> vgg' in caplog.text
    # The first way's result is still the one that the first way reports.
    summary = execute(copied)
    assert steps(copied) == [2, 4, 5, 5]
    assert f'{evaluations(copied)[2].top_5:.2%}' in summary
    execute(dataclasses.replace(copied, display_tensors=True))
    assert steps(copied) == [2, 4, 5, 5, 5]


def test_evaluation__repeats_with_other_data_in_the_same_folder(copied: Config, tmp_path: Any) -> None:
    info = dataset_info.read(copied.data_dir)
    assert info is not None
    assert {(e.data_set, e.fingerprint) for e in evaluations(copied)} == {('digits', info.fingerprint)}
    shutil.copytree(copied.data_dir, tmp_path / 'data')
    moved = dataclasses.replace(copied, data_dir=str(tmp_path / 'data'))
    assert f'digits, {info.fingerprint[:12]}' in execute(moved)
    execute(moved)
    assert steps(copied) == [2, 4, 5, 5]
    dataclasses.replace(info, fingerprint='f' * 64).write(moved.data_dir)
    assert 'digits, ffffffffffff\n' in execute(moved)
    assert steps(copied) == [2, 4, 5, 5, 5]
    assert evaluations(copied)[-1].fingerprint == 'f' * 64


def test_export__refuses_averages_that_the_checkpoint_lacks(copied: Config, tmp_path: Any) -> None:
    raw = dataclasses.replace(
        copied, mode='train', moving_average=False, train_steps=1, model_dir=str(tmp_path / 'raw')
    )
    execute(raw)
    with pytest.raises(CheckpointError, match=r'model\.ckpt-1: has no moving averages'):
        execute(dataclasses.replace(raw, moving_average=True, export_dir=str(tmp_path / 'export')))


def test_evaluation__does_not_record_a_diverged_result(copied: Config) -> None:
    diverging = dataclasses.replace(
        copied, optimizer='sgd', learning_rate=1e30, train_steps=1, model_dir=f'{copied.model_dir}-new'
    )
    with pytest.raises(
        TrainingError,
        match=r'(weights are not finite any more|cross-entropy of the validation images is nan) in step 0',
    ):
        execute(diverging)
    assert evaluations(diverging) == []


@pytest.mark.parametrize('split', ['train', 'validation'])
def test_run__refuses_files_without_records(copied: Config, photos: List[Photo], tmp_path: Any, split: str) -> None:
    for name in ('train', 'validation'):
        write_records(tmp_path / 'data', name, [] if name == split else [photo_example(photos[0]).SerializeToString()])
    with pytest.raises(DataError, match=f'{split}-00000-of-00001: no records'):
        execute(dataclasses.replace(copied, data_dir=str(tmp_path / 'data')))


@pytest.mark.parametrize('flag', ['model_dir', 'export_dir'])
def test_run__refuses_an_unwritable_folder_before_training(copied: Config, tmp_path: Any, flag: str) -> None:
    (tmp_path / 'file').write_text('')
    config = dataclasses.replace(copied, train_steps=9, **{flag: str(tmp_path / 'file' / 'folder')})
    with pytest.raises(ConfigError, match=f'--{flag}={tmp_path}/file/folder: cannot be written to'):
        execute(config)
    assert all_steps(copied)[-1] == 5


def test_bad_records__are_named_and_checkpoints_kept(copied: Config, photos: List[Photo], tmp_path: Any) -> None:
    good = photo_example(photos[0]).SerializeToString()
    outside = photo_example(photos[1])
    outside.features.feature['image/class/label'].int64_list.value[:] = [11]
    broken = photo_example(photos[1])
    broken.features.feature['image/encoded'].bytes_list.value[:] = [photos[1].encoded[:5000]]
    bad_dir = tmp_path / 'bad'
    write_records(bad_dir, 'train', [good, outside.SerializeToString(), good, broken.SerializeToString()])
    write_records(bad_dir, 'validation', [good])
    config = dataclasses.replace(copied, data_dir=str(bad_dir), train_steps=100, train_batch_size=2)
    with pytest.raises(DataError) as error:
        execute(config)
    message = str(error.value)
    assert 'train-00000-of-00001, record 1: label 11 is not in 0 to 10 (--num_classes=11).' in message
    assert 'train-00000-of-00001, record 3: the image (5000 bytes) cannot be decoded' in message
    assert '--max_bad_records=0' in message
    assert tf.train.checkpoint_exists(os.path.join(str(copied.model_dir), 'model.ckpt-5'))


@pytest.mark.parametrize('use', [False, True])
def test_bad_records__include_bad_boxes_only_if_training_uses_boxes(
    copied: Config, photos: List[Photo], tmp_path: Any, use: bool
) -> None:
    good, outside, uneven = (photo_example(photo) for photo in photos[:3])
    outside.features.feature['image/class/label'].int64_list.value[:] = [11]
    set_boxes(uneven, ymin=[0.1, 0.2], xmin=[0.1], ymax=[0.5], xmax=[0.6])
    contents = [example.SerializeToString() for example in (good, uneven, good, outside)]
    write_records(tmp_path / 'bad', 'train', contents)
    write_records(tmp_path / 'bad', 'validation', contents[:3])
    config = dataclasses.replace(
        copied, data_dir=str(tmp_path / 'bad'), use_annotated_bbox=use, train_steps=100, train_batch_size=2
    )
    with pytest.raises(DataError) as error:
        execute(config)
    _, *named, _ = str(error.value).splitlines()
    path = f'{tmp_path}/bad/train-00000-of-00001'
    corners = f'{path}, record 1: bounding boxes with missing corners: image/object/bbox/* differ in length.'
    assert named == [corners] * use + [f'{path}, record 3: label 11 is not in 0 to 10 (--num_classes=11).']


def test_bad_records__are_named_at_the_end_if_skipped(
    copied: Config, photos: List[Photo], tmp_path: Any, caplog: Any
) -> None:
    good = photo_example(photos[0]).SerializeToString()
    write_records(tmp_path / 'bad', 'train', [good])
    write_records(tmp_path / 'bad', 'validation', [good, b'nonsense', good])
    # One that an earlier command left, and that has been mended since.
    stale = tmp_path / 'model' / 'bad_records' / 'validation'
    os.makedirs(str(stale))
    (stale / 'validation-00000-of-00001@0').write_text('')
    caplog.set_level('INFO')
    config = dataclasses.replace(
        copied, data_dir=str(tmp_path / 'bad'), mode='eval', max_bad_records=1, num_eval_images=3, eval_batch_size=2
    )
    execute(config)
    assert evaluations(config)[-1].images == 2
    skipped = [record.message for record in caplog.records if record.message.startswith('skipped')]
    assert len(skipped) == 1
    assert '1 records could not be used:' in caplog.messages
    assert 'validation-00000-of-00001, record 1: not a tf.train.Example.' in skipped[0]


def test_run__refuses_max_bad_records_of_all_records(copied: Config, photos: List[Photo], tmp_path: Any) -> None:
    """If they were, the input pipeline would look for a good one for ever."""
    write_records(tmp_path / 'bad', 'train', [b'nonsense'] * 3)
    config = dataclasses.replace(
        copied, data_dir=str(tmp_path / 'bad'), mode='train', train_steps=100, max_bad_records=5
    )
    with pytest.raises(DataError, match='3 records, and --max_bad_records=5 allows all of them to be skipped'):
        execute(config)


def test_run__refuses_fewer_files_than_hosts(photos: List[Photo], tmp_path: Any) -> None:
    data_dir = str(tmp_path)
    paths = [records.shard_path(data_dir, 'train', shard, 4) for shard in range(4)]
    # The second host's are empty.
    for path, count in zip(paths, (1, 0, 1, 0)):
        with tf.io.TFRecordWriter(path) as writer:
            for _ in range(count):
                writer.write(photo_example(photos[0]).SerializeToString())
    one = Config(use_tpu=False, data_dir=data_dir)
    check_files(one, 'train', paths)
    two = dataclasses.replace(one, use_tpu=True, tpu='emulated:8x2', num_shards=8)
    with pytest.raises(DataError, match='train-00001-of-00004 and the other files: no records'):
        check_files(two, 'train', paths)
    # The first host evaluates for all.
    check_files(two, 'validation', paths)


def test_run__names_files_that_are_not_read(copied: Config, photos: List[Photo], tmp_path: Any, caplog: Any) -> None:
    write_records(tmp_path / 'data', 'validation', [photo_example(photos[0]).SerializeToString()])
    for name in ('validation-00001-of-00001.gz', 'validation-00000-of-00001.bak', 'validation.txt'):
        (tmp_path / 'data' / name).write_text('')
    caplog.set_level('INFO')
    execute(dataclasses.replace(copied, data_dir=str(tmp_path / 'data'), mode='eval'))
    (note,) = [message for message in caplog.messages if 'not read' in message]
    assert note == (
        f'--data_dir={tmp_path}/data: not read, because not named like validation-00000-of-00001: '
        'validation-00000-of-00001.bak, validation-00001-of-00001.gz'
    )


def test_run__names_a_truncated_record_file(copied: Config, photos: List[Photo], tmp_path: Any) -> None:
    good = photo_example(photos[0]).SerializeToString()
    write_records(tmp_path / 'cut', 'validation', [good, good])
    path = records.shard_path(str(tmp_path / 'cut'), 'validation', 0, 1)
    os.truncate(path, os.path.getsize(path) - 100)
    config = dataclasses.replace(copied, data_dir=str(tmp_path / 'cut'), mode='eval', max_bad_records=5)
    with pytest.raises(DataError, match=r'validation-00000-of-00001, record 1: the file is damaged or truncated'):
        execute(config)


def test_evaluation__reads_a_data_set_of_unexpected_size_whole(copied: Config, caplog: Any) -> None:
    caplog.set_level('INFO')
    execute(dataclasses.replace(copied, mode='eval', num_eval_images=300))
    assert evaluations(copied)[-1].images == IMAGES
    assert any('300 images were expected' in record.message for record in caplog.records)


def test_divergence__stops_the_run_with_advice(copied: Config) -> None:
    config = dataclasses.replace(copied, learning_rate=1e30, train_steps=50, train_steps_per_eval=50)
    with pytest.raises(
        TrainingError,
        match=r'not a number any more in step \d+, at a learning rate of .* of step 5 is kept.*--learning_rate',
    ):
        execute(config)
