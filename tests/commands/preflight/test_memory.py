"""Tests of the memory estimate of a TPU core."""

import dataclasses
import functools
import os
import re
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from console.tensorflow_versions import tf
from inception_v3.commands.preflight import graphs, memory
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet
from inception_v3.tpu.topology import CLOUD_TPUS

CORES = 8


def graph_of(config: Config, tmp_path: Any, is_training: bool = True, **changes: Any) -> tf.Graph:
    config = dataclasses.replace(config, use_tpu=True, model_dir=str(tmp_path), **changes)
    return graphs.build(config, CLOUD_TPUS['v2-8'], is_training)


@pytest.mark.parametrize(('optimizer', 'slots'), [('sgd', 0), ('momentum', 1), ('RMS', 2)])
def test_variable_bytes__by_purpose(
    small_config: Config, one_layer: None, tmp_path: Any, optimizer: str, slots: int
) -> None:
    count = 3 * 3 * 3 * 16 + 16 + 16 * 11 + 11
    # The moving mean and variance of 16 channels, and the global step.
    others = 2 * 16 * 4 + 8
    graph = graph_of(small_config, tmp_path, optimizer=optimizer)
    assert memory.variable_bytes(graph) == (count, 4 * count, slots * 4 * count, 4 * count, others)
    graph = graph_of(small_config, tmp_path, optimizer=optimizer, moving_average=False)
    assert memory.variable_bytes(graph) == (count, 4 * count, slots * 4 * count, 0, others)
    assert memory.variable_bytes(graph).total == (1 + slots) * 4 * count + others


@pytest.mark.parametrize(
    ('shape', 'dtype', 'size'),
    [
        # The batch fills 128 lanes; three channels are padded to eight.
        ([128, 299, 299, 3], tf.float32, 128 * 299 * 299 * 8 * 4),
        ([128, 299, 299, 3], tf.bfloat16, 128 * 299 * 299 * 8 * 2),
        # Two images are padded to eight; the channels are in the lanes.
        ([2, 35, 35, 256], tf.float32, 8 * 35 * 35 * 256 * 4),
        ([16, 8, 8, 100], tf.float32, 16 * 8 * 8 * 128 * 4),
        ([5], tf.int32, 20),
        ([], tf.float32, 4),
        ([None, 3], tf.float32, None),
    ],
)
def test_padded_size_of__whole_tiles(shape: Any, dtype: tf.DType, size: int) -> None:
    assert memory.padded_size_of(tf.placeholder(dtype, shape)) == size


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_kept_for_backward__convolutions_but_not_element_wise_results(
    small_config: Config, one_layer: None, tmp_path: Any, precision: str
) -> None:
    graph = graph_of(small_config, tmp_path, train_batch_size=CORES * 4, precision=precision)
    kept = memory.kept_for_backward(graphs.on_core(graph))
    large = {(t.op.type, t.dtype.name, tuple(t.shape.as_list())) for t in kept if t.shape.rank == 4}
    assert large == {
        ('InfeedDequeueTuple', precision, (4, 75, 75, 3)),
        # Read by the gradient of batch normalization. The output of ReLU is read as well, but recomputed.
        ('Conv2D', precision, (4, 37, 37, 16)),
        # The features are read by the gradient of the logits, and the logits by the gradient of the loss.
        ('Mean', precision, (4, 1, 1, 16)),
        ('Conv2D', precision, (4, 1, 1, 11)),
    }
    size = {'float32': 4, 'bfloat16': 2}[precision]
    padded = 8 * 75 * 75 * 128 * size + 8 * 37 * 37 * 128 * size
    # All other tensors are small: they have no height and width.
    estimate = memory.activations(graphs.on_core(graph), is_training=True)
    assert padded <= estimate.padded < padded + 200_000
    unpadded = 4 * (75 * 75 * 3 + 37 * 37 * 16) * size
    assert unpadded <= estimate.unpadded < unpadded + 2_000


