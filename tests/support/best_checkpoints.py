"""Kills the replacement of the best checkpoint within each of its file operations."""

import os
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import pytest
import tensorflow as tf

from data import remote
from inception_v3.model_dir import best_checkpoint
from inception_v3.model_dir.checkpoints import step_of
from inception_v3.model_dir.evaluations import Evaluation
from tests.support.checkpoints import save_step
from tests.support.evaluations import EVALUATION


def evaluated(step: int, top_1: float, **others: Any) -> Evaluation:
    return EVALUATION._replace(step=step, checkpoint=f'model.ckpt-{step}', top_1=top_1, **others)


def offer(model_dir: str, evaluation: Evaluation) -> None:
    """Writes a checkpoint, and keeps it if it is the best."""
    save_step(model_dir, evaluation.step)
    best_checkpoint.keep(model_dir, os.path.join(model_dir, evaluation.checkpoint), evaluation)


def kept(model_dir: str) -> Evaluation:
    """The evaluation of the kept checkpoint, after TensorFlow has read the checkpoint."""
    best = best_checkpoint.read(model_dir)
    assert best is not None
    assert tf.train.latest_checkpoint(os.path.join(model_dir, 'best')) == best.checkpoint
    assert step_of(best.checkpoint) == best.evaluation.step
    return best.evaluation


def names(model_dir: str) -> List[str]:
    return sorted(name.rstrip('/') for name in tf.io.gfile.listdir(os.path.join(model_dir, 'best')))


class Killed(BaseException):
    """Ends the code under test as a kill would: nothing more is written."""


class FileOperations:
    """Counts file operations of `tf.io.gfile` that write; does half of number `fatal`, and then raises `Killed`."""

    def __init__(self, patch: Any, fatal: Optional[int]):
        self.count = 0
        self._fatal = fatal
        gfile = tf.io.gfile
        self._patch, self._copy, self._file, self._rmtree = patch, gfile.copy, gfile.GFile, gfile.rmtree
        self._replace('makedirs', lambda path: None)
        self._replace('rename', self._rename_half)
        self._replace('copy', self._copy_half)
        self._replace('rmtree', self._remove_half)
        self._replace('GFile', self._write_half, lambda path, mode: mode in ('w', 'a'))

    def _replace(self, name: str, half: Callable, counts: Callable = lambda *unused, **others: True) -> None:
        original = getattr(tf.io.gfile, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments, **options):
                if self.count == self._fatal:
                    half(*arguments, **options)
                    raise Killed
                self.count += 1
            return original(*arguments, **options)

        self._patch.setattr(tf.io.gfile, name, counted)

    def _copy_half(self, source: str, target: str, overwrite: bool) -> None:
        with self._file(source, 'rb') as file:
            content = file.read()
        with self._file(target, 'wb') as file:
            file.write(content[: len(content) // 2])

    def _rename_half(self, source: str, target: str, overwrite: bool) -> None:
        # Remote stores cannot rename: TensorFlow copies the file, and removes the original.
        if remote.is_remote(source):
            self._copy(source, target, overwrite)

    def _remove_half(self, folder: str) -> None:
        tf.io.gfile.remove(os.path.join(folder, sorted(tf.io.gfile.listdir(folder))[0]))

    def _write_half(self, path: str, mode: str) -> None:
        with self._file(path, mode) as file:
            file.write('{"step": 2')


class Outcome(NamedTuple):
    """The state after a kill: the step of the best checkpoint, and its folder then and after the next replacement."""

    step: int
    left: List[str]
    afterwards: List[str]


def killed(model_dir: str, fatal: int, patch: Any) -> Outcome:
    """Kills the replacement of the best checkpoint in one of its operations, and then keeps the next checkpoint."""
    offer(model_dir, evaluated(1, 0.25))
    save_step(model_dir, 2)
    operations = FileOperations(patch, fatal)
    with pytest.raises(Killed):
        best_checkpoint.keep(model_dir, os.path.join(model_dir, 'model.ckpt-2'), evaluated(2, 0.5))
    assert operations.count == fatal
    patch.undo()
    best, left = kept(model_dir), names(model_dir)
    assert best.top_1 == best.step / 4
    offer(model_dir, evaluated(3, 0.75))
    assert kept(model_dir).step == 3
    return Outcome(best.step, left, names(model_dir))


# makedirs, a copy of each of two files, write and rename of the evaluation, write and rename of the list, rmtree.
OPERATIONS = 8

# The rename of the list, which names the new version.
NAMING = 6


def check_killed(root: str, moments: Sequence[int]) -> None:
    """Kills a replacement in each of some operations in turn, and checks what is left."""
    with pytest.MonkeyPatch.context() as patch:
        for fatal in moments:
            outcome = killed(os.path.join(root, str(fatal)), fatal, patch)
            # In a remote store, the second half of a rename removes the original: the new name exists already.
            named = fatal > NAMING or (fatal == NAMING and remote.is_remote(root))
            assert outcome.step == (2 if named else 1), outcome
            # The next replacement removes what the kill left behind.
            assert fatal == 0 or len(outcome.left) > 2, outcome
            assert outcome.afterwards == ['checkpoint', 'step-3'], outcome
