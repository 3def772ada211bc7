"""The command line: presets, and a flag for every field of `Config`, parsed into a `CommandLine` with one `Config`."""

import contextlib
import dataclasses
import os
import re
import shutil
import textwrap
import types
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, get_type_hints

from absl import flags

from compat.errors import CommandError
from compat.messages import alternatives, meant, shown
from console import inputs, processes
from console.command_line import check_given_once, filled
from console.paths import check_folder, check_stores, expanded
from data.braces import FILE_FLAGS
from inception_v3 import __version__, rules
from inception_v3.config import TYPE_NAMES, Config, ConfigError, plain_type, setting_of
from inception_v3.machines import cluster
from inception_v3.networks.registry import NETWORKS, OPTIONS
from inception_v3.presets import DEFAULT_PRESET, DESCRIPTIONS, EPOCHS, PRESETS, own_images, steps_of_epochs
from inception_v3.tpu import topology

_NARROWEST_HELP, _WIDEST_HELP = 20, 100
# Longer values and errors are shortened to this length in a message about a flag.
_LONGEST_MESSAGE = 600
_SEE_HELP = '--help lists the flags.'
# In bytes: enough for 100,000 flags.
_LARGEST_FLAG_FILE = 1 << 22
# Flags that only print something, with a description of the output.
_HELP_FLAGS = {
    'help': 'this list; with --preset=NAME, the defaults of that preset',
    'helpshort': 'the purpose, the exit codes, the presets and the flags of this command alone',
    'version': 'the version of the program',
}

# Names of these flags in other programs.
_OTHER_NAMES = {
    'train_batch_size': ('batch_size', 'batch', 'bs', 'per_device_train_batch_size', 'global_batch_size'),
    'train_epochs': ('epochs', 'num_epochs', 'max_epochs', 'num_train_epochs', 'n_epochs'),
    'train_steps': ('steps', 'max_steps', 'num_steps', 'total_steps', 'max_train_steps'),
    'learning_rate': ('lr', 'base_lr', 'base_learning_rate', 'initial_learning_rate'),
    'data_dir': ('data', 'dataset', 'dataset_dir', 'data_path', 'dataset_path', 'input_dir', 'train_dir'),
    'model_dir': ('output_dir', 'out_dir', 'output', 'save_dir', 'log_dir', 'logdir', 'checkpoint_dir', 'job_dir'),
    'network': ('model', 'model_name', 'arch', 'architecture', 'backbone'),
    'init_from': ('pretrained', 'weights', 'checkpoint', 'init_checkpoint', 'checkpoint_path', 'finetune_from'),
    'num_classes': ('classes', 'num_labels', 'num_label_classes', 'n_classes'),
    'height and --width': ('image_size', 'img_size', 'input_size', 'input_image_size', 'resolution', 'size'),
    'accelerator': ('device', 'gpu', 'cuda', 'no_cuda'),
    'num_gpus': ('gpus', 'n_gpus', 'num_devices', 'nproc_per_node'),
    'worker_hosts': ('workers', 'hosts', 'worker_addresses'),
    'task_index': ('rank', 'node_rank', 'task_id', 'machine_rank'),
    'precision': ('fp16', 'bf16', 'amp', 'mixed_precision', 'dtype', 'use_bfloat16'),
    'optimizer': ('opt', 'optim'),
    'weight_decay': ('wd', 'l2'),
    'tpu': ('tpu_name',),
    'train_steps_per_eval': ('steps_per_eval', 'eval_steps', 'eval_every', 'eval_interval'),
    'save_checkpoints_secs': ('save_steps', 'save_every', 'save_checkpoints_steps'),
    'iterations': ('iterations_per_loop', 'steps_per_loop'),
    'num_shards': ('num_cores', 'num_tpu_cores'),
    'moving_average_decay': ('ema', 'ema_decay', 'model_ema', 'model_ema_decay'),
    'use_learning_rate_warmup': ('warmup', 'warmup_steps', 'lr_warmup_epochs', 'warmup_proportion'),
}
_UNKNOWN = re.compile(r"Unknown command line flag '([^']*)'")


class OwnFlag(NamedTuple):
    """A flag of one command that is not a field of `Config`. Its type is int, float, bool or str."""

    type: type
    default: Any
    help: str


OwnFlags = Mapping[str, OwnFlag]
NO_FLAGS: OwnFlags = types.MappingProxyType({})


