"""Comparisons of pipelines: the variants, the runs to measure for them, and the resulting rows."""

import dataclasses
import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from benchmarks.measurement import (
    DECODING,
    PARSING,
    PHASES,
    PREPROCESSING,
    STORAGE,
    TRANSFER,
    Measured,
    Measurement,
    Run,
)
from inception_v3.config import Config

# Reading alone is fast: more images are needed to measure it above the noise.
_CHEAP_FACTOR = 8


class Variant(NamedTuple):
    """A configuration of the pipeline to compare.

    Attributes:
      is_training: training or evaluation.
      changes: flags that differ from the command line's.
      naive_changes: the same for the naive pipeline; None means `changes`.
    """

    is_training: bool
    changes: Dict[str, Any]
    naive_changes: Optional[Dict[str, Any]] = None


VARIANTS: Dict[str, Variant] = {
    'train': Variant(True, {}),
    'train_full_fast': Variant(True, {'use_fast_color_distort': False, 'fast_mode': True}),
    'train_full': Variant(True, {'use_fast_color_distort': False, 'fast_mode': False}),
    'train_vgg': Variant(True, {'preprocessing': 'vgg'}),
    'train_bfloat16': Variant(True, {'precision': 'bfloat16'}),
    'train_seeded': Variant(True, {'seed': 0}, {}),
    # Reads the same images, from the folder `tar_dir`.
    'train_tar': Variant(True, {'data_format': 'tar'}, {}),
    'eval': Variant(False, {}),
    # With uint8, the device does a part of the work; the naive pipeline still does all of it on the host.
    'train_uint8': Variant(True, {'transfer': 'uint8'}, {'transfer': 'float'}),
    'eval_uint8': Variant(False, {'transfer': 'uint8'}, {'transfer': 'float'}),
}

SWEEPS: Dict[str, Tuple[str, Tuple[int, ...]]] = {
    'batch_size': ('train_batch_size', (32, 64, 128, 256, 512, 1024)),
    'files': ('num_files_infeed', (1, 4, 16, 64, 256, 1024)),
    'parallelism': ('num_parallel_calls', (1, 4, 16, 64, 256)),
}


class Subject(NamedTuple):
    """A row of the table.

    Attributes:
      variant: name of the variant.
      pipeline: naive, ours, the last step of a plain reader, or the value of a sweep.
      flags: flags that differ from the command line's.
      whole: the run of the whole pipeline.
      earlier: the runs that end after storage and after preprocessing; empty if phases are not compared.
      naive: the run of the naive pipeline to compare with.
      decode: the run that only decodes, to compare with.
    """

    variant: str
    pipeline: str
    flags: Tuple[str, ...]
    whole: Run
    earlier: Tuple[Run, ...] = ()
    naive: Optional[Run] = None
    decode: Optional[Run] = None


class Spread(NamedTuple):
    """The median, the least and the greatest of repeated measurements."""

    median: float
    least: float
    greatest: float

    def text(self, digits: int) -> str:
        """The numbers with so many decimals: median (least–greatest)."""
        # No spaces inside the brackets: a narrow table breaks lines at spaces.
        return '{:,.{d}f} ({:,.{d}f}–{:,.{d}f})'.format(*self, d=digits)


class Row(NamedTuple):
    """The measurements of a subject. Lists have an element per repeat.

    Attributes:
      subject: the subject.
      measurements: measurements of its whole pipeline.
      phases: CPU time per image of each phase, in milliseconds: the time of the pipeline that ends after the phase,
        minus the time of the pipeline that ends before it.
      naive_ratio: CPU time of the naive pipeline divided by that of this one.
      decode_ratio: CPU time of this pipeline divided by that of decoding alone.
    """

    subject: Subject
    measurements: List[Measurement]
    phases: Dict[str, List[float]]
    naive_ratio: List[float]
    decode_ratio: List[float]

    def spread(self, name: str) -> Spread:
        """The spread of a field of the measurements."""
        return spread([getattr(measurement, name) for measurement in self.measurements])

    def share(self, phase: str) -> float:
        """The share of a phase in the CPU time, from the medians."""
        times = {name: statistics.median(values) for name, values in self.phases.items()}
        return times[phase] / sum(times.values())

    def as_dict(self) -> Dict[str, Any]:
        """This row for JSON."""
        return {
            'variant': self.subject.variant,
            'pipeline': self.subject.pipeline,
            'flags': self.subject.flags,
            'batch_size': self.subject.whole.batch_size,
            'measurements': [measurement._asdict() for measurement in self.measurements],
            **{name: self.spread(name)._asdict() for name in Measurement._fields[1:]},
            'phases_cpu_ms': self.phases,
            'naive_cpu_over_this': self.naive_ratio,
            'this_cpu_over_decoding': self.decode_ratio,
        }


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def tar_dir(config: Config) -> str:
    """The folder of the data set as tar shards, beside its own."""
    return f'{str(config.data_dir).rstrip("/")}-tar'


