"""The steps that `--profile_steps` traces: a pipeline and a small step, in a session of their own."""

import dataclasses
import os
import pathlib
import time
from typing import Any, List, Optional

import pytest

from console import tensorflow_profiler
from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.run.hooks.profiler import ProfiledSteps, workers_of
from inception_v3.run.hooks.step import Step
from inception_v3.run.profiling import profile
from tests.support.runs import make_small_config


class Steps:
    """Eight steps of a product of matrices, on batches of the input pipeline."""

    def __init__(self, config: Config):
        self._images = tf.data.make_one_shot_iterator(InputPipeline(True, config)({'batch_size': 4})).get_next()[0]
        self._weights = tf.get_variable('weights', [3, 3], initializer=tf.ones_initializer())
        shift = tf.reduce_mean(tf.tensordot(tf.cast(self._images, tf.float32), self._weights, 1))
        self._step = self._weights.assign_add(tf.fill([3, 3], shift))

    def train(self, watcher: Optional[ProfiledSteps]) -> Any:
        """Runs the steps in a session of their own, and returns the last weights."""
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            if watcher:
                watcher.session_began(session, 0, 0.0)
            for number in range(1, 9):
                weights = session.run(self._step)
                if watcher:
                    # On a busy machine, the threads of the pipeline would otherwise do all their work between profiles.
                    time.sleep(0.05)
                    watcher.step_done(session, Step(number, 0.0, time.monotonic()))
        return weights


@pytest.fixture()
def config(photo_dir: str, tmp_path: pathlib.Path) -> Config:
    return make_small_config(
        photo_dir, model_dir=str(tmp_path), train_batch_size=4, train_steps=20, seed=1, profile_steps='4,6'
    )


def test_profile__has_the_steps_of_the_flag_and_changes_no_weight(config: Config) -> None:
    with tf.Graph().as_default():
        steps = Steps(config)
        plain, profiled = steps.train(None), steps.train(ProfiledSteps(config))
    assert plain.tobytes() == profiled.tobytes()
    found = profile.read(str(config.model_dir))
    assert (found.first, found.last, found.images, found.hosts) == (4, 6, 4, 1)
    assert found.step_ms > found.device_ms > 0 and found.device == 'the CPU, which also prepares the images'
    # Both versions trace the readers and the decoding of a pipeline that prepares batches meanwhile.
    assert found.host_ms['storage'] > 0 and found.host_ms['preprocessing'] > 0
    (run,) = tensorflow_profiler.runs(str(config.model_dir))
    events = [*tensorflow_profiler.events(run)]
    names = {event.name.rpartition(':')[2] for event in events}
    # On CPUs with vector instructions for neural networks, 2.15 multiplies with oneDNN.
    assert 'TFRecord' in names and names & {'MatMul', '_MklMatMul'}
    works = profile.works_of(events, 0, 1e9)
    phases_of = {name: {work.phase for work in works if work.name == name} for name in ('ResizeBilinear', 'TFRecord')}
    assert phases_of == {'ResizeBilinear': {profile.PREPROCESSING}, 'TFRecord': {profile.STORAGE}}


@pytest.mark.parametrize(
    ('begin', 'until', 'per_call', 'steps', 'words'),
    [
        (4, 8, 1, (5, 6), 'the profile begins with step 5, because the run resumes after step 4'),
        (6, 8, 1, None, 'nothing is profiled; the run is at step 6 already'),
        (0, 12, 4, (1, 8), ''),
        (0, 2, 1, None, ''),
    ],
)
def test_profile__of_resumed_runs_and_loops(
    config: Config, monkeypatch: Any, caplog: Any, begin: int, until: int, per_call: int, steps: Any, words: str
) -> None:
    caplog.set_level('INFO')
    traced: List[Any] = []
    monkeypatch.setattr(tensorflow_profiler, 'start', lambda folder: traced.append('start'))
    monkeypatch.setattr(tensorflow_profiler, 'stop', lambda folder, writes=True: traced.append(writes))
    monkeypatch.setattr(
        ProfiledSteps, '_write', lambda self, cpu: traced.append((self._calls[0].step + 1, self._calls[-1].step))
    )
    watcher = ProfiledSteps(config)
    watcher._per_call = per_call
    watcher.session_began(None, begin, 0.0)
    for number in range(begin + per_call, until + 1, per_call):
        watcher.step_done(None, Step(number, 0.0, number))
    watcher.session_ended()
    watcher.abandon()
    assert traced == ([] if steps is None else ['start', True, steps])
    assert words in caplog.text


