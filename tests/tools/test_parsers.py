"""The parsers of command lines, with and without subcommands."""

from typing import Any, List

import pytest

from compat.errors import EXIT_CODES
from tools.parsers import folder, new_parser, number_of, numbers_of


def parsed(*argv: str) -> Any:
    parser = new_parser('example', 'Makes an example.\n\nIt has two paragraphs.')
    parser.add_argument('--images', type=number_of(int, 1, 2**32), default=3)
    parser.add_argument('--sizes', type=numbers_of(float, 0.5))
    parser.add_argument('--out', type=folder)
    commands = parser.add_subparsers(dest='command')
    commands.add_parser('write').add_argument('--max_bad', type=int)
    return parser.parse_args(argv)


def test_command_line__arguments_have_their_types() -> None:
    found = parsed('--images=9', '--sizes=2,0.5,2', '--out=a', 'write', '--max_bad=4')
    assert (found.images, found.sizes, found.out, found.command, found.max_bad) == (9, [0.5, 2.0], 'a', 'write', 4)


@pytest.mark.parametrize('command', [[], ['write']])
def test_help__ends_with_the_exit_codes(command: List[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(*command, '--help')
    out = capsys.readouterr().out
    assert end.value.code == 0 and out.endswith(f'\n{EXIT_CODES}\n')
    assert out.startswith(f'usage: inception-v3 example {" ".join(command)}'.rstrip())
    assert command or '\nMakes an example.\n\nIt has two paragraphs.\n' in out


def test_help__lines_do_not_break_inside_names(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv('COLUMNS', '80')
    names = ','.join(f'format_{n}' for n in range(9)), 'TF-Slim', 'a-b'
    parser = new_parser('example', ' '.join(names))
    parser.add_argument('--format', help=f'one or several  of {names[0]}; the word that comes at the very end TF-Slim')
    with pytest.raises(SystemExit):
        parser.parse_args(['--help'])
    words = capsys.readouterr().out.split()
    assert words.count(names[0]) == 1 and words.count(f'{names[0]};') == 1
    assert words.count('TF-Slim') == 2


@pytest.mark.parametrize(
    ('argv', 'message'),
    [
        (['--image=3'], 'unrecognized arguments: --image=3'),
        (['write', '--max=3'], 'unrecognized arguments: --max=3'),
        (['--images=0'], 'argument --images: 0: must be a whole number, from 1 to 4294967296'),
        (['--images=x'], 'argument --images: x: must be a whole number, from 1 to 4294967296'),
        (['--sizes=1,inf'], 'argument --sizes: inf: must be a number, at least 0.5'),
        (['--out='], 'argument --out: must be the path of a folder'),
    ],
)
def test_command_line__refuses_wrong_arguments_by_name(argv: List[str], message: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(*argv)
    assert end.value.code == 2 and message in capsys.readouterr().err


def test_escape_sequences_of_the_user__do_not_reach_the_terminal(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        new_parser('x', '').parse_args(['--\x1b[31mred'])
    assert capsys.readouterr().err.endswith('unrecognized arguments: --\\x1b[31mred\n')