def variant_subjects(names: Sequence[str], config: Config, images: int, with_phases: bool = True) -> List[Subject]:
    """A plain reader, parser and decoder; then for each variant the naive pipeline and ours, perhaps with phases."""
    is_training = any(VARIANTS[name].is_training for name in names)
    split = 'train' if is_training else 'eval'
    subjects = [
        Subject(split, words, (), Run(True, is_training, until, config, images * factor))
        for until, words, factor in (
            (STORAGE, 'records read', _CHEAP_FACTOR),
            (PARSING, 'and parsed', _CHEAP_FACTOR),
            (DECODING, 'and decoded', 1),
        )
    ]
    decode = subjects[-1].whole
    for name in names:
        naive = variant_subject(name, True, config, images)._replace(decode=decode)
        ours = variant_subject(name, False, config, images)._replace(decode=decode, naive=naive.whole)
        subjects += [naive, ours]
    return subjects if with_phases else [subject._replace(earlier=()) for subject in subjects]


def variant_subject(name: str, is_naive: bool, config: Config, images: int) -> Subject:
    """A pipeline for a variant, with its phases."""
    variant = VARIANTS[name]
    changes = variant.changes
    if is_naive and variant.naive_changes is not None:
        changes = variant.naive_changes
    if 'data_format' in changes:
        changes = {**changes, 'data_dir': tar_dir(config)}
    whole = Run(is_naive, variant.is_training, TRANSFER, dataclasses.replace(config, **changes), images)
    # Variants read in the same way, except from tar shards, so storage is measured once.
    reads = whole.config if 'data_format' in changes else config
    storage = dataclasses.replace(whole, until=STORAGE, config=reads, images=images * _CHEAP_FACTOR)
    earlier = storage, dataclasses.replace(whole, until=PREPROCESSING)
    flags = tuple(f'--{field}={value}' for field, value in changes.items())
    return Subject(name, 'naive' if is_naive else 'ours', flags, whole, earlier)


def sweep_subjects(sweep: str, values: Sequence[int], config: Config, images: int) -> List[Subject]:
    """Our training pipeline with each value of the swept flag."""
    field, _ = SWEEPS[sweep]
    configs = {value: dataclasses.replace(config, **{field: value}) for value in values}
    return [
        Subject('train', str(value), (f'--{field}={value}',), Run(False, True, TRANSFER, changed, images))
        for value, changed in configs.items()
    ]


def runs_of(subjects: Sequence[Subject]) -> List[Run]:
    """All runs to measure, without duplicates."""
    return [*dict.fromkeys(run for subject in subjects for run in (*subject.earlier, subject.whole))]


def rows_of(subjects: Sequence[Subject], measured: Measured) -> List[Row]:
    """The rows of the subjects that were measured."""
    return [_row(subject, measured) for subject in subjects if subject.whole in measured]


def _row(subject: Subject, measured: Measured) -> Row:
    def cpu(run: Optional[Run]) -> List[float]:
        return [measurement.cpu_ms for measurement in measured.get(run, [])] if run else []

    whole = cpu(subject.whole)
    ends = [cpu(run) for run in (*subject.earlier, subject.whole)]
    phases = {}
    if subject.earlier and all(ends):
        starts = [[0.0] * len(whole), *ends]
        costs = ([end - start for start, end in zip(*times)] for times in zip(starts, ends))
        phases = dict(zip(PHASES, costs))
    ratios = (zip(cpu(subject.naive), whole), zip(whole, cpu(subject.decode)))
    return Row(subject, measured[subject.whole], phases, *([a / b for a, b in pairs] for pairs in ratios))