def test_kept_for_backward__inputs_of_max_pooling_and_sums_instead_of_their_terms() -> None:
    images = tf.placeholder(tf.float32, [2, 8, 8, 4], name='images')

    def conv(net: tf.Tensor, name: str) -> tf.Tensor:
        return tf.nn.conv2d(net, tf.get_variable(name, [3, 3, 4, 4], use_resource=True), 1, 'SAME')

    # The gradient of ReLU reads the sum: it replaces its two terms, which nothing else needs.
    total = conv(images, 'left') + conv(images, 'right')
    # The pooling reads windows of the ReLU, which is therefore not recomputed, and its own output.
    pooled = tf.nn.max_pool2d(tf.nn.relu(total, name='relu'), 2, 2, 'VALID', name='pooled')
    last = conv(pooled, 'last')
    loss = tf.reduce_sum(tf.square(last))
    with tf.name_scope('gradients'):
        tf.gradients(loss, tf.trainable_variables())
    kept = memory.kept_for_backward(tf.get_default_graph().get_operations())
    names = {tensor.op.name for tensor in kept if tensor.shape.rank == 4}
    assert names == {'images', total.op.name, 'relu', 'pooled', last.op.name}


def kept_of_a_revnet(units: int, rebuild_activations: bool, model_dir: Any) -> int:
    """Returns the bytes that a step of two images keeps for the backward pass, with `units` in the only stage."""
    network = NETWORKS['revnet38']._replace(
        build=functools.partial(revnet, REVNET_38._replace(units=(units,), depths=(32,)))
    )
    settings: Any = {'network': 'revnet38', 'height': 32, 'width': 32, 'use_tpu': False, 'train_batch_size': 2}
    settings.update(optimizer='sgd', moving_average=False, skip_host_call=True)  # Saves time.
    config = Config(**settings, model_dir=str(model_dir), rebuild_activations=rebuild_activations)
    with mock.patch.dict(NETWORKS, revnet38=network), tf.Graph().as_default() as graph:
        tf.train.get_or_create_global_step()
        images, labels = tf.zeros([2, 8, 8, 3]), tf.zeros([2], tf.int32)
        inception_model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, {'config': config})
        return sum(memory.size_of(tensor) or 0 for tensor in memory.kept_for_backward(graph.get_operations()))


def test_kept_for_backward__only_the_output_of_a_reversible_stage(tmp_path: Any) -> None:
    rebuilt = [kept_of_a_revnet(units, True, tmp_path) for units in (1, 2)]
    kept = [kept_of_a_revnet(units, False, tmp_path) for units in (1, 2)]
    # Only the moments of batch normalization grow with the units.
    assert 0 <= rebuilt[1] - rebuilt[0] < 1e4
    # Two images, two halves of 16 channels, two convolutions in float32: their outputs, and their inputs, padded.
    results = 2 * 2 * 2 * 4 * 8 * 8 * 16
    assert 2 * results < kept[1] - kept[0] < 3 * results


def test_activations__evaluation_holds_inputs_and_outputs_of_one_operation(
    small_config: Config, one_layer: None, tmp_path: Any
) -> None:
    graph = graph_of(small_config, tmp_path, is_training=False, eval_batch_size=CORES * 4)
    convolved = 8 * 37 * 37 * 128 * 4
    images = 8 * 75 * 75 * 128 * 4
    # The input and output of ReLU or batch normalization, plus the infeed (and labels, channels and scalars).
    estimate = memory.activations(graphs.on_core(graph), is_training=False)
    assert 0 <= estimate.padded - images - 2 * convolved < 10_000


def temporaries(tmp_path: Any, batch_size: int) -> int:
    """Returns the bytes that XLA for CPUs assigns to a step's temporaries, at 139 pixels in float32."""
    folder = tmp_path / str(batch_size)
    step = (
        f'xla_step.BATCH_SIZE = {batch_size}; xla_step.compile_fast(); xla_step.run_once(Config(height=139, width=139))'
    )
    subprocess.run(
        [
            sys.executable,
            '-c',
            f'from inception_v3.commands.preflight import xla_step; from inception_v3.config import Config; {step}',
        ],
        env={**os.environ, 'XLA_FLAGS': f'--xla_dump_to={folder}'},
        check=True,
        timeout=600,
    )
    texts = [path.read_text() for path in folder.glob('*buffer-assignment.txt')]
    return max(int(size) for text in texts for size in re.findall(r'size (\d+), preallocated-temp', text))


@pytest.mark.slow
def test_estimate__agrees_with_the_memory_that_xla_assigns(digits_dir: str, tmp_path: Any) -> None:
    few, many = 16, 32
    measured = (temporaries(tmp_path, many) - temporaries(tmp_path, few)) / (many - few)
    graph = graph_of(
        Config(data_dir=digits_dir, height=139, width=139), tmp_path, train_batch_size=CORES * few, num_classes=1001
    )
    kept = memory.kept_for_backward(graphs.on_core(graph))
    estimated = sum(graphs.size_of(tensor) or 0 for tensor in kept) / few
    assert abs(estimated / measured - 1) < 0.1
