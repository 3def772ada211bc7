"""The command line: a flag for every field of `Config`, parsed once into one `Config`."""

import dataclasses
import textwrap
from typing import Any, Dict, FrozenSet, List, NamedTuple, Sequence, get_type_hints

from absl import flags

from inception_v3.config import PRESETS, TYPE_NAMES, Config, ConfigError, plain_type, setting_of

_HELP_WIDTH = 100


class CommandLine(NamedTuple):
    """What a command line says.

    Attributes:
      config: the preset with the flags that were given.
      given: the names of the fields that flags gave a value; they win over what a data set says of itself.
      preset: the name of the preset.
      verbose: whether TensorFlow's own log is wanted on the screen.
      help: whether the list of flags is wanted, and nothing else.
    """

    config: Config
    given: FrozenSet[str]
    preset: str
    verbose: bool
    help: bool


class _NumberParser(flags.ArgumentParser):
    """Reads an int or a float; its bounds are for `Config` to check."""

    def __init__(self, number_type: type):
        self.number_type = number_type
        self.syntactic_help = TYPE_NAMES[number_type]

    def parse(self, argument: Any) -> Any:
        try:
            return self.number_type(argument)
        except (TypeError, ValueError):
            raise ValueError(f'must be {self.syntactic_help}')


class _BooleanParser(flags.BooleanParser):
    def parse(self, argument: Any) -> bool:
        try:
            return super().parse(argument)
        except (TypeError, ValueError):
            raise ValueError(f'must be {TYPE_NAMES[bool]}')


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_enum('preset', 'imagenet', sorted(PRESETS), 'what the defaults are', flag_values=values)
    flags.DEFINE_boolean(
        'verbose', False, "show TensorFlow's own log too, and where an error arose", flag_values=values
    )
    flags.DEFINE_boolean('help', False, 'print this list', short_name='h', flag_values=values)
    flags.DEFINE_string('flagfile', '', 'file with further flags, a line each', flag_values=values)
    types = get_type_hints(Config)
    for field in dataclasses.fields(Config):
        value_type, setting = plain_type(types[field.name]), setting_of(field)
        # The default is None for all: what was not given comes from the preset.
        if value_type is bool:
            flag = flags.BooleanFlag(field.name, None, setting.help)
            flag.parser = _BooleanParser()
            flags.DEFINE_flag(flag, flag_values=values)
        elif value_type is str:
            flags.DEFINE_string(field.name, None, setting.help, flag_values=values)
        else:
            flags.DEFINE(_NumberParser(value_type), field.name, None, setting.help, flag_values=values)
    return values


def parse(argv: Sequence[str]) -> CommandLine:
    """Parses a command line.

    Args:
      argv: the program's name and its arguments, as in `sys.argv`.

    Raises:
      ConfigError: an unknown flag or preset, a stray argument, or a value that is not allowed.
    """
    values = _define()
    try:
        stray = values(argv)[1:]
    except flags.Error as error:
        raise ConfigError(f'{error}\n--help lists the flags.')
    if stray:
        raise ConfigError(f'{" ".join(stray)}: not a flag. Flags are written --name=value; --help lists them.')
    given = {field.name: values[field.name].value for field in dataclasses.fields(Config) if values[field.name].present}
    config = Config() if values.help else Config(**{**PRESETS[values.preset], **given})
    return CommandLine(config, frozenset(given), values.preset, values.verbose, values.help)


def help_text(program: str) -> str:
    """The flags of `program` in their groups, with defaults, units and allowed values."""
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
        f'Trains, evaluates and exports Inception v3.\n\nusage: python -m {program} [--flag=value ...]\n',
        _flag_help('preset=imagenet', preset_help),
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
