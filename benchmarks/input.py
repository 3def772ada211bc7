"""Measures the input pipeline: inception-v3 benchmark-input [--variants=train,eval | --sweep=batch_size] [flags]."""

import contextlib
import dataclasses
import json
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Sequence

from benchmarks import charts, command, comparison, measurement, tables
from benchmarks.comparison import SWEEPS, VARIANTS, Row, spread
from benchmarks.measurement import PHASES, Failed, Measured
from console.errors import DONE, RETRY
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
    'busy': OwnFlag(int, 0, 'number of other processes that compute meanwhile, as on a shared machine'),
    'plot': OwnFlag(str, None, 'path of a .png file for a figure of the phases, or of the sweep'),
}
_PURPOSE = (
    'Measures CPU time, throughput and memory of the input pipeline and of a naive pipeline, and the shares of the\n'
    "phases. Without --data_dir it reads generated photographs. A batch is one core's share of --train_batch_size or\n"
    '--eval_batch_size.'
)
_MEASURED = ('CPU-ms / image', 'images/s', 'peak MB')


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return command.run(argv, 'benchmark-input', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    names = _names(own)
    values = _values(own)
    _check(own, names, command_line.config)
    screen.update('reading the data set, or generating it')
    # The splits' names, as in `data.records`.
    splits = sorted({'train' if VARIANTS[name].is_training else 'validation' for name in names}) or ['train']
    config = command.input_config(command_line, splits)
    if _TAR in names:
        command.make_tar_shards(config, comparison.tar_dir(config), screen.update)
    measured: Measured = {}
    failed: Failed = {}
    with _enough_files(own['sweep'], values, config) as read:
        if own['sweep']:
            subjects = comparison.sweep_subjects(own['sweep'], values, read, own['images'])
        else:
            subjects = comparison.variant_subjects(names, read, own['images'], own['phases'])
        runs = comparison.runs_of(subjects)
        try:
            with measurement.busy_machine(own['busy']):
                measurement.interleave(runs, own['repeats'], measurement.measure, screen.update, measured, failed)
        finally:
            # Also after an interruption.
            screen.clear()
            _show(own, values, config, comparison.rows_of(subjects, measured), failed)
    return RETRY if failed else DONE


def _check(own: Dict[str, Any], names: Sequence[str], config: Config) -> None:
    """Checks the flags before the measurements."""
    if _TAR in names and config.train_files:
        raise ConfigError(
            f'--variants={own["variants"]}: {_TAR} converts a folder. Name it with --data_dir, not --train_files.'
        )
    if config.data_format == 'tar' and own['sweep'] is None:
        raise ConfigError(
            '--data_format=tar: the plain decoder and the naive pipeline, with which variants are compared, read only '
            'TFRecord files. Add --sweep, or name TFRecord files with --data_dir and add --variants=train,train_tar.'
        )
    if own['plot'] is not None:
        charts.check('plot', own['plot'])


def _names(own: Dict[str, Any]) -> List[str]:
    """The variants to measure; none with a sweep."""
    if own['sweep'] is None:
        default = ','.join(name for name in VARIANTS if name != _TAR)
        return command.chosen('variants', default if own['variants'] is None else own['variants'], [*VARIANTS])
    if own['sweep'] not in SWEEPS:
        raise ConfigError(f'--sweep={own["sweep"]}: must be one of {", ".join(SWEEPS)}.')
    if own['variants'] is not None:
        raise ConfigError(f'--variants={own["variants"]}: a sweep measures training only. Omit --variants.')
    return []


def _values(own: Dict[str, Any]) -> List[int]:
    """The values of the sweep; empty without a sweep."""
    if own['values'] is None:
        return [*SWEEPS[own['sweep']][1]] if own['sweep'] else []
    if own['sweep'] is None:
        raise ConfigError(f'--values={own["values"]}: only a sweep has values. Add --sweep.')
    return [command.number('values', text, int) for text in own['values'].split(',')]


@contextlib.contextmanager
def _enough_files(sweep: str, values: Sequence[int], config: Config) -> Iterator[Config]:
    """Context manager that yields a configuration with enough training files for a sweep, as links to existing files.

    Remote storage has no links, so a remote data set is used unchanged.
    """
    from benchmarks import photographs
    from data import records, remote
    from data.sources import source_of

    if sweep != 'files' or remote.is_remote(source_of(config).place(records.TRAIN)):
        yield config
        return
    with tempfile.TemporaryDirectory() as folder:
        photographs.spread(source_of(config), max(values), folder)
        yield dataclasses.replace(config, data_dir=folder, train_files='', eval_files='')


def _show(own: Dict[str, Any], values: Sequence[int], config: Config, rows: Sequence[Row], failed: Failed) -> None:
    """Prints and draws the results."""
    from data.sources import source_of
    from inception_v3.run import source

    repeats = max((len(row.measurements) for row in rows), default=0)
    batches = ', '.join(f'{size:,}' for size in sorted({row.subject.whole.batch_size for row in rows}))
    names = f', linked as {max(values):,} files' if own['sweep'] == 'files' else ''
    where = (
        f'{source_of(config)}{names}, {config.height} x {config.width} pixels, at least {own["images"]:,} images, '
        f'repeats: {repeats}; on {tables.machine()}' + f', beside {own["busy"]} busy processes' * bool(own['busy'])
    )
    failures = [f'{run}: {problem}' for run, problem in failed.items()]
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
        if own['sweep']:
            head = (f'--{SWEEPS[own["sweep"]][0]}', *_MEASURED)
            tables.show(head, [[row.subject.pipeline, *_measured(row)] for row in rows], names=1)
        else:
            _show_comparison(rows)
    for problem in failures:
        print(f'failed: {problem}', file=sys.stderr)
    if own['plot'] is not None and rows:
        if own['sweep']:
            charts.sweep(own['plot'], where, SWEEPS[own['sweep']][0], rows)
        else:
            charts.phases(own['plot'], where, rows)


def _show_comparison(rows: Sequence[Row]) -> None:
    """Prints the variants, and the shares of the phases in the CPU time."""
    print(f'phases: shares of the CPU time, {" + ".join(PHASES)}\n')
    head = ('variant', 'pipeline', *_MEASURED, 'naive / this', 'this / decode', 'phases, %')
    cells = [
        [
            row.subject.variant,
            row.subject.pipeline,
            *_measured(row),
            spread(row.naive_ratio).text(2) if row.naive_ratio else '-',
            f'{spread(row.decode_ratio).median:.2f}' if row.decode_ratio else '-',
            '+'.join(f'{100 * row.share(phase):.0f}' for phase in PHASES) if row.phases else '-',
        ]
        for row in rows
    ]
    tables.show(head, cells, names=2)
    for name, flags in {row.subject.variant: row.subject.flags for row in rows if row.subject.flags}.items():
        print(f'{name}: {" ".join(flags)}')


def _measured(row: Row) -> List[str]:
    cpu_ms, images_per_second, peak_mb = map(row.spread, ('cpu_ms', 'images_per_second', 'peak_mb'))
    return [cpu_ms.text(2), f'{images_per_second.median:,.0f}', f'{peak_mb.greatest:,.0f}']


if __name__ == '__main__':
    # After SIGTERM, child processes end, and the finished measurements are reported.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
