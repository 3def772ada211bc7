"""Tests of the findings about graphs: infeed, sums of gradients, operations that a TPU cannot run, memory."""

from typing import Any, List

import pytest

from console.tensorflow_versions import tf
from inception_v3 import model_fn
from inception_v3.commands.preflight import graph_checks, graphs, memory
from inception_v3.commands.preflight.report import Report
from inception_v3.config import Config
from inception_v3.input import record_preprocessing
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
from inception_v3.tpu.supported import Flaw
from inception_v3.tpu.topology import CLOUD_TPUS, emulated
from tests.support.preflights import FAKE, errors_of, run

GIB = 1 << 30


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
    variables = memory.VariableBytes(7, GIB // 2, GIB // 4, GIB, GIB // 4)
    graph_checks._check_memory(section, 1024, topology, variables, memory.Activations(padded, GIB), report)
    assert not report.warnings and len(report.errors) == bool(percent)
    for finding in report.errors:
        flag = '--train_batch_size' if section == 'training' else '--eval_batch_size'
        assert finding.startswith(f'{flag}=1024: {section} takes an estimated {(2 * GIB + padded) / GIB:.1f}')
        assert f'of the {16 if name == "v3-8" else 8} GiB of a core, {percent}.' in finding
        assert f'decrease {flag}' in finding


@pytest.mark.slow
@pytest.mark.parametrize(
    ('batch', 'flags'),
    [
        (2048, []),
        (1536, ['--network=revnet104', '--rebuild_activations=False', '--height=224', '--width=224']),
    ],
)
def test_memory__of_kept_activations_is_an_error(capsys: Any, batch: int, flags: List[str]) -> None:
    (error,) = errors_of(capsys, '--topology=v2-8', '--mode=train', f'--train_batch_size={batch}', *flags)
    assert error.startswith(f'--train_batch_size={batch}: training takes an estimated') and 'GiB of a core, ' in error


# A batch for each of eight cores, two that are ready, and one that is being filled.
@pytest.mark.parametrize(('of_core', 'fits'), [(334 * 10**9 // 11, True), (334 * 10**9 // 11 + 1, False)])
def test_host_memory__holds_the_batches_of_its_cores(of_core: int, fits: bool, monkeypatch: Any) -> None:
    for name in ('v2-8', 'v2-256', 'v3-8', 'emulated:8'):
        report, tpu = Report('host'), CLOUD_TPUS.get(name) or emulated(name)
        monkeypatch.setattr(graphs, 'input_pipelines', lambda graph, tpu=tpu: tpu.hosts)
        infeed = graphs.Infeed((), of_core)
        monkeypatch.setattr(graphs, 'infeeds', lambda graph, tpu=tpu, infeed=infeed: {infeed: tpu.cores})
        graph_checks._check_infeed('evaluation', tf.Graph(), tpu, 1, report)
        assert len(report.errors) == (not fits and name.startswith('v2')), name
        for error in report.errors:
            assert error.startswith('--eval_batch_size: the batches take 334.0 GB of each host, which has 334 GB.')


@pytest.mark.parametrize(
    ('operations', 'changes', 'part'),
    [
        # A step of one second on a v2 core.
        (22.5e12, {'iterations': 1000}, ''),
        (22.5e12, {'iterations': 1001}, 'a loop of 1,001 steps takes at least 1,001 s'),
        (22.5e12, {'iterations': 5000, 'train_steps_per_eval': 1500}, 'a loop of 1,500 steps takes at least 1,500 s'),
        (22.5e12, {'iterations': 5000, 'train_steps': 700}, ''),
        (22.5e12, {'iterations': 5000, 'mode': 'train'}, 'a loop of 5,000 steps takes at least 5,000 s'),
        (22.5e12, {'iterations': 100, 'save_checkpoints_secs': 60}, 'Set --iterations to 60'),
        (0, {'iterations': 10**6}, ''),
    ],
)
def test_loop__longer_than_the_time_between_checkpoints(operations: int, changes: Any, part: str) -> None:
    report = Report('loop')
    graph_checks._check_loop(Config(**changes), CLOUD_TPUS['v2-8'], operations, report)
    assert len(report.errors) == bool(part)
    for error in report.errors:
        assert error.startswith(f'--iterations={changes["iterations"]}: ') and part in error
    report = Report('loop')
    graph_checks._check_loop(Config(**changes), emulated('emulated:8'), operations, report)
    assert not report.errors


def test_operations__two_per_weight_position_and_channel_forwards_and_each_way_backwards() -> None:
    images = tf.zeros([4, 9, 9, 3])
    weights = tf.get_variable('weights', [3, 3, 3, 16])
    hidden = tf.nn.conv2d(images, weights, 2, 'VALID')
    last = tf.get_variable('last', [1, 1, 16, 5])
    loss = tf.reduce_sum(tf.nn.conv2d(hidden, last, 1, 'SAME'))
    for gradient in tf.gradients(loss, [weights, last]):
        tf.reduce_sum(tf.square(gradient))
    tf.reduce_sum(loss)
    first, second = 2 * 4 * 4 * 4 * 16 * 3 * 3 * 3, 2 * 4 * 4 * 4 * 5 * 16
    # The images need no gradient.
    operations = tf.get_default_graph().get_operations()
    assert graphs.operations_per_step(operations) == 2 * first + 3 * second


def test_unsupported_operation__named_with_its_source_line(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    network = NETWORKS['inception_v3']

    def with_a_unique(images: tf.Tensor, *others: Any, **settings: Any) -> Any:
        logits, auxiliary = network.build(images, *others, **settings)
        values, *_ = tf.unique_with_counts(tf.reshape(logits, [-1]), name='different')  # unique
        return logits + tf.reduce_sum(values), auxiliary

    monkeypatch.setitem(NETWORKS, 'inception_v3', network._replace(build=with_a_unique))
    with open(__file__) as file:
        (line,) = [number for number, text in enumerate(file, 1) if text.endswith('# unique\n')]
    # Evaluation, because the operation has no gradient.
    errors = errors_of(capsys, *FAKE, '--topology=v2-8', '--mode=eval')
    unsupported, dynamic = errors
    for error in errors:
        assert error.startswith('evaluation: ')
        assert f'different (UniqueWithCounts), created at tests/commands/preflight/test_graph_checks.py:{line}' in error
    assert 'no kernel' in unsupported and 'float32 [None]' in dynamic


CORE = graphs.Infeed(('float32 [2]',), 8)


@pytest.mark.parametrize(
    ('pipelines', 'fed', 'part'),
    [
        (4, {CORE: 32}, ''),
        (1, {CORE: 32}, 'training has 1 input pipelines, but 4 hosts feed the cores.'),
        (4, {CORE: 31}, 'does not feed every core the same tensors: float32 [2] to 31 cores.'),
        (4, {CORE: 16, graphs.Infeed(('float32 [3]',), 12): 16}, 'float32 [2] to 16 cores; float32 [3] to 16 cores.'),
        (4, {}, 'does not feed every core the same tensors: nothing.'),
        (4, {graphs.Infeed(('float32 [None]',), None): 32}, 'float32 [None]: XLA needs static shapes.'),
    ],
)
def test_infeed__must_be_the_same_for_every_core(monkeypatch: Any, pipelines: int, fed: Any, part: str) -> None:
    monkeypatch.setattr(graphs, 'input_pipelines', lambda graph: pipelines)
    monkeypatch.setattr(graphs, 'infeeds', lambda graph: fed)
    report = Report('infeed')
    graph_checks._check_infeed('training', tf.Graph(), CLOUD_TPUS['v2-32'], 4, report)
    if part:
        (error,) = report.errors
        assert part in error
    else:
        # Each of four hosts feeds eight cores.
        assert not report.errors and [row.value for row in report.sections['training']] == [4, 8, 64, 88]


@pytest.mark.parametrize(('sums', 'part'), [(2, ''), (1, '1 sums over the cores for 2'), (3, '3 sums over the cores')])
def test_gradients__must_be_summed_once_each(monkeypatch: Any, sums: int, part: str) -> None:
    monkeypatch.setattr(graphs, 'collectives', lambda core: graphs.Collectives(sums, 7))
    for _ in range(2):
        tf.Variable(0.0)
    tf.Variable(0.0, trainable=False)
    report = Report('sums')
    graph_checks._check_collectives('training', tf.get_default_graph(), [], report)
    assert len(report.errors) == bool(part) and all(part in error for error in report.errors)
    assert [row.value for row in report.sections['training']] == [sums, 7]


def test_many_flaws__ten_are_named_and_the_others_counted() -> None:
    report = Report('flaws')
    flaws = [Flaw(f'op{number}', 'Unique', 'file:1', 'problem') for number in range(12)]
    graph_checks._add_flaws('training', 'unsupported_ops', flaws, 'none', report)
    assert report.errors[:10] == [f'training: op{number} (Unique), created at file:1: problem.' for number in range(10)]
    assert report.errors[10:] == ['training: and 2 more of the same kind.']
    (row,) = report.sections['training']
    assert len(row.value) == 12 and row.text == '12, see the findings'


def test_transfer_uint8__infeed_of_words(capsys: Any, one_layer: None) -> None:
    report = run(capsys, *FAKE, '--topology=v2-8', '--transfer=uint8', '--json').report
    assert report['errors'] == []
    words = 128 * -(-75 * 75 * 3 // 4) * 4
    # Four numbers of the distortion, and the label.
    assert report['training']['infeed_bytes'] == words + 128 * 4 * 4 + 128 * 4
    assert report['evaluation']['infeed_bytes'] == words + 128 * 4


def test_python_in_the_input_pipeline__is_an_error(
    capsys: Any, one_layer: None, monkeypatch: Any, reachable: List[str], photo_dir: str
) -> None:
    def through_python(encoded: tf.Tensor, shape: tf.Tensor, window: Any, config: Any) -> tf.Tensor:
        length = tf.py_function(lambda x: tf.cast(tf.strings.length(x), tf.float32), [encoded], tf.float32)
        return tf.zeros([config.height, config.width, 3]) + tf.reshape(length, [])

    monkeypatch.setattr(record_preprocessing, 'decode_and_resize', through_python)
    (error,) = errors_of(capsys, *reachable, f'--data_dir={photo_dir}', '--mode=eval')
    assert (
        'evaluation: ' in error and 'EagerPyFunc' in error and 'tests/commands/preflight/test_graph_checks.py' in error
    )


def test_unsummed_gradients_and_unknown_batch_size__are_errors(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(model_fn, 'make_optimizer', lambda rate, config: tf.train.GradientDescentOptimizer(rate))
        (error,) = errors_of(capsys, *FAKE, '--topology=v2-8', '--mode=train')
        assert 'the graph of training cannot be built' in error and 'CrossShardOptimizer' in error
    with monkeypatch.context() as patch:
        patch.setattr(InputPipeline, 'transfer', lambda self, dataset, batch_size: dataset.batch(batch_size))
        (error,) = errors_of(capsys, *FAKE, '--topology=v2-8', '--mode=train')
        assert 'the graph of training cannot be built' in error and '(?, 75, 75, 3)' in error
