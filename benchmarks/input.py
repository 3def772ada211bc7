"""Measures the input pipeline: inception-v3 benchmark-input [--variants=train,eval | --sweep=batch_size] [flags]."""

import contextlib
import dataclasses
import json
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Sequence

from benchmarks import arguments, charts, comparison, photographs, program, tables
from benchmarks.comparison import SWEEPS, VARIANTS, Row, Subject
from benchmarks.measurement import Failed, Measured, busy_machine, interleave
from console.errors import DONE, RETRY
from console.program import raise_on_sigterm
from console.screen import Screen
from data import records, remote
from data.sources import source_of
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.run import source

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
    **arguments.MEASURING,
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


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'benchmark-input', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    _check(own, command_line.config)
    screen.update('reading the data set, or generating it')
    config = arguments.input_config(command_line, _splits(own))
    if _TAR in _names(own):
        arguments.make_tar_shards(config, screen.update)
    measured: Measured = {}
    failed: Failed = {}
    with _enough_files(own, config) as read:
        subjects = _subjects(own, read)
        try:
            with busy_machine(own['busy']):
                interleave(comparison.runs_of(subjects), own['repeats'], screen.update, measured, failed)
        finally:
            # Also after an interruption.
            screen.clear()
            _show(own, config, comparison.rows_of(subjects, measured), failed)
    return RETRY if failed else DONE


def _check(own: Dict[str, Any], config: Config) -> None:
    """Checks the flags before the measurements."""
    if own['sweep'] is not None and own['sweep'] not in SWEEPS:
        raise ConfigError(f'--sweep={own["sweep"]}: must be one of {", ".join(SWEEPS)}.')
    if own['sweep'] is not None and own['variants'] is not None:
        raise ConfigError(f'--variants={own["variants"]}: a sweep measures training only. Omit --variants.')
    if own['values'] is not None and own['sweep'] is None:
        raise ConfigError(f'--values={own["values"]}: only a sweep has values. Add --sweep.')
    if _TAR in _names(own) and config.train_files:
        raise ConfigError(
            f'--variants={own["variants"]}: {_TAR} converts a folder. Name it with --data_dir, not --train_files.'
        )
    if config.data_format == 'tar' and own['sweep'] is None:
        raise ConfigError(
            '--data_format=tar: the plain decoder and the naive pipeline, with which variants are compared, read only '
            'TFRecord files. Add --sweep, or name TFRecord files with --data_dir and add --variants=train,train_tar.'
        )
    _values(own)
    if own['plot'] is not None:
        charts.check('plot', own['plot'])


def _values(own: Dict[str, Any]) -> List[int]:
    """The values of the sweep; empty without a sweep."""
    if own['values'] is not None:
        return [arguments.number('values', text, int) for text in own['values'].split(',')]
    return [*SWEEPS[own['sweep']][1]] if own['sweep'] else []


def _splits(own: Dict[str, Any]) -> List[str]:
    """The splits to read."""
    if own['sweep']:
        return [records.TRAIN]
    return sorted({records.TRAIN if VARIANTS[name].is_training else records.VALIDATION for name in _names(own)})


def _names(own: Dict[str, Any]) -> List[str]:
    """The variants to measure; none with a sweep."""
    if own['sweep'] is not None:
        return []
    default = ','.join(name for name in VARIANTS if name != _TAR)
    return arguments.chosen('variants', default if own['variants'] is None else own['variants'], [*VARIANTS])


@contextlib.contextmanager
def _enough_files(own: Dict[str, Any], config: Config) -> Iterator[Config]:
    """Context manager that yields a configuration with enough training files for a sweep, as links to existing files.

    Remote storage has no links, so a remote data set is used unchanged.
    """
    if own['sweep'] != 'files' or remote.is_remote(source_of(config).place(records.TRAIN)):
        yield config
        return
    with tempfile.TemporaryDirectory() as folder:
        photographs.spread(source_of(config), max(_values(own)), folder)
        yield dataclasses.replace(config, data_dir=folder, train_files='', eval_files='')


def _subjects(own: Dict[str, Any], config: Config) -> List[Subject]:
    if own['sweep']:
        return comparison.sweep_subjects(own['sweep'], _values(own), config, own['images'])
    return comparison.variant_subjects(_names(own), config, own['images'], own['phases'])


def _show(own: Dict[str, Any], config: Config, rows: Sequence[Row], failed: Failed) -> None:
    """Prints and draws the results."""
    repeats = max((len(row.measurements) for row in rows), default=0)
    batches = ', '.join(f'{size:,}' for size in sorted({row.subject.whole.batch_size for row in rows}))
    names = f', linked as {max(_values(own)):,} files' if own['sweep'] == 'files' else ''
    where = (
        f'{source_of(config)}{names}, {config.height} x {config.width} pixels, at least {own["images"]:,} images, '
        f'repeats: {repeats}; on {tables.machine()}' + f', beside {own["busy"]} busy processes' * bool(own['busy'])
    )
    if own['json']:
        content = {
            'where': where,
            'versions': source.versions(),
            'config': json.loads(config.to_json()),
            'rows': [row.as_dict() for row in rows],
            'failed': tables.failures(failed),
        }
        print(json.dumps(content, indent=2))
    elif rows:
        print(f'{where}; batches of {batches}')
        print('medians (least–greatest); CPU time of all threads; largest memory peak, including TensorFlow')
        if own['sweep']:
            tables.show_sweep(SWEEPS[own['sweep']][0], rows)
        else:
            tables.show_comparison(rows)
    for problem in tables.failures(failed):
        print(f'failed: {problem}', file=sys.stderr)
    if own['plot'] is not None and rows:
        if own['sweep']:
            charts.sweep(own['plot'], where, SWEEPS[own['sweep']][0], rows)
        else:
            charts.phases(own['plot'], where, rows)


if __name__ == '__main__':
    # After SIGTERM, child processes end, and the finished measurements are reported.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
