"""Comparisons of pipelines: the variants, the runs to measure for them, and the resulting rows."""

import dataclasses
import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from benchmarks.measurement import DECODING, PARSING, PHASES, PREPROCESSING, STORAGE, TRANSFER, Measurement, Run
from inception_v3.config import Config

_READ, _DECODED, _NAIVE, _OURS = 'records read', 'and decoded', 'naive', 'ours'
# Reading alone is fast: more images are needed to measure it above the noise.
_CHEAP_FACTOR = 8


class Variant(NamedTuple):
    """A configuration of the pipeline to compare."""

    is_training: bool  # Training or evaluation.
    changes: Dict[str, Any]  # Flags that differ from the command line's.
    naive_changes: Optional[Dict[str, Any]] = None  # The same for the naive pipeline; None means `changes`.


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


class Pipeline(NamedTuple):
    """A row of the table."""

    variant: str  # Name of the variant.
    name: str  # Naive, ours, the last step of a plain reader, or the value of a sweep.
    flags: Tuple[str, ...]  # Flags that differ from the command line's.
    # The whole pipeline as the last; before it those that end after storage and after preprocessing, if phases are
    # compared.
    runs: Tuple[Run, ...]

    def __str__(self) -> str:
        return f'{self.variant}, {self.name}, batches of {self.runs[-1].batch_size}'


class Spread(NamedTuple):
    """The median, the least and the greatest of repeated measurements."""

    median: float
    least: float
    greatest: float

    def text(self, digits: int) -> str:
        """The numbers with so many decimals: median (least–greatest)."""
        return '{:,.{d}f} ({:,.{d}f}–{:,.{d}f})'.format(*self, d=digits)


class Row(NamedTuple):
    """The measurements of a pipeline. Lists have an element per round."""

    pipeline: Pipeline
    measurements: List[Measurement]  # Of the whole pipeline.
    # CPU time per image of each phase, in milliseconds: the time of the pipeline that ends after the phase, minus the
    # time of the pipeline that ends before it.
    phases: Dict[str, List[float]]
    naive_ratio: List[float]  # CPU time of the naive pipeline divided by that of this one.
    decode_ratio: List[float]  # CPU time of this pipeline divided by that of decoding alone.

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
            'variant': self.pipeline.variant,
            'pipeline': self.pipeline.name,
            'flags': self.pipeline.flags,
            'batch_size': self.pipeline.runs[-1].batch_size,
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


def variants_of(names: Sequence[str], config: Config, images: int, with_phases: bool = True) -> List[Pipeline]:
    """A plain reader, parser and decoder; then for each variant the naive pipeline and ours, perhaps with phases."""
    is_training = any(VARIANTS[name].is_training for name in names)
    parts = {_READ: (STORAGE, _CHEAP_FACTOR), 'and parsed': (PARSING, _CHEAP_FACTOR), _DECODED: (DECODING, 1)}
    plain = [
        Pipeline(
            'train' if is_training else 'eval', words, (), (Run(True, is_training, until, config, images * factor),)
        )
        for words, (until, factor) in parts.items()
    ]
    pipelines = [variant_of(name, is_naive, config, images) for name in names for is_naive in (True, False)]
    return plain + [each if with_phases else each._replace(runs=each.runs[-1:]) for each in pipelines]


def variant_of(name: str, is_naive: bool, config: Config, images: int) -> Pipeline:
    """A pipeline for a variant, with its phases."""
    variant = VARIANTS[name]
    changes = variant.changes
    if is_naive and variant.naive_changes is not None:
        changes = variant.naive_changes
    flags = {**changes, 'data_dir': tar_dir(config)} if 'data_format' in changes else changes
    whole = Run(is_naive, variant.is_training, TRANSFER, dataclasses.replace(config, **flags), images)
    storage = dataclasses.replace(whole, until=STORAGE, images=images * _CHEAP_FACTOR)
    runs = storage, dataclasses.replace(whole, until=PREPROCESSING), whole
    return Pipeline(name, _NAIVE if is_naive else _OURS, tuple(f'--{flag}={flags[flag]}' for flag in flags), runs)


def sweep_of(field: str, values: Sequence[int], config: Config, images: int) -> List[Pipeline]:
    """Our training pipeline with each value of a flag."""
    configs = {value: dataclasses.replace(config, **{field: value}) for value in values}
    return [
        Pipeline('train', str(value), (f'--{field}={value}',), (Run(False, True, TRANSFER, changed, images),))
        for value, changed in configs.items()
    ]


def rows_of(measured: Dict[Pipeline, List[List[Measurement]]]) -> List[Row]:
    """The rows of the pipelines, from the measurements of their runs in each round."""
    whole = {each: [of_round[-1].cpu_ms for of_round in rounds] for each, rounds in measured.items()}
    decoded: List[float] = next((times for each, times in whole.items() if each.name == _DECODED), [])
    naive = {each.variant: times for each, times in whole.items() if each.name == _NAIVE}
    rows = []
    for pipeline, rounds in measured.items():
        phases: Dict[str, List[float]] = {}
        if len(pipeline.runs) > 1:
            ends = [[0.0] * len(rounds), *([each.cpu_ms for each in of_run] for of_run in zip(*rounds))]
            phases = {phase: [end - start for start, end in zip(*pair)] for phase, *pair in zip(PHASES, ends, ends[1:])}
        times = whole[pipeline]
        others = naive.get(pipeline.variant, []) if pipeline.name == _OURS else []
        below = decoded if pipeline.name in (_NAIVE, _OURS) else []
        ratios = ([a / b for a, b in zip(*pair)] for pair in ((others, times), (times, below)))
        rows.append(Row(pipeline, [of_round[-1] for of_round in rounds], phases, *ratios))
    return rows
