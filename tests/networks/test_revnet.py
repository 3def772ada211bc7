"""Tests of RevNets: the sizes in the paper, and gradients against ordinary backpropagation.

The networks run in a graph, on emulated cores and under XLA; `tests/examples/test_eager_revnet.py` runs them eagerly.
"""

import functools
import os
import subprocess
import sys
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.config import Config
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, REVNET_56, REVNET_104, REVNET_110, Builder, revnet
from tests.support.checkpoints import trained
from tests.support.graphs import plain_session
from tests.support.slim import load, values_by_name
from tests.support.tiers import further

IMAGES = np.random.RandomState(0).uniform(-1, 1, [4, 16, 16, 3])
LABELS = np.arange(4)
CLASSES = 10

# A stage that keeps the size of its inputs and one that changes it.
SHORT = REVNET_38._replace(units=(1, 2), depths=(32, 48))


def gradients(dtype: Any, rebuild_activations: bool) -> Dict[str, np.ndarray]:
    """Returns the loss, its gradients, and the updated moving statistics."""
    with tf.Graph().as_default(), plain_session() as session:
        with tf.variable_scope('', use_resource=True, dtype=tf.as_dtype(dtype)):
            images, norm = tf.constant(IMAGES, dtype), BatchNorm(is_training=True, decay=0.9)
            logits, auxiliary = revnet(
                SHORT, images, CLASSES, True, layers.conv2d, norm, rebuild_activations=rebuild_activations
            )
        assert auxiliary is None
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=logits))
        load(values_by_name(), session)
        trainable = tf.trainable_variables()
        fetched = {v.name: gradient for v, gradient in zip(trainable, tf.gradients(loss, trainable))}
        found = session.run({'loss': loss, **fetched})
        moving = [v for v in tf.global_variables() if 'moving' in v.name]
        return {**found, **session.run({v.name: v for v in moving})}


# In float32, rebuilt activations are exact to the bit as long as the sums of the blocks are exact.
@pytest.mark.parametrize(('dtype', 'tolerance'), [(np.float32, 1e-5), further(np.float64, 1e-10)])
def test_revnet__gradients_equal_those_of_ordinary_backpropagation(dtype: Any, tolerance: float) -> None:
    rebuilt, kept = (gradients(dtype, rebuild) for rebuild in (True, False))
    assert set(rebuilt) == set(kept)
    for name, value in kept.items():
        assert np.abs(value).max() > 0
        np.testing.assert_allclose(rebuilt[name], value, rtol=0, atol=tolerance * np.abs(value).max(), err_msg=name)


def test_bfloat16__residual_streams_are_float32() -> None:
    with tf.variable_scope('', use_resource=True):
        conv = layers.conv_for(tf.bfloat16, on_cpu=True)
        logits, _ = revnet(
            SHORT, tf.zeros([2, 8, 8, 3], tf.bfloat16), CLASSES, True, conv, BatchNorm(is_training=True, decay=0.9)
        )
        loss = tf.reduce_sum(tf.cast(logits, tf.float32))
        assert tf.gradients(loss, tf.trainable_variables())
    assert logits.dtype == tf.bfloat16
    # The inputs x1 and x2 and the outputs y1 and y2 of each stage.
    streams = [op.outputs[:2] for op in tf.get_default_graph().get_operations() if op.type == 'IdentityN']
    assert {stream.dtype for pair in streams for stream in pair} == {tf.float32}


def batches(params: Dict[str, Any]) -> tf.data.Dataset:
    images = np.random.RandomState(0).uniform(-1, 1, [24, 16, 16, 3]).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((images, np.arange(24, dtype=np.int32) % CLASSES))
    return dataset.repeat().batch(params['batch_size'], drop_remainder=True)


def momenta(values: Dict[str, np.ndarray]) -> np.ndarray:
    """Returns the momenta of all variables, concatenated. After one step these are the gradients."""
    return np.concatenate([values[name].ravel() for name in sorted(values) if name.endswith('/Momentum')])


@pytest.mark.nightly
def test_emulated_cores__train_alike_with_rebuilt_and_kept_activations(tmp_path: Any, monkeypatch: Any) -> None:
    short = functools.partial(revnet, REVNET_38._replace(units=(2,), depths=(32,)))
    monkeypatch.setitem(NETWORKS, 'revnet38', NETWORKS['revnet38']._replace(build=short))
    settings: Dict[str, Any] = {'network': 'revnet38', 'height': 16, 'width': 16, 'num_classes': CLASSES, 'seed': 1}
    settings.update(tpu='emulated:2', num_shards=2, iterations=1, batch_norm='synchronized', train_batch_size=8)
    settings.update(optimizer='momentum', learning_rate=0.01, moving_average=False)
    found = []
    for rebuild in (True, False):
        config = Config(**settings, model_dir=str(tmp_path / str(rebuild)), rebuild_activations=rebuild)
        found.append(trained(config, batches, 1))
    rebuilt, kept = found
    assert {*rebuilt} == {*kept}
    # Another graph rounds differently, which switches some ReLUs.
    distance = np.linalg.norm(momenta(rebuilt) - momenta(kept))
    assert distance < 0.01 * np.linalg.norm(momenta(kept))
    for name in kept:
        # Each pass normalizes by the moments of both cores; the first one updates the moving statistics.
        if 'moving' in name:
            np.testing.assert_allclose(rebuilt[name], kept[name], rtol=1e-4, atol=1e-5, err_msg=name)


