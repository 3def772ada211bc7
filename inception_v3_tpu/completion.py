"""Scripts that complete the commands of `inception-v3`, their flags and the values of flags in a shell.

Flags are those that each command's `--help` lists.
"""

import contextlib
import dataclasses
import io
import re
from typing import Dict, List, NamedTuple, Tuple

from inception_v3_tpu import commands
from inception_v3_tpu.commands import COMMANDS, PROGRAM

HELP = f"""usage: {PROGRAM} completion bash|zsh

Prints a script that completes commands, flags and values. To install it:

  mkdir -p ~/.local/share/bash-completion/completions
  {PROGRAM} completion bash > ~/.local/share/bash-completion/completions/{PROGRAM}

  {PROGRAM} completion zsh > ~/.zfunc/_{PROGRAM}     with fpath+=~/.zfunc before compinit in ~/.zshrc"""

# A line of a flag in the help of argparse or of absl; its value; its choices.
_FLAG = re.compile(r'^  (?:-\w, )?(--[\w-]+)(=| \S+)?', re.MULTILINE)
# The line of a command's own commands in the help of argparse.
_COMMANDS_OF_COMMAND = re.compile(r'^  \{([\w,-]+)\}', re.MULTILINE)
_CHOICES = re.compile(r'^ \{(.*)\}$')


class Words(NamedTuple):
    """The words that complete a command.

    Attributes:
      flags: the flags; one that takes a value ends with `=`.
      values: the allowed values of flags, by flag without `=`.
      first: the words that may be the first argument; else it is a path.
    """

    flags: Tuple[str, ...]
    values: Dict[str, Tuple[str, ...]]
    first: Tuple[str, ...]


def words_of(name: str) -> Words:
    """The words of a command."""
    text = _help_of(name)
    found = _COMMANDS_OF_COMMAND.search(text)
    first = tuple(found.group(1).split(',')) if found else ()
    text = '\n'.join([text, *(_help_of(name, word) for word in first)])
    flags: Dict[str, None] = {}
    values: Dict[str, Tuple[str, ...]] = {}
    for flag, value in _FLAG.findall(text):
        flags[f'{flag}=' if value else flag] = None
        choices = _CHOICES.match(value)
        if choices:
            values[flag] = tuple(choices.group(1).split(','))
        elif value == '=':
            values.update({flag: _settings()[flag]} if flag in _settings() else {})
    return Words(tuple(flags), values, first)


def _help_of(name: str, *arguments: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        commands.run(name, [*arguments, '--help'])
    return printed.getvalue()


def _settings() -> Dict[str, Tuple[str, ...]]:
    """The values of the flags of a run that have few."""
    # Loading TensorFlow takes seconds; other commands of this program do not need it.
    from inception_v3.config import Config
    from inception_v3.settings.presets import PRESETS
    from inception_v3.settings.setting import setting_of

    values = {'--preset': tuple(PRESETS)}
    for field in dataclasses.fields(Config):
        choices = setting_of(field).choices or (('True', 'False') if isinstance(field.default, bool) else ())
        if choices:
            values[f'--{field.name}'] = tuple(choices)
    return values


def _bash(words: Dict[str, Words]) -> str:
    def case(pattern: str, variable: str, found: Tuple[str, ...]) -> str:
        return f"    {pattern}) {variable}='{' '.join(found)}' ;;"

    flags = [case(name, 'words', (*of.first, *of.flags)) for name, of in words.items()]
    values = [case(f"'{name} {flag}'", 'values', of) for name, all in words.items() for flag, of in all.values.items()]
    return _BASH % {'commands': ' '.join([*words, 'completion']), 'flags': _lines(flags), 'values': _lines(values)}


_BASH = """# Completes inception-v3 in bash. Made by: inception-v3 completion bash
_inception_v3() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]//_/-}
  local flag='' given='' words='' values=''
  COMPREPLY=()
  if [[ $COMP_CWORD == 1 ]]; then
    COMPREPLY=($(compgen -W '%(commands)s --help --version' -- "$current"))
    return
  fi
  # Bash usually divides words at "=".
  if [[ $current == '=' ]]; then
    flag=$before current=''
  elif [[ $before == '=' ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $current == --*=* ]]; then
    flag=${current%%%%=*} given=$flag= current=${current#*=}
  fi
  if [[ $flag ]]; then
    case "$command $flag" in
%(values)s
    esac
    COMPREPLY=($(compgen -P "$given" -W "$values" -- "$current"))
    return
  fi
  case "$command" in
    completion) words='bash zsh' ;;
%(flags)s
  esac
  if [[ $COMP_CWORD == 2 || $current == -* ]]; then
    [[ $current == -* || $words != -* ]] && COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null
  fi
  return 0
}
complete -o default -F _inception_v3 inception-v3
"""


def _zsh(words: Dict[str, Words]) -> str:
    def array(pattern: str, variable: str, found: Tuple[str, ...]) -> str:
        return f'    ({pattern}) {variable}=({" ".join(_quoted(word) for word in found)}) ;;'

    flags = [array(name, 'flags', of.flags) for name, of in words.items()]
    firsts = [array(name, 'first', of.first) for name, of in words.items() if of.first]
    values = [array(f"'{name} {flag}'", 'values', of) for name, all in words.items() for flag, of in all.values.items()]
    summaries = {**{name: COMMANDS[name].summary for name in words}, 'completion': 'print a script like this one'}
    described = [f'    {_quoted(f"{name}:{summary}")}' for name, summary in summaries.items()]
    parts = {'commands': described, 'flags': flags, 'firsts': firsts, 'values': values}
    return _ZSH % {name: _lines(lines) for name, lines in parts.items()}


_ZSH = """#compdef inception-v3
# Completes inception-v3 in zsh. Made by: inception-v3 completion zsh
_inception_v3() {
  local -a commands flags first values
  local command=${words[2]//_/-}
  commands=(
%(commands)s
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  if [[ $PREFIX == --*=* ]]; then
    case "$command ${PREFIX%%%%=*}" in
%(values)s
    esac
    compset -P '*='
    if (( $#values )); then compadd -a values; else _files; fi
    return
  fi
  case "$command" in
    (completion) first=(bash zsh) ;;
%(firsts)s
  esac
  case "$command" in
%(flags)s
  esac
  if [[ $PREFIX == -* ]]; then
    compadd -S '' -- ${(M)flags:#*=}
    compadd -- ${flags:#*=}
  elif (( CURRENT == 3 && $#first )); then
    compadd -a first
  else
    _files
  fi
}
if [[ $funcstack[1] == _inception-v3 ]]; then
  _inception_v3 "$@"
else
  compdef _inception_v3 inception-v3
fi
"""


def _lines(lines: List[str]) -> str:
    return '\n'.join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS = {'bash': _bash, 'zsh': _zsh}


def script(shell: str) -> str:
    """The script for a shell of `SHELLS`."""
    return SHELLS[shell]({name: words_of(name) for name in COMMANDS})
