"""Measures training on any device: inception-v3 benchmark-train [any flags of a run].

Trains for a few steps with the real input pipeline and, in turn, with one repeated batch, which only has to be copied
to the device. The difference is the time that the device waits for its input. Each measurement has a process of its
own. Without a preset or --data_dir, it trains --preset=digits; without --data_dir it reads generated photographs. The
last line is a JSON object with device, versions and settings, but without names of folders, projects and TPUs.
"""

import contextlib
import dataclasses
import datetime
import json
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

from compat.errors import CommandError
from console import processes
from console.screen import Screen
from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.machines.cluster import OF_PLACE
from tools.benchmarks import command, tables
from tools.benchmarks.measurement import answer_of
from tools.benchmarks.tables import Spread, spread

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'steps': OwnFlag(int, 20, 'training steps to measure, after the warm-up; on a TPU, rounded up to whole loops'),
    'repeats': command.MEASURING['repeats'],
    'device_name': OwnFlag(str, None, 'name of the device in the result, such as v3-8; default: what TensorFlow says'),
    'json': OwnFlag(bool, False, 'print the JSON line only'),
}
# The kinds of input: the run's own, and one repeated batch of random pixels.
REAL, REPEATED = 'real_input', 'repeated_batch'
# The result leaves out settings of a run's surroundings, and settings that may name a file.
_PRIVATE = OF_PLACE | {'init_from', 'class_weights'}


class Training(NamedTuple):
    """A measurement."""

    device: str  # The device in words.
    parameters: int  # The number of trainable parameters.
    step_ms: List[float]  # Milliseconds per step of each session call after the warm-up.
    # The CPU time of this process in these calls, in milliseconds per step: all threads, user and system.
    cpu_ms: List[float]


def warm_up_calls(config: Config) -> int:
    """The number of session calls before the measurement. A call runs one step, or on a TPU a loop of steps."""
    return 1 if config.use_tpu else 3


def with_steps(config: Config, steps: int) -> Config:
    """The configuration of a run with a warm-up, and at least `steps` steps and two calls to measure."""
    per_call = config.iterations if config.use_tpu else 1
    calls = warm_up_calls(config) + max(2, -(-steps // per_call))
    return dataclasses.replace(config, mode='train', train_steps=calls * per_call, max_bad_records=0, image_summaries=0)


def measure(config: Config, kind: str) -> Training:
    """Trains in a new process, with the input REAL or REPEATED; raises MeasurementError with the reason."""
    asked = json.dumps({'config': dataclasses.asdict(config), 'kind': kind})
    return Training(**answer_of(processes.module('tools.benchmarks.steps'), asked))


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    # `command.run` reports a wrong command line.
    with contextlib.suppress(CommandError):
        asked = flags.read(argv, _OWN_FLAGS)
        if not asked.preset and not {'data_dir', 'train_files', 'use_data'} & {*asked.fields}:
            argv = [*argv[:1], '--preset=digits', *argv[1:]]
    purpose = str(__doc__).partition('\n\n')[2].strip()
    return command.run(argv, 'benchmark-train', purpose, _OWN_FLAGS, _perform, of_machines=True)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    from data import records
    from inception_v3.data_set import check_data
    from inception_v3.estimator import make_estimator
    from inception_v3.fitting import fit_to_data_set, makes_digits
    from inception_v3.run.memory import check_fits
    from tools.benchmarks import photographs
    from tools.datasets import digits

    config = command_line.config
    if config.machines > 1:
        raise ConfigError(
            '--worker_hosts: this command measures one machine. Leave out the flag and --task_index, with '
            f'--train_batch_size={config.train_batch_size // config.machines}; a run shows the images/s of all.'
        )
    screen.update('reading the data set, or generating it')
    if config.use_data == 'real' and not config.source.is_named(config.splits):
        config = photographs.made(config)
    if makes_digits(command_line):
        digits.make(config.data_dir)
    config = with_steps(fit_to_data_set(command_line._replace(config=config)), own['steps'])
    check_data(config, [records.TRAIN])
    check_fits(config)
    # Reports what the run lacks before any process is started.
    make_estimator(dataclasses.replace(config, model_dir=config.model_dir or 'unused'))
    measured: Dict[str, List[Training]] = {REAL: [], REPEATED: []}
    for repeat in range(own['repeats']):
        for kind, of_kind in measured.items():
            screen.update(f'round {repeat + 1} of {own["repeats"]}: {kind.replace("_", " ")}')
            of_kind.append(measure(config, kind))
    screen.clear()
    found = result(config, measured, own['device_name'])
    if not own['json']:
        _show(found)
    print(json.dumps(found))
    return 0


def result(config: Config, measured: Dict[str, List[Training]], device_name: Any = None) -> Dict[str, Any]:
    """The content of the JSON line, from measurements with REAL and with REPEATED input, one of each per round."""
    from inception_v3.run import versions
    from inception_v3.run.starts import not_default
    from inception_v3.tpu import accelerator

    def steps_of(kind: str, name: str) -> List[float]:
        return [ms for each in measured[kind] for ms in getattr(each, name)]

    totals = {kind: [sum(each.step_ms) / len(each.step_ms) for each in measured[kind]] for kind in (REAL, REPEATED)}
    waits = [max(0.0, 1 - repeated / real) for real, repeated in zip(totals[REAL], totals[REPEATED])]
    on_tpu = 'emulated' if config.is_emulated else 'tpu'
    found = versions.current()
    return {
        'date': datetime.date.today().isoformat(),
        'kind': on_tpu if config.use_tpu else 'gpu' if accelerator.on_gpu(config) else 'cpu',
        'device': device_name or measured[REAL][0].device,
        'host': tables.machine(),
        'parameters': measured[REAL][0].parameters,
        **{name: found[name] for name in ('tensorflow', 'python', 'inception_v3', 'revision', 'modified')},
        'settings': {name: value for name, value in not_default(config).items() if name not in _PRIVATE},
        'rounds': len(waits),
        **{
            kind: {
                'images_per_second': _rounded([1000 * config.train_batch_size / ms for ms in step_ms], 1),
                'step_ms': _rounded(steps_of(kind, 'step_ms'), 2),
                'cpu_ms': _rounded(steps_of(kind, 'cpu_ms'), 2),
            }
            for kind, step_ms in totals.items()
        },
        'input_share': _rounded(waits, 3),
    }


def _rounded(values: Sequence[float], digits: int) -> Dict[str, float]:
    return {name: round(value, digits) for name, value in spread(values)._asdict().items()}


def _show(found: Dict[str, Any]) -> None:
    settings = ' '.join(f'--{name}={value}' for name, value in found['settings'].items())
    print(f'{found["kind"]}: {found["device"]}; TensorFlow {found["tensorflow"]}; {settings}')
    print(f'medians (least–greatest); rounds: {found["rounds"]}\n')
    fields = {'images_per_second': 1, 'step_ms': 2, 'cpu_ms': 2}
    rows = [
        [title, *(Spread(**found[name][field]).text(digits) for field, digits in fields.items())]
        for title, name in (('input pipeline', REAL), ('one batch, repeated', REPEATED))
    ]
    print(tables.plain(('input', 'images/s', 'ms / step', 'CPU-ms / step'), rows, names=1))
    waits = '{median:.0%} of the time ({least:.0%}–{greatest:.0%})'.format(**found['input_share'])
    print(f'\nthe device waits for its input {waits}\n')


if __name__ == '__main__':
    sys.exit(main(sys.argv))
