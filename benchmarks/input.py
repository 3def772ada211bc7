"""Measures the input pipeline: python -m benchmarks.input [--variants=train,eval | --sweep=batch_size] [any flags]."""

import contextlib
import dataclasses
import json
import signal
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Sequence

from benchmarks import arguments, charts, comparison, photographs, program, tables
from benchmarks.comparison import SWEEPS, VARIANTS, Row, Subject
from benchmarks.measurement import Failed, Measured, interleave
from console.screen import Screen
from data import records, remote
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.model_dir import source

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'variants': OwnFlag(
        str, None, f'what to compare: some of {", ".join(VARIANTS)}, with commas between; default: all'
    ),
    'sweep': OwnFlag(str, None, f'measure training over the values of one flag instead: {", ".join(SWEEPS)}'),
    'values': OwnFlag(str, None, 'values of the sweep, such as 1,8,64; default: its usual ones'),
    **arguments.MEASURING,
    'plot': OwnFlag(str, None, 'draw the phases, or the sweep, as a .png file of this name'),
}
_PURPOSE = (
    "Measures the input pipeline: CPU time, throughput and memory, beside a naive pipeline's, and its phases' shares.\n"
    'Without --data_dir it reads generated photographs. A batch is what one core takes of --train_batch_size or\n'
    '--eval_batch_size.'
)


def main(argv: Sequence[str]) -> int:
    """Measures what a command line asks for, prints the results, and returns its exit code."""
    return program.run(argv, 'benchmarks.input', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    _check(own, command_line.config)
    screen.update('looking at the data set, or making it')
    config = arguments.input_config(command_line, _splits(own))
    measured: Measured = {}
    failed: Failed = {}
    code = 0
    with _enough_files(own, config) as read:
        subjects = _subjects(own, read)
        try:
            interleave(comparison.runs_of(subjects), own['repeats'], screen.update, measured, failed)
        except KeyboardInterrupt:
            # What was measured until now is told.
            code = program.INTERRUPTED
    screen.clear()
    _show(own, config, comparison.rows_of(subjects, measured), failed)
    return code or (program.FAILED if failed else 0)


def _check(own: Dict[str, Any], config: Config) -> None:
    """Refuses what cannot be measured or drawn, before anything is."""
    if own['sweep'] is not None and own['sweep'] not in SWEEPS:
        raise ConfigError(f'--sweep={own["sweep"]}: must be one of {", ".join(SWEEPS)}.')
    if own['sweep'] is not None and own['variants'] is not None:
        raise ConfigError(f'--variants={own["variants"]}: a sweep is of training. Leave it out, or --sweep.')
    if own['values'] is not None and own['sweep'] is None:
        raise ConfigError(f'--values={own["values"]}: are those of a sweep. Name one with --sweep.')
    arguments.chosen('variants', own['variants'], [*VARIANTS])
    if config.data_format == 'tar' and own['sweep'] is None:
        raise ConfigError(
            '--data_format=tar: the plain decode and the naive pipeline, beside which variants are shown, read only '
            'TFRecord files. Give --sweep, or measure tar shards with python -m benchmarks.tar_reading.'
        )
    _values(own)
    if own['plot'] is not None:
        charts.check('plot', own['plot'])


def _values(own: Dict[str, Any]) -> List[int]:
    """The values of the sweep; none if there is no sweep."""
    if own['values'] is not None:
        return [arguments.number('values', text, int) for text in own['values'].split(',')]
    return [*SWEEPS[own['sweep']][1]] if own['sweep'] else []


def _splits(own: Dict[str, Any]) -> List[str]:
    """The splits that are read."""
    if own['sweep']:
        return [records.TRAIN]
    names = arguments.chosen('variants', own['variants'], [*VARIANTS])
    return sorted({records.TRAIN if VARIANTS[name].is_training else records.VALIDATION for name in names})


@contextlib.contextmanager
def _enough_files(own: Dict[str, Any], config: Config) -> Iterator[Config]:
    """The configuration with as many training files as a sweep of files reads at a time: links to those that there are.

    Remote storage, which knows no links, is read as it is.
    """
    if own['sweep'] != 'files' or remote.is_remote(config.data_dir):
        yield config
        return
    with tempfile.TemporaryDirectory() as folder:
        photographs.spread(config.data_dir, config.data_format, max(_values(own)), folder)
        yield dataclasses.replace(config, data_dir=folder)


def _subjects(own: Dict[str, Any], config: Config) -> List[Subject]:
    if own['sweep']:
        return comparison.sweep_subjects(own['sweep'], _values(own), config, own['images'])
    names = arguments.chosen('variants', own['variants'], [*VARIANTS])
    return comparison.variant_subjects(names, config, own['images'])


def _show(own: Dict[str, Any], config: Config, rows: Sequence[Row], failed: Failed) -> None:
    """Prints the results, and draws them."""
    repeats = max((len(row.measurements) for row in rows), default=0)
    batches = ', '.join(f'{size:,}' for size in sorted({row.subject.whole.batch_size for row in rows}))
    names = f' under {max(_values(own)):,} names' if own['sweep'] == 'files' else ''
    where = (
        f'{config.data_dir}{names}, {config.height} x {config.width} pixels, at least {own["images"]:,} images, '
        f'repeats: {repeats}; on {tables.machine()}'
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
        print('medians (least–greatest); CPU time of all threads; the greatest peak of memory, TensorFlow included')
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
    # Who ends it by `timeout` wants to see what was measured until then, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv))
