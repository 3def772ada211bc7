"""The command line."""

import dataclasses
import re
from typing import Any, List

import pytest

import inception_v3
from compat.errors import CommandError
from inception_v3 import flags
from inception_v3.config import Config, ConfigError, setting_of
from inception_v3.presets import DESCRIPTIONS, PRESETS
from inception_v3.tpu import topology
from preprocessing.steps import Settings
from tests.support.project import ROOT


def parse(*arguments: str) -> flags.CommandLine:
    return flags.parse(['program', *arguments])


def test_without_flags_it_is_the_documented_default() -> None:
    assert parse() == flags.CommandLine(Config())


def test_every_field_is_a_flag_with_its_type() -> None:
    config = parse('--train_steps=7', '--learning_rate=1e-3', '--use_tpu=true', '--optimizer=sgd', '--tpu=node').config
    assert config == Config(train_steps=7, learning_rate=0.001, use_tpu=True, optimizer='sgd', tpu='node')
    for field in dataclasses.fields(Config):
        value = getattr(Config(use_tpu=False, model_dir='m'), field.name)
        if value is not None:
            assert parse(f'--{field.name}={value}').given == {field.name}


def test_every_field_is_read_where_it_takes_effect() -> None:
    paths = [path for package in ('inception_v3', 'data') for path in (ROOT / package).rglob('*.py')]
    text = ' '.join(path.read_text() for path in paths if path.name not in ('flags.py', 'presets.py', 'rules.py'))
    read = {*re.findall(r'\.(\w+)', text), *Settings._fields}
    # The number of steps is computed from these.
    assert not {field.name for field in dataclasses.fields(Config)} - read - {'train_epochs', 'epochs_per_eval'}


def test_parse__preset_exports_into_the_model_dir_that_is_given() -> None:
    assert parse('--preset=digits').config.export_dir == 'runs/digits/export'
    assert parse('--preset=digits', '--model_dir=other').config.export_dir == 'other/export'
    assert parse('--preset=digits', '--model_dir=gs://b/r/').config.export_dir == 'gs://b/r/export'
    assert parse('--preset=digits', '--model_dir=other', '--export_dir=mine').config.export_dir == 'mine'
    assert parse('--preset=digits', '--model_dir=other', '--export_dir=').config.export_dir == ''
    assert parse('--model_dir=other').config.export_dir is None


def test_flags_win_over_the_preset_and_the_preset_over_the_default() -> None:
    config = parse('--preset=digits', '--train_steps=7').config
    assert config.train_steps == 7
    assert config.depth_multiplier == PRESETS['digits']['depth_multiplier']
    assert config.optimizer == Config().optimizer
    # Even a flag with the default value.
    assert parse('--preset=digits', '--random_flip').config.random_flip


def test_naming_a_tpu_uses_all_cores_of_an_emulated_one() -> None:
    for flag in ('--tpu=node', '--master=grpc://node:8470'):
        found = parse('--preset=digits', flag).config
        assert found.use_tpu and found.num_shards == 8
    assert not parse('--preset=digits', '--tpu=').config.use_tpu
    emulated = parse('--preset=digits', '--tpu=emulated:4x2')
    assert (emulated.config.use_tpu, emulated.config.num_shards, topology.hosts_of(emulated.config)) == (True, 4, 2)
    assert emulated.given == {'tpu'}
    with pytest.raises(ConfigError, match='--num_shards=8: --tpu=emulated:4 has 4 cores'):
        parse('--tpu=emulated:4', '--num_shards=8')


def test_booleans_may_be_negated_and_flags_come_from_a_file(tmp_path: Any) -> None:
    assert not parse('--nomoving_average').config.moving_average
    (tmp_path / 'flags').write_text(f'# a comment\n--train_steps=9\n--flagfile={tmp_path / "inner"}\n')
    (tmp_path / 'inner').write_text('--optimizer=momentum\n')
    config = parse(f'--flagfile={tmp_path / "flags"}', '--train_steps=8').config
    assert (config.optimizer, config.train_steps) == ('momentum', 8)
    (tmp_path / 'flags').write_bytes(b'\x7fELF\xff\xfe')
    with pytest.raises(ConfigError, match='--flagfile: not a text file in UTF-8'):
        parse(f'--flagfile={tmp_path / "flags"}')


