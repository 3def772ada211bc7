"""Help and refusals of every command need neither TensorFlow nor other packages that take seconds to load."""

import json
import os
import re
import subprocess
import sys
from typing import List, Tuple

from inception_v3_tpu.__main__ import COMMANDS

# Importing these fails.
LARGE = ('tensorflow', 'numpy', 'scipy', 'matplotlib', 'plotly', 'jinja2', 'h5py', 'apache_beam', 'sklearn', 'PIL')
# Files that help texts name because an export contains them.
FILES_OF_EXPORTS = {'README.md,'}
HIDDEN = f'import sys; sys.modules.update(dict.fromkeys({LARGE!r})); '


# Arguments of the program, its exit code, and a part of its answer.
CASES: List[Tuple[List[str], int, str]] = [
    *(([name, '--help'], 0, 'exit codes:') for name in sorted(COMMANDS)),
    *(([name, '--no_such_flag=1'], 2, 'error: ') for name in sorted(COMMANDS)),
    (['train', '--learning_rate=0'], 2, '--learning_rate=0.0: must be above 0.'),
    (['plan', '--learning_rate=0'], 2, '--learning_rate=0.0: must be above 0.'),
    *(
        ([*command, place], 2, f'error: {place}: no such folder.')
        for command, place in (
            (['train', '--preset=own_images'], '--data_dir=/no/such'),
            (['plan', '--preset=own_images'], '--data_dir=/no/such'),
            (['evaluate'], '/no/such'),
            (['export', '--format=npz'], '/no/such'),
            (['predict', 'a.jpg'], '--model=/no/such'),
            (['provenance'], '/no/such'),
        )
    ),
    (['preflight', '--topology=v4-8'], 2, '--topology=v4-8: this program runs on v2 and v3 only'),
    (['weights', 'export', '--help'], 0, 'torchvision'),
    (['weights', 'import', 'a', 'b', '--class_0=no'], 2, "'keep', 'add', 'drop'"),
    (['features', 'a', '--model=b', '--batch_size=0'], 2, '--batch_size: 0: must be a whole number'),
    (['from-folder', '/no/such', 'out'], 2, 'error: /no/such: no such folder.'),
    (['fid', 'tests'], 2, 'pt_inception-2015-12-05-6726825d.pth'),
]
# Runs the command lines of each command in a process, forked from one that has loaded nothing else.
ANSWERS = """
import contextlib, io, itertools, json, os
from inception_v3_tpu.__main__ import main
for _, lines in itertools.groupby(json.loads(sys.argv[1]), lambda arguments: arguments[0]):
    child = os.fork()
    if not child:
        for arguments in lines:
            with io.StringIO() as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                try:
                    code = main(arguments)
                except SystemExit as stop:
                    code = stop.code
                answer = output.getvalue()
            print(json.dumps([code, answer]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, '-c', HIDDEN + code, *arguments]
    environment = {**os.environ, 'COLUMNS': '80'}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_commands__answer_at_once() -> None:
    cases = sorted(CASES, key=lambda case: case[0][0])
    answers = run(ANSWERS, json.dumps([arguments for arguments, _, _ in cases])).splitlines()
    assert len(answers) == len(cases)
    for (arguments, code, text), (found, answer) in zip(cases, map(json.loads, answers)):
        assert found == code and text in answer, (arguments, answer)
        if arguments[1:] == ['--help']:
            wide = [line for line in answer.splitlines() if len(line) > 80 and ' ' in line.strip()]
            # A user who installed the program by pip has none of the project's files.
            files = re.findall(r'\./run\b|docs/\S*|\S*README\S*|(?<!prepare)\.py\b|requirements\S*', answer)
            assert not wide and not {*files} - FILES_OF_EXPORTS, (arguments, wide, files)
