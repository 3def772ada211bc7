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

from benchmarks import command, tables, training
from benchmarks.comparison import spread
from benchmarks.peers import environments
from benchmarks.peers.environments import Peer, Subject
from console.errors import DONE, RETRY
from console.program import raise_on_sigterm
from console.screen import Screen
from inception_v3.config import Config
from inception_v3.flags import CommandLine, OwnFlag

# Flags of a run that all programs can follow.
_ALLOWED = frozenset({'height', 'width', 'train_batch_size'})
_BATCH_SIZE = 8

PEERS: Dict[str, Peer] = {
    **environments.with_tensorflow(ours='', keras='keras'),
    'torchvision': Peer('torchvision', 'torchvision'),
}
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'peers': OwnFlag(str, None, f'programs to measure, comma-separated: {", ".join(PEERS)}; default: all'),
    'pythons': environments.PYTHONS,
    'steps': OwnFlag(int, 5, 'training steps to measure, after the warm-up'),
    'repeats': command.MEASURING['repeats'],
    'json': command.MEASURING['json'],
}


class Steps(NamedTuple):
    """A measurement, of `meter.timed`: the steps' times in milliseconds."""

    step_ms: List[float]
    cpu_ms: List[float]
    parameters: int
    library: str


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return command.run(argv, 'benchmark-steps', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    names = command.chosen('peers', own['peers'], [*PEERS])
    environments.check_flags(command_line, _ALLOWED)
    # The documented run, on random images on this machine's CPU.
    config = dataclasses.replace(command_line.config, use_tpu=False, use_data='fake', accelerator='cpu')
    if 'train_batch_size' not in command_line.given:
        config = dataclasses.replace(config, train_batch_size=_BATCH_SIZE)
    config = training.with_steps(config, own['steps'])
    measured, problems, failed = environments.measure_installed(
        names, [''], PEERS, own, lambda each, python: measure(each.name, python, config, own['steps']), screen
    )
    show(measured, problems, own['json'], config)
    return RETRY if failed else DONE


def measure(name: str, python: str, config: Config, steps: int) -> Steps:
    """Measures a program in a process of its own.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    if not PEERS[name].script:
        found = training.measure(config, training.REPEATED, python)
        return Steps(found.step_ms, found.cpu_ms, found.parameters, f'TensorFlow {PEERS[name].version}')
    specification = {
        'task': 'steps',
        'warm_up': training.WARM_UP_CALLS,
        'steps': steps,
        'size': [config.height, config.width],
        'batch_size': config.train_batch_size,
        'classes': config.num_classes,
    }
    return Steps(**environments.call(python, PEERS[name].script, json.dumps(specification)))


def show(measured: Dict[Subject, List[Steps]], problems: Dict[Subject, str], as_json: bool, config: Config) -> None:
    """Prints a row for each program; the ratios are to the first one, round by round."""

    def totals(found: Sequence[Steps], name: str) -> List[float]:
        return [sum(getattr(each, name)) / len(getattr(each, name)) for each in found]

    first = totals(next(iter(measured.values()), []), 'cpu_ms')
    numbers = {
        subject.name: {
            'cpu_s': spread([ms / 1000 for ms in totals(found, 'cpu_ms')]),
            'images_per_second': spread([1000 * config.train_batch_size / ms for ms in totals(found, 'step_ms')]),
            'over_first': spread([ms / other for ms, other in zip(totals(found, 'cpu_ms'), first)]),
        }
        for subject, found in measured.items()
    }
    libraries = {subject.name: (found[0].library, found[0].parameters) for subject, found in measured.items()}
    texts = {subject.name: problem for subject, problem in problems.items()}
    if as_json:
        rows = [
            {
                'program': name,
                'library': libraries[name][0],
                'parameters': libraries[name][1],
                **{field: value._asdict() for field, value in of_program.items()},
            }
            for name, of_program in numbers.items()
        ]
        size = [config.height, config.width]
        content = {'host': tables.machine(), 'batch_size': config.train_batch_size, 'size': size}
        print(json.dumps({**content, 'rows': rows, 'problems': texts}))
        return
    print(
        f'training steps with {config.train_batch_size} images of {config.height} x {config.width} pixels; '
        f'on {tables.machine()}'
    )
    print('medians (least–greatest) of the rounds; CPU time of all threads\n')
    head = ('program', 'library', 'parameters', 'CPU-s / step', 'images/s', 'this / first')
    cells = [
        [name, libraries[name][0], f'{libraries[name][1]:,}', *(value.text(2) for value in of_program.values())]
        for name, of_program in numbers.items()
    ]
    tables.show(head, cells, names=2)
    for name, problem in texts.items():
        print(f'{name}: {problem}')


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
