"""Tests of saving, verifying and skipping checkpoints, with real damage to their files."""

import itertools
import os
import random
import re
import shutil
from typing import Any, Dict, List

import pytest

from compat import tf
from compat.errors import CheckpointError
from inception_v3.model_dir import DamagedError, check_undamaged, latest_checkpoint
from inception_v3.run import checkpoints
from inception_v3.run.checkpoints import set_aside, skip_damaged, step_before
from inception_v3.run.failures import DivergedError
from inception_v3.run.hooks import saving
from tests.support.checkpoints import saved_variables

NAME = 'model.ckpt-{}'


def save(model_dir: Any, *steps: int) -> None:
    """Saves checkpoints of a model with one variable, with the program's own hook."""
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        tf.get_variable('x', initializer=tf.range(1000.0), use_resource=True)
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        hook = saving.CheckpointHook(str(model_dir), 1000, 1)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for number in steps:
                step.load(number, session)
                hook._summary_writer = tf.summary.FileWriterCache.get(str(model_dir))
                hook._save(session, number)


def listed(model_dir: Any) -> List[str]:
    state = tf.train.get_checkpoint_state(str(model_dir))
    return [os.path.basename(path) for path in state.all_model_checkpoint_paths]


def flip(path: str, position: int, bit: int = 0) -> None:
    with open(path, 'r+b') as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def data_of(model_dir: Any, step: int) -> str:
    return os.path.join(str(model_dir), f'{NAME.format(step)}.data-00000-of-00001')


def index_of(model_dir: Any, step: int) -> str:
    return os.path.join(str(model_dir), f'{NAME.format(step)}.index')


@pytest.mark.parametrize(('seconds', 'saves'), [(1, True), (0, False)])
def test_hook__with_0_seconds_does_not_save_by_time(seconds: int, saves: bool, tmp_path: Any) -> None:
    timer = saving.CheckpointHook(str(tmp_path), seconds, 1)._timer
    timer.update_last_triggered_step(1)
    timer._last_triggered_time -= 1e6
    assert timer.should_trigger_for_step(2) == saves


def test_save__refuses_weights_after_the_step_that_spoilt_them(tmp_path: Any) -> None:
    step = tf.train.get_or_create_global_step()
    tf.get_variable('x', initializer=float('nan'))
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step.load(7, session)
        with pytest.raises(DivergedError) as error:
            saving.CheckpointHook(str(tmp_path), 1000, 1)._save(session, 7)
    # Steps are counted from 0: the seventh step is step 6.
    assert (error.value.step, error.value.steps_before) == (6, 7)


def test_save__keeps_the_newest_five_and_writes_no_step_twice(tmp_path: Any) -> None:
    save(tmp_path, *range(1, 8))
    assert listed(tmp_path) == [NAME.format(step) for step in range(3, 8)]
    left = {name.split('.')[1] for name in os.listdir(str(tmp_path)) if name.startswith('model')}
    assert left == {f'ckpt-{step}' for step in range(3, 8)}
    assert latest_checkpoint(str(tmp_path)) == tf.train.latest_checkpoint(str(tmp_path)) == f'{tmp_path}/model.ckpt-7'
    before = os.stat(index_of(tmp_path, 7)).st_mtime_ns
    save(tmp_path, 7)
    assert os.stat(index_of(tmp_path, 7)).st_mtime_ns == before


@pytest.mark.parametrize('first', ['step-500/model.ckpt-500', 'pretrained.ckpt'])
def test_save__lists_the_checkpoint_of_the_beginning_until_there_are_five_others(tmp_path: Any, first: str) -> None:
    save(tmp_path / 'before', 500)
    for path in (tmp_path / 'before').glob('model.ckpt-500.*'):
        copy = tmp_path / 'run' / path.name.replace('model.ckpt-500', first)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(path), str(copy))
    model_dir = tmp_path / 'run'
    (model_dir / 'checkpoint').write_text(f'model_checkpoint_path: "{first}"\n')
    save(model_dir, 510)
    # If the new checkpoint is set aside, the run resumes from the first one.
    assert step_before(str(model_dir), 510) == (500 if 'step' in first else None)
    set_aside(str(model_dir), 510)
    assert latest_checkpoint(str(model_dir)) == str(model_dir / first)
    save(model_dir, *range(520, 570, 10))
    assert listed(model_dir) == [NAME.format(step) for step in range(520, 570, 10)]
    assert (model_dir / f'{first}.index').exists()
    save(model_dir, 570)
    assert listed(model_dir) == [NAME.format(step) for step in range(530, 580, 10)]
    assert skip_damaged(str(model_dir)) == str(model_dir / NAME.format(570))