class CommandLine(NamedTuple):
    """A parsed command line: the values of the flags that were given, and what follows from them.

    Attributes:
      config: the preset, changed by the flags that were given. With a help flag, and from `read`, which checks no
        values, it is the default.
      fields: the values of those fields of `Config` that were set by flags, or by TF_CONFIG in their place.
      preset: the value of `--preset`; None if it was not given, which means imagenet.
      verbose: whether to show TensorFlow's own log.
      help: the help flag that was given, such as 'helpshort', if any.
      own: the values of the command's own flags.
    """

    config: Config = Config()
    fields: Mapping[str, Any] = NO_FLAGS
    preset: Optional[str] = None
    verbose: bool = False
    help: str = ''
    own: Mapping[str, Any] = NO_FLAGS

    @property
    def chooses_statistics(self) -> bool:
        """Whether the preset, not a flag, sets the decay of batch normalization, and not for TPU cores."""
        preset = PRESETS[self.preset or DEFAULT_PRESET]
        return 'batch_norm_decay' in preset and not preset.get('use_tpu', True) and 'batch_norm_decay' not in self.given

    @property
    def given(self) -> FrozenSet[str]:
        """The names of the fields of `Config` that flags set."""
        return frozenset(self.fields)


class _Parser(flags.ArgumentParser):
    """Parses a value with a function, and reports errors in this program's words; `Config` checks the bounds."""

    def __init__(self, value_type: type, convert: Callable[[Any], Any]):
        self.syntactic_help = TYPE_NAMES[value_type]
        self._convert = convert

    def parse(self, argument: Any) -> Any:
        with contextlib.suppress(TypeError, ValueError):
            return self._convert(argument)
        raise ValueError(f'must be {self.syntactic_help}')


def _define(values: flags.FlagValues, name: str, value_type: type, help: str, short_name: Optional[str] = None) -> None:
    """Defines a flag without a default, so that `present` shows whether it was given."""
    if value_type is bool:
        flag = flags.BooleanFlag(name, None, help, short_name=short_name)
        flag.parser = _Parser(bool, flag.parser.parse)
        flags.DEFINE_flag(flag, flag_values=values)
    elif value_type is str:
        flags.DEFINE_string(name, None, help, flag_values=values)
    else:
        flags.DEFINE(_Parser(value_type, value_type), name, None, help, flag_values=values)


class _FlagValues(flags.FlagValues):
    """Reads flag files, including those named in flag files, only if they are regular files."""

    def _get_flag_file_lines(self, filename: str, parsed_file_stack: Optional[List[str]] = None) -> List[str]:
        if filename:
            inputs.check(filename, _LARGEST_FLAG_FILE)
        return super()._get_flag_file_lines(filename, parsed_file_stack)


def _defined(own_flags: OwnFlags) -> flags.FlagValues:
    values = _FlagValues()
    _define(values, 'preset', str, 'the defaults')
    _define(values, 'verbose', bool, "TensorFlow's own log")
    for name, help in _HELP_FLAGS.items():
        _define(values, name, bool, help, short_name='h' if name == 'help' else None)
    for name, flag in own_flags.items():
        _define(values, name, flag.type, flag.help)
    annotations = get_type_hints(Config)
    for field in dataclasses.fields(Config):
        _define(values, field.name, plain_type(annotations[field.name]), setting_of(field).help)
    return values


def read(argv: Sequence[str], own_flags: OwnFlags = NO_FLAGS) -> CommandLine:
    """Parses a command line, such as `sys.argv`, without checking its values against each other.

    `--flagfile=FILE` reads more arguments from a file.

    Raises:
      ConfigError: an unknown flag or preset, a stray argument, a value of another type, or an unreadable flag file.
      CommandError: a flag that names files is given several times.
    """
    values = _defined(own_flags)
    check_given_once(argv[1:], [*FILE_FLAGS.values()])
    try:
        stray = values([*argv[:1], *expanded(argv[1:])])[1:]
    except (OSError, flags.CantOpenFlagFileError) as error:
        cause = error if isinstance(error, OSError) else error.__context__
        assert isinstance(cause, OSError)
        raise ConfigError(f'--flagfile={shown(cause.filename)}: cannot be read: {cause.strerror}.')
    except UnicodeDecodeError:
        raise ConfigError('--flagfile: not a text file in UTF-8. It must contain flags, one per line.')
    except RecursionError:
        # absl searches for similar names recursively, with a call for each letter.
        raise ConfigError(f'{shown(" ".join(argv[1:]), _LONGEST_MESSAGE)}: not a flag. {_SEE_HELP}')
    except (flags.Error, ValueError) as error:
        text = str(error)
        # A long value must not hide the allowed ones.
        for value in filter(None, (word.partition('=')[2] for word in argv)):
            text = text.replace(value, shown(value))
        unknown = _UNKNOWN.match(text)
        word = unknown.group(1) if unknown else ''
        name = next((ours for ours, others in _OTHER_NAMES.items() if word in others), '')
        if name:
            text = f'--{word}: not a flag. Here it is --{name}.'
        raise ConfigError(f'{shown(text, _LONGEST_MESSAGE)}\n{_SEE_HELP}')
    if stray:
        raise ConfigError(f'{shown(" ".join(stray))}: not a flag. Flags are written --name=value; {_SEE_HELP}')
    if values.preset not in (None, *PRESETS):
        allowed = f'{alternatives(sorted(PRESETS))}.{meant(values.preset, PRESETS)}'
        raise ConfigError(f'--preset={shown(values.preset)}: must be {allowed}')
    check_stores(values[name].value for name in values)
    return CommandLine(
        fields={
            field.name: _value(values[field.name]) for field in dataclasses.fields(Config) if values[field.name].present
        },
        preset=values.preset,
        verbose=bool(values.verbose),
        help=next((name for name in _HELP_FLAGS if values[name].value), ''),
        own={name: _value(values[name]) if values[name].present else flag.default for name, flag in own_flags.items()},
    )


