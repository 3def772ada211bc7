"""Compares the training step with those of other libraries: inception-v3 benchmark-steps [--peers=keras_1.15].

Each program trains Inception v3 with one batch of random images that is repeated, so that its input costs nothing: this
program on both versions of TensorFlow, Keras' network on both, and torchvision's. All update with RMSProp in float32.
This program and torchvision train the auxiliary classifier, too, and this program also decays the weights and averages
them. Each measurement has a process of its own, in the environment that has the library. Of the flags of a run, only
the size of images and batches is allowed; without a flag, a batch has 8 images.
"""

import dataclasses
import json
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

from benchmarks import arguments, program, tables, training
from benchmarks.comparison import spread
from benchmarks.peers import environments
from console.errors import DONE, RETRY
from console.program import raise_on_sigterm
from console.screen import Screen
from inception_v3.config import Config
from inception_v3.flags import CommandLine, OwnFlag

# Flags of a run that all programs can follow.
_ALLOWED = frozenset({'height', 'width', 'train_batch_size'})
_BATCH_SIZE = 8

PEERS: Dict[str, environments.Peer] = {
    **environments.with_tensorflow(ours='', keras='keras_steps'),
    'torchvision': environments.Peer('torchvision', 'torchvision_steps'),
}
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'peers': OwnFlag(str, None, f'programs to measure, comma-separated: {", ".join(PEERS)}; default: all'),
    'pythons': environments.PYTHONS,
    'steps': OwnFlag(int, 5, 'training steps to measure, after the warm-up'),
    'repeats': arguments.MEASURING['repeats'],
    'json': arguments.MEASURING['json'],
}


class Steps(NamedTuple):
    """A measurement, of `meter.timed`: the steps' times in milliseconds."""

    step_ms: List[float]
    cpu_ms: List[float]
    parameters: int
    library: str


Results = Dict[str, List[Steps]]


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'benchmark-steps', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    names = arguments.chosen('peers', own['peers'], [*PEERS])
    environments.check_flags(command_line, _ALLOWED)
    config = _config(command_line, own['steps'])
    pythons = environments.pythons_of(names, PEERS, own['pythons'])
    results, failed = environments.interleave(
        [*pythons],
        own['repeats'],
        lambda name: measure(name, pythons[name], config, own['steps']),
        lambda words, name: screen.update(f'{words}: {name}'),
    )
    screen.clear()
    problems = {
        **{name: f'not installed: {PEERS[name].how}' for name in names if name not in pythons},
        **{name: f'failed: {reason}' for name, reason in failed.items()},
    }
    show(results, problems, own['json'], config)
    return RETRY if failed else DONE


def _config(command_line: CommandLine, steps: int) -> Config:
    """The run whose steps this program takes: the documented one, on random images on this machine's CPU."""
    config = command_line.config
    if 'train_batch_size' not in command_line.given:
        config = dataclasses.replace(config, train_batch_size=_BATCH_SIZE)
    return training.with_steps(dataclasses.replace(config, use_tpu=False, use_data='fake', accelerator='cpu'), steps)


def measure(name: str, python: str, config: Config, steps: int) -> Steps:
    """Measures a program in a process of its own.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    if not PEERS[name].script:
        found = training.measure(config, training.REPEATED, python)
        return Steps(found.step_ms, found.cpu_ms, found.parameters, f'TensorFlow {PEERS[name].version}')
    spec = {
        'library': name.partition('_')[0],
        'warm_up': training.WARM_UP_CALLS,
        'steps': steps,
        'size': [config.height, config.width],
        'batch_size': config.train_batch_size,
        'classes': config.num_classes,
    }
    return Steps(**environments.call(python, PEERS[name].script, spec))


def show(results: Results, problems: Dict[str, str], as_json: bool, config: Config) -> None:
    """Prints a row for each program; the ratios are to the first one, round by round."""
    first: List[Steps] = next(iter(results.values()), [])
    rows = [
        {
            'program': name,
            'library': of_program[0].library,
            'parameters': of_program[0].parameters,
            'cpu_s': _spread([_mean(each.cpu_ms) / 1000 for each in of_program]),
            'images_per_second': _spread([1000 * config.train_batch_size / _mean(each.step_ms) for each in of_program]),
            'over_first': _spread([_mean(each.cpu_ms) / _mean(other.cpu_ms) for each, other in zip(of_program, first)]),
        }
        for name, of_program in results.items()
    ]
    if as_json:
        content = {
            'host': tables.machine(),
            'batch_size': config.train_batch_size,
            'size': [config.height, config.width],
        }
        print(json.dumps({**content, 'rows': rows, 'problems': problems}))
        return
    print(
        f'training steps with {config.train_batch_size} images of {config.height} x {config.width} pixels; '
        f'on {tables.machine()}'
    )
    print('medians (least–greatest) of the rounds; CPU time of all threads\n')
    head = ('program', 'library', 'parameters', 'CPU-s / step', 'images/s', 'this / first')
    tables.show(head, [_texts(row) for row in rows], names=2)
    for name, problem in problems.items():
        print(f'{name}: {problem}')


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float]) -> Dict[str, float]:
    return spread(values)._asdict()


def _texts(row: Dict[str, Any]) -> List[str]:
    line = '{median:,.2f} ({least:,.2f}–{greatest:,.2f})'
    numbers = [line.format(**row[field]) for field in ('cpu_s', 'images_per_second', 'over_first')]
    return [row['program'], row['library'], f'{row["parameters"]:,}', *numbers]


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