class Killed(BaseException):
    """Stops the code under test, like a kill: no handler catches it."""


def test_save__survives_a_kill_in_any_file_operation(tmp_path: Any) -> None:
    save(tmp_path / 'before', *range(1, 6))
    for fatal in itertools.count():
        model_dir = shutil.copytree(str(tmp_path / 'before'), str(tmp_path / str(fatal)))
        count = itertools.count()

        def counted(operation: Any, fatal: int = fatal, count: Any = count) -> Any:
            def run(*arguments: Any) -> None:
                if next(count) == fatal:
                    raise Killed
                operation(*arguments)

            return run

        def copy_step_5(model_dir: str = model_dir) -> None:
            for path in (data_of, index_of):
                shutil.copy(path(model_dir, 5), path(model_dir, 6))

        with pytest.MonkeyPatch.context() as patch:
            for module, name in ((checkpoints, 'write_whole'), (tf.io.gfile, 'remove')):
                patch.setattr(module, name, counted(getattr(module, name)))
            try:
                checkpoints.save(model_dir, 6, counted(copy_step_5))
                break
            except Killed:
                pass
        names = listed(model_dir)
        # Note, write, list: from then on, the new checkpoint counts, and the oldest does not.
        assert names == [NAME.format(step) for step in (range(1, 6) if fatal < 3 else range(2, 7))]
        for name in names:
            check_undamaged(os.path.join(model_dir, name))
        checkpoints.remove_leftovers(model_dir)
        left = {int(name.split('.')[1].rpartition('-')[2]) for name in os.listdir(model_dir) if 'ckpt' in name}
        assert left == {int(name.rpartition('-')[2]) for name in names}
    # Note, write, list, three files of the oldest, note.
    assert fatal == 7
    assert 'saving.unfinished' not in os.listdir(model_dir)


@pytest.mark.parametrize('file_of', [data_of, index_of])
def test_save__never_lists_a_checkpoint_that_cannot_be_read_back(tmp_path: Any, file_of: Any) -> None:
    save(tmp_path, *range(1, 6))

    def write_damaged() -> None:
        for path in (data_of, index_of):
            shutil.copy(path(tmp_path, 5), path(tmp_path, 6))
        flip(file_of(tmp_path, 6), 20)

    with pytest.raises(DamagedError, match=r'model\.ckpt-6: is damaged'):
        checkpoints.save(str(tmp_path), 6, write_damaged)
    assert listed(tmp_path) == [NAME.format(step) for step in range(1, 6)]
    check_undamaged(str(tmp_path / 'model.ckpt-1'))
    # The next command removes the damaged files.
    checkpoints.remove_leftovers(str(tmp_path))
    assert not os.path.exists(data_of(tmp_path, 6))


def values_of(checkpoint: str) -> Dict[str, bytes]:
    return {name: value.tobytes() for name, value in saved_variables(checkpoint).items()}


@pytest.mark.parametrize(('file_of', 'unread_fraction'), [(data_of, 0), (index_of, 0.5)])
def test_check_undamaged__finds_every_flipped_bit_that_changes_a_value(
    tmp_path: Any, file_of: Any, unread_fraction: float
) -> None:
    save(tmp_path, 1)
    path, checkpoint = file_of(tmp_path, 1), str(tmp_path / 'model.ckpt-1')
    check_undamaged(checkpoint)
    expected, found, draw = values_of(checkpoint), 0, random.Random(1)
    for _ in range(60):
        position, bit = draw.randrange(os.path.getsize(path)), draw.randrange(8)
        flip(path, position, bit)
        try:
            check_undamaged(checkpoint)
            assert values_of(checkpoint) == expected
        except DamagedError as error:
            assert f'model.ckpt-1: is damaged ({os.path.basename(path)}: ' in str(error)
            found += 1
        flip(path, position, bit)
    # TensorFlow never reads the end of an index file, which holds padding and an empty list of blocks.
    assert found >= 60 * (1 - unread_fraction)