@pytest.mark.parametrize(
    ('arguments', 'parts'),
    [
        (['--preset=foo'], ['--preset=foo: must be cifar10_stream, digits, ', ' or revnet56_imagenet.']),
        (['--preset=Digit'], ['--preset=Digit: must be cifar10_stream', 'revnet56_imagenet. Did you mean digits?']),
        (['--network=resnet5'], ['or revnet104. Did you mean resnet50?']),
        (['--optimizer=rms'], ['--optimizer=rms: must be sgd, momentum or RMS. Did you mean RMS?']),
        ([f'--{"x" * 5000}=1'], ['--xxx', 'xx=1: not a flag']),
        (['--optimiser=sgd'], ['optimiser', 'Did you mean: optimizer ?', '--help']),
        (['--batch_size=4'], ['--batch_size: not a flag. Here it is --train_batch_size.', '--help']),
        (['--epochs', '4'], ['Here it is --train_epochs.']),
        (['--train_epochs=1', '--train_batch_size=0'], ['--train_batch_size=0: must be ']),
        (['--train_batch_size=1.5'], ['train_batch_size=1.5', 'a whole number']),
        (['--learning_rate=fast'], ['learning_rate=fast', 'a number']),
        (['--use_tpu=maybe'], ['use_tpu=maybe', 'True or False']),
        (['--train_steps'], ['train_steps', 'value']),
        (['train'], ['train: not a flag', '--name=value']),
        (['--flagfile=/no/such/file'], ['--flagfile=/no/such/file: cannot be read: No such file']),
        (['--flagfile'], ['--flagfile with no argument']),
        (['--nouse_tpu=1'], ['--nouse_tpu=1', '--help']),
        (['--train_batch_size=1' + '0' * 99], ['--train_batch_size=1000', 'must be at most 2147483647']),
        (['--data_dir=\udcff'], [r'--data_dir=\udcff: must be a UTF-8 string']),
        (['--optimizer=a\nb'], [r'--optimizer=a\nb: must be sgd']),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(arguments: List[str], parts: List[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse(*arguments)
    for part in parts:
        assert part in str(error.value)
    assert 'program' not in str(error.value)


def test_names_of_other_programs__are_no_flags_and_lead_to_flags() -> None:
    fields = {field.name for field in dataclasses.fields(Config)}
    others = [name for names in flags._OTHER_NAMES.values() for name in names]
    assert not fields & {*others} and len(others) == len({*others})
    assert {name.strip('-') for ours in flags._OTHER_NAMES for name in ours.split(' and ')} <= fields


OWN_FLAGS = {'fast': flags.OwnFlag(bool, False, 'train fast'), 'repeats': flags.OwnFlag(int, 3, 'how often')}


def help_of(*arguments: str) -> str:
    asked = flags.parse(['program', *arguments], OWN_FLAGS)
    return flags.help_text('train', 'Trains.', asked, OWN_FLAGS)


def test_own_flags_have_their_type_and_default() -> None:
    assert flags.parse(['program', '--fast', '--train_steps=7'], OWN_FLAGS).own == {'fast': True, 'repeats': 3}
    assert flags.read(['program', '--repeats=5'], OWN_FLAGS).own == {'fast': False, 'repeats': 5}
    assert flags.read(['program', '--repeats=0'], OWN_FLAGS).own['repeats'] == 0
    with pytest.raises(ConfigError, match='flag --repeats=many: must be a whole number'):
        flags.parse(['program', '--repeats=many'], OWN_FLAGS)
    with pytest.raises(ConfigError, match='Did you mean: repeats'):
        flags.parse(['program', '--repeat=5'], OWN_FLAGS)


@pytest.mark.parametrize('flag', ['--help', '-h'])
def test_help_lists_every_flag_in_its_group_with_default_and_allowed_values(flag: str) -> None:
    text = help_of(flag)
    assert text.startswith('Trains.') and '--fast=False  train fast' in text and '-m inception_v3.main' in text
    _, *groups = text.split('\n\n')
    sections = {lines[0].rstrip(':'): '\n'.join(lines) for lines in (group.splitlines() for group in groups)}
    for field in dataclasses.fields(Config):
        setting = setting_of(field)
        section = ' '.join(sections[setting.group].split())
        assert f'--{field.name}=' in section
        assert setting.help in section
        assert setting.allowed in section
    assert text.index('--preset') < text.index('cluster:')
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_preset_leaves_out_options_that_the_network_does_not_take() -> None:
    config = parse('--preset=resnet50_imagenet', '--network=revnet56').config
    assert (config.network, config.zero_init_last_scale) == ('revnet56', False)
    assert parse('--preset=digits', '--network=resnet50').config.auxiliary_head == Config().auxiliary_head
    with pytest.raises(ConfigError, match='--zero_init_last_scale=True: --network=revnet56 has no'):
        parse('--preset=resnet50_imagenet', '--network=revnet56', '--zero_init_last_scale')


@pytest.mark.parametrize('flag', ['master', 'tpu', 'model_dir'])
def test_flags__a_message_has_printable_characters_only(flag: str) -> None:
    # An unassigned character; each value is also refused for another reason.
    value = {'master': '\ud7fc', 'tpu': 'emulated:\ud7fc', 'model_dir': '*\ud7fc'}[flag]
    with pytest.raises(ConfigError) as error:
        parse(f'--{flag}={value}')
    assert '\\ud7fc' in str(error.value) and str(error.value).isprintable()


@pytest.mark.parametrize(('flag', 'help'), [('--help', 'help'), ('-h', 'help'), ('--helpshort', 'helpshort')])
def test_flags__help_and_verbose_are_known_before_values_are_checked(flag: str, help: str) -> None:
    command_line = parse(flag, '--height=1', '--verbose', '--preset=digits')
    assert (command_line.help, command_line.verbose, command_line.preset) == (help, True, 'digits')
    assert command_line.config == Config()
    assert parse().help == '' and not parse('--noverbose').verbose


def test_help__fills_the_lines_of_any_terminal(monkeypatch: Any) -> None:
    monkeypatch.setenv('COLUMNS', '1')
    assert '--train_steps' in help_of('--help')
    # A column stays free; long lines are hard to read.
    for columns, width in ((60, 59), (5000, 100)):
        monkeypatch.setenv('COLUMNS', str(columns))
        assert max(map(len, help_of('--help').splitlines())) <= width
        text = 'x' * (width - len('  --a=1  '))
        assert flags._flag_help('a', 1, text) == f'  --a=1  {text}'
        assert flags._flag_help('a', 1, f'{text}x') == f'  --a=1\n      {text}x'


def test_help__explains_presets_and_shows_the_values_of_a_named_one() -> None:
    words = ' '.join(help_of('--helpshort').split())
    assert all(f'{name} {DESCRIPTIONS[name]}' in words for name in PRESETS)
    assert '--fast=False' in words and '--train_steps' not in words
    assert '--preset=imagenet ' in words
    text = help_of('--preset=digits', '--help')
    assert '--preset=digits ' in text
    assert 'preprocessing (defaults of --preset=digits):' in text
    shown = {name: f'{value:g}' if isinstance(value, float) else value for name, value in PRESETS['digits'].items()}
    assert all(f'  --{name}={value}' in text for name, value in shown.items())
    assert '  --eval_timeout=' in text and '--eval_timeout=None' not in text
    assert help_of('--version') == f'inception-v3 {inception_v3.__version__}'


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (['--preset=digits'], True),
        (['--preset=finetune', '--init_from=w'], True),
        (['--preset=digits', '--batch_norm_decay=0.95'], False),
        # Decays for TPU cores, and the documented decay.
        (['--preset=imagenet_large_batch'], False),
        (['--preset=revnet56_imagenet'], False),
        (['--use_tpu=False'], False),
    ],
)
def test_preset__chooses_the_decay_of_statistics_for_few_images(arguments: List[str], expected: bool) -> None:
    assert parse(*arguments).chooses_statistics == expected


def test_check_data_dir__refuses_a_missing_folder_that_would_be_read(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ('--preset=digits', '--use_data=fake --data_dir=no/such', f'--data_dir={tmp_path}', ''):
        flags.check_data_dir(parse(*arguments.split()))
    with pytest.raises(CommandError, match='--data_dir=no/such: '):
        flags.check_data_dir(parse('--data_dir=no/such'))


def test_long_value__is_cut_in_the_message() -> None:
    with pytest.raises(ConfigError, match=r'--train_steps=x+.*: must be a whole number') as error:
        flags.parse(['main', f'--train_steps={"x" * 5000}'])
    # A longer message would show little but the value.
    assert len(str(error.value)) < 300
