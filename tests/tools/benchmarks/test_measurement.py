"""A measurement: its counts, its costs, and its failures."""

import dataclasses
import functools
import os
import sys
from typing import Any, Dict, List
from unittest import mock

import pytest

from inception_v3.config import Config
from tools.benchmarks import measurement, pipelines
from tools.benchmarks.measurement import DECODING, STORAGE, TRANSFER, MeasurementError, Run, interleave


@pytest.fixture
def config(photo_dir: str) -> Config:
    sizes: Dict[str, Any] = {'height': 75, 'width': 75, 'eval_batch_size': 4, 'train_batch_size': 4}
    return Config(use_tpu=False, data_dir=photo_dir, num_classes=6, followup_shuffle_buffer_size=8, **sizes)


@pytest.mark.program
def test_perform__does_not_count_padding(config: Config) -> None:
    # Five images are batches of 4 and of 1; after two batches of warm-up at least four are measured.
    ours = functools.partial(Run, is_naive=False, config=config)
    assert pipelines.perform(ours(is_training=False, until=TRANSFER, images=1)).images == 10
    assert pipelines.perform(ours(is_training=True, until=TRANSFER, images=21)).images == 24
    assert pipelines.perform(ours(is_training=False, until=STORAGE, images=21)).images == 24


@pytest.mark.program
def test_measure__decoding_costs_more_than_reading_and_failures_have_a_reason(config: Config, monkeypatch: Any) -> None:
    naive = functools.partial(Run, is_naive=True, is_training=True, config=config)
    reading, decoding = naive(until=STORAGE, images=400), naive(until=DECODING, images=100)
    read, decoded = measurement.measure([reading, decoding])
    assert (read.images, decoded.images) == (400, 100)
    # A photograph of 400 x 600 takes a millisecond or more.
    assert decoded.cpu_ms > 0.3 and decoded.cpu_ms > read.cpu_ms > 0
    # A core provides one second of CPU time per second.
    assert decoded.cpu_ms / 1000 * decoded.images_per_second < 1.1 * len(os.sched_getaffinity(0))
    assert 100 < read.peak_mb < 5000
    missing = dataclasses.replace(reading, config=dataclasses.replace(config, data_dir='/no/such/folder'))
    with pytest.raises(MeasurementError, match=r'^--data_dir=/no/such/folder: no such folder'):
        measurement.measure([missing])
    monkeypatch.setattr(measurement, '_TIMEOUT', 1)
    with pytest.raises(MeasurementError, match='not done after 1 seconds'):
        measurement.measure([reading])


def test_interleave__keeps_rounds_together_and_leaves_out_what_failed() -> None:
    order: List[str] = []

    def measure(name: str) -> int:
        order.append(name)
        if (name, order.count(name)) == ('b', 2):
            raise MeasurementError('no memory')
        return len(order)

    show = mock.Mock()
    code = interleave('abc', 3, measure, mock.Mock(), show)
    assert order == [*'abcabcac'] and code == 1
    show.assert_called_once_with({'a': [1, 4, 7], 'b': [2], 'c': [3, 6, 8]}, {'b': 'no memory'})
    assert interleave('ac', 1, measure, mock.Mock(), show) == 0
    # An interruption keeps the measurements made so far.
    with pytest.raises(KeyboardInterrupt):
        interleave('ab', 2, mock.Mock(side_effect=[5, 6, KeyboardInterrupt]), mock.Mock(), show)
    assert show.call_args == mock.call({'a': [5], 'b': [6]}, {})


def test_answer_of__is_the_last_line_or_the_reason_of_the_failure() -> None:
    def answer(code: str) -> Any:
        return measurement.answer_of([sys.executable, '-c', f'import os, sys\n{code}'], '[6]')

    assert answer('print("a")\nprint(sys.stdin.read())') == [6]
    for code, reason in (
        ('1 // 0', '^ZeroDivisionError'),
        ('sys.exit(3)', '^exit code 3'),
        ('os.kill(os.getpid(), 9)', '^ended by signal 9'),
    ):
        with pytest.raises(MeasurementError, match=reason):
            answer(code)