@pytest.mark.parametrize('file_of', [data_of, index_of])
def test_check_undamaged__finds_truncated_and_missing_files(tmp_path: Any, file_of: Any) -> None:
    save(tmp_path, 1)
    path = file_of(tmp_path, 1)
    for size in (os.path.getsize(path) // 2, 0):
        os.truncate(path, size)
        with pytest.raises(DamagedError, match=rf'is damaged \({os.path.basename(path)}: '):
            check_undamaged(str(tmp_path / 'model.ckpt-1'))
    os.remove(path)
    with pytest.raises(DamagedError, match='files are missing'):
        check_undamaged(str(tmp_path / 'model.ckpt-1'))


def test_skip_damaged__moves_and_logs_damaged_checkpoints(tmp_path: Any, caplog: Any) -> None:
    save(tmp_path, 1, 2, 3, 4)
    flip(data_of(tmp_path, 4), 100)
    os.remove(index_of(tmp_path, 3))
    assert skip_damaged(str(tmp_path)) == latest_checkpoint(str(tmp_path)) == str(tmp_path / 'model.ckpt-2')
    assert listed(tmp_path) == ['model.ckpt-1', 'model.ckpt-2']
    moved = [f'{NAME.format(step)}.{kind}' for step in (3, 4) for kind in ('data-00000-of-00001', 'index', 'meta')]
    moved.remove('model.ckpt-3.index')
    assert sorted(os.listdir(str(tmp_path / 'passed_over'))) == moved
    newer, older = [message for message in caplog.messages if 'skipped, and moved into' in message]
    assert re.search(r'model\.ckpt-4: is damaged \(.*model\.ckpt-4.*: Checksum does not match', newer)
    assert older.endswith('model.ckpt-3: is damaged (files are missing).')
    # The same steps can be saved again.
    save(tmp_path, 3, 4)
    check_undamaged(str(tmp_path / 'model.ckpt-4'))
    assert listed(tmp_path) == [NAME.format(step) for step in range(1, 5)]


def test_skip_damaged__replaces_a_list_of_one(tmp_path: Any) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"\n')
    flip(data_of(tmp_path, 2), 9)
    assert skip_damaged(str(tmp_path)) == latest_checkpoint(str(tmp_path)) == str(tmp_path / 'model.ckpt-1')


def test_skip_damaged__respects_lists_and_survives_damaged_checkpoints_alone(tmp_path: Any) -> None:
    assert skip_damaged(str(tmp_path)) is None
    save(tmp_path, *range(1, 6))
    # A list that ends with an older checkpoint is respected.
    (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-4"\n')
    assert skip_damaged(str(tmp_path)) == str(tmp_path / 'model.ckpt-4')
    for step in (6, 7):
        for path in (data_of, index_of):
            shutil.copy(path(tmp_path, 5), path(tmp_path, step))
    (tmp_path / 'checkpoint').write_text('')
    assert skip_damaged(str(tmp_path)) == str(tmp_path / 'model.ckpt-7')
    assert listed(tmp_path) == [NAME.format(step) for step in range(3, 8)]
    for step in range(1, 8):
        flip(data_of(tmp_path, step), 9)
    with pytest.raises(CheckpointError, match=r'all checkpoints are damaged. .*model\.ckpt-7'):
        skip_damaged(str(tmp_path))
    assert os.path.exists(data_of(tmp_path, 7)) and not os.path.exists(str(tmp_path / 'passed_over'))


def test_remove_leftovers__removes_only_unfinished_files(tmp_path: Any) -> None:
    save(tmp_path, 1, 2, 3)
    kept = sorted(os.listdir(str(tmp_path)))
    shutil.copytree(str(tmp_path), str(tmp_path / 'model.ckpt-5_temp_0123456789abcdef'))
    for name in ('model.ckpt-5.data-00000-of-00001', 'model.ckpt-0.meta', 'model.ckpt-4.index', '.probe-77'):
        (tmp_path / name).write_text('half')
    shutil.copy(data_of(tmp_path, 3), data_of(tmp_path, 4))
    (tmp_path / 'saving.unfinished').write_text('model.ckpt-5 model.ckpt-4 model.ckpt-0 model.ckpt-3')
    for name in ('checkpoint.tmp0123456789abcdef0123456789abcdef', 'config.json.unfinished', 'trainer.json.tmpab12'):
        (tmp_path / name).write_text('half')
    for step in (0, 3):
        (tmp_path / f'model.ckpt-{step}.meta.tmpfdd39494f2c44edea53d0c4b6d843c94').write_text('half')
    # Three things stay for the user to decide: an unlisted, complete checkpoint, a file of the user, and a listed,
    # damaged checkpoint.
    for path in (data_of(tmp_path, 1), index_of(tmp_path, 1)):
        shutil.copy(path, path.replace('ckpt-1.', 'ckpt-9.'))
    (tmp_path / 'notes.txt').write_text('mine')
    os.truncate(index_of(tmp_path, 2), 0)
    checkpoints.remove_leftovers(str(tmp_path))
    unlisted = ['model.ckpt-9.data-00000-of-00001', 'model.ckpt-9.index', 'notes.txt']
    assert sorted(os.listdir(str(tmp_path))) == sorted(kept + unlisted)
