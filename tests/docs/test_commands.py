"""The commands in the documentation, and in the examples of --help, by their parts: modules, flags, values and paths.

They are not run: most need data, a TPU or minutes.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any, Dict, List, Sequence

import pytest

from inception_v3 import flags
from inception_v3_tpu import __main__ as program
from tests.docs.pages import PAGES, ROOT, Command, commands, read
from tests.support.shared import once

COMMANDS = [command for command in commands() if '…' not in command.line and '[' not in command.line]
# Arguments that stand for the user's own paths and names.
_PLACES = re.compile('my_|runs/|digits/|imagenet|cifar|gs://|https://|ILSVRC|(.*/)?[A-Z][A-Z_0-9]*($|[./])|model_dir')
# Prints the --help of programs as JSON, all in one process, because importing TensorFlow takes seconds.
_HELP = """
import contextlib, io, json, runpy, sys
from inception_v3_tpu.__main__ import COMMANDS
texts = {}
for words in [words.split() for words in sys.argv[1:]]:
    output, name = io.StringIO(), words[0]
    sys.argv = [f'inception-v3 {name}' if name in COMMANDS else name, *words[1:], '--help']
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        runpy.run_module(COMMANDS.get(name, name), run_name='__main__', alter_sys=False)
    texts[name] = texts.get(name, '') + output.getvalue()
print(json.dumps(texts))
"""


def words_of(command: Command) -> List[str]:
    """The words of a command line, without its comment and without the version of TensorFlow that it runs on."""
    return [word for word in shlex.split(command.line, comments=True) if not word.startswith('--tf=')]


def program_of(words: Sequence[str]) -> str:
    """The name of `./run inception-v3 NAME …`, or the module of `./run python -m MODULE …`; otherwise empty."""
    if words[:3] == ['./run', 'inception-v3', 'train']:
        return 'inception_v3.main'
    if words[:2] == ['./run', 'inception-v3']:
        return '' if words[2].startswith('-') else words[2]
    return words[3] if words[:3] == ['./run', 'python', '-m'] else ''


def arguments_of(words: Sequence[str]) -> Sequence[str]:
    """The arguments of such a program."""
    return words[3 if words[1:2] == ['inception-v3'] else 4 :]


# Commands that regenerate a file of the documentation, and take no argument.
_WITHOUT_HELP = {
    '',
    'docs.diagrams',
    'docs.flags_page',
    'docs.network_diagrams',
    'docs.picture',
    'docs.sample_picture',
}
PROGRAMS = sorted({program_of(words_of(command)) for command in COMMANDS} - _WITHOUT_HELP)
# Commands whose tasks have a --help of their own.
_TASKS = [f'weights {task}' for task in ('import', 'export', 'compare')]
# Commands that take all flags of a run besides their own.
TAKES_FLAGS_OF_A_RUN = {'inception_v3.main', 'preflight', 'balance', *(p for p in PROGRAMS if 'benchmark-' in p)}


@pytest.fixture(scope='module')
def help_texts(tmp_path_factory: Any) -> Dict[str, str]:
    """The --help of each program."""

    def make(folder: str) -> None:
        command = [sys.executable, '-c', _HELP, *PROGRAMS, *_TASKS]
        done = subprocess.run(command, cwd=str(ROOT), stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        pathlib.Path(folder, 'texts.json').write_text(done.stdout.splitlines()[-1])

    return json.loads(pathlib.Path(once(tmp_path_factory, 'help', make), 'texts.json').read_text())


@pytest.mark.parametrize('page', PAGES)
def test_page__names_commands_as_users_type_them(page: str) -> None:
    modules = {*program.COMMANDS.values()} - {'inception_v3.main'}
    names = modules | {module.rpartition('.')[2] for module in modules if '_' in module.rpartition('.')[2]}
    # `batch_norm` is also a shipped study, which is not the command `batch-norm`.
    assert not (names - {'batch_norm'}).intersection(re.findall(r'`([\w.]+)(?: [^`]*)?`', read(page)))


def test_commands__are_found_on_the_pages() -> None:
    assert len(COMMANDS) >= 80
    assert {'inception_v3.main', 'preflight', 'from-folder', 'sweep'} <= set(PROGRAMS)


@pytest.mark.program
@pytest.mark.parametrize('program', PROGRAMS)
def test_commands__every_program_has_a_help(program: str, help_texts: Dict[str, str]) -> None:
    assert (f'python -m {program}' if '.' in program else f'inception-v3 {program}') in help_texts[program]


def check_flags(words: Sequence[str], help_texts: Dict[str, str]) -> None:
    """Fails for a flag that a command's help does not list."""
    program = program_of(words)
    own, _, of_trials = ' '.join(arguments_of(words)).partition(' -- ')
    if program in help_texts:
        known = set(re.findall(r'^  (?:-h, )?(--\w+)', help_texts[program], re.MULTILINE))
        booleans = {flag.replace('--', '--no') for flag in known} if program in TAKES_FLAGS_OF_A_RUN else set()
        for word in own.split():
            if word.startswith('--'):
                assert word.partition('=')[0] in known | booleans | {'--help'}
    if of_trials:
        flags.parse(['trial', *of_trials.split()])


@pytest.mark.program
@pytest.mark.parametrize('command', COMMANDS, ids=str)
def test_commands__every_flag_is_one_of_the_command(command: Command, help_texts: Dict[str, str]) -> None:
    check_flags(words_of(command), help_texts)


@pytest.mark.program
def test_help__flags_of_its_examples_are_those_of_the_command(help_texts: Dict[str, str]) -> None:
    examples = re.findall(r'^    (inception-v3 .*)', '\n'.join(help_texts.values()), re.MULTILINE)
    assert len(examples) >= 10
    for example in examples:
        check_flags(words_of(Command('', f'./run {example}')), help_texts)


@pytest.mark.parametrize('command', [c for c in COMMANDS if program_of(words_of(c)) == 'inception_v3.main'], ids=str)
def test_commands__the_program_accepts_its_flags_and_their_values(command: Command) -> None:
    arguments = [word.replace('NODE', 'node') for word in arguments_of(words_of(command))]
    flags.parse(['main', *arguments], tf_config='')


@pytest.mark.parametrize('command', COMMANDS, ids=str)
def test_commands__every_path_exists(command: Command) -> None:
    for word in words_of(command):
        path = word.partition('=')[2] or word
        if '/' in path and not word.startswith('BUCKET') and not _PLACES.match(path):
            assert (ROOT / path.partition('::')[0]).exists(), path
