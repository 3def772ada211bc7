"""A small sweep in a separate process."""

import pathlib
import subprocess
import sys
from typing import Any, Tuple

PROGRAM = ('python', '-m', 'tests.support.one_layer_program')

FLAGS = {'train_steps': 6, 'train_steps_per_eval': 6, 'train_batch_size': 8, 'eval_total_size': 128}


def study_file(folder: pathlib.Path, axes: str = '', seeds: int = 1, **flags: Any) -> str:
    """Writes a study of short runs, whose axes are Python; returns its path."""
    path = folder / 'rates.py'
    of_study = f"preset='digits', question='Which?', seeds={seeds}, axes=[{axes}], flags={ ({**FLAGS, **flags})!r}"
    path.write_text(f'from studies.study import *\nSTUDY = Study({of_study})\n')
    return str(path)


class WholeSweep:
    """A sweep in a separate process."""

    _MAIN = f'import sys; from studies.sweep import __main__ as sweep; sys.exit(sweep.main(sys.argv, {PROGRAM!r}))'

    def __init__(self, *arguments: str):
        self.process = subprocess.Popen(
            [sys.executable, '-c', self._MAIN, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self) -> Tuple[int, str]:
        """Waits for the end; returns the exit code and the text written to stdout and stderr."""
        output, errors = self.process.communicate(timeout=300)
        assert 'Traceback' not in errors
        return self.process.returncode, output + errors
