"""Kills during the replacement of the best checkpoint, at each file operation, for its tests."""

import os
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import pytest

from compat import tf
from data import remote
from inception_v3.model_dir import step_of
from inception_v3.run import best_checkpoint
from inception_v3.run.evaluations import Evaluation
from tests.support.checkpoints import save_step
from tests.support.evaluations import EVALUATION


def evaluated(step: int, top_1: float, **changes: Any) -> Evaluation:
    return EVALUATION._replace(step=step, checkpoint=f'model.ckpt-{step}', top_1=top_1, **changes)


def offer(model_dir: str, evaluation: Evaluation) -> None:
    """Saves a checkpoint of the evaluation's step, and offers it as the best one."""
    save_step(model_dir, evaluation.step)
    best_checkpoint.keep(model_dir, os.path.join(model_dir, evaluation.checkpoint), evaluation)


def kept(model_dir: str) -> Evaluation:
    """Returns the evaluation of the best checkpoint, after checking that TensorFlow finds and reads the checkpoint."""
    best = best_checkpoint.read(model_dir)
    assert best is not None
    assert tf.train.latest_checkpoint(os.path.join(model_dir, 'best')) == best.checkpoint
    assert step_of(best.checkpoint) == best.evaluation.step
    return best.evaluation


def names(model_dir: str) -> List[str]:
    """The names in the folder of the best checkpoint, sorted."""
    return sorted(name.rstrip('/') for name in tf.io.gfile.listdir(os.path.join(model_dir, 'best')))


class Killed(BaseException):
    """Raised to stop the code under test, like a kill: no handler catches it."""


class FileOperations:
    """Counts writing operations of `tf.io.gfile`; interrupts operation `fatal` half way, and raises `Killed`."""

    def __init__(self, patch: Any, fatal: Optional[int]):
        self.count = 0
        self._fatal = fatal
        gfile = tf.io.gfile
        self._patch, self._copy, self._file, self._rmtree = patch, gfile.copy, gfile.GFile, gfile.rmtree
        self._replace('makedirs', lambda path: None)
        self._replace('rename', self._rename_half)
        self._replace('copy', self._copy_half)
        self._replace('rmtree', self._remove_half)
        self._replace('GFile', self._write_half, lambda path, mode: mode in ('wb', 'a'))

    def _replace(self, name: str, half: Callable, counts: Callable = lambda *unused, **unused_options: True) -> None:
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
        # Remote stores have no rename: TensorFlow copies the file, and then removes the original.
        if remote.is_remote(source):
            self._copy(source, target, overwrite)

    def _remove_half(self, folder: str) -> None:
        tf.io.gfile.remove(os.path.join(folder, sorted(tf.io.gfile.listdir(folder))[0]))

    def _write_half(self, path: str, mode: str) -> None:
        with self._file(path, mode) as file:
            file.write(b'{"step": 2' if mode == 'wb' else '{"step": 2')


class Outcome(NamedTuple):
    """The best checkpoint's step after a kill, and the names in its folder after the kill and the next replacement."""

    step: int
    left: List[str]
    afterwards: List[str]


def killed(model_dir: str, fatal: int, patch: Any) -> Outcome:
    """Kills a replacement of the best checkpoint in operation `fatal`, and then replaces it by a better one."""
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


# In order: makedirs, two copies, write and rename of the evaluation, write and rename of the list, rmtree.
OPERATIONS = 8

# The index of the rename of the list. After it, the list names the new version.
NAMING = 6


def check_killed(root: str, fatal_operations: Sequence[int]) -> None:
    """Kills a replacement in each of the given operations, and checks the files afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for fatal in fatal_operations:
            outcome = killed(os.path.join(root, str(fatal)), fatal, patch)
            # In a remote store, half a rename has already created the new file.
            named = fatal > NAMING or (fatal == NAMING and remote.is_remote(root))
            assert outcome.step == (2 if named else 1), outcome
            # The next replacement removes the leftovers of the kill.
            assert fatal == 0 or len(outcome.left) > 2, outcome
            assert outcome.afterwards == ['checkpoint', 'step-3'], outcome
