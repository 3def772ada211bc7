"""Tests of evaluations: weights, changed settings, other data, and following another run's checkpoints."""

import dataclasses
import glob
import os
import pathlib
import re
import shutil
import threading
import time
from typing import Any, Dict, Iterator

import pytest

from compat import tf
from compat.errors import CheckpointError
from data import dataset_info
from inception_v3.config import Config, ConfigError
from tests.support.processes import wait_for
from tests.support.runs import evaluated_steps, evaluations, execute, forget


@pytest.mark.program
def test_evaluation__repeats_with_other_settings(copied: Config, caplog: Any) -> None:
    changed = dataclasses.replace(copied, preprocessing='vgg')
    execute(changed)
    execute(changed)
    assert evaluated_steps(copied) == [2, 4, 5, 5]
    assert evaluations(copied)[-1].changed == ('preprocessing: inception -> vgg',)
    assert 'settings that differ from those of the training: preprocessing: inception -> vgg' in caplog.text
    # A command with the original settings reports the original result, and evaluates nothing.
    summary = execute(copied)
    assert evaluated_steps(copied) == [2, 4, 5, 5]
    assert f'{evaluations(copied)[2].top_5:.2%}' in summary
    execute(dataclasses.replace(copied, display_tensors=True))
    assert evaluated_steps(copied) == [2, 4, 5, 5, 5]


def test_evaluation__repeats_with_other_data_in_the_same_folder(copied: Config, tmp_path: Any) -> None:
    info = dataset_info.read(copied.data_dir)
    assert info is not None
    assert {(e.data_set, e.fingerprint) for e in evaluations(copied)} == {('digits', info.fingerprint)}
    shutil.copytree(copied.data_dir, tmp_path / 'data')
    moved = dataclasses.replace(copied, data_dir=str(tmp_path / 'data'))
    assert f'digits, {info.fingerprint[:12]}' in execute(moved)
    # A copy of the same images, which need no new evaluation.
    assert evaluated_steps(copied) == [2, 4, 5]
    dataclasses.replace(info, fingerprint='f' * 64).write(moved.data_dir)
    with pytest.raises(ConfigError, match=rf'fingerprint: {info.fingerprint[:12]} -> ffffffffffff\. .*--allow_other'):
        execute(moved)
    allowed = dataclasses.replace(moved, allow_other_data_set=True)
    assert 'digits, ffffffffffff\n' in execute(allowed)
    execute(allowed)
    assert evaluated_steps(copied) == [2, 4, 5, 5]
    assert evaluations(copied)[-1].fingerprint == 'f' * 64
    assert evaluations(copied)[-1].changed == (f'fingerprint: {info.fingerprint[:12]} -> ffffffffffff',)


def test_evaluation__reads_a_data_set_of_unexpected_size_whole(copied: Config, caplog: Any) -> None:
    execute(dataclasses.replace(copied, mode='eval', num_eval_images=300))
    assert evaluations(copied)[-1].images == copied.num_eval_images
    assert 'warning: 359 images were evaluated, and 300 were expected (--num_eval_images)' in caplog.messages


def test_follow__evaluates_each_checkpoint_with_its_own_averages(copied: Config) -> None:
    following = dataclasses.replace(copied, mode='eval', min_eval_interval=0, eval_timeout=120)
    forget(following, 5)

    def finish_training() -> None:
        wait_for(lambda: len(evaluated_steps(following)) == 4)
        # Writes the last checkpoint.
        execute(dataclasses.replace(following, mode='train'))

    trainer = threading.Thread(target=finish_training, daemon=True)
    trainer.start()
    execute(following)
    trainer.join()
    # The first three evaluations are those of the original run.
    assert evaluated_steps(following)[3:] == [4, 5]
    earlier = evaluations(following)[1]
    assert evaluations(following)[3].cross_entropy == pytest.approx(earlier.cross_entropy)


def test_follow__obeys_min_eval_interval_and_eval_timeout(copied: Config, monkeypatch: Any) -> None:
    forget(copied, 5)
    start = time.monotonic()
    summary = execute(dataclasses.replace(copied, mode='eval', min_eval_interval=0, eval_timeout=3))
    # TensorFlow checks every second, and gives up if the next check would come after the timeout.
    assert time.monotonic() - start > 2
    assert evaluated_steps(copied)[3:] == [4]
    assert 'step 4' in summary
    passed_options: Dict[str, Any] = {}

    def checkpoints_iterator(model_dir: str, **options: Any) -> Iterator[str]:
        passed_options.update(options)
        return iter([])

    monkeypatch.setattr(tf.train, 'checkpoints_iterator', checkpoints_iterator)
    with pytest.raises(CheckpointError, match=r'--eval_timeout=11: no new checkpoint in .* none was evaluated'):
        execute(dataclasses.replace(copied, mode='eval', min_eval_interval=7, eval_timeout=11))
    # Without a function, TensorFlow gives up after the timeout.
    assert [passed_options[name] for name in ('min_interval_secs', 'timeout', 'timeout_fn')] == [7, 11, None]
    with pytest.raises(CheckpointError, match='none was evaluated'):
        execute(dataclasses.replace(copied, mode='eval'))
    assert not passed_options['timeout_fn']()
    # TensorFlow itself would keep waiting if the list of checkpoints became unreadable.
    with open(os.path.join(str(copied.model_dir), 'checkpoint'), 'w'):
        pass
    with pytest.raises(CheckpointError, match='lists no checkpoint'):
        passed_options['timeout_fn']()


def test_follow__skips_a_checkpoint_that_vanishes(copied: Config, monkeypatch: Any, caplog: Any) -> None:
    def checkpoints_iterator(model_dir: str, **options: Any) -> Iterator[str]:
        yield os.path.join(model_dir, 'model.ckpt-3')
        # The trainer has removed the data file, but not yet the index.
        path = os.path.join(model_dir, 'model.ckpt-4')
        for data in glob.glob(f'{path}.data*'):
            os.remove(data)
        yield path
        yield os.path.join(model_dir, 'model.ckpt-5')

    monkeypatch.setattr(tf.train, 'checkpoints_iterator', checkpoints_iterator)
    execute(dataclasses.replace(copied, mode='eval'))
    assert evaluated_steps(copied)[3:] == [5]
    # The list names a checkpoint without its data when the evaluation begins.
    for data in glob.glob(os.path.join(str(copied.model_dir), 'model.ckpt-5.data*')):
        os.remove(data)
    with pytest.raises(CheckpointError, match='files of it are missing'):
        execute(dataclasses.replace(copied, mode='eval'))
    model_dir = pathlib.Path(str(copied.model_dir))
    shutil.copy(str(model_dir / 'model.ckpt-5.index'), str(model_dir / 'model.ckpt-3.index'))
    (model_dir / 'model.ckpt-3.data-00000-of-00001').write_bytes(b'damaged')
    with pytest.raises(CheckpointError, match='none was evaluated'):
        execute(dataclasses.replace(copied, mode='eval', skip_damaged_checkpoints=True))
    skipped = [message for message in caplog.messages if message.startswith('skipped: ')]
    assert len(skipped) == 1 and re.search(r'model\.ckpt-3: is damaged \(.*\)\.$', skipped[0])