def test_profile__of_steps_right_after_an_evaluation(config: Config, monkeypatch: Any) -> None:
    traced: List[Any] = []
    monkeypatch.setattr(tensorflow_profiler, 'start', lambda folder: traced.append('start'))
    monkeypatch.setattr(tensorflow_profiler, 'stop', lambda folder, writes=True: traced.append(writes))
    monkeypatch.setattr(ProfiledSteps, '_write', lambda self, cpu: traced.append([call.step for call in self._calls]))
    watcher = ProfiledSteps(config)
    # The first cycle ends with step 3; the profile begins with step 4.
    for begin, *steps in ((0, 1, 2, 3), (3, 4, 5, 6)):
        watcher.session_began(None, begin, 0.0)
        for done in steps:
            watcher.step_done(None, Step(done, 0.0, float(done)))
        watcher.session_ended()
    assert traced == ['start', False, 'start', True, [3, 4, 5, 6]]


@pytest.mark.parametrize('fails', [True, False])
def test_interrupted_profile__is_discarded_after_an_error_and_kept_after_sigterm(
    config: Config, caplog: Any, fails: bool
) -> None:
    caplog.set_level('INFO')
    watcher, folder = ProfiledSteps(config), str(config.model_dir)
    with tf.Graph().as_default(), tf.Session() as session:
        watcher.session_began(session, 3, time.monotonic())
        session.run(tf.matmul(tf.ones([9, 9]), tf.ones([9, 9])))
        for step in (4, 5):
            watcher.step_done(session, Step(step, 0.0, time.monotonic()))
    if not fails:
        watcher.session_ended()
        assert profile.read(folder).last == 5
    watcher.abandon()
    assert ('training ended during the profile, which is discarded' in caplog.text) is fails
    assert os.path.exists(os.path.join(folder, 'profile.html')) is not fails
    # The profiler is free again; a second profile at the same time is not possible.
    tensorflow_profiler.start(folder)
    ProfiledSteps(config).session_began(None, 3, 0.0)
    tensorflow_profiler.stop(folder, writes=False)
    assert 'the steps cannot be profiled: Another profile' in caplog.text


def test_workers__have_their_profilers_at_port_8466(config: Config) -> None:
    class Resolved:
        cluster_spec = tf.train.ClusterSpec({'worker': ['10.0.0.2:8470', '10.0.0.3:8470']})

    class Named:
        cluster_spec = None
        master = 'grpc://10.0.0.9:8470'

    on_tpu = dataclasses.replace(config, use_tpu=True, tpu='node')
    assert workers_of(on_tpu, Resolved) == ['10.0.0.2:8466', '10.0.0.3:8466']
    assert workers_of(on_tpu, Named) == ['10.0.0.9:8466']
    assert workers_of(dataclasses.replace(on_tpu, tpu='local'), Named) == workers_of(config, Named) == []


def test_workers__are_traced_for_as_long_as_the_steps_take(config: Config, monkeypatch: Any, caplog: Any) -> None:
    caplog.set_level('INFO')
    traced: List[Any] = []
    monkeypatch.setattr(tensorflow_profiler, 'trace_workers', lambda *arguments: traced.append(arguments))
    monkeypatch.setattr(tensorflow_profiler, 'runs', lambda folder: ['first', 'last'])
    watcher = ProfiledSteps(dataclasses.replace(config, profile_steps='5,6'), ['a:8466', 'b:8466'])
    watcher.session_began(None, 0, 0.0)
    for number in range(1, 7):
        # The first call of a session builds kernels.
        watcher.step_done(None, Step(number, 0.0, 0.1 * number + (number > 1)))
    assert traced == [(['a:8466', 'b:8466'], str(config.model_dir), 200)]
    assert 'the trace of the TPU is in last: ' in caplog.text
