"""Observations of the course of a run: its parts in order, their arguments, and the folders."""

import dataclasses
import io
import itertools
import os
from typing import Any, Dict, List, Tuple
from unittest import mock

from console.screen import Screen
from console.tensorflow_versions import tf
from data import records
from data.sources import source_of
from inception_v3 import epochs, train_and_evaluate
from inception_v3.config import Config, ConfigError
from inception_v3.run import best_checkpoint, checkpoints, history, saved_model
from inception_v3.run.files import check_writable
from inception_v3.run.history import Evaluation
from inception_v3.run.hooks import image_summaries, profiler
from inception_v3.run.hooks.summaries import TrainingSummaries
from inception_v3.train_and_evaluate import Run
from tests.support.evaluations import DIGITS, EVALUATION


def parts(config: Config, patch: Any) -> List[Any]:
    """The parts of a whole run, in order. Parts that take minutes are replaced."""
    done: List[Any] = []
    step = [0]

    def train(self: Any, until_step: int) -> None:
        done.append(f'train until {until_step}')
        step[0] = until_step

    def follow(model_dir: str, min_interval_secs: int, timeout: int, timeout_fn: Any) -> Any:
        done.append(f'follow every {min_interval_secs} s, give up after {None if timeout_fn else timeout} s')
        return iter(['model.ckpt-2000'])

    def evaluation(self: Any, checkpoint: str) -> Evaluation:
        done.append('evaluate')
        return EVALUATION._replace(step=2000)

    def best(model_dir: str) -> None:
        done.append('look for the best')

    patch.setattr(Run, 'evaluate', evaluation)
    patch.setattr(Run, 'train', train)
    patch.setattr(checkpoints, 'skip_damaged', lambda model_dir: done.append('skip damaged checkpoints'))
    patch.setattr(best_checkpoint, 'read', best)
    patch.setattr(checkpoints, 'latest_step', lambda model_dir: step[0])
    patch.setattr(saved_model, 'export_saved_model', lambda _, c, *rest: done.append(f'export to {c.export_dir}'))
    patch.setattr(tf.train, 'checkpoints_iterator', follow)
    patch.setattr(checkpoints, 'newest_checkpoint', lambda model_dir: 'model.ckpt-1')
    patch.setattr(checkpoints, 'check_holds_averages', lambda checkpoint: None)
    patch.setattr(checkpoints, 'check_undamaged', lambda checkpoint: None)
    Run(config, Screen(io.StringIO())).execute()
    return done


def following(config: Config, patch: Any) -> List[Any]:
    return parts(dataclasses.replace(config, mode='eval'), patch)


def start_of_training(config: Config, patch: Any) -> Dict[str, Any]:
    """Arguments of the hooks of a training cycle, and the number of images that it draws."""
    found: Dict[str, Any] = {'step lines': False}

    def hook(model_dir: str, save_secs: int, steps_per_run: int) -> tf.estimator.SessionRunHook:
        found['seconds between checkpoints'] = save_secs
        return tf.estimator.SessionRunHook()

    def draw(self: Any, step: int) -> None:
        drawn = image_summaries.draw(config, True, (), step)
        found['images'] = len(drawn.value)

    def profiled(config: Config, workers: Any) -> mock.Mock:
        found['profiled'] = config.profiled_steps
        return mock.Mock()

    def lines(*unused: Any) -> None:
        found['step lines'] = True

    patch.setattr(train_and_evaluate, 'CheckpointHook', hook)
    patch.setattr(profiler, 'ProfiledSteps', profiled)
    patch.setattr(train_and_evaluate, 'StepLines', lines)
    patch.setattr(TrainingSummaries, 'draw_images', draw)
    patch.setattr(tf.estimator.tpu.TPUEstimator, 'train', lambda self, *unused, **hooks: None)
    steps = itertools.chain([1], itertools.repeat(config.train_steps))
    patch.setattr(checkpoints, 'latest_step', lambda model_dir: next(steps))
    Run(dataclasses.replace(config, mode='train'), Screen(io.StringIO())).execute()
    return found


def fitted_steps(config: Config, patch: Any) -> Tuple[int, int]:
    """The training steps in total and between evaluations."""
    steps = {'train_steps': config.train_steps, 'train_steps_per_eval': config.train_steps_per_eval}
    steps.update(epochs.steps_of_epochs(vars(config)))
    return steps['train_steps'], steps['train_steps_per_eval']


def written_to(config: Config, patch: Any) -> bool:
    """Whether the folder `other` is written to."""
    check_writable('model_dir', str(config.model_dir))
    return 'other' in os.listdir(os.path.dirname(str(config.model_dir)))


def resumes_on_another_data_set(config: Config, patch: Any) -> bool:
    """Whether a run resumes after its data set has got another fingerprint."""
    patch.setattr(history, 'starts_before', lambda checkpoint: [history.this_start(config, DIGITS)])
    try:
        history.check_data_set(config, dataclasses.replace(DIGITS, fingerprint='f'), 'model.ckpt-1')
    except ConfigError:
        return False
    return True


def shards(config: Config, patch: Any) -> int:
    return len(source_of(config).find(records.TRAIN))
