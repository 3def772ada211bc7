"""Small sweeps, in this process or in a separate one."""

import pathlib
import subprocess
import sys
from typing import Any

PROGRAM = ('python', '-m', 'tests.support.one_layer_program')

FLAGS = {'train_steps': 6, 'train_steps_per_eval': 6, 'train_batch_size': 8, 'eval_total_size': 128}


def study_file(folder: pathlib.Path, axes: str = '', seeds: int = 1, **flags: Any) -> str:
    """Writes a study of short runs, with axes in Python; returns its path."""
    path = folder / 'rates.py'
    of_study = f"preset='digits', question='Which?', seeds={seeds}, axes=[{axes}], flags={ ({**FLAGS, **flags})!r}"
    path.write_text(f'from tools.studies.study import *\nSTUDY = Study({of_study})\n')
    return str(path)


def whole_sweep(*arguments: str) -> 'subprocess.Popen[str]':
    """Starts a sweep in a separate process, with standard error in its standard output."""
    main = f'import sys; from tools.studies.sweep import __main__ as sweep; sys.exit(sweep.main(sys.argv, {PROGRAM!r}))'
    command = [sys.executable, '-c', main, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
