"""The commands in the documentation work: the cheap ones are run, the others are checked without being run.

A command that needs a TPU, a data set or minutes is checked by its parts: modules, flags, values and paths.
"""

import json
import re
import shlex
import subprocess
import sys
from typing import Dict, List, Sequence

import pytest

from inception_v3 import flags
from tests.docs.pages import ROOT, Command, commands

COMMANDS = [command for command in commands() if '…' not in command.line and '[' not in command.line]
# Arguments that stand for something of the user's.
_PLACES = re.compile('my_|runs/|digits/|imagenet|cifar|gs://|ILSVRC|(.*/)?[A-Z][A-Z_0-9]*($|[./])|model_dir')
# Prints the --help of modules as JSON. One process for all, because importing TensorFlow takes seconds.
_HELP = """
import contextlib, io, json, runpy, sys
texts = {}
for words in [words.split() for words in sys.argv[1:]]:
    output, sys.argv = io.StringIO(), [*words, '--help']
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        runpy.run_module(words[0], run_name='__main__', alter_sys=True)
    texts[words[0]] = texts.get(words[0], '') + output.getvalue()
print(json.dumps(texts))
"""


def words_of(command: Command) -> List[str]:
    """The words of a command line, without its comment and without the version of TensorFlow that it runs on."""
    return [word for word in shlex.split(command.line, comments=True) if not word.startswith('--tf=')]


def module_of(words: Sequence[str]) -> str:
    """The module of `./run python -m MODULE …`; empty for another command."""
    return words[3] if words[:3] == ['./run', 'python', '-m'] else ''


# Commands that make a file of the documentation again, and take no argument.
_WITHOUT_HELP = {'', 'docs.flags_page', 'docs.network_diagrams', 'docs.sample_picture', 'docs.weights_table'}
MODULES = sorted({module_of(words_of(command)) for command in COMMANDS} - _WITHOUT_HELP)
# Commands with a --help of their own for each task.
_TASKS = [f'inception_v3.weights {task}' for task in ('import', 'export', 'compare')]
# Commands that take all flags of a run beside their own.
TAKES_FLAGS_OF_A_RUN = {'inception_v3.main', 'inception_v3.preflight', *(m for m in MODULES if 'benchmarks.' in m)}


@pytest.fixture(scope='module')
def help_texts() -> Dict[str, str]:
    """The --help of each module."""
    command = [sys.executable, '-c', _HELP, *MODULES, *_TASKS]
    done = subprocess.run(command, cwd=str(ROOT), stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_commands__are_found_on_the_pages() -> None:
    assert len(COMMANDS) >= 80
    assert {'inception_v3.main', 'inception_v3.preflight', 'data.from_folder', 'studies.sweep'} <= set(MODULES)


@pytest.mark.program
@pytest.mark.parametrize('module', MODULES)
def test_commands__every_module_has_a_help(module: str, help_texts: Dict[str, str]) -> None:
    assert f'python -m {module}' in help_texts[module]


@pytest.mark.program
@pytest.mark.parametrize('command', COMMANDS, ids=str)
def test_commands__every_flag_is_one_of_the_command(command: Command, help_texts: Dict[str, str]) -> None:
    words = words_of(command)
    module = module_of(words)
    own, _, of_trials = ' '.join(words[4:]).partition(' -- ')
    if module in help_texts:
        known = set(re.findall(r'--\w+', help_texts[module]))
        booleans = {flag.replace('--', '--no') for flag in known} if module in TAKES_FLAGS_OF_A_RUN else set()
        for word in own.split():
            if word.startswith('--'):
                assert word.partition('=')[0] in known | booleans | {'--help'}
    if of_trials:
        flags.parse(['trial', *of_trials.split()])


@pytest.mark.parametrize('command', [c for c in COMMANDS if module_of(words_of(c)) == 'inception_v3.main'], ids=str)
def test_commands__the_program_accepts_its_flags_and_their_values(command: Command) -> None:
    arguments = [word.replace('NODE', 'node') for word in words_of(command)[4:]]
    flags.parse(['main', *arguments])


@pytest.mark.parametrize('command', COMMANDS, ids=str)
def test_commands__every_path_exists(command: Command) -> None:
    for word in words_of(command):
        path = word.partition('=')[2] or word
        if '/' in path and not word.startswith('BUCKET') and not _PLACES.match(path):
            assert (ROOT / path.partition('::')[0]).exists(), path


@pytest.mark.parametrize('command', [c for c in COMMANDS if words_of(c)[:2] == ['./run', 'pytest']], ids=str)
def test_commands__pytest_is_given_what_it_knows(command: Command) -> None:
    words = words_of(command)[2:]
    options = [word for word in words if word.startswith('-')]
    assert {option.partition('=')[0] for option in options} <= {'-m', '-n', '-s', '-k', '--max-cpu'}


@pytest.mark.program
@pytest.mark.parametrize('command', [c for c in COMMANDS if 'run_tpu.sh' in c.line and 'dry_run' in c.line], ids=str)
def test_commands__run_tpu_prints_its_commands(command: Command) -> None:
    line = f'PROJECT=my-project ZONE=us-central1-b {command.line}'
    done = subprocess.run(line, shell=True, cwd=str(ROOT), stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 0
    assert 'gcloud compute tpus tpu-vm create' in done.stdout


@pytest.mark.program
@pytest.mark.parametrize('command', [c for c in COMMANDS if '--list' in words_of(c)], ids=str)
def test_commands__a_sweep_lists_its_trials(command: Command) -> None:
    done = subprocess.run(
        [sys.executable, *words_of(command)[2:]],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0
    assert 'python -m inception_v3.main' in done.stdout
