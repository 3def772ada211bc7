"""Tests of reading weights: the four kinds of sources, and other files."""

import os
import shutil
from typing import Any

import numpy as np
import pytest

from compat import tf
from compat.errors import FIX, CheckpointError
from inception_v3.model_dir import digest_of_checkpoint
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.checkpoints import save_step, saved_variables
from tests.support.runs import FinishedRun


def test_read__takes_a_model_dir_or_a_checkpoint(finished_run: FinishedRun) -> None:
    model_dir = str(finished_run.config.model_dir)
    newest = sources.read(model_dir)
    assert (newest.path, newest.kind, newest.step) == (os.path.join(model_dir, 'model.ckpt-5'), 'checkpoint', 5)
    assert newest.has_averages and newest.config == finished_run.config
    np.testing.assert_equal(newest.values, saved_variables(model_dir))
    # The digest that provenance shows.
    assert newest.digest == digest_of_checkpoint(newest.path)
    older = sources.read(os.path.join(model_dir, 'model.ckpt-2'))
    assert older.step == 2 and older.digest != newest.digest


def test_named_by__is_the_checkpoint_or_folder_of_a_file(tmp_path: Any, monkeypatch: Any) -> None:
    save_step(str(tmp_path), 3)
    path = str(tmp_path / 'model.ckpt-3')
    for ending in ('', '.index', '.meta', '.data-00000-of-00001'):
        assert sources.named_by(path + ending) == path
    other = str(tmp_path / 'model.ckpt-4.index')
    assert sources.named_by(other) == other
    assert sources.named_by(str(tmp_path / 'checkpoint')) == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert sources.named_by('checkpoint') == '.'
    assert sources.named_by('no/checkpoint') == 'no/checkpoint' and sources.named_by('variables') == 'variables'
    (tmp_path / 'model' / 'variables').mkdir(parents=True)
    for name in ('saved_model.pb', 'variables/variables.index'):
        (tmp_path / 'model' / name).touch()
    for name in ('model/saved_model.pb', 'model/variables'):
        assert sources.named_by(name) == 'model'


def test_read__takes_a_saved_model_without_its_graph(finished_run: FinishedRun, tmp_path: Any) -> None:
    export_dir = str(finished_run.config.export_dir)
    (name,) = (each for each in os.listdir(export_dir) if each.isdigit())
    shutil.copytree(os.path.join(export_dir, name), str(tmp_path / 'model'))
    # The graph is not even parsed.
    (tmp_path / 'model' / 'saved_model.pb').write_bytes(b'no graph')
    exported = sources.read(str(tmp_path / 'model'))
    run = saved_variables(str(finished_run.config.model_dir))
    # An export has only the averages, under their own names.
    np.testing.assert_equal(exported.values, {name: run[name] for name in exported.values})
    assert exported.kind == 'SavedModel' and exported.has_averages and 'Layer/weights' not in exported.values


def test_read__takes_npz_files_with_names_of_variables_or_tensors(tmp_path: Any) -> None:
    path = str(tmp_path / 'weights.npz')
    values = {'Layer/weights': np.asfortranarray(np.eye(3)[:2]), 'Layer/none': np.zeros([0, 3])}
    np.savez_compressed(path, **values, **{'Logits/biases:0': np.array(2.0)})
    read = sources.read(path)
    np.testing.assert_equal(read.values, {**values, 'Logits/biases': np.array(2.0)})
    assert (read.kind, read.step, read.config) == ('npz', None, None)


def test_read__takes_a_checkpoint_of_the_first_format(tmp_path: Any) -> None:
    path = str(tmp_path / 'inception_v3.ckpt')
    tf.get_variable('weights', initializer=[1.0, 2.0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver(write_version=tf.train.SaverDef.V1).save(session, path, write_meta_graph=False)
    os.remove(tmp_path / 'checkpoint')
    assert os.listdir(tmp_path) == ['inception_v3.ckpt']
    np.testing.assert_array_equal(sources.read(path).values['weights'], [1.0, 2.0])


@pytest.mark.parametrize(
    ('name', 'content', 'reason'),
    [
        (
            'nothing',
            None,
            'no complete checkpoint or SavedModel is there. Name a checkpoint .*, the model_dir of a run',
        ),
        ('nothing.npz', None, 'no such file'),
        ('text.ckpt', b'not a checkpoint', 'is not a checkpoint, or is damaged'),
        ('text.npz', b'not an archive', 'is not a NumPy file of arrays'),
        ('a.bin', b'hello', r'is not a checkpoint, or is damaged .* inception-v3 weights import FILE MODEL_DIR'),
        ('folder', 'folder', r'no complete checkpoint .* a SavedModel \(a numbered folder in an export_dir\)'),
    ],
)
def test_read__refuses_other_files_with_a_reason(name: str, content: Any, reason: str, tmp_path: Any) -> None:
    path = tmp_path / name
    if content == 'folder':
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(WeightsError, match=reason) as error:
        sources.read(str(path))
    assert str(error.value).startswith(f'--init_from={path}: ') and error.value.exit_code == FIX


def test_read__refuses_damaged_and_incomplete_checkpoints(tmp_path: Any) -> None:
    save_step(str(tmp_path), 3, a=1.0)
    data = tmp_path / 'model.ckpt-3.data-00000-of-00001'
    whole = data.read_bytes()
    data.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(WeightsError, match=r'model\.ckpt-3 is not a checkpoint, or is damaged'):
        sources.read(str(tmp_path))
    data.write_bytes(whole[:-4])
    with pytest.raises(WeightsError, match='is damaged'):
        sources.read(str(tmp_path / 'model.ckpt-3'))
    data.unlink()
    with pytest.raises(CheckpointError, match='files of it are missing'):
        sources.read(str(tmp_path))
    with pytest.raises(WeightsError, match='no complete checkpoint'):
        sources.read(str(tmp_path / 'model.ckpt-3'))


def test_source__has_the_step_of_a_scalar_alone() -> None:
    for value, step, text in (
        (np.array(1234), 1234, 'p (npz, step 1,234)'),
        (np.array([0]), 0, 'p (npz, step 0)'),
        (np.array([1, 2]), None, 'p (npz)'),
        (None, None, 'p (npz)'),
    ):
        source = sources.Source('p', 'npz', {} if value is None else {'global_step': value}, '', None)
        assert (source.step, str(source), source.has_averages) == (step, text, False)


def test_check_memory__allows_256_mib_or_16_times_the_file() -> None:
    sources.check_memory(1 << 28, 1)
    sources.check_memory(16 * (1 << 25), 1 << 25)
    with pytest.raises(
        ValueError, match=r'^its tensors need 268,435,457 bytes of memory, too many for a file of 1,024'
    ):
        sources.check_memory((1 << 28) + 1, 1024)
    with pytest.raises(ValueError, match='need 536,870,913 bytes'):
        sources.check_memory(16 * (1 << 25) + 1, 1 << 25)


def test_check_members__reads_their_number_in_the_last_record() -> None:
    def end(count: int) -> bytes:
        # A similar record before it is part of a member. Then: disks, members on this disk, and members in all.
        earlier = b'PK\5\6' + b'\xff' * 20
        return earlier + b'PK\5\6' + bytes(6) + count.to_bytes(2, 'little') + bytes(10)

    sources.check_members(end(10_000))
    with pytest.raises(ValueError, match=r'^it holds 10,001 arrays; weights are at most 10,000$'):
        sources.check_members(end(10_001))
