"""Groups runs into the cases of a comparison."""

import dataclasses
import itertools
import os
from typing import Dict, List, Sequence, Tuple

from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.run.files import CONFIG_FILE, read_config
from studies.report.runs import Case, Comparison, Run, read_run

# The most characters of a case's name: two lines in a figure.
_LONGEST_NAME = 80

# Settings that may differ between the runs of a case: the seed, and where a run is made and kept. The number of threads
# affects only the last bits of a sum.
_NOT_COMPARED = ['seed', 'model_dir', 'export_dir', 'intra_op_threads', 'tpu', 'master', 'gcp_project', 'tpu_zone']


def compare(model_dirs: Sequence[str]) -> Comparison:
    """Reads runs and groups them into cases.

    Args:
      model_dirs: their folders; a folder that is named twice, even by different paths, is read once.

    Raises:
      ConfigError: a folder is not the model_dir of a run; the message names all such folders.
      RemoteError: a folder cannot be read.
    """
    if not all(model_dirs):
        raise ConfigError('RUN: must be the model_dir of a run; it is empty.')
    of_path: Dict[str, str] = {}
    for model_dir in model_dirs:
        # A run must not count twice: the spread would be too small.
        of_path.setdefault(_real_path(model_dir), model_dir.rstrip('/') or '/')
    folders = [*of_path.values()]
    problems = [problem for problem in map(_problem_of, folders) if problem]
    if problems:
        raise ConfigError('\n'.join(problems))
    cases = cases_of([read_run(folder, folder) for folder in folders])
    return Comparison('Comparison of runs', '', tuple(cases))


def cases_of(runs: Sequence[Run]) -> List[Case]:
    """Groups runs that differ only in their seeds, in their given order.

    Cases are named after the settings in which they differ, or after their folders if those names would be too long.

    Args:
      runs: runs that have a configuration.
    """
    settings = [_settings(run.config) for run in runs if run.config]
    differing = [name for name in settings[0] if len({each[name] for each in settings}) > 1] if settings else []
    grouped: Dict[Tuple[str, ...], List[Run]] = {}
    for run, of_run in zip(runs, settings):
        grouped.setdefault(tuple(of_run[name] for name in differing), []).append(run)
    names = [','.join(f'{name}={value}' for name, value in zip(differing, values)) or 'all runs' for values in grouped]
    if max(map(len, names), default=0) > _LONGEST_NAME:
        names = _names_by_folder([[run.name for run in of_case] for of_case in grouped.values()])
    return [
        Case(name, dict(zip(differing, values)), tuple(of_case))
        for name, (values, of_case) in zip(names, grouped.items())
    ]


def _names_by_folder(folders: Sequence[Sequence[str]]) -> List[str]:
    """A name for each case: the folder that contains exactly its runs; else its first run and the number of others.

    Leading and trailing parts that all folders share are left out.

    Args:
      folders: folders of the runs, by case; all of them differ.
    """
    paths = [[folder.split('/') for folder in of_case] for of_case in folders]
    all_paths = [path for of_case in paths for path in of_case]
    first = _common_parts([path[:-1] for path in all_paths])
    last = _common_parts([path[first + 1 :][::-1] for path in all_paths])
    names = []
    for of_case in paths:
        path, *others = of_case
        shared = path[: _common_parts(of_case)]
        inside = [each for each in all_paths if each[: len(shared)] == shared]
        if others and len(shared) > first and len(inside) == len(of_case):
            names.append('/'.join(shared[first:]))
        else:
            name = '/'.join(path[first : len(path) - last]) or '/'
            names.append(f'{name} and {len(others)} more' if others else name)
    return names


def _common_parts(paths: Sequence[Sequence[str]]) -> int:
    """The number of leading parts that all paths share."""
    same = itertools.takewhile(lambda parts: len({*parts}) == 1, zip(*paths))
    return len([*same])


def _settings(config: Config) -> Dict[str, str]:
    """The settings that decide the case of a run, as written on a command line."""
    return {name: str(value) for name, value in dataclasses.asdict(config).items() if name not in _NOT_COMPARED}


def _real_path(folder: str) -> str:
    return folder.rstrip('/') if remote.is_remote(folder) else os.path.realpath(folder)


def _problem_of(folder: str) -> str:
    """The reason why a folder cannot be read as a run; empty if it can."""
    try:
        if read_config(folder):
            return ''
    except ConfigError as error:
        return str(error)
    inside = [name.rstrip('/') for name in remote.names_in(folder) or ()]
    nested = [name for name in inside if remote.exists(os.path.join(folder, name, CONFIG_FILE))]
    advice = f'; {os.path.join(folder, nested[0])} is one' if nested else ''
    return f'{folder}: is not the model_dir of a run: it has no {CONFIG_FILE}{advice}.'
