"""Tests of the findings about graphs: infeed, sums of gradients, operations that a TPU cannot run, memory."""

from typing import Any, List

import pytest

from console.tensorflow_versions import tf
from inception_v3 import model_fn
from inception_v3.commands.estimate import CoreMemory
from inception_v3.commands.preflight import graph_checks
from inception_v3.commands.preflight.report import Report
from inception_v3.config import Config
from inception_v3.input import record_preprocessing
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
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
    memory = CoreMemory(GIB // 2, GIB // 4, GIB, GIB // 4, padded, GIB)
    graph_checks.check_memory(section, 1024, topology, memory, report)
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
    graph_checks.check_files('section', split, Config(data_dir='gs://b/d'), files, 4, report)
    assert report.sections['section']['files_per_host'] == (values, f'of {files}')
    assert len(report.errors) == bool(errors) and len(report.warnings) == bool(warnings)
    assert errors in ''.join(report.errors) and warnings in ''.join(report.warnings)


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
    (error,) = errors_of(capsys, *FAKE, '--topology=v2-8', '--mode=eval')
    assert error.startswith('evaluation: ') and 'no kernel' in error
    assert f'different (UniqueWithCounts), created at tests/commands/preflight/test_graph_checks.py:{line}' in error


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
    def through_python(encoded: tf.Tensor, cut: Any) -> tf.Tensor:
        length = tf.py_function(lambda x: tf.cast(tf.strings.length(x), tf.float32), [encoded], tf.float32)
        return tf.zeros([60, 60, 3]) + tf.reshape(length, [])

    monkeypatch.setattr(record_preprocessing, 'decode_cut', through_python)
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