def _value(flag: flags.Flag) -> Any:
    """The value of a flag. In a `--flagfile`, it may begin with `~`."""
    return expanded([flag.value])[0] if isinstance(flag.value, str) else flag.value


def parse(argv: Sequence[str], own_flags: OwnFlags = NO_FLAGS, tf_config: Optional[str] = None) -> CommandLine:
    """Parses a command line, as `read` does, and checks its values, alone and against each other.

    `tf_config` is the value of TF_CONFIG, which replaces some flags; None for a command that runs on only one machine.
    """
    line = read(argv, own_flags)
    if line.help:
        return line
    if tf_config is None and line.fields.get('worker_hosts'):
        raise ConfigError('--worker_hosts: only training runs on several machines. Leave out the flag.')
    line = line._replace(fields={**_of_tf_config(tf_config or '', line.fields), **line.fields})
    line = line._replace(config=Config(**with_preset(line)))
    # These values depend on the numbers of images, and are checked again once the numbers are known.
    config = line.config
    if line.preset == 'own_images':
        config = dataclasses.replace(config, **own_images(config, line.given), profile_steps='')
    elif config.train_epochs or config.epochs_per_eval:
        config = dataclasses.replace(config, profile_steps='')
    rules.check(config, line.given)
    return line


def place_of(argv: Sequence[str], tf_config: str) -> Optional[cluster.Place]:
    """This machine's place among the machines of a run, even if other flags are wrong; None for one machine or help.

    With it, a worker that refuses its flags can report this to the others.
    """
    values = _FlagValues()
    # Words between flags are the values of other flags.
    values.set_gnu_getopt(True)
    names = ('worker_hosts', 'task_index', 'worker_timeout')
    for name in names:
        flags.DEFINE_string(name, None, '', flag_values=values)
    for name in _HELP_FLAGS:
        _define(values, name, bool, '', short_name='h' if name == 'help' else None)
    with contextlib.suppress(flags.Error, OSError, ValueError, RecursionError, CommandError):
        values([*argv[:1], *expanded(argv[1:])], known_only=True)
        found = {**cluster.flags_of(tf_config), **{name: values[name].value for name in names if values[name].present}}
        addresses = cluster.addresses_in(found.get('worker_hosts', ''))
        seconds = Config.worker_timeout
        # `parse` refuses a wrong value later; until then, the default is used.
        with contextlib.suppress(ConfigError, ValueError):
            seconds = Config(worker_timeout=int(found.get('worker_timeout', seconds))).worker_timeout
        place = cluster.Place(addresses, int(found.get('task_index', '')), seconds)
        is_asked = any(values[name].value for name in _HELP_FLAGS)
        is_right = len(addresses) > 1 and not cluster.problem_with(addresses) and 0 <= place.number < len(addresses)
        if is_right and not is_asked:
            return place
    return None


def check_data_dir(line: CommandLine) -> None:
    """Refuses a local `--data_dir` that does not exist, before TensorFlow is loaded.

    Raises CommandError. The folder of a preset need not exist: the run may make it.
    """
    if line.config.use_data == 'real' and 'data_dir' in line.given:
        check_folder(line.config.data_dir, 'data_dir')


def _of_tf_config(tf_config: str, given: Mapping[str, Any]) -> Dict[str, Any]:
    try:
        fields = cluster.flags_of(tf_config)
    except ValueError as error:
        raise ConfigError(str(error))
    for name, value in fields.items():
        if given.get(name, value) != value:
            raise ConfigError(
                f'--{name}={shown(given[name])}: TF_CONFIG says {shown(value)}. Leave out the flag, or unset TF_CONFIG.'
            )
    return fields


