"""Measures the input pipeline: inception-v3 benchmark-input [--variants=train,eval] [flags]."""

import dataclasses
import functools
import json
import statistics
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from console.screen import Screen
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from tools.benchmarks import command, measurement, tables
from tools.benchmarks.measurement import DECODING, PARSING, PHASES, PREPROCESSING, STORAGE, TRANSFER, Measurement, Run
from tools.benchmarks.tables import Spread, spread

_READ, _DECODED, _NAIVE, _OURS = 'records read', 'and decoded', 'naive', 'ours'
# Reading alone is fast: more images are needed to measure it above the noise.
_CHEAP_FACTOR = 8


class Variant(NamedTuple):
    """A configuration of the pipeline to compare."""

    is_training: bool  # Training or evaluation.
    changes: Dict[str, Any]  # Flags that differ from the command line's.
    naive_changes: Optional[Dict[str, Any]] = None  # The same for the naive pipeline; None means `changes`.


VARIANTS: Dict[str, Variant] = {
    'train': Variant(is_training=True, changes={}),
    'train_full_fast': Variant(is_training=True, changes={'use_fast_color_distort': False, 'fast_mode': True}),
    'train_full': Variant(is_training=True, changes={'use_fast_color_distort': False, 'fast_mode': False}),
    'train_vgg': Variant(is_training=True, changes={'preprocessing': 'vgg'}),
    'train_bfloat16': Variant(is_training=True, changes={'precision': 'bfloat16'}),
    'train_seeded': Variant(is_training=True, changes={'seed': 0}, naive_changes={}),
    # Reads the same images, from the folder `tar_dir`.
    'train_tar': Variant(is_training=True, changes={'data_format': 'tar'}, naive_changes={}),
    'eval': Variant(is_training=False, changes={}),
    # With uint8, the device does a part of the work; the naive pipeline still does all of it on the host.
    'train_uint8': Variant(is_training=True, changes={'transfer': 'uint8'}, naive_changes={'transfer': 'float'}),
    'eval_uint8': Variant(is_training=False, changes={'transfer': 'uint8'}, naive_changes={'transfer': 'float'}),
}


class Pipeline(NamedTuple):
    """A row of the table."""

    variant: str  # Name of the variant.
    name: str  # Naive, ours, or the last step of a plain reader.
    flags: Tuple[str, ...]  # Flags that differ from the command line's.
    # The whole pipeline comes last; if phases are compared, after those that end after storage and after preprocessing.
    runs: Tuple[Run, ...]

    def __str__(self) -> str:
        return f'{self.variant}, {self.name}, batches of {self.runs[-1].batch_size}'


class Row(NamedTuple):
    """The measurements of a pipeline. Lists have an element per round."""

    pipeline: Pipeline
    measurements: List[Measurement]  # Of the whole pipeline.
    # CPU time per image of each phase, in milliseconds: the time of the pipeline that ends after the phase, minus the
    # time of the pipeline that ends before it.
    phases: Dict[str, List[float]]
    naive_ratio: List[float]  # CPU time of the naive pipeline divided by this one's.
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


