"""Measures training on any device: inception-v3 benchmark-train [any flags of a run].

Trains for a few steps with the real input pipeline and, in turn, with one batch that is repeated, which leaves nothing
of the input but its copy to the device. The difference is the time that the device waits for its input. Each
measurement has a process of its own. Without a preset or --data_dir, it trains --preset=digits; without --data_dir it
reads generated photographs. The last line is a JSON object with device, versions and settings, but without names of
folders, projects and TPUs.
"""

import dataclasses
import datetime
import json
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from tensorflow.python.client import device_lib

from benchmarks import arguments, photographs, program, tables
from benchmarks.comparison import spread
from benchmarks.measurement import MeasurementError, cpu_seconds
from console import processes
from console.program import raise_on_sigterm
from console.screen import Screen
from console.tensorflow_versions import tf
from data import remote
from data.sources import source_of
from inception_v3 import seeding
from inception_v3.config import Config
from inception_v3.data_set import fit_to_data_set
from inception_v3.estimator import make_estimator
from inception_v3.fitting import splits_of
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.input_pipeline import InputPipeline
from inception_v3.run import source
from inception_v3.run.hooks.step import Step, StepHook, Watcher
from inception_v3.run.memory.estimate import check_fits
from inception_v3.tpu import accelerator

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'steps': OwnFlag(int, 20, 'training steps to measure, after the warm-up; on a TPU, rounded up to whole loops'),
    'repeats': arguments.MEASURING['repeats'],
    'device_name': OwnFlag(str, None, 'name of the device in the result, such as v3-8; default: what TensorFlow says'),
    'json': OwnFlag(bool, False, 'print the JSON line only'),
}
# The kinds of input: the run's own, and one batch of random pixels again and again.
REAL, REPEATED = 'real', 'repeated'
# Session calls before the measurement: one step each, or on a TPU one loop.
WARM_UP_CALLS, _WARM_UP_LOOPS = 3, 1
_LEAST_CALLS = 2
# Settings of a run's surroundings, which the result leaves out.
_PRIVATE = (
    *('tpu', 'gcp_project', 'tpu_zone', 'master', 'data_dir', 'train_files', 'eval_files', 'model_dir', 'export_dir'),
)


class Training(NamedTuple):
    """A measurement.

    Attributes:
      device: the device in words.
      parameters: the number of trained numbers.
      step_ms: milliseconds per step of each session call after the warm-up.
      cpu_ms: the CPU time of this process in these calls, in milliseconds per step: all threads, user and system.
    """

    device: str
    parameters: int
    step_ms: List[float]
    cpu_ms: List[float]


class _Meter(Watcher):
    """Records the number of steps, the time and the CPU time after each session call, times in milliseconds."""

    def __init__(self) -> None:
        self._readings: List[Tuple[int, float, float]] = []
        self._parameters = 0

    def graph_built(self) -> None:
        self._parameters = sum(variable.shape.num_elements() for variable in tf.trainable_variables())

    def step_done(self, session: tf.Session, done: Step) -> None:
        self._readings.append((done.step, 1000 * done.time, 1000 * cpu_seconds()))

    def measured(self, device: str, warm_up: int) -> Training:
        """The measurement of the session calls after the first `warm_up`."""
        readings = np.array(self._readings[warm_up - 1 :])
        steps, times, cpu_times = np.diff(readings, axis=0).T
        return Training(device, self._parameters, list(times / steps), list(cpu_times / steps))


class _RepeatedBatch:
    """The input function of a run that has one batch: its pixels are random, its order of axes and types the run's."""

    def __init__(self, config: Config):
        self._pipeline = InputPipeline(True, dataclasses.replace(config, use_data='fake', max_bad_records=0))

    def __call__(self, params: Dict[str, Any]) -> tf.data.Dataset:
        return self._pipeline(params).take(1).cache().repeat()


def _warm_up(config: Config) -> int:
    return _WARM_UP_LOOPS if config.use_tpu else WARM_UP_CALLS


