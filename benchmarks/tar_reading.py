"""Compares training's input from tar shards and from TFRecord files: python -m benchmarks.tar_reading."""

import dataclasses
import json
import os
import sys
from typing import Any, Dict, List, Sequence

from benchmarks import arguments, program, tables
from benchmarks.comparison import Spread, spread
from benchmarks.measurement import TRANSFER, Failed, Measured, Measurement, MeasurementError, Run, interleave
from console.program import raise_on_sigterm
from console.screen import Screen
from data import dataset_info, records, remote, tar_shards
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine, OwnFlag

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'tar_dir': OwnFlag(str, None, 'folder of the same images as tar shards; default: DATA_DIR-tar, created if missing'),
    **arguments.MEASURING,
}
_PURPOSE = (
    "Measures training's input pipeline on tar shards and on TFRecord files of the same images, in turn. Without\n"
    "--data_dir the images are generated photographs. A batch is one core's share of --train_batch_size."
)


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'benchmarks.tar_reading', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    if command_line.config.data_format == 'tar':
        raise ConfigError('--data_format=tar: name the TFRecord files with --data_dir, the tar shards with --tar_dir.')
    if command_line.config.train_files:
        raise ConfigError('--train_files: name the folder of the TFRecord files with --data_dir.')
    screen.update('reading the data set, or generating it')
    config = arguments.input_config(command_line, [records.TRAIN])
    tar_dir = own['tar_dir'] or f'{config.data_dir.rstrip("/")}-tar'
    if not own['tar_dir'] and not remote.exists(os.path.join(tar_dir, dataset_info.FILE_NAME)):
        tar_shards.convert(config.data_dir, tar_dir, 0, screen.update)
    runs = {
        data_format: Run(
            is_naive=False,
            is_training=True,
            until=TRANSFER,
            config=dataclasses.replace(config, data_dir=data_dir, data_format=data_format),
            images=own['images'],
        )
        for data_format, data_dir in (('tfrecord', config.data_dir), ('tar', tar_dir))
    }
    measured: Measured = {}
    failed: Failed = {}
    interleave([*runs.values()], own['repeats'], screen.update, measured, failed)
    screen.clear()
    for problem in tables.failures(failed):
        raise MeasurementError(problem)
    _show({data_format: measured[run] for data_format, run in runs.items()}, own)
    return 0


def _show(measured: Dict[str, List[Measurement]], own: Dict[str, Any]) -> None:
    """Prints both formats and their ratios: each measurement of tar divided by the preceding one of TFRecord."""
    quantities = ('images_per_second', 'cpu_ms', 'peak_mb')
    values: Dict[str, Dict[str, Spread]] = {
        data_format: {name: spread([getattr(each, name) for each in of_format]) for name in quantities}
        for data_format, of_format in measured.items()
    }
    pairs = [*zip(measured['tar'], measured['tfrecord'])]
    values['tar / tfrecord'] = {
        name: spread([getattr(tar, name) / getattr(record, name) for tar, record in pairs]) for name in quantities
    }
    if own['json']:
        content = {row: {name: of_row[name]._asdict() for name in quantities} for row, of_row in values.items()}
        print(json.dumps({'machine': tables.machine(), 'repeats': len(pairs), **content}, indent=2))
        return
    print(f'at least {own["images"]:,} images, repeats: {len(pairs)}; on {tables.machine()}')
    print('medians (least–greatest); CPU time of all threads, after the warm-up\n')
    tables.show(
        ('format', 'images/s', 'CPU-ms / image', 'peak MB'),
        [
            [row, *('{:,.2f} ({:,.2f}–{:,.2f})'.format(*of_row[name]) for name in quantities)]
            for row, of_row in values.items()
        ],
        names=1,
    )


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
