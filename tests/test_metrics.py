"""Tests of the evaluation's metrics against NumPy."""

import os
from typing import Any, Dict, List

import numpy as np

from compat import tf
from inception_v3.config import PADDING_LABEL
from inception_v3.metrics import evaluation_metrics, names_of, print_predictions
from tests.support.graphs import evaluate


def accumulate(batches: Any) -> Dict[str, float]:
    labels = tf.placeholder(tf.int32, [None])
    logits = tf.placeholder(tf.float32, [None, 7])
    results = evaluation_metrics(labels, logits)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for batch_labels, batch_logits in batches:
            session.run([update for _, update in results.values()], {labels: batch_labels, logits: batch_logits})
        return session.run({name: value for name, (value, _) in results.items()})


def test_metrics__are_means_over_images_without_padding() -> None:
    random = np.random.RandomState(0)
    labels = random.randint(0, 7, 10)
    logits = random.normal(0, 2, [10, 7]).astype(np.float32)
    padding = (np.full(3, PADDING_LABEL), 100 * np.ones([3, 7], np.float32))
    # The batches have different sizes, so a mean of batch means would differ.
    results = accumulate([(labels[:6], logits[:6]), (labels[6:], logits[6:]), padding])

    ranks = (logits > logits[np.arange(10), labels][:, np.newaxis]).sum(1)
    log_softmax = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(results['top_1'], (ranks < 1).mean(), rtol=1e-6)
    np.testing.assert_allclose(results['top_5'], (ranks < 5).mean(), rtol=1e-6)
    np.testing.assert_allclose(results['cross_entropy'], -log_softmax[np.arange(10), labels].mean(), rtol=1e-5)
    assert results['images'] == 10
    assert 0 < results['top_1'] < results['top_5'] < 1


def test_top_5__counts_the_fifth_rank_and_not_the_sixth() -> None:
    # The label has 3, 4 and 5 larger logits.
    labels = np.array([3, 4, 5])
    results = accumulate([(labels, np.tile(np.arange(7, 0, -1), [3, 1]))])
    assert (results['top_5'], results['top_1']) == (np.float32(2 / 3), 0)
    with tf.Graph().as_default():
        results = accumulate([(np.array([0, 1, PADDING_LABEL]), np.tile(np.arange(7, 0, -1), [3, 1]))])
    assert results['top_1'] == 0.5


def test_metrics__count_images_beyond_the_whole_numbers_of_float32() -> None:
    value, update = evaluation_metrics(tf.zeros([2], tf.int32), tf.zeros([2, 7]))['images']
    (count,) = [each for each in tf.local_variables() if each.op.name == 'evaluation_metrics/images']
    assert count in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)
    with tf.Session() as session:
        count.load(2**53, session)
        assert session.run(update) == 2**53 + 2
        assert session.run(value) == 2**53 + 2


def printed(printing: tf.Operation, capfd: Any) -> List[str]:
    with tf.Session() as session:
        session.run(printing)
    return capfd.readouterr().err.splitlines()


def test_display_tensors__prints_a_line_per_image(capfd: Any) -> None:
    logits = np.log([[0.5, 0.25, 0.1, 0.08, 0.05, 0.02], [0.02, 0.03, 0.05, 0.1, 0.2, 0.6], [1 / 6] * 6])
    labels = tf.constant([0, 4, PADDING_LABEL])
    assert printed(print_predictions(labels, tf.constant(logits, tf.float32), ()), capfd) == [
        'label 0 predictions 0:0.500000 1:0.250000 2:0.100000 3:0.080000 4:0.050000',
        'label 4 predictions 5:0.600000 4:0.200000 3:0.100000 2:0.050000 1:0.030000',
    ]
    # A network may have more classes than the data set has names, and a name may be empty.
    names = ['background', 'Kätzchen', '', 'd', 'e e']
    assert printed(print_predictions(labels, tf.constant(logits, tf.float32), names), capfd) == [
        'label 0 (background) predictions 0 (background):0.500000 1 (Kätzchen):0.250000 2:0.100000 3 (d):0.080000 '
        '4 (e e):0.050000',
        'label 4 (e e) predictions 5:0.600000 4 (e e):0.200000 3 (d):0.100000 2:0.050000 1 (Kätzchen):0.030000',
    ]


def test_class_names__are_those_of_the_labels_or_empty() -> None:
    names = ['background', 'Kätzchen', os.fsdecode(b'no text \xff')]
    found = evaluate(names_of(tf.constant([[2, 1], [0, 3]], tf.int64), names, 4))
    assert found.tolist() == [[b'no text \xff', 'Kätzchen'.encode()], [b'background', b'']]
