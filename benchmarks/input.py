"""Measures the input pipeline: inception-v3 benchmark-input [--variants=train,eval | --sweep=batch_size] [flags]."""

import contextlib
import dataclasses
import json
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from benchmarks import command, comparison, measurement, tables
from benchmarks.comparison import SWEEPS, VARIANTS, Pipeline, Row, spread
from benchmarks.measurement import PHASES
from console.program import raise_on_sigterm
from console.screen import Screen
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag

# The variant that needs the images in another format.
_TAR = 'train_tar'
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'variants': OwnFlag(
        str,
        None,
        f'variants to compare, comma-separated: {", ".join(VARIANTS)}; default: all but {_TAR}, which first '
        'converts the data set to tar shards in DATA_DIR-tar, unless they exist',
    ),
    'sweep': OwnFlag(str, None, f'measure training for several values of one flag instead: {", ".join(SWEEPS)}'),
    'values': OwnFlag(str, None, 'values of the sweep, such as 1,8,64; default: a range of typical ones'),
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

    names, field, values = _asked(own, command_line.config)
    screen.update('reading the data set, or generating it')
    is_training = {VARIANTS[name].is_training for name in names} or {True}
    splits = [split for split, of in ((records.TRAIN, True), (records.VALIDATION, False)) if of in is_training]
    config = command.input_config(command_line, splits)
    if _TAR in names:
        command.make_tar_shards(config, comparison.tar_dir(config), screen.update)
    with _enough_files(own['sweep'], values, config) as read:
        if field:
            pipelines = comparison.sweep_of(field, values, read, own['images'])
        else:
            pipelines = comparison.variants_of(names, read, own['images'], own['phases'])
        return measurement.interleave(
            pipelines,
            own['repeats'],
            lambda pipeline: measurement.measure(pipeline.runs),
            screen,
            lambda measured, failed: _show(own, field, values, config, comparison.rows_of(measured), failed),
        )


def _asked(own: Dict[str, Any], config: Config) -> Tuple[List[str], str, List[int]]:
    """Checks the flags: the variants to measure, or the flag to sweep and its values."""
    names: List[str] = []
    field, values = '', []
    if own['sweep'] is None:
        default = ','.join(name for name in VARIANTS if name != _TAR)
        names = command.chosen('variants', default if own['variants'] is None else own['variants'], [*VARIANTS])
        if own['values'] is not None:
            raise ConfigError(f'--values={own["values"]}: only a sweep has values. Add --sweep.')
        if _TAR in names and config.train_files:
            raise ConfigError(
                f'--variants={own["variants"]}: {_TAR} converts a folder. Name it with --data_dir, not --train_files.'
            )
        if config.data_format == 'tar':
            raise ConfigError(
                '--data_format=tar: the naive pipeline, with which variants are compared, reads TFRecord files alone. '
                'Add --sweep, or name TFRecord files with --data_dir and add --variants=train,train_tar.'
            )
    elif own['sweep'] not in SWEEPS:
        raise ConfigError(f'--sweep={own["sweep"]}: must be one of {", ".join(SWEEPS)}.')
    elif own['variants'] is not None:
        raise ConfigError(f'--variants={own["variants"]}: a sweep measures training only. Omit --variants.')
    else:
        field, typical = SWEEPS[own['sweep']]
        try:
            values = [*typical] if own['values'] is None else [int(text) for text in own['values'].split(',')]
        except ValueError:
            raise ConfigError(f'--values={own["values"]}: must be whole numbers with commas between them.')
        for value in values:
            command.check_positive('values', value)
    return names, field, values


@contextlib.contextmanager
def _enough_files(sweep: str, values: Sequence[int], config: Config) -> Iterator[Config]:
    """The configuration with enough training files for a sweep: links to the local ones. A store has no links."""
    from benchmarks import photographs
    from data import records, remote
    from data.sources import source_of

    if sweep != 'files' or remote.is_remote(source_of(config).place(records.TRAIN)):
        yield config
        return
    with tempfile.TemporaryDirectory() as folder:
        photographs.spread(source_of(config), max(values), folder)
        yield dataclasses.replace(config, data_dir=folder, train_files='', eval_files='')


def _show(
    own: Dict[str, Any],
    field: str,
    values: Sequence[int],
    config: Config,
    rows: Sequence[Row],
    failed: Dict[Pipeline, str],
) -> None:
    from data.sources import source_of
    from inception_v3.run import source

    repeats = max((len(row.measurements) for row in rows), default=0)
    batches = ', '.join(f'{size:,}' for size in sorted({row.pipeline.runs[-1].batch_size for row in rows}))
    names = f', linked as {max(values):,} files' if own['sweep'] == 'files' else ''
    where = (
        f'{source_of(config)}{names}, {config.height} x {config.width} pixels, at least {own["images"]:,} images, '
        f'repeats: {repeats}; on {tables.machine()}'
    )
    failures = [f'{pipeline}: {problem}' for pipeline, problem in failed.items()]
    if own['json']:
        content = {
            'where': where,
            'versions': source.versions(),
            'config': json.loads(config.to_json()),
            'rows': [row.as_dict() for row in rows],
            'failed': failures,
        }
        print(json.dumps(content, indent=2))
    elif rows:
        print(f'{where}; batches of {batches}')
        print('medians (least–greatest); CPU time of all threads; largest memory peak, including TensorFlow')
        if not field:
            print(f'phases: shares of the CPU time, {" + ".join(PHASES)}')
        head = [f'--{field}'] if field else ['variant', 'pipeline']
        head += ['CPU-ms / image', 'images/s', 'peak MB']
        head += [] if field else ['naive / this', 'this / decode', 'phases, %']
        print()
        tables.show(head, [_cells(row, bool(field)) for row in rows], names=1 if field else 2)
        for name, flags in {row.pipeline.variant: row.pipeline.flags for row in rows if not field}.items():
            if flags:
                print(f'{name}: {" ".join(flags)}')
    for problem in failures:
        print(f'failed: {problem}', file=sys.stderr)


def _cells(row: Row, is_sweep: bool) -> List[str]:
    cpu_ms, images_per_second, peak_mb = map(row.spread, ('cpu_ms', 'images_per_second', 'peak_mb'))
    measured = [cpu_ms.text(2), f'{images_per_second.median:,.0f}', f'{peak_mb.greatest:,.0f}']
    if is_sweep:
        return [row.pipeline.name, *measured]
    return [
        row.pipeline.variant,
        row.pipeline.name,
        *measured,
        spread(row.naive_ratio).text(2) if row.naive_ratio else '-',
        f'{spread(row.decode_ratio).median:.2f}' if row.decode_ratio else '-',
        '+'.join(f'{100 * row.share(phase):.0f}' for phase in PHASES) if row.phases else '-',
    ]


if __name__ == '__main__':
    # After SIGTERM, child processes end, and the finished measurements are reported.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
