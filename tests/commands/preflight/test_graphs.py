"""Tests of the graphs that TPUEstimator builds for a TPU; only the query of the TPU's topology is replaced."""

import dataclasses
import os
from typing import Any, List
from unittest import mock

import pytest

from console.tensorflow_versions import tf
from inception_v3 import input_pipeline, model_fn
from inception_v3.commands.preflight import graphs
from inception_v3.config import Config
from inception_v3.tpu.supported import flaw
from inception_v3.tpu.topology import CLOUD_TPUS, emulated


def of_type(operations: List[tf.Operation], kind: str) -> List[tf.Operation]:
    return [operation for operation in operations if operation.type == kind]


@pytest.fixture
def on_tpu(small_config: Config, tmp_path: Any) -> Config:
    """The configuration of a small network on a v2-8."""
    return dataclasses.replace(small_config, use_tpu=True, model_dir=str(tmp_path), train_batch_size=32)


@pytest.mark.parametrize(('is_training', 'transpose_enabled'), [(True, True), (False, False)])
def test_build__infeed_of_each_core_and_sums_of_gradients(
    on_tpu: Config, one_layer: None, is_training: bool, transpose_enabled: bool
) -> None:
    config = dataclasses.replace(
        on_tpu, precision='bfloat16', skip_host_call=False, transpose_enabled=transpose_enabled
    )
    graph = graphs.build(config, CLOUD_TPUS['v2-8'], is_training)
    infeeds = of_type(graph.get_operations(), 'InfeedEnqueueTuple')
    assert sorted(infeed.get_attr('device_ordinal') for infeed in infeeds) == list(range(8))
    share = 4 if is_training else 8
    shape = [75, 75, 3, share] if transpose_enabled else [share, 75, 75, 3]
    expected = graphs.Infeed((f'bfloat16 {shape}', f'int32 [{share}]'), share * (75 * 75 * 3 * 2 + 4))
    assert graphs.infeeds(graph) == {expected: 8}
    core = graphs.on_core(graph)
    # Kernels and shifts of the layer and of the logits.
    assert graphs.collectives(core) == (4 if is_training else 0, 0)
    assert {o.inputs[0].dtype.base_dtype for o in of_type(core, 'Conv2D')} == {tf.bfloat16}
    assert not [*graphs.flaws(graph, core)]


@pytest.mark.parametrize(('batch_norm', 'sums'), [('averaged', 1), ('synchronized', 2)])
def test_collectives__of_batch_norm_are_counted_apart(
    on_tpu: Config, one_layer: None, batch_norm: str, sums: int
) -> None:
    config = dataclasses.replace(on_tpu, batch_norm=batch_norm)
    core = graphs.on_core(graphs.build(config, CLOUD_TPUS['v2-8'], True))
    assert graphs.collectives(core) == (4, sums)


def test_build__pipelines_per_host_in_training_and_evaluation(
    on_tpu: Config, one_layer: None, monkeypatch: Any
) -> None:
    topology = emulated('emulated:6x3')
    sizes: Any = {'num_shards': 6, 'train_batch_size': 96, 'eval_batch_size': 96}
    config = dataclasses.replace(on_tpu, tpu='emulated:6x3', use_data='fake', **sizes)
    built = mock.Mock(wraps=input_pipeline.fake_images)
    monkeypatch.setattr(input_pipeline, 'fake_images', built)
    for is_training in (True, False):
        built.reset_mock()
        graph = graphs.build(config, topology, is_training)
        # The hosts between the first and the last one share the first host's.
        assert [call[0][-2] for call in built.call_args_list] == [0, topology.hosts - 1]
        assert graphs.input_pipelines(graph) == topology.hosts
        # Nothing is written: the graph of a large slice would take hundreds of megabytes.
        assert os.listdir(str(on_tpu.model_dir)) == []
        assert sum(graphs.infeeds(graph).values()) == topology.cores


def test_flaw__of_a_gradient_names_the_line_of_the_forward_operation(on_tpu: Config, one_layer: None) -> None:
    graph = graphs.build(on_tpu, CLOUD_TPUS['v2-8'], True)
    gradient = of_type(graphs.on_core(graph), 'Conv2DBackpropFilter')[0]
    assert flaw(gradient, '').where.startswith('inception_v3/networks/layers.py:')


def test_flaws__kernel_must_support_the_types(on_tpu: Config, one_layer: None, monkeypatch: Any) -> None:
    total_loss = model_fn.total_loss

    def loss_with_complex_sums(logits: Any, auxiliary: Any, labels: Any, config: Config) -> Any:
        sums = tf.cumsum(tf.cast(labels, tf.complex64), name='sums')
        return total_loss(logits, auxiliary, labels, config) + tf.math.real(sums)[-1]

    monkeypatch.setattr(model_fn, 'total_loss', loss_with_complex_sums)
    graph = graphs.build(on_tpu, CLOUD_TPUS['v2-8'], True)
    flaws = {flaw.operation: flaw.problem for flaw in graphs.flaws(graph, graphs.on_core(graph))}
    assert 'complex64' in flaws['sums']
