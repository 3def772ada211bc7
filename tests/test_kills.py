"""Test that a run killed many times resumes, and ends with the same bits as an uninterrupted run."""

import multiprocessing
import os
import pathlib
import random
import re
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Set

import pytest

from compat import tf
from inception_v3.model_dir import check_undamaged
from inception_v3.run.evaluations import read_evaluations
from tests.support import one_layer_program
from tests.support.checkpoints import saved_variables

KILLS = int(os.environ.get('KILLS', 3))
# Seconds: the longest time from the first line of the log to a kill, and the limit for a process that is not killed.
LATEST_KILL, TIMEOUT = 4.0, 240.0
STEPS, STEPS_PER_CYCLE = 60, 30
# Starts processes by forking a process that has loaded TensorFlow but has not used it.
FORKING = multiprocessing.get_context('forkserver')
FORKING.set_forkserver_preload(['tests.support.one_layer_program'])


def _program(log: str, arguments: List[str]) -> None:
    with open(log, 'w') as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.exit(one_layer_program.run(['main', *arguments]))


class Folder:
    """The folder of a run, and the processes that run in it."""

    def __init__(self, folder: pathlib.Path, data_dir: str):
        folder.mkdir()
        self.model_dir, self.export_dir, self._log = folder / 'model', folder / 'export', folder / 'log'
        self._arguments = ['--preset=digits', f'--data_dir={data_dir}', '--seed=5', '--intra_op_threads=1']
        self._arguments += [f'--model_dir={self.model_dir}', f'--export_dir={self.export_dir}', '--eval_total_size=128']
        self._arguments += [f'--train_steps={STEPS}', f'--train_steps_per_eval={STEPS_PER_CYCLE}']
        self._arguments += ['--save_checkpoints_secs=1', '--train_batch_size=8']

    def run(self, seconds: Optional[float] = None, until: Optional[str] = None) -> Optional[int]:
        """Starts the program, and kills it after seconds, counted from a new file whose name matches `until`.

        Returns its exit code, or None if it was killed.
        """
        newest, before = self.newest(), self._names()
        self._log.write_text('')
        program = FORKING.Process(target=_program, args=(str(self._log), self._arguments))
        program.start()
        end = time.monotonic() + TIMEOUT
        while program.is_alive() and time.monotonic() < end:
            # Before its first line, a program leaves nothing to resume.
            if any(re.match(until, name) for name in self._names() - before) if until else self.log():
                break
            time.sleep(0.001)
        program.join(TIMEOUT if seconds is None else seconds)
        assert seconds is not None or not program.is_alive(), 'the program hangs'
        program.kill()
        program.join()
        # If the program resumed before the kill, it used the newest listed checkpoint.
        resumed = re.search(r'resuming from \S+/model\.ckpt-(\d+)', self.log())
        if resumed and newest >= 0:
            assert int(resumed.group(1)) == newest
        return None if program.exitcode == -signal.SIGKILL else program.exitcode

    def _names(self) -> Set[str]:
        folders = [folder for folder in (self.model_dir, self.export_dir) if folder.exists()]
        return {name for folder in folders for name in os.listdir(str(folder))}

    def log(self) -> str:
        return self._log.read_text()

    def newest(self) -> int:
        """The step of the newest listed checkpoint, which must be undamaged; -1 without one."""
        checkpoint = tf.train.latest_checkpoint(str(self.model_dir))
        if not checkpoint:
            assert not (self.model_dir / 'checkpoint').exists()
            return -1
        check_undamaged(checkpoint)
        return int(checkpoint.rpartition('-')[2])

    def values(self) -> Dict[str, bytes]:
        variables = saved_variables(str(self.model_dir / f'model.ckpt-{STEPS}'))
        return {name: value.tobytes() for name, value in variables.items()}

    def evaluations(self) -> Dict[int, Any]:
        return {e.step: (e.top_1, e.top_5, e.cross_entropy) for e in read_evaluations(str(self.model_dir))}

    def left(self) -> List[str]:
        """The names of the files in the folders, except for summaries and listed checkpoints."""
        names = [*os.listdir(str(self.model_dir)), *os.listdir(str(self.export_dir))]
        kept = {f'model.ckpt-{e.rpartition("-")[2]}' for e in self._listed()}
        return sorted(n for n in names if not n.startswith('events.') and '.'.join(n.split('.')[:2]) not in kept)

    def _listed(self) -> List[str]:
        return list(tf.train.get_checkpoint_state(str(self.model_dir)).all_model_checkpoint_paths)


@pytest.mark.slow
def test_kills__do_not_change_the_result(digits_dir: str, tmp_path: pathlib.Path) -> None:
    """Kills and restarts each run until it ends, and compares it with an uninterrupted run."""
    uninterrupted = Folder(tmp_path / 'uninterrupted', digits_dir)
    assert uninterrupted.run() == 0, uninterrupted.log()
    draw = random.Random(1)
    killed: List[str] = []
    ended = 0
    folder = Folder(tmp_path / '0', digits_dir)
    while len(killed) < KILLS or folder.newest() >= 0 or not ended:
        instant = draw.choice(['any', 'any', 'any', 'saving', 'saving', 'exporting'])
        before = folder.newest()
        if len(killed) >= KILLS:
            code = folder.run()
        elif instant == 'any':
            code = folder.run(draw.uniform(0, LATEST_KILL))
        else:
            until = {'saving': r'model\.ckpt-', 'exporting': r'\.unfinished-'}[instant]
            code = folder.run(draw.uniform(0, 0.2), until)
        assert folder.newest() >= before
        if code is None:
            killed.append(instant)
            continue
        assert code == 0, folder.log()
        assert folder.values() == uninterrupted.values()
        assert folder.evaluations() == uninterrupted.evaluations()
        names = folder.left()
        (export,) = [name for name in names if name.isdigit()][-1:]
        assert tf.io.gfile.exists(str(folder.export_dir / export / 'saved_model.pb'))
        assert [name for name in names if not name.isdigit()] == [
            name for name in uninterrupted.left() if not name.isdigit()
        ]
        ended += 1
        folder = Folder(tmp_path / str(ended), digits_dir)
    print(
        f'{len(killed)} kills, {killed.count("saving")} of them during the save of a checkpoint; {ended} runs finished'
    )
