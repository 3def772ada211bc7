"""Tests of the graphs that TPUEstimator builds for a TPU, and of the findings about them: infeed, sums, flaws, memory.

Only the query of the TPU's topology is replaced.
"""

import dataclasses
import os
from typing import Any, List
from unittest import mock

import pytest

from compat import tf
from inception_v3 import input_pipeline, model_fn
from inception_v3.config import Config
from inception_v3.input import record_preprocessing
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
from inception_v3.presets import PRESETS
from inception_v3.run.memory import evaluation_memory, training_memory
from inception_v3.tpu.supported import flaw
from inception_v3.tpu.topology import CLOUD_TPUS, emulated
from tests.support.preflights import FAKE, errors_of, run
from tools.estimate import CoreMemory
from tools.preflight import graphs
from tools.preflight.report import Report

GIB = 1 << 30


def of_type(operations: List[tf.Operation], kind: str) -> List[tf.Operation]:
    return [operation for operation in operations if operation.type == kind]


@pytest.fixture
def on_tpu(small_config: Config, tmp_path: Any) -> Config:
    """The configuration of a small network on a v2-8."""
    return dataclasses.replace(small_config, use_tpu=True, model_dir=str(tmp_path), train_batch_size=32)


@pytest.mark.parametrize(('is_training', 'transpose_enabled'), [(True, True), (False, False)])
def test_build__counts_the_infeed_of_each_core_and_sums_of_gradients(
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
    expected = (f'bfloat16 {shape}', f'int32 [{share}]'), share * (75 * 75 * 3 * 2 + 4)
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


def test_build__makes_a_pipeline_for_each_host(on_tpu: Config, one_layer: None, monkeypatch: Any) -> None:
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
        assert len(of_type(graph.get_operations(), 'IteratorV2')) == topology.hosts
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


@pytest.mark.parametrize(
    ('name', 'section', 'padded', 'percent'),
    [
        ('v2-8', 'training', 6 * GIB, ''),
        ('v2-8', 'training', 6 * GIB + 1, '100%'),
        ('v2-8', 'evaluation', 11 * GIB, '162%'),
        ('v3-8', 'training', 14 * GIB + 1, '100%'),
        ('emulated:8', 'training', 100 * GIB, ''),
    ],
)
def test_memory__above_that_of_a_core_is_an_error(name: str, section: str, padded: int, percent: str) -> None:
    report, topology = Report('memory'), CLOUD_TPUS.get(name) or emulated(name)
    # 2 GiB of variables. Of the activations, the padding counts.
    memory = CoreMemory(GIB // 2, GIB // 4, GIB, GIB // 4, padded, GIB)
    graphs.check_memory(section, 1024, topology, memory, report)
    assert not report.warnings and len(report.errors) == bool(percent)
    for finding in report.errors:
        flag = '--train_batch_size' if section == 'training' else '--eval_batch_size'
        assert finding.startswith(f'{flag}=1024: {section} takes an estimated {(2 * GIB + padded) / GIB:.1f}')
        assert f'of the {16 if name == "v3-8" else 8} GiB of a core, {percent}.' in finding
        assert f'decrease {flag}' in finding


@pytest.mark.parametrize(
    ('split', 'files', 'values', 'errors', 'warnings'),
    [
        ('train', 2, [0, 1], '2 train files for 4 TPU hosts', ''),
        ('train', 8, [2, 2], '', ''),
        ('train', 9, [2, 3], '', '9 train files cannot be divided equally among 4 hosts'),
        # In an evaluation, the other hosts feed padding.
        ('validation', 2, [0, 1], '', ''),
    ],
)
def test_files__must_be_enough_for_the_hosts(
    split: str, files: int, values: List[int], errors: str, warnings: str
) -> None:
    report = Report('files')
    graphs.check_shares('section', split, Config(data_dir='gs://b/d'), files, 4, report)
    assert report.sections['section']['files_per_host'] == (values, f'of {files}')
    assert len(report.errors) == bool(errors) and len(report.warnings) == bool(warnings)
    assert errors in ''.join(report.errors) and warnings in ''.join(report.warnings)


def test_unsupported_operation__is_named_with_its_source_line(one_layer: None, monkeypatch: Any) -> None:
    network = NETWORKS['inception_v3']

    def with_a_unique(images: tf.Tensor, *others: Any, **settings: Any) -> Any:
        logits, auxiliary = network.build(images, *others, **settings)
        values, *_ = tf.unique_with_counts(tf.reshape(logits, [-1]), name='different')  # unique
        return logits + tf.reduce_sum(values), auxiliary

    monkeypatch.setitem(NETWORKS, 'inception_v3', network._replace(build=with_a_unique))
    with open(__file__) as file:
        (line,) = [number for number, text in enumerate(file, 1) if text.endswith('# unique\n')]
    # Evaluation, because the operation has no gradient.
    (error,) = errors_of(*FAKE, '--topology=v2-8', '--mode=eval')
    assert error.startswith('evaluation: ') and 'no kernel' in error
    assert f'different (UniqueWithCounts), created at tests/tools/preflight/test_graphs.py:{line}' in error


def test_transfer_uint8__sends_words(one_layer: None) -> None:
    report = run(*FAKE, '--topology=v2-8', '--transfer=uint8', '--json').report
    assert report['errors'] == []
    words = 128 * -(-75 * 75 * 3 // 4) * 4
    # Four numbers of the distortion, and the label.
    assert report['training']['infeed_bytes'] == words + 128 * 4 * 4 + 128 * 4
    assert report['evaluation']['infeed_bytes'] == words + 128 * 4


def test_python_in_the_input_pipeline__is_an_error(
    one_layer: None, monkeypatch: Any, reachable: List[str], photo_dir: str
) -> None:
    def through_python(encoded: tf.Tensor, plan: Any) -> tf.Tensor:
        length = tf.py_function(lambda x: tf.cast(tf.strings.length(x), tf.float32), [encoded], tf.float32)
        return tf.zeros([60, 60, 3]) + tf.reshape(length, [])

    monkeypatch.setattr(record_preprocessing, 'decode_planned', through_python)
    (error,) = errors_of(*reachable, f'--data_dir={photo_dir}', '--mode=eval')
    assert 'evaluation: ' in error and 'EagerPyFunc' in error and 'tests/tools/preflight/test_graphs.py' in error


def test_unsummed_gradients_and_unknown_batch_size__are_errors(one_layer: None, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(model_fn, 'make_optimizer', lambda rate, config: tf.train.GradientDescentOptimizer(rate))
        (error,) = errors_of(*FAKE, '--topology=v2-8', '--mode=train')
        assert 'the graph of training cannot be built' in error and 'CrossShardOptimizer' in error
    with monkeypatch.context() as patch:
        patch.setattr(InputPipeline, 'transfer', lambda self, dataset, batch_size: dataset.batch(batch_size))
        (error,) = errors_of(*FAKE, '--topology=v2-8', '--mode=train')
        assert 'the graph of training cannot be built' in error and '(?, 75, 75, 3)' in error


def test_replica_memory__is_that_of_one_replica_with_its_images() -> None:
    small = Config(**{**PRESETS['digits'], 'model_dir': 'unused', 'use_data': 'fake', 'depth_multiplier': 0.01})
    together = dataclasses.replace(
        small, num_gpus=4, worker_hosts='a:1,b:1', task_index=0, train_batch_size=800, batch_norm_group_size=4
    )
    together = dataclasses.replace(together, seed=1, max_bad_records=5)
    alone = dataclasses.replace(small, seed=1, train_batch_size=100, eval_batch_size=small.eval_batch_size // 8)
    for is_training, memory in ((True, training_memory), (False, evaluation_memory)):
        assert graphs.replica_memory(together, is_training) == memory(alone)
