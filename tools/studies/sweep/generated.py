"""Sweeps of studies on the digits that a command defines, rather than a user's file."""

import argparse
import os
import statistics
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence

from console import program
from console.screen import Screen
from tools.benchmarks.tables import Spread
from tools.parsers import folder, new_parser, number_of, numbers_of
from tools.studies.shipped import EARLIER_RECIPE

if TYPE_CHECKING:
    from tools.studies.study import Study


def main(
    name: str,
    purpose: str,
    defaults: Mapping[str, Any],
    perform: Callable[[argparse.Namespace, Screen], int],
    argv: Optional[Sequence[str]],
) -> int:
    """Runs the command line of a study with a name and defaults, and returns its exit code."""
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
    arguments = parser.parse_args(argv)
    return program.run(lambda screen: perform(arguments, screen), 'interrupted; the same command resumes')


def study(
    name: str, question: str, seeds: int, steps: int, axes: Sequence[Mapping[str, Any]] = (), **flags: Any
) -> 'Study':
    """A study of the digits whose trials are evaluated at their last step; each axis has named cases."""
    from tools.studies.study import Study, cases

    # One thread gives the same bits on any number of cores, and lets one trial run per core. The decay of the average
    # suits a short run.
    common = {**EARLIER_RECIPE, 'intra_op_threads': 1, 'moving_average_decay': 0.99}
    common.update(train_steps=steps, train_steps_per_eval=steps)
    return Study(
        name=name,
        question=question,
        preset='digits',
        flags={**common, **flags},
        axes=[*map(cases, axes)],
        seeds=seeds,
        report=('top_1', 'cross_entropy'),
    )


def sweep(out: str, study: 'Study', workers: int, screen: Screen) -> int:
    """Runs the sweep of a study in the folder OUT/NAME, and returns the exit code."""
    from tools.studies.sweep import run

    return run.run(run.plan(study, os.path.join(out, study.name)), screen, workers)


def accuracies(out: str, study: 'Study') -> Dict[str, List[float]]:
    """The accuracies of finished trials in per cent, by case, in the order of the seeds."""
    from tools.studies.sweep import trials

    found: Dict[str, List[float]] = {}
    for trial in trials.trials_of(study, os.path.join(out, study.name)):
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
