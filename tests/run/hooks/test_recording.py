"""Tests of the record of a run's first steps, without a run."""

from typing import Any, List

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.run import history
from inception_v3.run.hooks.watchers import FirstStepsRecorder, Step


def record(recorder: FirstStepsRecorder, begin: int, steps: List[int]) -> None:
    """Runs a session whose only variable has the number of the step."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable('x', initializer=tf.constant(0.0), use_resource=True)
        recorder.graph_built()
        recorder.session_began(session, begin, 0.0)
        for step in steps:
            session.run(variable.initializer)
            variable.load(float(step), session)
            recorder.step_done(session, Step(step, step / 2, 0.0))


def test_first_steps_recorder__records_ten_steps_over_all_cycles(tmp_path: Any) -> None:
    recorder = FirstStepsRecorder(str(tmp_path))
    record(recorder, 0, [1, 2, 3])
    record(recorder, 3, [*range(4, 13)])
    found = history.read_first_steps(str(tmp_path))
    assert [(each.step, each.loss) for each in found] == [(step, step / 2) for step in range(1, 11)]
    assert found[6].digest == history.digest_of_values({'x': np.float32(7)})


def test_first_steps_recorder__records_nothing_of_a_resumed_run(tmp_path: Any) -> None:
    recorder = FirstStepsRecorder(str(tmp_path))
    record(recorder, 5, [6, 7])
    assert history.read_first_steps(str(tmp_path)) == []
    # A session that was lost, and began again with the initial variables.
    record(recorder, 0, [1, 2])
    record(recorder, 0, [1])
    assert [each.step for each in history.read_first_steps(str(tmp_path))] == [1]
