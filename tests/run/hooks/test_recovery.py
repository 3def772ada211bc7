"""Tests of repeated session interruptions."""

from typing import Any

import pytest

from console.tensorflow_versions import tf
from inception_v3.run.failures import TrainingError
from inception_v3.run.hooks.stopping import RecoveryLimitHook, without_recovery


class Interruption(tf.estimator.SessionRunHook):
    """Interrupts steps, like an unavailable file server."""

    def __init__(self, steps: Any):
        self._steps = steps
        self.count = 0

    def before_run(self, run_context: Any) -> None:
        if int(run_context.session.run(tf.train.get_global_step())) in self._steps:
            self.count += 1
            raise tf.errors.AbortedError(None, None, 'All 10 retry attempts failed.')


def train(model_dir: Any, interruption: Interruption, check: Any = lambda: None) -> int:
    """Trains until step 5, with a checkpoint after each step; returns the last step."""
    step = tf.train.get_or_create_global_step()
    advance = tf.assign_add(step, 1)
    with tf.train.MonitoredTrainingSession(
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
    # The session that reached step 2, and three that started from its checkpoint.
    assert interruption.count == 4


def test_without_recovery__makes_an_interruption_an_error(tmp_path: Any) -> None:
    interruption = Interruption([2])
    with pytest.raises(tf.errors.AbortedError, match='All 10 retry attempts failed'), without_recovery():
        train(tmp_path, interruption)
    assert interruption.count == 1
    # Recovery is enabled again after the `with` block.
    with pytest.raises(TrainingError, match='interrupted 3 times'), tf.Graph().as_default():
        train(tmp_path, interruption)


def test_recovery_limit_hook__checks_the_files_first(tmp_path: Any) -> None:
    def failing_check() -> None:
        raise TrainingError('gs://b/f: cannot be reached')

    with pytest.raises(TrainingError, match='gs://b/f'):
        train(tmp_path, Interruption([0]), failing_check)


def test_recovery_limit_hook__allows_transient_interruptions(tmp_path: Any) -> None:
    class Transient(Interruption):
        def before_run(self, run_context: Any) -> None:
            step = int(run_context.session.run(tf.train.get_global_step()))
            if self.count < 2 * (step + 1):
                self.count += 1
                raise tf.errors.UnavailableError(None, None, 'Socket closed')

    # Two interruptions at each of five steps: the limit of three applies to each step alone.
    transient = Transient([])
    assert train(tmp_path, transient) == 5
    assert transient.count == 10