def with_steps(config: Config, steps: int) -> Config:
    """The configuration of a run that is long enough to measure `steps` steps after the warm-up."""
    per_call = config.iterations if config.use_tpu else 1
    calls = _warm_up(config) + max(_LEAST_CALLS, -(-steps // per_call))
    return dataclasses.replace(config, mode='train', train_steps=calls * per_call, max_bad_records=0, image_summaries=0)


def measure_here(config: Config, kind: str) -> Training:
    """Trains in this process, in a folder of its own, with the input REAL or REPEATED."""
    meter = _Meter()
    with tempfile.TemporaryDirectory() as folder:
        # A TPU in another machine needs a folder in a bucket. Nothing is written there.
        here = f'{config.model_dir}/{folder.strip("/")}' if remote.is_remote(str(config.model_dir)) else folder
        config = dataclasses.replace(config, model_dir=here)
        input_fn = InputPipeline(True, config) if kind == REAL else _RepeatedBatch(config)
        make_estimator(config, writes=False).train(input_fn, hooks=[StepHook([meter])], max_steps=config.train_steps)
    return meter.measured(_device(config), _warm_up(config))


def _device(config: Config) -> str:
    """The device in words."""
    if config.is_emulated:
        return f'{config.num_shards} emulated cores on {tables.machine()}'
    if config.use_tpu:
        return f'TPU with {config.num_shards} cores'
    if accelerator.on_gpu(config):
        listed = device_lib.list_local_devices(seeding.session_config(config))
        found = [each.physical_device_desc for each in listed if each.device_type == 'GPU']
        return found[0] if found else 'GPU'
    return tables.machine()


def measure(config: Config, kind: str, python: str = sys.executable) -> Training:
    """Trains in a new process of an interpreter that has what this program needs; see `measure_here`.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    command = [python, *processes.module('benchmarks.training', '--child', kind)[1:]]
    process = subprocess.run(command, input=config.to_json(), capture_output=True, text=True)
    if process.returncode:
        raise MeasurementError([f'exit code {process.returncode}', *process.stderr.splitlines()][-1])
    return Training(**json.loads(process.stdout.splitlines()[-1]))


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    if list(argv[1:2]) == ['--child']:
        print(json.dumps(measure_here(Config.from_json(sys.stdin.read()), argv[2])._asdict()))
        return 0
    if not any(argument.startswith(('--preset', '--data_dir', '--train_files', '--use_data')) for argument in argv):
        argv = [*argv, '--preset=digits']
    return program.run(argv, 'benchmark-train', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    screen.update('reading the data set, or generating it')
    config = command_line.config
    if config.use_data == 'real' and not source_of(config).is_named(splits_of(config)):
        photographs.make(photographs.DATA_DIR)
        config = dataclasses.replace(config, data_dir=photographs.DATA_DIR)
    config = with_steps(fit_to_data_set(command_line._replace(config=config)), own['steps'])
    check_fits(config)
    # Finds what a run needs and lacks, before the processes do.
    make_estimator(dataclasses.replace(config, model_dir=config.model_dir or 'unused'), writes=False)
    measured: Dict[str, List[Training]] = {REAL: [], REPEATED: []}
    for repeat in range(own['repeats']):
        for kind, of_kind in measured.items():
            screen.update(f'round {repeat + 1} of {own["repeats"]}: {kind} input')
            of_kind.append(measure(config, kind))
    screen.clear()
    found = result(config, measured, own['device_name'])
    if not own['json']:
        _show(found)
    print(json.dumps(found))
    return 0


def result(config: Config, measured: Dict[str, List[Training]], device_name: Any = None) -> Dict[str, Any]:
    """The content of the JSON line.

    Args:
      config: of the measured runs.
      measured: the measurements with REAL and REPEATED input, as many of each; a pair of them is a round.
      device_name: replaces the device's name.
    """
    totals = {kind: [sum(each.step_ms) / len(each.step_ms) for each in measured[kind]] for kind in (REAL, REPEATED)}
    waits = [max(0.0, 1 - repeated / real) for real, repeated in zip(totals[REAL], totals[REPEATED])]
    default = dataclasses.asdict(Config())
    settings = {name: value for name, value in dataclasses.asdict(config).items() if value != default[name]}
    kind = (
        'emulated'
        if config.is_emulated
        else 'tpu'
        if config.use_tpu
        else 'gpu'
        if accelerator.on_gpu(config)
        else 'cpu'
    )
    versions = source.versions()
    return {
        'date': datetime.date.today().isoformat(),
        'kind': kind,
        'device': device_name or measured[REAL][0].device,
        'host': tables.machine(),
        'parameters': measured[REAL][0].parameters,
        **{name: versions[name] for name in ('tensorflow', 'python', 'inception_v3', 'revision', 'modified')},
        'settings': {name: value for name, value in settings.items() if name not in _PRIVATE},
        'rounds': len(waits),
        **{
            name: _numbers(config, measured[kind], totals[kind])
            for name, kind in (('real_input', REAL), ('repeated_batch', REPEATED))
        },
        'input_share': _rounded(waits, 3),
    }


def _numbers(config: Config, of_kind: Sequence[Training], totals: Sequence[float]) -> Dict[str, Any]:
    return {
        'images_per_second': _rounded([1000 * config.train_batch_size / ms for ms in totals], 1),
        **{name: _rounded([ms for each in of_kind for ms in getattr(each, name)], 2) for name in ('step_ms', 'cpu_ms')},
    }


def _rounded(values: Sequence[float], digits: int) -> Dict[str, float]:
    """Median, least and greatest."""
    return {name: round(value, digits) for name, value in spread(values)._asdict().items()}


def _show(found: Dict[str, Any]) -> None:
    settings = ' '.join(f'--{name}={value}' for name, value in found['settings'].items())
    print(f'{found["kind"]}: {found["device"]}; TensorFlow {found["tensorflow"]}; {settings}')
    print(f'medians (least–greatest); rounds: {found["rounds"]}\n')
    line = '{median:,g} ({least:,g}–{greatest:,g})'
    rows = [
        [title, *(line.format(**found[name][field]) for field in ('images_per_second', 'step_ms', 'cpu_ms'))]
        for title, name in (('input pipeline', 'real_input'), ('one batch, repeated', 'repeated_batch'))
    ]
    tables.show(('input', 'images/s', 'ms / step', 'CPU-ms / step'), rows, names=1)
    print(
        '\nthe device waits for its input {median:.0%} of the time ({least:.0%}–{greatest:.0%})\n'.format(
            **found['input_share']
        )
    )


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
