"""The command line: a flag for every field of `Config`, parsed once into one `Config`."""

import contextlib
import dataclasses
import os
import textwrap
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple, get_type_hints

from absl import flags

from console.messages import shown
from inception_v3.config import TYPE_NAMES, Config, ConfigError, plain_type, setting_of
from inception_v3.presets import PRESETS
from inception_v3.tpu import topology

_HELP_WIDTH = 100
_DEFAULT_PRESET = 'imagenet'
# No number and no flag's name has more letters, and no file of flags more bytes.
_LONGEST = 100
_LARGEST_FILE = 1 << 20
# Files of flags that a command line may name, and they each other.
_FILES_AT_MOST = 100
# Characters of a message about a flag; the longest without a user's text has 150.
_LONGEST_MESSAGE = 300
_SEE_HELP = '--help lists the flags.'


class CommandLine(NamedTuple):
    """What a command line says.

    Attributes:
      config: the preset with the flags that were given.
      given: the names of the fields that flags gave a value; they win over what a data set says of itself.
      preset: the name of the preset; None if none is named, which is as imagenet.
      verbose: whether TensorFlow's own log is wanted on the screen.
      help: whether the list of flags is wanted, and nothing else.
    """

    config: Config
    given: FrozenSet[str]
    preset: Optional[str]
    verbose: bool
    help: bool


class Given(NamedTuple):
    """What a command line gives, before it is made a `Config` of.

    Attributes:
      fields: the values of the fields of `Config` that flags name.
      preset: as in `CommandLine`.
      verbose: as in `CommandLine`.
      help: as in `CommandLine`.
    """

    fields: Dict[str, Any]
    preset: Optional[str]
    verbose: bool
    help: bool


class _NumberParser(flags.ArgumentParser):
    """Reads an int or a float; its bounds are for `Config` to check."""

    def __init__(self, number_type: type):
        self.number_type = number_type
        self.syntactic_help = TYPE_NAMES[number_type]

    def parse(self, argument: Any) -> Any:
        with contextlib.suppress(TypeError, ValueError):
            # To read a number takes a time that grows with the square of its length.
            if len(str(argument)) <= _LONGEST:
                return self.number_type(argument)
        raise ValueError(f'must be {self.syntactic_help}')


class _BooleanParser(flags.BooleanParser):
    def parse(self, argument: Any) -> bool:
        try:
            return super().parse(argument)
        except (TypeError, ValueError):
            raise ValueError(f'must be {TYPE_NAMES[bool]}')


def define_boolean(
    name: str, default: Optional[bool], text: str, values: flags.FlagValues, short_name: Optional[str] = None
) -> None:
    """Defines a flag that is True or False, and says so of other values."""
    flag = flags.BooleanFlag(name, default, text, short_name=short_name)
    flag.parser = _BooleanParser()
    flags.DEFINE_flag(flag, flag_values=values)


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_enum('preset', None, sorted(PRESETS), 'what the defaults are', flag_values=values)
    define_boolean('verbose', False, "show TensorFlow's own log too, and where an error arose", values)
    define_boolean('help', False, 'print this list', values, short_name='h')
    flags.DEFINE_string('flagfile', '', 'file with further flags, a line each', flag_values=values)
    types = get_type_hints(Config)
    for field in dataclasses.fields(Config):
        value_type, setting = plain_type(types[field.name]), setting_of(field)
        # The default is None for all: what was not given comes from the preset.
        if value_type is bool:
            define_boolean(field.name, None, setting.help, values)
        elif value_type is str:
            flags.DEFINE_string(field.name, None, setting.help, flag_values=values)
        else:
            flags.DEFINE(_NumberParser(value_type), field.name, None, setting.help, flag_values=values)
    return values


def read(argv: Sequence[str]) -> Given:
    """Reads a command line, whose values may still contradict each other.

    Args:
      argv: the program's name and its arguments, as in `sys.argv`.

    Raises:
      ConfigError: an unknown flag or preset, a stray argument, or a value that is not of its flag's type.
    """
    values = _define()
    program, *arguments = argv
    try:
        stray = values([program, *_with_files(arguments, [])])[1:]
    except (flags.Error, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f'{shown(error, _LONGEST_MESSAGE)}\n{_SEE_HELP}')
    if stray:
        raise ConfigError(f'{shown(" ".join(stray))}: not a flag. Flags are written --name=value; {_SEE_HELP}')
    fields = {
        field.name: values[field.name].value for field in dataclasses.fields(Config) if values[field.name].present
    }
    return Given(fields, values.preset, values.verbose, values.help)