def variants_of(names: Sequence[str], config: Config, images: int, with_phases: bool = True) -> List[Pipeline]:
    """A plain reader, parser and decoder; then for each variant the naive pipeline and ours, optionally with phases."""
    is_training = any(VARIANTS[name].is_training for name in names)
    parts = {_READ: (STORAGE, _CHEAP_FACTOR), 'and parsed': (PARSING, _CHEAP_FACTOR), _DECODED: (DECODING, 1)}
    naive = functools.partial(Run, is_naive=True, is_training=is_training, config=config)
    plain = [
        Pipeline('train' if is_training else 'eval', words, (), (naive(until=until, images=images * factor),))
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
    flags = {**changes, 'data_dir': command.tar_dir(config)} if 'data_format' in changes else changes
    whole = Run(is_naive, variant.is_training, TRANSFER, dataclasses.replace(config, **flags), images)
    storage = dataclasses.replace(whole, until=STORAGE, images=images * _CHEAP_FACTOR)
    runs = storage, dataclasses.replace(whole, until=PREPROCESSING), whole
    return Pipeline(name, _NAIVE if is_naive else _OURS, tuple(f'--{flag}={flags[flag]}' for flag in flags), runs)


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


# The variant that needs the images in another format.
_TAR = 'train_tar'
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'variants': OwnFlag(
        str,
        None,
        f'variants to compare, comma-separated: {", ".join(VARIANTS)}; default: all but {_TAR}, which first '
        'converts the data set to tar shards in DATA_DIR-tar, unless they exist',
    ),
    **command.MEASURING,
    'phases': OwnFlag(
        bool, True, 'measure the shares of the phases, too; without them a round takes a third of the time'
    ),
}
_PURPOSE = (
    'Measures CPU time, throughput and memory of the input pipeline and of a naive pipeline, and the shares of the\n'
    "phases. Without --data_dir it reads generated photographs. A batch is one core's share of --train_batch_size or\n"
    '--eval_batch_size.'
)


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return command.run(argv, 'benchmark-input', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    from data import records

    config = command_line.config
    default = ','.join(name for name in VARIANTS if name != _TAR)
    names = command.chosen('variants', default if own['variants'] is None else own['variants'], [*VARIANTS])
    if _TAR in names and config.train_files:
        raise ConfigError(
            f'--variants={own["variants"]}: {_TAR} converts a folder. Name it with --data_dir, not --train_files.'
        )
    if config.preprocessing not in measurement.NAIVE:
        raise ConfigError(
            f'--preprocessing={config.preprocessing}: the naive pipeline, with which variants are compared, has only '
            f'{" and ".join(measurement.NAIVE)}. Give one of them.'
        )
    if config.data_format == 'tar':
        raise ConfigError(
            '--data_format=tar: the naive pipeline, with which variants are compared, reads TFRecord files alone. '
            'Name TFRecord files with --data_dir and add --variants=train,train_tar.'
        )
    screen.update('reading the data set, or generating it')
    is_training = {VARIANTS[name].is_training for name in names}
    splits = [split for split, of in ((records.TRAIN, True), (records.VALIDATION, False)) if of in is_training]
    config = command.input_config(command_line, splits)
    if _TAR in names:
        command.make_tar_shards(config, command.tar_dir(config), screen.update)
    return measurement.interleave(
        variants_of(names, config, own['images'], own['phases']),
        own['repeats'],
        lambda pipeline: measurement.measure(pipeline.runs),
        screen,
        lambda measured, failed: _show(own, config, rows_of(measured), failed),
    )


def _show(own: Dict[str, Any], config: Config, rows: Sequence[Row], failed: Dict[Pipeline, str]) -> None:
    from inception_v3.run import versions

    repeats = max((len(row.measurements) for row in rows), default=0)
    batches = ', '.join(f'{size:,}' for size in sorted({row.pipeline.runs[-1].batch_size for row in rows}))
    where = (
        f'{config.source}, {config.height} x {config.width} pixels, at least {own["images"]:,} images, '
        f'repeats: {repeats}; on {tables.machine()}'
    )
    failures = [f'{pipeline}: {problem}' for pipeline, problem in failed.items()]
    if own['json']:
        content = {
            'where': where,
            'versions': versions.current(),
            'config': json.loads(config.to_json()),
            'rows': [row.as_dict() for row in rows],
            'failed': failures,
        }
        print(json.dumps(content, indent=2))
    elif rows:
        print(f'{where}; batches of {batches}')
        print('medians (least–greatest); CPU time of all threads; largest memory peak, including TensorFlow')
        print(f'phases: shares of the CPU time, {" + ".join(PHASES)}\n')
        head = ('variant', 'pipeline', 'CPU-ms / image', 'images/s', 'peak MB', 'naive / this', 'this / decode')
        print(tables.plain((*head, 'phases, %'), [_cells(row) for row in rows], names=2))
        for name, flags in {row.pipeline.variant: row.pipeline.flags for row in rows}.items():
            if flags:
                print(f'{name}: {" ".join(flags)}')
    for problem in failures:
        print(f'failed: {problem}', file=sys.stderr)


def _cells(row: Row) -> List[str]:
    cpu_ms, images_per_second, peak_mb = map(row.spread, ('cpu_ms', 'images_per_second', 'peak_mb'))
    return [
        row.pipeline.variant,
        row.pipeline.name,
        cpu_ms.text(2),
        f'{images_per_second.median:,.0f}',
        f'{peak_mb.greatest:,.0f}',
        spread(row.naive_ratio).text(2) if row.naive_ratio else '-',
        f'{spread(row.decode_ratio).median:.2f}' if row.decode_ratio else '-',
        '+'.join(f'{100 * row.share(phase):.0f}' for phase in PHASES) if row.phases else '-',
    ]


if __name__ == '__main__':
    sys.exit(main(sys.argv))
