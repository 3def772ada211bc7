"""Tests of divergence: training stops, and the kept checkpoints are usable."""

import dataclasses
import io
import math
import os
from typing import Any, List

import numpy as np
import pytest

from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3 import train_and_evaluate
from inception_v3.config import Config
from inception_v3.run import checkpoints
from inception_v3.run.failures import DivergedError, TrainingError
from inception_v3.run.hooks import saving
from inception_v3.run.hooks.watchers import DivergenceWatcher, Step
from inception_v3.train_and_evaluate import Run
from tests.support.runs import make_small_config

EMULATED = {'use_tpu': True, 'tpu': 'emulated:2', 'num_shards': 2, 'iterations': 2}


def make_config(data_dir: str, tmp_path: Any, **changes: Any) -> Config:
    values = {'mode': 'train', 'optimizer': 'sgd', 'seed': 1, 'intra_op_threads': 1, 'train_steps': 40, **changes}
    return make_small_config(data_dir, model_dir=str(tmp_path / 'model'), **values)


def steps_listed(config: Config) -> List[int]:
    state = tf.train.get_checkpoint_state(config.model_dir)
    return [int(path.rpartition('-')[2]) for path in state.all_model_checkpoint_paths]


@pytest.fixture
def saving_every_step(monkeypatch: Any) -> None:
    """Saves a checkpoint after every session call, as if each took `save_checkpoints_secs`."""

    class EveryCallHook(saving.CheckpointHook):
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            self._timer = tf.estimator.SecondOrStepTimer(every_steps=1)

    monkeypatch.setattr(train_and_evaluate, 'CheckpointHook', EveryCallHook)


def test_divergence_watcher__allows_10000_times_the_loss_of_guessing() -> None:
    watcher = DivergenceWatcher(11)
    watcher.session_began(None, 5, 0.0)
    # 10,000 * ln 11 = 23,978.95.
    watcher.step_done(None, Step(7, 23_978.0, 0.0))
    for loss, what in (
        (23_980.0, 'exploded to 2.4e+04'),
        (math.inf, 'no longer finite'),
        (math.nan, 'no longer finite'),
    ):
        with pytest.raises(DivergedError) as error:
            watcher.step_done(None, Step(9, loss, 0.0))
        assert what in str(error.value)
        # Steps are counted from 0.
        assert (error.value.step, error.value.steps_before) == (8, 7)
    watcher.session_began(None, 3, 0.0)
    assert watcher.steps_before == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ('changes', 'rate', 'problem'),
    [(EMULATED, 1e30, 'The (loss is|weights are) no longer finite'), ({}, 1e5, 'The loss has exploded to')],
)
def test_divergence__stops_training_and_keeps_a_good_checkpoint(
    changes: Any, rate: float, problem: str, digits_dir: str, tmp_path: Any, one_layer: None, saving_every_step: None
) -> None:
    config = make_config(digits_dir, tmp_path, **changes)
    Run(dataclasses.replace(config, train_steps=2), Screen(io.StringIO())).execute()
    diverging = dataclasses.replace(config, learning_rate=rate)
    with pytest.raises(
        TrainingError, match=rf'{problem}.* in step \d+, at a learning rate of .*--learning_rate'
    ) as error:
        Run(diverging, Screen(io.StringIO())).execute()
    newest = steps_listed(config)[-1]
    assert f'The checkpoint of step {newest} is kept' in str(error.value)
    assert newest >= 2
    # Training can resume from it at a lower rate: its weights are not only finite, but also give a normal loss.
    resumed = dataclasses.replace(config, learning_rate=1e-3, train_steps=newest + 2)
    Run(resumed, Screen(io.StringIO())).execute()
    assert steps_listed(config)[-1] == newest + 2


def test_divergence__sets_aside_the_checkpoint_of_the_bad_loss(
    digits_dir: str, tmp_path: Any, one_layer: None, saving_every_step: None
) -> None:
    config = make_config(digits_dir, tmp_path, learning_rate=1e5)
    with pytest.raises(TrainingError, match=r'The loss has exploded .*training stops above 23,979') as error:
        Run(config, Screen(io.StringIO())).execute()
    newest = steps_listed(config)[-1]
    bad = newest + 1
    assert f'in step {bad}, ' in str(error.value)
    assert f'The checkpoint of step {bad}, which led to it, was moved into {config.model_dir}/passed_over' in str(
        error.value
    )
    assert f'model.ckpt-{bad}.index' in os.listdir(os.path.join(str(config.model_dir), 'passed_over'))
    checkpoints.check_undamaged(os.path.join(str(config.model_dir), 'passed_over', f'model.ckpt-{bad}'))


@pytest.mark.program
@pytest.mark.both
def test_checkpoint_hook__never_lists_weights_that_are_not_finite(
    digits_dir: str, tmp_path: Any, one_layer: None
) -> None:
    # The loss of the only step is computed with the initial weights. A batch of 1024 multiplies the rate by 4, and
    # 4e38 overflows float32.
    config = make_config(digits_dir, tmp_path, learning_rate=1e38, train_batch_size=1024, train_steps=1)
    with pytest.raises(TrainingError, match=r'The weights are no longer finite in step 0'):
        Run(config, Screen(io.StringIO())).execute()
    assert steps_listed(config) == [0]
    assert not [name for name in os.listdir(str(config.model_dir)) if name.startswith('model.ckpt-1')]
    reader = tf.train.load_checkpoint(config.model_dir)
    assert all(np.isfinite(reader.get_tensor(name)).all() for name in reader.get_variable_to_shape_map())
