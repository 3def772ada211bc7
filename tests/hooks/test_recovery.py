"""Sessions that are interrupted again and again."""

from typing import Any

import pytest
import tensorflow as tf

from inception_v3.hooks.recovery import RecoveryLimitHook, without_recovery
from inception_v3.reporting.failures import TrainingError


class Interruption(tf.estimator.SessionRunHook):
    """Interrupts steps, as a server of files that stays unavailable does."""

    def __init__(self, steps: Any):
        self._steps = steps
        self.met = 0

    def before_run(self, run_context: Any) -> None:
        if int(run_context.session.run(tf.compat.v1.train.get_global_step())) in self._steps:
            self.met += 1
            raise tf.errors.AbortedError(None, None, 'All 10 retry attempts failed.')


def train(model_dir: Any, interruption: Interruption, check: Any = lambda: None) -> int:
    """Takes five steps, with a checkpoint after each, and returns the last."""
    step = tf.compat.v1.train.get_or_create_global_step()
    advance = tf.compat.v1.assign_add(step, 1)
    with tf.compat.v1.train.MonitoredTrainingSession(
        checkpoint_dir=str(model_dir),
        save_checkpoint_steps=1,
        save_checkpoint_secs=None,
        hooks=[RecoveryLimitHook(check), interruption, tf.estimator.StopAtStepHook(last_step=5)],
    ) as session:
        while not session.should_stop():
            reached = session.run(advance)
    return int(reached)


def test_recovery_limit_hook__stops_after_repeated_interruptions_of_one_step(tmp_path: Any) -> None:
    interruption = Interruption([2])
    with pytest.raises(TrainingError, match='interrupted 3 times after step 2'):
        train(tmp_path, interruption)
    # The session that came this far, and three that began here.
    assert interruption.met == 4


def test_without_recovery__makes_an_interruption_an_error(tmp_path: Any) -> None:
    interruption = Interruption([2])
    with pytest.raises(tf.errors.AbortedError, match='All 10 retry attempts failed'), without_recovery():
        train(tmp_path, interruption)
    assert interruption.met == 1
    # That ends with the block.
    with pytest.raises(TrainingError, match='interrupted 3 times'), tf.Graph().as_default():
        train(tmp_path, interruption)


def test_recovery_limit_hook__checks_the_files_first(tmp_path: Any) -> None:
    def blame() -> None:
        raise TrainingError('gs://b/f: cannot be reached')

    with pytest.raises(TrainingError, match='gs://b/f'):
        train(tmp_path, Interruption([0]), blame)


def test_recovery_limit_hook__allows_transient_interruptions(tmp_path: Any) -> None:
    class Passing(Interruption):
        def before_run(self, run_context: Any) -> None:
            step = int(run_context.session.run(tf.compat.v1.train.get_global_step()))
            if self.met < 2 * (step + 1):
                self.met += 1
                raise tf.errors.UnavailableError(None, None, 'Socket closed')

    # Two at every step, which are more than may be at one.
    passing = Passing([])
    assert train(tmp_path, passing) == 5
    assert passing.met == 10