def _with_files(arguments: Sequence[str], read_before: List[str]) -> List[str]:
    """The arguments, and in the place of each --flagfile the lines of its file."""
    expanded: List[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, has_value, path = argument.partition('=')
        if name.startswith('-') and len(name) > _LONGEST:
            raise ConfigError(f'{shown(name)}: no such flag. {_SEE_HELP}')
        if name not in ('--flagfile', '-flagfile'):
            expanded.append(argument)
            continue
        path = path if has_value else next(rest, '')
        if not path:
            raise ConfigError('--flagfile=: must be a file with further flags, a line each.')
        read_before.append(path)
        if len(read_before) > _FILES_AT_MOST:
            raise ConfigError(
                f'--flagfile={shown(path)}: names itself, or there are more than {_FILES_AT_MOST} such files.'
            )
        expanded += _with_files(_lines_of(path), read_before)
    return expanded


def _lines_of(path: str) -> List[str]:
    """The lines of a file of flags, without comments."""
    flag = f'--flagfile={shown(path)}'
    try:
        with open(os.path.expanduser(path), 'rb') as file:
            content = file.read(_LARGEST_FILE + 1)
        text = content.decode('utf-8-sig')
    except OSError as error:
        raise ConfigError(f'{flag}: cannot be read: {error.strerror}.')
    except ValueError:
        raise ConfigError(f'{flag}: not a text in UTF-8. It must hold flags, a line each.')
    if len(content) > _LARGEST_FILE:
        raise ConfigError(f'{flag}: more than {_LARGEST_FILE >> 20} MiB. It must hold flags, a line each.')
    lines = [line.strip() for line in text.split('\n')]
    return [line for line in lines if line and not line.startswith(('#', '//'))]


def with_preset(given: Given) -> Dict[str, Any]:
    """The fields of `Config` that are not at their defaults: the preset's, what naming a TPU implies, and the given."""
    return {**PRESETS[given.preset or _DEFAULT_PRESET], **_implied(given.fields), **given.fields}


def parse(argv: Sequence[str]) -> CommandLine:
    """Parses a command line.

    Args:
      argv: the program's name and its arguments, as in `sys.argv`.

    Raises:
      ConfigError: as `read`, or a value that is not allowed, or values that contradict each other.
    """
    given = read(argv)
    config = Config() if given.help else Config(**with_preset(given))
    return CommandLine(config, frozenset(given.fields), given.preset, given.verbose, given.help)


def _implied(given: Dict[str, Any]) -> Dict[str, Any]:
    """What naming a TPU says besides: that it is to be used, and how many cores an emulated one has."""
    implied: Dict[str, Any] = {}
    if given.get('tpu') or given.get('master'):
        implied['use_tpu'] = True
    if topology.is_emulated(given.get('tpu')):
        # What is written wrongly is Config's to refuse.
        with contextlib.suppress(ValueError):
            implied['num_shards'] = topology.emulated(given['tpu']).cores
    return implied


def help_text(program: str, purpose: str, own_flags: Sequence[Tuple[str, str]] = ()) -> str:
    """The flags of a program in their groups, with defaults, units and allowed values.

    Args:
      program: its name after `python -m`.
      purpose: what it does, in a sentence.
      own_flags: flags that are no fields of `Config`, each as NAME=DEFAULT, and their help.
    """
    types = get_type_hints(Config)
    groups: Dict[str, List[str]] = {}
    for field in dataclasses.fields(Config):
        setting = setting_of(field)
        default = '' if field.default is None else field.default
        if plain_type(types[field.name]) is float:
            default = f'{default:.6g}'
        notes = f'; {setting.allowed}' if setting.allowed else ''
        groups.setdefault(setting.group, []).append(_flag_help(f'{field.name}={default}', setting.help + notes))
    preset_help = '; '.join(
        [
            'the values that flags start from, where they differ from those below: imagenet (they do not)',
            'imagenet_large_batch (warm-up, 4,096 images)',
            'digits (a small run on the CPU, on real images that are at hand)',
        ]
    )
    parts = [
        f'{purpose}\n\nusage: python -m {program} [--flag=value ...]\n',
        *[_flag_help(flag, text) for flag, text in own_flags],
        _flag_help(f'preset={_DEFAULT_PRESET}', preset_help),
        _flag_help('verbose=False', "show TensorFlow's own log too, and where an error arose"),
        _flag_help('flagfile=', 'file with further flags, a line each'),
    ]
    for group, lines in groups.items():
        parts += [f'\n{group}:', *lines]
    return '\n'.join(parts)


def _flag_help(flag: str, text: str) -> str:
    start = f'  --{flag}'
    indent = ' ' * 6
    if len(start) + len(text) + 2 <= _HELP_WIDTH:
        return f'{start}  {text}'
    return start + '\n' + textwrap.fill(text, _HELP_WIDTH, initial_indent=indent, subsequent_indent=indent)
