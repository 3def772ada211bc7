"""Sweeps of studies that a command makes, instead of its user."""

import os
from typing import Any, Dict, List, Mapping

import yaml

from data.files import write_whole
from studies.study import load
from studies.sweep import plan, run, trials


def sweep(out: str, name: str, study: Mapping[str, Any], workers: int) -> int:
    """Writes a study, the content of a YAML file, to OUT/NAME.yaml, and runs its sweep in OUT/NAME.

    Returns:
      The exit code of the sweep.
    """
    path = os.path.join(out, f'{name}.yaml')
    write_whole(path, yaml.safe_dump(study, sort_keys=False))
    return run.run(plan.make(path, os.path.join(out, name)), workers)


def accuracies(out: str, name: str) -> Dict[str, List[float]]:
    """The accuracies in per cent, of the trials that are done: by case, in the order of the seeds."""
    found: Dict[str, List[float]] = {}
    for trial in trials.trials_of(load(os.path.join(out, f'{name}.yaml')), os.path.join(out, name)):
        evaluation = trials.last_evaluation(trial)
        if evaluation and evaluation.step == trial.config.train_steps:
            found.setdefault(trial.case, []).append(100 * evaluation.top_1)
    return found
