"""Comparisons: each run is measured once; ratios, phases and medians agree with arithmetic by hand."""

import dataclasses
from typing import List

from benchmarks import comparison
from benchmarks.comparison import Spread
from benchmarks.measurement import DECODING, PARSING, PREPROCESSING, STORAGE, TRANSFER, Measured, Measurement, Run
from inception_v3.config import Config

CONFIG = Config(use_tpu=False, train_batch_size=16, eval_batch_size=8)


def of(*cpu_ms: float) -> List[Measurement]:
    return [Measurement(100, value, 1000 / value, 500 + value) for value in cpu_ms]


def test_runs__have_no_duplicates() -> None:
    subjects = comparison.variant_subjects(['train', 'train_vgg', 'eval'], CONFIG, 100)
    runs = comparison.runs_of(subjects)
    assert len(runs) == len({*runs})
    # Variants and the plain reader share the reading runs; decoding and parsing appear once.
    assert [(run.is_naive, run.is_training) for run in runs if run.until == STORAGE] == [
        (True, True),
        (False, True),
        (True, False),
        (False, False),
    ]
    whole = [(run.is_naive, run.is_training, run.config.preprocessing) for run in runs if run.until == TRANSFER]
    assert whole == [
        (True, True, 'inception'),
        (False, True, 'inception'),
        (True, True, 'vgg'),
        (False, True, 'vgg'),
        (True, False, 'inception'),
        (False, False, 'inception'),
    ]
    assert [(subject.variant, subject.pipeline) for subject in subjects[:5]] == [
        ('train', 'records read'),
        ('train', 'and parsed'),
        ('train', 'and decoded'),
        ('train', 'naive'),
        ('train', 'ours'),
    ]
    assert [run.batch_size for run in runs if run.until == TRANSFER] == [16, 16, 16, 16, 8, 8]


def test_runs__without_phases_are_the_readers_and_whole_pipelines() -> None:
    runs = comparison.runs_of(comparison.variant_subjects(['train', 'eval'], CONFIG, 100, with_phases=False))
    assert [(run.is_naive, run.is_training, run.until) for run in runs] == [
        *((True, True, until) for until in (STORAGE, PARSING, DECODING)),
        *((is_naive, is_training, TRANSFER) for is_training in (True, False) for is_naive in (True, False)),
    ]


def test_rows__agree_with_arithmetic_by_hand() -> None:
    subjects = comparison.variant_subjects(['train'], CONFIG, 100)
    *_, decoded, naive, ours = subjects
    storage, preprocessing = ours.earlier
    measured: Measured = {
        decoded.whole: of(1, 2, 1),
        naive.whole: of(6, 8, 7),
        ours.whole: of(3, 5, 4),
        storage: of(0.5, 0.5, 1),
        preprocessing: of(2, 4, 3.5),
    }
    rows = comparison.rows_of(subjects, measured)
    assert [row.subject for row in rows] == [decoded, naive, ours]
    row = rows[-1]
    assert row.cpu_ms == Spread(4, 3, 5)
    assert row.images_per_second == Spread(250, 200, 1000 / 3)
    assert row.peak_mb == Spread(504, 503, 505)
    assert row.naive_ratio == [2, 1.6, 1.75] and row.decode_ratio == [3, 2.5, 4]
    assert row.phases == {STORAGE: [0.5, 0.5, 1], PREPROCESSING: [1.5, 3.5, 2.5], TRANSFER: [1, 1, 0.5]}
    # Medians of 0.5, 2.5 and 1.
    assert row.share(STORAGE) == 0.125 and row.share(PREPROCESSING) == 0.625 and row.share(TRANSFER) == 0.25
    # The naive pipeline's earlier phases were not measured.
    assert not rows[1].phases and not rows[1].naive_ratio and not rows[0].decode_ratio


def test_rows__interrupted_round_keeps_earlier_rounds() -> None:
    subjects = comparison.variant_subjects(['train'], CONFIG, 100)
    *_, naive, ours = subjects
    rows = comparison.rows_of(subjects, {naive.whole: of(6, 8), ours.whole: of(3)})
    assert rows[-1].naive_ratio == [2] and not rows[-1].phases


def test_sweep__changes_one_flag() -> None:
    subjects = comparison.sweep_subjects('parallelism', [1, 7], CONFIG, 100)
    assert [subject.whole for subject in subjects] == [
        Run(False, True, TRANSFER, dataclasses.replace(CONFIG, num_parallel_calls=value), 100) for value in (1, 7)
    ]
    assert [subject.flags for subject in subjects] == [('--num_parallel_calls=1',), ('--num_parallel_calls=7',)]
