"""Measures the cost of --seed in a training run: python -m benchmarks.repeatability [any flags of a run].

Trains with and without a seed in turn, each time in a process of its own. A seed determines the order and the
distortions of images, and fixes the order of additions. Without a preset or --data_dir, it trains --preset=digits.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Sequence

from benchmarks import arguments, program, tables
from benchmarks.comparison import spread
from benchmarks.measurement import MeasurementError
from console import processes
from console.program import raise_on_sigterm
from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import fit_to_data_set
from inception_v3.estimator import make_estimator
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import starts

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'steps': OwnFlag(int, 100, 'training steps to measure, after the warm-up'),
    'repeats': arguments.MEASURING['repeats'],
    'json': arguments.MEASURING['json'],
}
_WARM_UP_STEPS = 5
_SEED = 0


class Training(NamedTuple):
    """The measurement of a run: CPU time per image in milliseconds, of all threads, and images per second."""

    cpu_ms: float
    images_per_second: float


class _Meter(tf.estimator.SessionRunHook):
    """Records the times after the warm-up and after the last step."""

    def __init__(self) -> None:
        self._step = 0
        self.times: List[Any] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._step += 1
        if self._step == _WARM_UP_STEPS:
            self.times.append((os.times(), time.perf_counter()))

    def end(self, session: tf.Session) -> None:
        self.times.append((os.times(), time.perf_counter()))


def measure_here(config: Config) -> Training:
    """Trains to `train_steps` in a temporary folder, and measures the steps after the warm-up."""
    meter = _Meter()
    with tempfile.TemporaryDirectory() as model_dir:
        config = dataclasses.replace(config, model_dir=model_dir)
        estimator = make_estimator(config)
        estimator.train(InputPipeline(True, config), hooks=[meter], max_steps=config.train_steps)
    (cpu, clock), (cpu_end, clock_end) = meter.times
    images = (config.train_steps - _WARM_UP_STEPS) * config.train_batch_size
    cpu_seconds = cpu_end.user + cpu_end.system - cpu.user - cpu.system
    return Training(1000 * cpu_seconds / images, images / (clock_end - clock))


def _measure(config: Config) -> Training:
    process = subprocess.run(
        processes.module('benchmarks.repeatability', '--child'),
        input=config.to_json(),
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise MeasurementError([f'exit code {process.returncode}', *process.stderr.splitlines()][-1])
    return Training(**json.loads(process.stdout))


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    if list(argv[1:]) == ['--child']:
        print(json.dumps(measure_here(Config.from_json(sys.stdin.read()))._asdict()))
        return 0
    if not any(argument.startswith(('--preset', '--data_dir', '--train_files', '--use_data')) for argument in argv):
        argv = [*argv, '--preset=digits']
    return program.run(
        argv, 'benchmarks.repeatability', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform
    )


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    config = fit_to_data_set(command_line)
    if config.use_tpu and not config.is_emulated:
        raise ConfigError('--use_tpu=True: this benchmark measures training on this machine. Add --use_tpu=False.')
    steps = _WARM_UP_STEPS + own['steps']
    config = dataclasses.replace(config, mode='train', train_steps=steps, skip_host_call=True, max_bad_records=0)
    runs = {
        'without': dataclasses.replace(config, seed=None),
        'with': starts.with_settled_threads(dataclasses.replace(config, seed=_SEED, model_dir=None)),
    }
    measured: Dict[str, List[Training]] = {name: [] for name in runs}
    for repeat in range(own['repeats']):
        for name, run in runs.items():
            screen.update(f'round {repeat + 1} of {own["repeats"]}: {name} a seed')
            measured[name].append(_measure(run))
    screen.clear()
    _show(measured, own, config)
    return 0


def _show(measured: Dict[str, List[Training]], own: Dict[str, Any], config: Config) -> None:
    if own['json']:
        content = {name: [each._asdict() for each in of_name] for name, of_name in measured.items()}
        print(json.dumps({'machine': tables.machine(), 'steps': own['steps'], **content}, indent=2))
        return
    values = {
        name: {field: spread([getattr(each, field) for each in of_name]) for field in Training._fields}
        for name, of_name in measured.items()
    }
    pairs = [*zip(measured['with'], measured['without'])]
    values['with / without'] = {
        field: spread([getattr(one, field) / getattr(other, field) for one, other in pairs])
        for field in Training._fields
    }
    print(f'{own["steps"]} steps of {config.train_batch_size} images, repeats: {len(pairs)}; on {tables.machine()}')
    print('medians (least–greatest); CPU time of all threads, after the warm-up\n')
    tables.show(
        ('seed', 'CPU-ms / image', 'images/s'),
        [
            [name, *('{:,.2f} ({:,.2f}–{:,.2f})'.format(*of_name[field]) for field in Training._fields)]
            for name, of_name in values.items()
        ],
        names=1,
    )


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
