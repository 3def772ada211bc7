"""Compares runs: draws the report of a sweep for the model_dirs of any runs.

Runs that differ by nothing but their seeds are one case; cases are named after the settings in which they differ, or
after the folders of their runs if the settings are too many for a name.
Writes report.html, a page that needs nothing else, and report.md with its pictures.
"""

from studies import extras

if __name__ == '__main__':
    extras.require('studies')

import argparse
import dataclasses
import itertools
import os
import sys
from typing import Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from console.screen import Screen, set_up_logging
from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir.files import CONFIG_FILE, check_writable, text_of
from studies.report import files as report_files
from studies.report.runs import Case, Comparison, Run, read_run

OUT = os.path.join('runs', 'studies', 'compare')
_INTERRUPTED = 130
# Letters of a case's name: two lines in a figure.
_LONGEST_NAME = 80

# What may differ between the runs of a case: the seed, and where a run is made and kept. That many threads sum up a
# step on a machine shows in the last bits only.
_OF_A_RUN = (
    *('seed', 'model_dir', 'export_dir', 'intra_op_threads'),
    *('tpu', 'master', 'gcp_project', 'tpu_zone'),
)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Compares what the command line names, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog='python -m studies.compare',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('runs', nargs='+', metavar='RUN', help='model_dir of a run, which may be at gs:// or s3://')
    parser.add_argument('--out', default=OUT, help=f'folder for the report, made if need be (default {OUT})')
    arguments = parser.parse_args(argv)
    if not arguments.out:
        parser.error('--out: must be the path of a folder')
    set_up_logging(Screen(sys.stderr), verbose=False)
    try:
        comparison = compare(arguments.runs)
        check_writable('out', arguments.out)
        report_files.write(arguments.out, comparison)
    except ConfigError as error:
        parser.error(str(error))
    except (OSError, tf.errors.OpError) as error:
        parser.exit(1, f'error: {error.message if isinstance(error, tf.errors.OpError) else error}\n')
    except KeyboardInterrupt:
        return _INTERRUPTED
    for case in comparison.cases:
        print(f'{case.name}: {", ".join(run.name for run in case.runs)}')
    print(f'written: {report_files.PAGE_FILE}, and {report_files.MARKDOWN_FILE} with its pictures, in {arguments.out}')
    return 0


def compare(model_dirs: Sequence[str]) -> Comparison:
    """Reads runs, and sorts them into cases.

    Args:
      model_dirs: their folders; one that is named twice, in whatever way, is read once.

    Raises:
      ConfigError: a folder is not the model_dir of a run; all such are named.
      RemoteError: something is refused, or cannot be reached.
    """
    if not all(model_dirs):
        raise ConfigError('RUN: must be the model_dir of a run; here is an empty text.')
    of_place: Dict[str, str] = {}
    for model_dir in model_dirs:
        # A run that counted twice would have no spread.
        of_place.setdefault(_place(model_dir), model_dir.rstrip('/') or '/')
    folders = [*of_place.values()]
    problems = [problem for problem in map(_problem, folders) if problem]
    if problems:
        raise ConfigError('\n'.join(problems))
    cases = cases_of([read_run(folder, folder) for folder in folders])
    return Comparison('Comparison of runs', '', tuple(cases))


def cases_of(runs: Sequence[Run]) -> List[Case]:
    """Puts runs that differ by nothing but their seeds together, in the order in which they come.

    Cases are named after the settings in which they differ, or after their folders if that would make long names.

    Args:
      runs: each with its configuration.
    """
    settings = [_settings(run.config) for run in runs if run.config]
    differing = [name for name in settings[0] if len({each[name] for each in settings}) > 1] if settings else []
    grouped: Dict[Tuple[str, ...], List[Run]] = {}
    for run, of_run in zip(runs, settings):
        grouped.setdefault(tuple(of_run[name] for name in differing), []).append(run)
    names = [','.join(f'{name}={value}' for name, value in zip(differing, values)) or 'all runs' for values in grouped]
    if max(map(len, names), default=0) > _LONGEST_NAME:
        names = _names_by_folder([[run.name for run in those] for those in grouped.values()])
    return [
        Case(name, dict(zip(differing, values)), tuple(those)) for name, (values, those) in zip(names, grouped.items())
    ]


def _names_by_folder(folders: Sequence[Sequence[str]]) -> List[str]:
    """A name for each case: the folder that has all its runs and no other, else its first run and how many more.

    What all folders begin or end with is left out.

    Args:
      folders: of the runs, by case; all of them differ.
    """
    paths = [[folder.split('/') for folder in of_case] for of_case in folders]
    everyone = [path for of_case in paths for path in of_case]
    first = _common([path[:-1] for path in everyone])
    last = _common([path[first + 1 :][::-1] for path in everyone])
    names = []
    for of_case in paths:
        path, *others = of_case
        shared = path[: _common(of_case)]
        inside = [each for each in everyone if each[: len(shared)] == shared]
        if others and len(shared) > first and len(inside) == len(of_case):
            names.append('/'.join(shared[first:]))
        else:
            name = '/'.join(path[first : len(path) - last]) or '/'
            names.append(f'{name} and {len(others)} more' if others else name)
    return names


def _common(paths: Sequence[Sequence[str]]) -> int:
    """How many parts all paths have in common, from the first on."""
    same = itertools.takewhile(lambda parts: len({*parts}) == 1, zip(*paths))
    return len([*same])


def _settings(config: Config) -> Dict[str, str]:
    """What decides the case of a run, as written on a command line."""
    return {name: str(value) for name, value in dataclasses.asdict(config).items() if name not in _OF_A_RUN}


def _place(folder: str) -> str:
    return folder.rstrip('/') if remote.is_remote(folder) else os.path.realpath(folder)


def _problem(folder: str) -> str:
    """What keeps a folder from being read as a run; nothing, if nothing does."""
    path = os.path.join(folder, CONFIG_FILE)
    text = text_of(path)
    if text:
        try:
            Config.from_json(text)
        except ConfigError as error:
            return f'{path}: {error}'
        return ''
    inside = [name.rstrip('/') for name in remote.names_in(folder) or ()]
    nested = [name for name in inside if remote.exists(os.path.join(folder, name, CONFIG_FILE))]
    advice = f'; {os.path.join(folder, nested[0])} is one' if nested else ''
    return f'{folder}: is not the model_dir of a run: it has no {CONFIG_FILE}{advice}.'


if __name__ == '__main__':
    sys.exit(main())
