"""Completion of commands, flags and values in bash and zsh."""

import os
import shlex
import shutil
import subprocess
import sys
from typing import Any, List

import pytest

from inception_v3_tpu import completion
from inception_v3_tpu.commands import COMMANDS
from inception_v3_tpu.completion import Words

pytestmark = pytest.mark.program


@pytest.fixture(scope='module')
def scripts(tmp_path_factory: Any) -> Any:
    """A folder with a script for each shell, from a process: it runs the help of every command."""
    folder = tmp_path_factory.mktemp('completion')
    for shell in completion.SHELLS:
        with open(folder / shell, 'w') as file:
            subprocess.run([sys.executable, '-m', 'inception_v3_tpu', 'completion', shell], stdout=file, check=True)
    return folder


def completed(scripts: Any, *words: str) -> List[str]:
    """The completions of the last of the words, as bash divides them, which begin with the command's name."""
    script = f"""
source {scripts}/bash
complete -p inception-v3 >/dev/null || exit 1
COMP_WORDS=({' '.join(shlex.quote(word) for word in words)})
COMP_CWORD={len(words) - 1}
_inception_v3 inception-v3
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(['bash', '--norc', '-c', script], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def test_bash__completes_commands(scripts: Any) -> None:
    assert {*completed(scripts, 'inception-v3', '')} == {*COMMANDS, 'completion', '--help', '--version'}
    assert completed(scripts, 'inception-v3', 'pre') == ['predict', 'preflight']
    assert completed(scripts, 'inception-v3', 'completion', '') == ['bash', 'zsh']


def test_bash__completes_the_flags_of_each_command(scripts: Any) -> None:
    assert completed(scripts, 'inception-v3', 'train', '--train_') == [
        *('--train_batch_size=', '--train_files=', '--train_steps=', '--train_steps_per_eval=', '--train_epochs=')
    ]
    assert {'--help', '--model=', '--json', '--html='} <= {*completed(scripts, 'inception-v3', 'predict', '--')}
    assert '--class_names=' not in completed(scripts, 'inception-v3', 'predict', '--')
    assert completed(scripts, 'inception-v3', 'from_folder', '--data') == []
    for name in COMMANDS:
        assert {'--help', '--help='} & {*completed(scripts, 'inception-v3', name, '--h')} or name in (
            *('train', 'preflight', 'plan', 'balance'),
            *(command for command in COMMANDS if command.startswith('benchmark')),
        )


@pytest.mark.parametrize('words', [['--network', '='], ['--network', '=', 're'], ['--network=re']])
def test_bash__completes_the_values_of_flags(scripts: Any, words: List[str]) -> None:
    found = completed(scripts, 'inception-v3', 'train', *words)
    given = '--network=' if words == ['--network=re'] else ''
    expected = ['resnet50', 'revnet38', 'revnet110', 'revnet56', 'revnet104']
    assert found == [
        *([] if words[-1] != '=' else ['inception_v3', 'inception_2015']),
        *(given + name for name in expected),
    ]


def test_bash__leaves_paths_to_the_shell(scripts: Any) -> None:
    assert completed(scripts, 'inception-v3', 'train', '--data_dir', '=', 're') == []
    assert completed(scripts, 'inception-v3', 'predict', 'x') == []
    assert completed(scripts, 'inception-v3', 'tar-shards', '') == ['write', 'list', '--help', '--max_bad_records=']


def test_zsh__completes_commands_flags_and_values(scripts: Any, tmp_path: Any) -> None:
    if not shutil.which('zsh'):
        message = 'zsh not on PATH (Debian: apt-get install zsh)'
        if os.environ.get('CI') == 'true':
            pytest.fail(message)
        pytest.skip(message)
    # Stand-ins for the functions of zsh's completion system print what they are called with.
    script = f"""
compdef() {{ print compdef "$@"; }}
compadd() {{ [[ $1 == -a ]] && print -l -- ${{(P)2}} || print -l -- "$@"; }}
_describe() {{ print -l -- ${{(P)2}}; }}
_files() {{ print files; }}
compset() {{ PREFIX=${{PREFIX#*=}}; }}
source {scripts}/zsh
complete() {{ words=(inception-v3 "$@"); CURRENT=$#words; PREFIX=$words[-1]; print "== $*"; _inception_v3; }}
complete pre; complete train --net; complete train --network=re; complete train --data_dir=re; complete predict x
complete tar_shards ''
"""
    done = subprocess.run(['zsh', '-fc', script], stdout=subprocess.PIPE, text=True, check=True)
    start, commands, flags, values, path, image, shards = done.stdout.split('== ')
    assert start == 'compdef _inception_v3 inception-v3\n'
    assert f'train:{COMMANDS["train"].summary}' in commands.splitlines()
    assert len(commands.splitlines()) == len(COMMANDS) + 2
    assert '--network=' in flags.splitlines() and '--model=' not in flags.splitlines()
    assert 'resnet50' in values.splitlines()
    assert (path.splitlines()[1:], image.splitlines()[1:]) == (['files'], ['files'])
    assert shards.splitlines()[1:] == ['write', 'list']


def test_words__of_a_help_text(monkeypatch: Any) -> None:
    text = (
        'usage: x [--not]\n\n  -h, --help   show --more\n  --format {a,b}  text\n  --out DIR\n  --n N\n  --json  print'
    )
    monkeypatch.setattr(completion, '_help_of', lambda name, *arguments: text)
    assert completion.words_of('x') == Words(
        ('--help', '--format=', '--out=', '--n=', '--json'), {'--format': ('a', 'b')}, ()
    )
