"""Sweeps over the digits of studies that a command makes, instead of its user."""

import argparse
import os
import statistics
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from benchmarks.comparison import Spread
from console import program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.paths import expanded
from console.screen import Screen
from studies.shipped import EARLIER_RECIPE


def main(
    name: str,
    purpose: str,
    defaults: Mapping[str, Any],
    perform: Callable[[argparse.Namespace, Screen], int],
    argv: Optional[Sequence[str]],
) -> int:
    """Runs the command line of a study, whose name and defaults are given, and returns its exit code."""
    parser = new_parser(name, purpose)
    number = number_of(int, 1)
    for flag, kind, text in (
        ('out', folder, 'folder of everything, created if missing'),
        # The digit 8 has 139 training images, fewer than any other.
        ('images', numbers_of(int, 1, 139), 'numbers of training images of each digit'),
        ('seeds', number, 'seeds of each case'),
        ('steps', number, 'training steps of each trial'),
        ('workers', number, 'trials at a time'),
    ):
        default = defaults.get(flag, 1)
        parser.add_argument(f'--{flag}', type=kind, default=default, help=f'{text} (default {default})')
    arguments = parser.parse_args(expanded(argv))
    return program.run(lambda screen: perform(arguments, screen), 'interrupted; the same command resumes')


def study(question: str, seeds: int, steps: int, axes: Sequence[Any] = (), **flags: Any) -> Dict[str, Any]:
    """A study of the digits whose trials are evaluated at their last step, as the content of a YAML file."""
    # One thread gives the same bits on any number of cores, and lets one trial run per core. The average is that of a
    # short run.
    common = {**EARLIER_RECIPE, 'intra_op_threads': 1, 'moving_average_decay': 0.99}
    common.update(train_steps=steps, train_steps_per_eval=steps)
    return {
        'question': question,
        'preset': 'digits',
        'flags': {**common, **flags},
        'axes': [*axes],
        'seeds': seeds,
        'report': ['top_1', 'cross_entropy'],
    }


def sweep(out: str, name: str, study: Mapping[str, Any], workers: int) -> int:
    """Writes a study to OUT/NAME.yaml, runs its sweep in OUT/NAME, and returns the exit code."""
    import yaml

    from data.files import write_whole
    from studies.sweep import plan, run

    path = os.path.join(out, f'{name}.yaml')
    write_whole(path, yaml.safe_dump(study, sort_keys=False))
    return run.run(plan.make(path, os.path.join(out, name)), workers)


def accuracies(out: str, name: str) -> Dict[str, List[float]]:
    """The accuracies in per cent, of the trials that are done: by case, in the order of the seeds."""
    from studies.study import load
    from studies.sweep import trials

    found: Dict[str, List[float]] = {}
    for trial in trials.trials_of(load(os.path.join(out, f'{name}.yaml')), os.path.join(out, name)):
        evaluation = trials.last_evaluation(trial)
        if evaluation and evaluation.step == trial.config.train_steps:
            found.setdefault(trial.case, []).append(100 * evaluation.top_1)
    return found


def text_of(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    deviation = f' ± {statistics.stdev(values):.1f}' if len(values) > 1 else ''
    return f'{statistics.mean(values):.1f}{deviation}' if values else '–'


def spread_of(values: Sequence[float]) -> Optional[Spread]:
    """The mean, the least and the greatest value; None without values."""
    return Spread(statistics.mean(values), min(values), max(values)) if values else None
