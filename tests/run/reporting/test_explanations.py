"""Tests of the texts that explain a failure, and of the actions before the run stops."""

import dataclasses
import os
from typing import Any, List, Tuple
from unittest import mock

import pytest

from compat import tf
from compat.errors import CheckpointError, CommandError
from console.screen import Screen
from data.records import DataError
from data.remote import RemoteError, UnreachableError
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import DamagedError
from inception_v3.run import failures
from inception_v3.run.failures import DivergedError
from tests.support.checkpoints import list_checkpoints, save_step
from tests.support.records import write_records

KEPT = 'The checkpoint of step 7 is kept, and the same command resumes from it.'


def quiet() -> Any:
    """A screen that counts how often its live line is cleared."""
    return mock.create_autospec(Screen, instance=True)


@pytest.fixture
def model_dir(tmp_path: Any) -> str:
    """A folder with the checkpoints of steps 3 and 7."""
    folder = str(tmp_path / 'model')
    save_step(folder, 3)
    save_step(folder, 7)
    list_checkpoints(folder, 3, 7)
    return folder


def test_what_is_kept__names_the_newest_step(model_dir: str, tmp_path: Any) -> None:
    assert failures.what_is_kept(model_dir) == KEPT
    save_step(str(tmp_path / 'begun'), 0)
    for name in ('empty', 'begun'):
        assert (
            failures.what_is_kept(str(tmp_path / name)) == 'There is no checkpoint yet; the same command starts over.'
        )
    with open(f'{model_dir}/checkpoint', 'w') as file:
        file.write('damaged')
    text = 'The content of --model_dir is kept, and the same command resumes from it.'
    assert failures.what_is_kept(model_dir) == text


@pytest.mark.parametrize(
    ('error', 'kind', 'text'),
    [
        (tf.errors.UnavailableError(None, None, '503 at gs://b/x'), UnreachableError, 'gs://b/x: cannot be reached'),
        (tf.errors.PermissionDeniedError(None, None, 'code 403 at gs://b/x'), RemoteError, 'gs://b/x: '),
        (UnreachableError('gs://bucket/y: gone.'), UnreachableError, 'gs://bucket/y: gone.'),
        (RemoteError('gs://bucket/z: denied.'), RemoteError, 'gs://bucket/z: denied.'),
    ],
)
def test_remote_failures__name_the_cause_and_the_kept_checkpoint(
    error: Exception, kind: Any, text: str, model_dir: str
) -> None:
    screen = quiet()
    with pytest.raises(RemoteError) as found, failures.remote_failures_explained(Config(model_dir=model_dir), screen):
        raise error
    assert type(found.value) is kind
    assert str(found.value).startswith(text) and str(found.value).endswith(f' {KEPT}')
    assert screen.clear.call_count == 1


@pytest.mark.parametrize(
    ('explained', 'error'),
    [
        (failures.remote_failures_explained, tf.errors.InvalidArgumentError(None, None, 'of a local file')),
        (failures.remote_failures_explained, ValueError('no')),
        (failures.disk_failures_explained, ConfigError('No space left on device')),
        (failures.disk_failures_explained, ValueError('no')),
        (failures.disk_failures_explained, OSError(13, 'denied')),
    ],
)
def test_other_errors__stay_as_they_are(explained: Any, error: Exception, model_dir: str) -> None:
    with pytest.raises(type(error)) as found, explained(Config(model_dir=model_dir), quiet()):
        raise error
    assert found.value is error


@pytest.mark.parametrize(('mode', 'left'), [('train_and_eval', False), ('train', False), ('eval', True)])
def test_disk_failures__remove_unfinished_files_unless_evaluating(
    mode: str, left: bool, model_dir: str, caplog: Any
) -> None:
    half = f'{model_dir}/model.ckpt-9_temp_0123456789abcdef0123456789abcdef'
    os.mkdir(half)
    screen = quiet()
    message = f'^--model_dir={model_dir}: cannot be written to: file too large; .* {KEPT}$'
    config = Config(model_dir=model_dir, mode=mode)
    with pytest.raises(CommandError, match=message), failures.disk_failures_explained(config, screen):
        raise OSError(27, 'File too large')
    assert (os.path.isdir(half), screen.clear.call_count) == (left, 1)
    assert ('removed unfinished files of this run from' in caplog.text) == (not left)


def test_vanished_folder__is_not_called_damaged(model_dir: str) -> None:
    gone, error = Config(model_dir=f'{model_dir}/gone'), DamagedError('model.ckpt-9', 'files are missing')
    with pytest.raises(CommandError, match='has vanished'), failures.disk_failures_explained(gone, quiet()):
        raise error
    with pytest.raises(DamagedError), failures.disk_failures_explained(Config(model_dir=model_dir), quiet()):
        raise error


def test_disk_failures__name_a_record_file_that_vanished_and_the_kept_checkpoint(model_dir: str) -> None:
    path = os.path.join(model_dir, 'train-00000-of-00001')
    message = f'^A record file cannot be read: {path}; No such file or directory. Restore it. {KEPT}$'
    with tf.Graph().as_default(), tf.Session() as session:
        record = tf.data.make_one_shot_iterator(tf.data.TFRecordDataset(path)).get_next()
        with pytest.raises(CommandError, match=message), failures.disk_failures_explained(
            Config(model_dir=model_dir), quiet()
        ):
            session.run(record)