def with_preset(line: CommandLine) -> Dict[str, Any]:
    """The values of fields of `Config`: set by the preset, implied by flags of devices, and given; the last wins.

    Some values of the preset are left out: options that the chosen network lacks, epochs if steps are given, and
    data_dir if patterns of files are given. Steps that follow from epochs are for the number of images that is known so
    far. If the preset exports and model_dir is given, it exports into model_dir, not beside other runs' models.
    """
    preset, given = PRESETS[line.preset or DEFAULT_PRESET], line.fields
    network = NETWORKS.get(given.get('network', preset.get('network', Config.network)))
    not_taken = {*OPTIONS} - network.options if network else set()
    fields = {name: value for name, value in preset.items() if name not in not_taken}
    for steps, epochs in EPOCHS.items():
        if steps in given:
            fields.pop(epochs, None)
    if {*FILE_FLAGS.values()} & {*given}:
        # Patterns are not relative to the folder of a preset's data set.
        fields.pop('data_dir', None)
    fields = {**fields, **_own_export_dir(fields, given), **_implied(given), **given}
    return {**fields, **_counted(fields, given)}


def _counted(fields: Dict[str, Any], given: Mapping[str, Any]) -> Dict[str, int]:
    """The steps that follow from epochs, for the number of images known before the data set's description is read."""
    numbers = ('num_train_images', 'train_batch_size', *EPOCHS.values())
    values = {name: fields.get(name, getattr(Config, name)) for name in numbers}
    if not all(value is None or 0 < value < 1e15 for value in values.values()):
        return {}  # Config refuses the value.
    return {name: steps for name, steps in steps_of_epochs(values).items() if name not in given}


def _own_export_dir(preset: Dict[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """An export_dir inside model_dir, if the preset exports and model_dir is given."""
    if not preset.get('export_dir') or not given.get('model_dir'):
        return {}
    return {'export_dir': os.path.join(given['model_dir'], os.path.basename(preset['export_dir']))}


def _implied(given: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields that device flags imply: `use_tpu`, and `num_shards` for an emulated TPU."""
    implied: Dict[str, Any] = {}
    is_without_tpu = given.get('accelerator', 'auto') != 'auto' or given.get('worker_hosts')
    if is_without_tpu or given.get('num_gpus', Config.num_gpus) != Config.num_gpus:
        implied['use_tpu'] = False
    if given.get('tpu') or given.get('master'):
        implied['use_tpu'] = True
    if topology.is_emulated(given.get('tpu')):
        # `Config` refuses a malformed name.
        with contextlib.suppress(ValueError):
            implied['num_shards'] = topology.emulated(given['tpu']).cores
    return implied


def help_text(program: str, purpose: str, asked: CommandLine, own_flags: OwnFlags = NO_FLAGS) -> str:
    """The text that `--help`, `--helpshort` or `--version` prints, after the command's purpose."""
    if asked.help == 'version':
        return f'inception-v3 {__version__}'
    parts = [f'{filled(purpose, _help_width())}\n\nusage: {processes.command_name(program)} [--flag=value ...]\n']
    parts += [_flag_help(name, flag.default, flag.help) for name, flag in own_flags.items()]
    parts += [
        _flag_help('preset', asked.preset or DEFAULT_PRESET, 'the defaults of all other flags; see below'),
        _flag_help('flagfile', None, 'file with further flags, one per line'),
        _flag_help('verbose', False, "show TensorFlow's own log, and a traceback with an error"),
    ]
    parts += ['\npresets:', *[_entry(name, text) for name, text in DESCRIPTIONS.items()]]
    if asked.help == 'helpshort':
        return '\n'.join([*parts, '\n--help lists the flags of a run.'])
    return '\n'.join([*parts, *_fields_help(asked.preset or DEFAULT_PRESET)])


def _fields_help(preset: str) -> List[str]:
    groups: Dict[str, List[str]] = {}
    for field in dataclasses.fields(Config):
        setting = setting_of(field)
        notes = f'; {setting.allowed}' if setting.allowed else ''
        default = PRESETS[preset].get(field.name, field.default)
        groups.setdefault(setting.group, []).append(_flag_help(field.name, default, setting.help + notes))
    source = '' if preset == DEFAULT_PRESET else f' (defaults of --preset={preset})'
    return [line for group, lines in groups.items() for line in (f'\n{group}{source}:', *lines)]


def _flag_help(name: str, default: Any, text: str) -> str:
    value = '' if default is None else f'{default:.6g}' if isinstance(default, float) else default
    return _entry(f'--{name}={value}', text)


def _help_width() -> int:
    return max(_NARROWEST_HELP, min(_WIDEST_HELP, shutil.get_terminal_size((_WIDEST_HELP, 24)).columns - 1))


def _entry(title: str, text: str) -> str:
    indent = ' ' * 6
    if len(title) + len(text) + 4 <= _help_width():
        return f'  {title}  {text}'
    return f'  {title}\n' + textwrap.fill(text, _help_width(), initial_indent=indent, subsequent_indent=indent)
