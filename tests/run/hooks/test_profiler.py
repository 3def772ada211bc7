"""The steps that `--profile_steps` traces: a pipeline and a small step, in a session of their own."""

import dataclasses
import os
import pathlib
import time
from typing import Any, List, Optional

import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.run import profile
from inception_v3.run.hooks import profiler
from inception_v3.run.hooks.profiler import ProfiledSteps, workers_of
from inception_v3.run.hooks.watchers import Step
from tests.support.runs import make_small_config
from tools.benchmarks import profiles


def train(config: Config, watcher: Optional[ProfiledSteps]) -> Any:
    """Runs eight steps of a product of matrices, on batches of the input pipeline; returns the last weights."""
    with tf.Graph().as_default(), tf.Session() as session:
        images = tf.data.make_one_shot_iterator(
            InputPipeline(is_training=True, config=config)({'batch_size': 16})
        ).get_next()[0]
        weights = tf.get_variable('weights', [3, 3], initializer=tf.ones_initializer())
        shift = tf.reduce_mean(tf.tensordot(tf.cast(images, tf.float32), weights, 1))
        step = weights.assign_add(tf.fill([3, 3], shift))
        session.run(tf.global_variables_initializer())
        if watcher:
            watcher.session_began(session, 0, 0.0)
        for number in range(1, 9):
            value = session.run(step)
            if watcher:
                # Otherwise the pipeline's threads could do all their work between profiles on a busy machine.
                time.sleep(0.05)
                watcher.step_done(session, Step(number, 0.0, time.monotonic()))
    return value


def run_steps(watcher: ProfiledSteps, begin: int, *steps: int) -> None:
    """Runs a session that begins at a step, with a step per second."""
    watcher.session_began(None, begin, 0.0)
    for step in steps:
        # The first call of a session builds kernels.
        watcher.step_done(None, Step(step, 0.0, step + 9.0 * (step > steps[0])))
    watcher.session_ended()


@pytest.fixture
def traced(monkeypatch: Any) -> List[Any]:
    """The calls of a profiler that traces nothing: starts, stops (whether they write), and the written steps."""
    calls: List[Any] = []
    monkeypatch.setattr(profiler, 'start', lambda folder: calls.append('start'))
    monkeypatch.setattr(profiler, 'stop', lambda folder, writes=True: calls.append(writes))
    monkeypatch.setattr(profiler, 'trace_workers', lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(profiler, 'newest', lambda folder: 'last')
    monkeypatch.setattr(
        ProfiledSteps, '_write', lambda self, profiled, cpu: calls.append([call.step for call in profiled])
    )
    return calls


@pytest.fixture()
def config(photo_dir: str, tmp_path: pathlib.Path) -> Config:
    return make_small_config(
        photo_dir, model_dir=str(tmp_path), train_batch_size=16, train_steps=20, seed=1, profile_steps='4,6'
    )


def test_profile__has_the_steps_of_the_flag_and_changes_no_weight(config: Config) -> None:
    assert train(config, None).tobytes() == train(config, ProfiledSteps(config)).tobytes()
    found = profiles.read(str(config.model_dir))
    assert (found.first, found.last, found.images, found.hosts) == (4, 6, 16, 1)
    assert found.step_ms > found.device_ms > 0 and found.device == 'the CPU, which also prepares the images'
    # All versions trace the readers and the decoding of a pipeline that prepares batches meanwhile. It prepares sixteen
    # images at a time: smaller batches might be ready before the three steps.
    assert found.host_ms['storage'] > 0 and found.host_ms['preprocessing'] > 0
    events = profiler.events_in(profiler.newest(str(config.model_dir)))
    names = {event.name.rpartition(':')[2] for event in events}
    # On CPUs with vector instructions for neural networks, 2.15 multiplies with oneDNN.
    assert 'TFRecord' in names and names & {'MatMul', '_MklMatMul'}
    phases_of = {
        name: {profile.phase_of(event) for event in events if event.name.rpartition(':')[2] == name}
        for name in ('ResizeBilinear', 'TFRecord')
    }
    assert phases_of == {'ResizeBilinear': {profile.PREPROCESSING}, 'TFRecord': {profile.STORAGE}}


@pytest.mark.parametrize(
    ('begin', 'steps', 'per_call', 'profiled', 'words'),
    [
        (4, [5, 6, 7], 1, [4, 5, 6], 'the profile begins with step 5, because the run resumes after step 4'),
        (6, [7, 8], 1, None, 'nothing is profiled; the run is at step 6 already'),
        (0, [4, 8, 12], 4, [0, 4, 8], ''),
        (0, [1, 2], 1, None, ''),
    ],
)
def test_profile__begins_at_the_first_whole_step_of_its_range(
    config: Config, traced: List[Any], caplog: Any, begin: int, steps: Any, per_call: int, profiled: Any, words: str
) -> None:
    watcher = ProfiledSteps(config)
    watcher._per_call = per_call
    run_steps(watcher, begin, *steps)
    watcher.abandon()
    assert traced == ([] if profiled is None else ['start', True, profiled])
    assert words in caplog.text


def test_profile__begins_anew_after_an_evaluation(config: Config, traced: List[Any]) -> None:
    watcher = ProfiledSteps(config)
    # The first cycle ends with step 3; the profile begins with step 4.
    run_steps(watcher, 0, 1, 2, 3)
    run_steps(watcher, 3, 4, 5, 6)
    assert traced == ['start', False, 'start', True, [3, 4, 5, 6]]


@pytest.mark.parametrize('fails', [True, False])
def test_interrupted_profile__is_discarded_after_an_error_and_kept_after_sigterm(
    config: Config, caplog: Any, fails: bool
) -> None:
    watcher, folder = ProfiledSteps(config), str(config.model_dir)
    with tf.Graph().as_default(), tf.Session() as session:
        watcher.session_began(session, 3, time.monotonic())
        session.run(tf.matmul(tf.ones([9, 9]), tf.ones([9, 9])))
        for step in (4, 5):
            watcher.step_done(session, Step(step, 0.0, time.monotonic()))
    if not fails:
        watcher.session_ended()
        assert profiles.read(folder).last == 5
    watcher.abandon()
    assert ('training ended during the profile, which is discarded' in caplog.text) is fails
    assert os.path.exists(os.path.join(folder, 'profile.html')) is not fails
    # The profiler is free again; a second profile at the same time is not possible.
    profiler.start(folder)
    ProfiledSteps(config).session_began(None, 3, 0.0)
    profiler.stop(folder, writes=False)
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


def test_workers__are_traced_for_as_long_as_the_steps_take(config: Config, traced: List[Any], caplog: Any) -> None:
    watcher = ProfiledSteps(dataclasses.replace(config, profile_steps='5,6'), ['a:8466', 'b:8466'])
    run_steps(watcher, 0, *range(1, 7))
    assert traced == [(['a:8466', 'b:8466'], str(config.model_dir), 2000)]
    assert 'the trace of the TPU is in last: ' in caplog.text
    caplog.clear()
    failed = ProfiledSteps(dataclasses.replace(config, profile_steps='5,6'), ['a:8466', 'b:8466'])
    failed.session_began(None, 4, 0.0)
    failed.abandon()
    assert 'the trace of the TPU' not in caplog.text