def failing_input(config: Config, splits: List[str], message: str = 'x [[{{node IteratorGetNext}}]]') -> None:
    with failures.bad_records_explained(config, splits, quiet()):
        raise tf.errors.InvalidArgumentError(None, None, message)


@pytest.mark.parametrize(('records', 'more'), [(10, []), (11, ['and more.'])])
def test_bad_records__of_all_splits_ten_are_named_at_most(records: int, more: List[str], tmp_path: Any) -> None:
    write_records(tmp_path, 'train', [b'x'] * (records - 1))
    write_records(tmp_path, 'validation', [b'x'])
    config = Config(data_dir=str(tmp_path), model_dir=str(tmp_path / 'model'), max_bad_records=2)
    with pytest.raises(DataError) as found:
        failing_input(config, ['train', 'validation'])
    first, *lines = str(found.value).splitlines()
    assert first == '--max_bad_records=2: more bad records than allowed:'
    names = [f'{tmp_path}/train-00000-of-00001, record {number}' for number in range(records - 1)]
    names.append(f'{tmp_path}/validation-00000-of-00001, record 0')
    assert [line.partition(': ')[0] for line in lines[:10]] == names[:10] and lines[10:-1] == more
    assert lines[-1].startswith('Repair the data, or raise --max_bad_records; a damaged TFRecord file cannot')


def test_bad_records__are_searched_only_if_the_input_failed(tmp_path: Any) -> None:
    write_records(tmp_path, 'train', [b'x'])
    write_records(tmp_path, 'validation', [])
    config = Config(data_dir=str(tmp_path))
    with pytest.raises(DataError, match='record 0'):
        failing_input(config, ['train'], 'Could not parse example input')
    for other, splits, message in (
        (config, ['train'], 'NaN in a step'),
        (config, ['train'], 'IteratorGetNext: gs://b/x could not be read beyond byte 7'),
        (dataclasses.replace(config, use_data='fake'), ['train'], 'IteratorGetNext'),
        # No bad record is found in the split that was read.
        (config, ['validation'], 'IteratorGetNext'),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError):
            failing_input(other, splits, message)


def test_check_reachable__reads_the_splits_and_writes_to_the_folder(tmp_path: Any) -> None:
    write_records(tmp_path, 'validation', [b'x'])
    config = Config(data_dir=str(tmp_path), model_dir=str(tmp_path / 'new'), mode='eval')
    failures.check_reachable(config)
    assert os.path.isdir(str(tmp_path / 'new'))
    with pytest.raises(DataError, match='train'):
        failures.check_reachable(dataclasses.replace(config, mode='train'))


EXPLODED = 'The loss has exploded to 1e+09'


def diverged(model_dir: str, steps_before: int, began_at: Any, **changes: Any) -> Tuple[str, List[str]]:
    """The text about a run that diverged in step 8, and the checkpoints left in its folder."""
    config = Config(model_dir=model_dir, **{'use_tpu': False, **changes})
    text = str(failures.diverged(DivergedError(EXPLODED, 8, steps_before), config, began_at))
    return text, sorted(name for name in os.listdir(model_dir) if name.endswith('.index'))


ADVICE = 'A lower --learning_rate, or --use_learning_rate_warmup, keeps the loss finite.'
BOTH = ['model.ckpt-3.index', 'model.ckpt-7.index']


@pytest.mark.parametrize(
    ('steps_before', 'began_at', 'use_tpu', 'moved'),
    [
        *((7, 7, False, True), (7, 3, True, True), (7, None, True, True)),
        # Not the newest checkpoint, or the checkpoint of the beginning on a TPU.
        *((7, 7, True, False), (6, 3, False, False), (3, 3, False, False)),
    ],
)
def test_diverged__moves_the_newest_checkpoint_away_if_it_may_be_the_cause(
    steps_before: int, began_at: Any, use_tpu: bool, moved: bool, model_dir: str
) -> None:
    text, left = diverged(model_dir, steps_before, began_at, use_tpu=use_tpu)
    cause = f'The checkpoint of step 7, which led to it, was moved into {model_dir}/passed_over. ' * moved
    kept = f'{cause}The checkpoint of step {3 if moved else 7} is kept. {ADVICE}'
    assert text == f'{EXPLODED} in step 8, at a learning rate of 0.66. {kept}'
    assert left == (BOTH[:1] if moved else BOTH)
    assert not moved or 'model.ckpt-7.index' in os.listdir(f'{model_dir}/passed_over')


def test_diverged__keeps_the_only_checkpoint_and_has_the_rate_of_its_step(model_dir: str, tmp_path: Any) -> None:
    list_checkpoints(model_dir, 7)
    # An epoch is a step, so that the rate halves in step 8.
    changes = {'schedule': 'step', 'step_epochs': '8', 'learning_rate_decay': 0.5, 'num_train_images': 1024}
    text, _ = diverged(model_dir, 7, 0, **changes)
    assert 'passed_over' not in text and 'in step 8, at a learning rate of 0.33. ' in text
    (tmp_path / 'empty').mkdir()
    assert 'The checkpoint of step 0 is kept. ' in diverged(str(tmp_path / 'empty'), 0, 0)[0]
    with open(f'{model_dir}/checkpoint', 'w') as file:
        file.write('damaged')
    with pytest.raises(CheckpointError):
        diverged(model_dir, 7, 0)
