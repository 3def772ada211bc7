"""Compares the input pipeline with those of other libraries: inception-v3 benchmark-peers [--peers=ours_1.15,dali].

Every pipeline reads the same generated photographs, decodes, crops at random, resizes, flips and batches them; with and
without a distortion of colour, as floats and as bytes. In each round, every peer has a process of its own, in an
environment that uv makes from the packages listed in the peer's script. A peer that cannot be installed, or fails, is
listed with the reason. The only flags of a run that are allowed are sizes and the ranges of crops and colours.
"""

import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Sequence

from console import processes
from console.screen import Screen
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from tools.benchmarks import command, measurement, tables
from tools.benchmarks.command import tar_dir
from tools.benchmarks.measurement import TRANSFER, MeasurementError, Run
from tools.benchmarks.peers.meter import Task
from tools.benchmarks.tables import spread

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(__file__).parent
# This program, by its version of TensorFlow and the format of the images; and the other libraries' scripts.
_TENSORFLOW = {'1.15': '.venv', '2.15': '.venv-2.15', '2.21': '.venv-2.21'}
OURS = tuple(f'{kind}_{version}' for version in _TENSORFLOW for kind in ('ours', 'ours_tar'))
LIBRARIES = ('tf_data', 'simplejpeg', 'pillow', 'torchvision', 'webdataset', 'dali', 'grain', 'spdl')
# Seconds after which a measurement counts as hung, and the most characters of uv's message to show.
_TIMEOUT, _LONGEST = 1800, 300
# Flags of a run that all pipelines can follow.
_COLOURS = ('brightness_distortion_range', 'cb_distortion_range', 'cr_distortion_range')
_ALLOWED = {'height', 'width', 'train_batch_size', 'num_shards', 'crop_area_min', 'crop_aspect_ratio_max', *_COLOURS}
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'peers': OwnFlag(str, None, f'pipelines to measure, comma-separated: {", ".join(OURS + LIBRARIES)}; default: all'),
    **command.MEASURING,
    'repeats': command.MEASURING['repeats']._replace(default=5),
}
# The kinds of work: whether colours are distorted, and whether batches are floats or bytes.
KINDS = {
    f'{"floats" if floats else "bytes"}, {"with" if colour else "without"} colour': (colour, floats)
    for colour in (True, False)
    for floats in (True, False)
}
# By peer and round: the results of `meter.measure`, in the order of the kinds.
Measured = Dict[str, List[List[Dict[str, Any]]]]


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return command.run(argv, 'benchmark-peers', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    chosen = command.chosen('peers', own['peers'], OURS + LIBRARIES)
    # Ratios are to the first peer, which is this program if it is measured.
    names = [name for name in OURS + LIBRARIES if name in chosen]
    for flag in [*(['preset'] if command_line.preset else []), *sorted(command_line.given - _ALLOWED)]:
        raise ConfigError(
            f'--{flag}: the other libraries cannot follow it. Omit it. Allowed here: {", ".join(sorted(_ALLOWED))}.'
        )
    screen.update('generating the photographs')
    config = command.input_config(command_line, ['train'])
    files = f'{os.path.abspath(config.data_dir)}-files'
    command.make_tar_shards(config, tar_dir(config))
    if not os.path.exists(files):
        command.write_files(str(config.data_dir), files)
    pythons: Dict[str, str] = {}
    problems: Dict[str, str] = {}
    for name in names:
        screen.update(f'making the environment of {name}')
        try:
            pythons[name] = python_of(name)
        except MeasurementError as error:
            problems[name] = f'not measured: {error}'

    def show_all(measured: Measured, failed: Dict[str, str]) -> None:
        problems.update({name: f'failed: {reason}' for name, reason in failed.items()})
        complete = {name: rounds for name, rounds in measured.items() if name not in failed}
        show(complete, problems, own['json'], config.train_batch_size)

    return measurement.interleave(
        [*pythons],
        own['repeats'],
        lambda name: measure(name, pythons[name], config, files, own['images']),
        screen,
        show_all,
    )


def python_of(name: str) -> str:
    """The interpreter with a peer's packages; uv makes the environment of a library, in its cache, unless it exists.

    Raises MeasurementError with the reason if there is no such interpreter.
    """
    if name in OURS:
        from compat import tf

        version = name.rpartition('_')[2]
        if tf.__version__.startswith(version):
            return sys.executable
        python = str(ROOT / _TENSORFLOW[version] / 'bin' / 'python')
        if not os.path.exists(python):
            raise MeasurementError(f'not installed: ./run --tf={version} true')
        return python
    uv = shutil.which('uv', path=os.pathsep.join([str(ROOT / '.tools' / 'bin'), os.environ.get('PATH', '')]))
    if uv is None:
        raise MeasurementError('needs uv: pip install uv')
    output = ''
    for task in (('sync', '--quiet'), ('python', 'find')):
        line = [uv, *task, '--script', str(FOLDER / f'{name}.py')]
        done = subprocess.run(line, env=_environment(), capture_output=True, text=True)
        if done.returncode:
            raise MeasurementError(f'not installed: {" ".join(done.stderr.split())[:_LONGEST]}')
        output = done.stdout
    return output.strip()


def _environment() -> Dict[str, str]:
    """The environment variables for another Python, without those that point to this one's packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith('PYTHON')}


def measure(name: str, python: str, config: Config, files: str, images: int) -> List[Dict[str, Any]]:
    """Measures a peer in a process of its own: the result of `meter.measure` for each kind of work.

    Raises MeasurementError with the reason.
    """
    if name in OURS:
        config = dataclasses.replace(config, data_format='tar', data_dir=tar_dir(config)) if '_tar_' in name else config
        runs = []
        for colour, floats in KINDS.values():
            changes: Dict[str, Any] = {} if colour else dict.fromkeys(_COLOURS, 0.0)
            changed = dataclasses.replace(config, transfer='float' if floats else 'uint8', **changes)
            runs.append(Run(is_naive=False, is_training=True, until=TRANSFER, config=changed, images=images))
        return [found._asdict() for found in measurement.measure(runs, python)]
    tasks = [
        Task(
            files=files,
            shards=os.path.abspath(tar_dir(config)),
            size=[config.height, config.width],
            area=[config.crop_area_min, 1.0],
            aspect=[1 / config.crop_aspect_ratio_max, config.crop_aspect_ratio_max],
            colour=[getattr(config, field) for field in _COLOURS] if colour else None,
            floats=floats,
            batch_size=config.train_batch_size,
            images=images,
            workers=processes.usable_cores(),
        )._asdict()
        for colour, floats in KINDS.values()
    ]
    line = [python, '-W', 'ignore', *processes.module(f'tools.benchmarks.peers.{name}')[1:]]
    return measurement.answer_of(line, json.dumps(tasks), _environment(), _TIMEOUT)


def versions_of(name: str) -> str:
    """The packages that a peer runs on."""
    if name in OURS:
        return f'TensorFlow {name.rpartition("_")[2]}'
    return ', '.join(re.findall(r'"([\w.-]+==[\w.]+)"', (FOLDER / f'{name}.py').read_text())).replace('==', ' ')


def show(measured: Measured, problems: Dict[str, str], as_json: bool, batch_size: int) -> None:
    """Prints a row for each kind of work and peer; the ratios are to the first peer, round by round."""
    rows = []
    first = next(iter(measured.values())) if measured else []
    for number, kind in enumerate(KINDS):
        for name, rounds in measured.items():
            results = [each[number] for each in rounds]
            values = {field: [each[field] for each in results] for field in ('cpu_ms', 'images_per_second')}
            values['cpu_over_first'] = [a['cpu_ms'] / b[number]['cpu_ms'] for a, b in zip(results, first)]
            rows.append((name, kind, {field: spread(numbers) for field, numbers in values.items()}))
    versions = {name: versions_of(name) for name in measured}
    date = datetime.date.today().isoformat()
    if as_json:
        content = [
            {'name': name, 'work': kind, **{field: value._asdict() for field, value in spreads.items()}}
            for name, kind, spreads in rows
        ]
        head = {'date': date, 'host': tables.machine(), 'batch_size': batch_size, 'versions': versions}
        print(json.dumps({**head, 'rounds': len(first), 'rows': content, 'problems': problems}))
        return
    print(f'{date}; batches of {batch_size} training images; rounds: {len(first)}; on {tables.machine()}')
    print('medians (least–greatest) of the rounds; CPU time of all threads and processes\n')
    digits = {'cpu_ms': 2, 'images_per_second': 0, 'cpu_over_first': 2}
    cells = [
        [name, kind, *(spreads[field].text(number) for field, number in digits.items())] for name, kind, spreads in rows
    ]
    print(tables.plain(('pipeline', 'work', 'CPU-ms / image', 'images/s', 'this / first'), cells, names=2))
    for name, text in {**versions, **problems}.items():
        print(f'{name}: {text}')


if __name__ == '__main__':
    sys.exit(main(sys.argv))
