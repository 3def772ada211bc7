"""Test that memory, open files and threads of a long run do not grow."""

import os
import pathlib
import subprocess
import sys
import time
from typing import Dict, List, NamedTuple

import pytest

CYCLES = 25
STEPS_PER_CYCLE = int(os.environ.get('STEPS', 250)) // CYCLES
STEPS = CYCLES * STEPS_PER_CYCLE
# The number of cycles until TensorFlow's memory is fully allocated. As many cycles after them are compared with the
# last cycles.
WARMUP_CYCLES = 8
# The allowed growth of the numbers of files and threads. Each cycle counts with its minimum, which occurs between two
# sessions. A leak of one per cycle would add eight or more.
TOLERANCE = 3
MIB = 1 << 20


class Sample(NamedTuple):
    """The resident memory of a process in bytes, and the numbers of its open files and threads."""

    memory: int
    files: int
    threads: int


def sample(process: int) -> Sample:
    folder = f'/proc/{process}'
    pages = int(pathlib.Path(folder, 'statm').read_text().split()[1])
    return Sample(
        pages * os.sysconf('SC_PAGE_SIZE'), len(os.listdir(f'{folder}/fd')), len(os.listdir(f'{folder}/task'))
    )


def lines_in(path: pathlib.Path) -> int:
    return path.read_text().count('\n') if path.exists() else 0


@pytest.mark.slow
def test_memory_files_and_threads__do_not_grow_over_25_cycles(digits_dir: str, tmp_path: pathlib.Path) -> None:
    model_dir = tmp_path / 'model'
    command = [sys.executable, '-m', 'tests.support.one_layer_program', '--preset=digits', f'--data_dir={digits_dir}']
    command += [f'--model_dir={model_dir}', f'--train_steps={STEPS}', f'--train_steps_per_eval={STEPS_PER_CYCLE}']
    command += ['--export_dir=', '--train_batch_size=8', '--seed=1', '--keep_best', '--eval_total_size=128']
    cycles: Dict[int, List[Sample]] = {}
    with open(str(tmp_path / 'log'), 'w') as log:
        program = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 900
            while program.poll() is None and time.monotonic() < deadline:
                cycles.setdefault(lines_in(model_dir / 'results.jsonl'), []).append(sample(program.pid))
                time.sleep(0.1)
        finally:
            program.kill()
            program.wait()
    assert program.returncode == 0, (tmp_path / 'log').read_text()
    cycle_by_cycle = [
        Sample(max(s.memory for s in of_cycle), min(s.files for s in of_cycle), min(s.threads for s in of_cycle))
        for cycle, of_cycle in sorted(cycles.items())
        if cycle < CYCLES
    ]
    assert len(cycle_by_cycle) == CYCLES
    for number, each in enumerate(cycle_by_cycle):
        print(f'cycle {number}: {each.memory / MIB:.0f} MiB, {each.files} files, {each.threads} threads')
    before, after = cycle_by_cycle[WARMUP_CYCLES : 2 * WARMUP_CYCLES], cycle_by_cycle[-WARMUP_CYCLES:]
    assert max(each.files for each in after) <= max(each.files for each in before) + TOLERANCE
    assert max(each.threads for each in after) <= max(each.threads for each in before) + TOLERANCE
    # Memory grows in steps of several MiB: the test detects only leaks of at least 3 MiB per cycle.
    growth = max(each.memory for each in after) - max(each.memory for each in before)
    assert growth < 3 * MIB * (len(cycle_by_cycle) - 2 * WARMUP_CYCLES), f'{growth / MIB:.1f} MiB'
