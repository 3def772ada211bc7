"""A small configuration, a network of one layer, and whole runs in this process."""

import dataclasses
import glob
import io
import os
import pathlib
from typing import Any, List, NamedTuple, Optional
from unittest import mock

from compat import tf
from console.screen import Screen
from inception_v3.config import Config
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.run.evaluations import Evaluation, read_evaluations
from inception_v3.run.hooks.stopping import Termination
from inception_v3.train_and_evaluate import Run
from tests.support.checkpoints import list_checkpoints
from tests.support.shared import once


def make_small_config(data_dir: str, **changes: Any) -> Config:
    """A configuration for fast tests: the digits on the CPU, with 75 x 75 pixels and at most 16 channels per layer."""
    config = Config(
        use_tpu=False,
        data_dir=data_dir,
        num_train_images=1438,
        num_eval_images=359,
        num_classes=11,
        train_batch_size=8,
        eval_batch_size=64,
        height=75,
        width=75,
        depth_multiplier=0.01,
        num_parallel_calls=2,
    )
    return dataclasses.replace(config, **changes)


def one_layer_network(
    images: tf.Tensor, num_classes: int, is_training: bool, conv: layers.Conv, norm: layers.Norm, **unused: Any
) -> Any:
    """A network of one layer and the logits, with 4 trainable variables."""
    with tf.variable_scope('Layer'):
        net = tf.nn.relu(norm(conv(images, 16, (3, 3), 2, 'VALID')))
    with tf.variable_scope('Logits'):
        net = layers.add_bias(conv(tf.reduce_mean(net, [1, 2], keepdims=True), num_classes, (1, 1)))
    return tf.squeeze(net, [1, 2]), None


# A replacement for Inception v3 in the registry, with the same limits.
ONE_LAYER = NETWORKS['inception_v3']._replace(build=one_layer_network)


def execute(config: Config, *termination: Termination, until_step: Optional[int] = None) -> str:
    """Executes a run in this process; returns its summary."""
    return Run(config, Screen(io.StringIO()), *termination).execute(until_step)


class FinishedRun(NamedTuple):
    """A run that has ended: its configuration, and the summary that it printed."""

    config: Config
    summary: str


def one_layer_run(tmp_path_factory: Any, name: str, config: Config) -> FinishedRun:
    """Executes a run of one layer once per session, for reading only, in the folders `model` and `export` of `name`."""

    def make(folder: str) -> None:
        # Fixtures of a wider scope than one test are set up before the fixture `one_layer`.
        with mock.patch.dict(NETWORKS, inception_v3=ONE_LAYER):
            summary = execute(placed(folder))
        pathlib.Path(folder, 'summary.txt').write_text(summary)

    def placed(folder: str) -> Config:
        return dataclasses.replace(config, model_dir=f'{folder}/model', export_dir=f'{folder}/export')

    folder = once(tmp_path_factory, name, make)
    return FinishedRun(placed(folder), pathlib.Path(folder, 'summary.txt').read_text())


def evaluations(config: Config) -> List[Evaluation]:
    """The recorded evaluations of a run."""
    return read_evaluations(str(config.model_dir))


def evaluated_steps(config: Config) -> List[int]:
    """The steps of the recorded evaluations, in the order of the evaluations."""
    return [evaluation.step for evaluation in evaluations(config)]


def forget(config: Config, *gone: int) -> None:
    """Removes the checkpoints of some steps, as if the run had been killed before it wrote them."""
    kept = sorted(set(all_steps(config)) - set(gone))
    for step in gone:
        for path in glob.glob(os.path.join(str(config.model_dir), f'model.ckpt-{step}.*')):
            os.remove(path)
    list_checkpoints(str(config.model_dir), *kept)


def all_steps(config: Config) -> List[int]:
    """The steps of the checkpoints in model_dir, in order."""
    paths = glob.glob(os.path.join(str(config.model_dir), 'model.ckpt-*.index'))
    return sorted(int(path.rpartition('-')[2][: -len('.index')]) for path in paths)