# Losses, and bytes of temporary buffers, with rebuilt and with kept activations.
COMPILING = r"""
import functools, glob, os, re, sys
from tools.preflight import graphs
from inception_v3.config import Config
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet

short = functools.partial(revnet, REVNET_38._replace(units=(4,), depths=(32,)))
NETWORKS['revnet38'] = NETWORKS['revnet38']._replace(build=short)
graphs.COMPILED_BATCH = 16
graphs.compile_fast()
for rebuild in (True, False):
    config = Config(network='revnet38', height=32, width=32, seed=1, rebuild_activations=rebuild)
    loss, _ = graphs.run_compiled(config)
    paths = glob.glob(f'{sys.argv[1]}/*buffer-assignment.txt')
    text = ''.join(open(path).read() for path in paths)
    print(loss, max(map(int, re.findall(r'size (\d+), preallocated-temp', text))))
    [*map(os.remove, paths)]
"""


@pytest.mark.nightly
def test_xla__compiles_a_step_and_keeps_fewer_bytes(tmp_path: Any) -> None:
    # A separate process, because XLA reads its flags only once, before the first compilation.
    done = subprocess.run(
        [sys.executable, '-c', COMPILING, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, 'XLA_FLAGS': f'--xla_dump_to={tmp_path}'},
    )
    assert done.returncode == 0, done.stderr
    (loss, rebuilt), (same_loss, kept) = (map(float, line.split()) for line in done.stdout.splitlines()[-2:])
    assert loss == pytest.approx(same_loss, rel=1e-5)
    assert rebuilt < 0.75 * kept, (rebuilt, kept)


def test_stem_of_bottlenecks__is_the_maximum_of_windows_after_a_strided_convolution() -> None:
    def centres(inputs: tf.Tensor, depth: int, kernel: Any, stride: int, padding: str) -> tf.Tensor:
        """Stands in for a convolution without padding, and takes the centre pixel of each window."""
        assert (depth, kernel, padding) == (3, (7, 7), 'VALID')
        return inputs[:, 3:-3:stride, 3:-3:stride]

    images = IMAGES - 0.2
    builder = Builder(True, tf.float64, centres, lambda net, *unused, **options: net, layers.NHWC)
    with tf.Session() as session:
        found = session.run(builder.stem(tf.constant(images), 3))
    positive = np.pad(np.maximum(images[:, ::2, ::2], 0), [[0, 0], [1, 1], [1, 1], [0, 0]])
    windows = [positive[:, row : row + 7 : 2, column : column + 7 : 2] for row in range(3) for column in range(3)]
    np.testing.assert_array_equal(found, np.max(windows, axis=0))


@pytest.mark.parametrize(
    ('architecture', 'sizes'),
    [
        (SHORT, [(16, 16), (8, 24)]),
        # Each half of the depths 128 and 256, times four; the stem divides by 4.
        (REVNET_56._replace(units=(2, 2), depths=(128, 256)), [(4, 256), (2, 512)]),
    ],
)
def test_stages__halve_the_map_but_for_the_first(architecture: Any, sizes: Any) -> None:
    found = []

    def chain(blocks: Any, x1: tf.Tensor, x2: tf.Tensor, rebuild: bool) -> Any:
        assert x1.shape[1] == x1.shape[2] and x1.shape == x2.shape
        found.append((int(x1.shape[1]), int(x1.shape[3])))
        return x1, x2

    moves = []

    def norm(inputs: tf.Tensor, *unused: Any, moves_statistics: bool) -> tf.Tensor:
        moves.append(moves_statistics)
        return inputs

    revnet(architecture, tf.zeros([1, 16, 16, 3]), CLASSES, True, layers.conv2d, norm, chain=chain)
    assert found == sizes
    # Units that change the map are not recomputed, so each of their passes updates the statistics.
    assert len(moves) > 4 and all(moves)


@pytest.mark.parametrize(
    ('architecture', 'units', 'depths'),
    [
        (REVNET_38, (3, 3, 3), (32, 64, 112)),
        (REVNET_110, (9, 9, 9), (32, 64, 128)),
        (REVNET_104, (2, 2, 11, 2), (128, 256, 512, 832)),
    ],
)
def test_stages__have_the_units_and_depths_of_the_table(architecture: Any, units: Any, depths: Any) -> None:
    found = []

    def chain(blocks: Any, x1: tf.Tensor, x2: tf.Tensor, rebuild: bool) -> Any:
        found.append((len(blocks), int(x1.shape[3])))
        return x1, x2

    images, wide = tf.zeros([1, 16, 16, 3]), 4 if architecture.is_bottleneck else 1
    # Doubled, so that each half has the depth of the table.
    revnet(architecture, images, CLASSES, True, layers.conv2d, lambda net, *_, **__: net, 2.0, chain=chain)
    # The first unit of a stage that changes the map or the channels is not reversible.
    changing = [architecture.is_bottleneck, *[True] * (len(units) - 1)]
    assert found == [(count - first, wide * depth) for count, depth, first in zip(units, depths, changing)]
