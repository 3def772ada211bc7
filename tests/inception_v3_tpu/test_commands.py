"""The program `inception-v3`: its commands and messages."""

import ast
import importlib
import pathlib
import subprocess
import sys
from typing import Any, Set

import pytest

from compat.errors import DONE
from console import program as console_program
from inception_v3 import __version__
from inception_v3_tpu.__main__ import COMMANDS, GROUPS, main
from tests.support.project import PACKAGES, ROOT
from tools.benchmarks.peers.__main__ import LIBRARIES

# Modules that other modules start as processes, and the examples, which are not installed.
INTERNAL = {
    'tools.benchmarks.pipelines',
    'tools.benchmarks.steps',
    'tools.datasets.imagenet.beam',
    'examples.eager_revnet',
    'examples.guide',
    'tools.provenance.verification',
    'inception_v3_tpu',
    'tools.studies.revnet_memory.training',
    'tools.studies.streaming.pipelines',
    *(f'tools.benchmarks.peers.{library}' for library in LIBRARIES),
}


def runnable_modules() -> Set[str]:
    """The modules of all packages that `python -m` runs."""
    found = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob('*.py')):
        tests = [node.test for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
        if any(isinstance(test, ast.Compare) and getattr(test.left, 'id', '') == '__name__' for test in tests):
            found.add('.'.join(path.relative_to(ROOT).with_suffix('').parts).replace('.__main__', ''))
    return found


def test_commands__are_all_modules_that_a_user_runs() -> None:
    assert {*COMMANDS.values()} == runnable_modules() - INTERNAL


def test_help__lists_every_command_on_a_line(capsys: Any) -> None:
    assert main(['--help']) == 0
    lines = capsys.readouterr().out.splitlines()
    summaries = {name: summary for group in GROUPS.values() for name, (_, summary) in group.items()}
    assert len({*summaries.values()}) == len(COMMANDS)
    width = max(map(len, COMMANDS))
    for name, summary in summaries.items():
        assert [line for line in lines if line.split()[:1] == [name]] == [f'  {name:<{width}}  {summary}']
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize('name', ['evaluate', 'export', 'predict'])
def test_help__has_examples_that_parse(name: str, monkeypatch: Any, capsys: Any) -> None:
    module = importlib.import_module(f'{COMMANDS[name]}.__main__')
    examples = [line for line in str(module.__doc__).splitlines() if line.startswith(f'    inception-v3 {name} ')]
    assert len(examples) >= 3
    monkeypatch.setattr(console_program, 'run', lambda *unused, **options: DONE)
    for example in examples:
        assert module.main(example.split()[2:]) == DONE
    with pytest.raises(SystemExit):
        module.main(['--help'])
    assert {*examples} <= {*capsys.readouterr().out.splitlines()}


def test_help__indents_lines_of_columns() -> None:
    for module in COMMANDS.values():
        path = ROOT.joinpath(*module.split('.'))
        path = path / '__main__.py' if path.is_dir() else path.with_suffix('.py')
        lines = str(ast.get_docstring(ast.parse(path.read_text()))).splitlines()
        # Lines that are not indented are filled as a paragraph.
        assert [line for line in lines if '   ' in line.strip() and not line.startswith('  ')] == []


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        ([], 'error: name a command. inception-v3 --help'),
        (['xyz\n'], r'xyz\n: no such command. inception-v3 --help'),
        (['evalaute', 'run'], 'evalaute: no such command. Did you mean evaluate? inception-v3 --help'),
    ],
)
def test_wrong_command__has_one_message_and_exit_code_2(capsys: Any, arguments: Any, words: str) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and words in err


def test_command__names_itself_as_it_was_called(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, 'argv', ['inception-v3', 'from-folder', '--help'])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith('usage: inception-v3 from-folder [-h]')


def test_version__is_that_of_the_package(capsys: Any) -> None:
    assert main(['--version']) == 0
    assert capsys.readouterr().out == f'inception-v3 {__version__}\n'


@pytest.mark.parametrize('module', ['inception_v3.main', 'inception_v3_tpu'])
def test_python_m__works_beside_files_with_the_names_of_modules(tmp_path: pathlib.Path, module: str) -> None:
    for name in ('console', 'data', 'preprocessing', 'tools', 'tests', 'numpy', 'html'):
        (tmp_path / f'{name}.py').write_text('raise SystemExit("a file of the user")')
    environment = {'PATH': '/usr/bin:/bin', 'PYTHONPATH': str(ROOT)}
    command = [sys.executable, '-m', module, '--help']
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert 'exit codes:' in done.stdout
