"""The command line."""

import dataclasses
from typing import Any, List

import pytest

from inception_v3 import flags
from inception_v3.config import PRESETS, Config, ConfigError, setting_of


def parse(*arguments: str) -> flags.CommandLine:
    return flags.parse(['program', *arguments])


def test_without_flags_it_is_the_documented_default() -> None:
    assert parse() == flags.CommandLine(Config(), frozenset(), 'imagenet', False, False)


def test_every_field_is_a_flag_with_its_type() -> None:
    config = parse('--train_steps=7', '--learning_rate=1e-3', '--use_tpu=false', '--optimizer=sgd', '--tpu=node').config
    assert config == Config(train_steps=7, learning_rate=0.001, use_tpu=False, optimizer='sgd', tpu='node')
    for field in dataclasses.fields(Config):
        value = getattr(Config(use_tpu=False, model_dir='m'), field.name)
        if value is not None:
            assert parse(f'--{field.name}={value}').given == {field.name}


def test_flags_win_over_the_preset_and_the_preset_over_the_default() -> None:
    config = parse('--preset=digits', '--train_steps=7').config
    assert config.train_steps == 7
    assert config.depth_multiplier == PRESETS['digits']['depth_multiplier']
    assert config.optimizer == Config().optimizer
    # A flag that says what the default says, too.
    assert parse('--preset=digits', '--random_flip').config.random_flip


def test_naming_a_tpu_means_using_it_with_all_cores_of_an_emulated_one() -> None:
    assert parse('--preset=digits', '--tpu=node').config.use_tpu
    assert parse('--preset=digits', '--master=grpc://node:8470').config.use_tpu
    assert not parse('--tpu=node', '--use_tpu=False').config.use_tpu
    emulated = parse('--preset=digits', '--tpu=emulated:4x2')
    assert (emulated.config.use_tpu, emulated.config.num_shards, emulated.config.hosts) == (True, 4, 2)
    assert emulated.given == {'tpu'}
    with pytest.raises(ConfigError, match='--num_shards=8: --tpu=emulated:4 has 4 cores'):
        parse('--tpu=emulated:4', '--num_shards=8')


def test_booleans_may_be_negated_and_flags_come_from_a_file(tmp_path: Any) -> None:
    assert not parse('--nomoving_average').config.moving_average
    (tmp_path / 'flags').write_text('--train_steps=9\n--optimizer=momentum\n')
    config = parse(f'--flagfile={tmp_path / "flags"}', '--train_steps=8').config
    assert (config.optimizer, config.train_steps) == ('momentum', 8)


@pytest.mark.parametrize(
    ('arguments', 'parts'),
    [
        (['--preset=foo'], ['preset', 'foo', 'digits', 'imagenet']),
        (['--optimiser=sgd'], ['optimiser', '--help']),
        (['--optimizer=adam'], ['--optimizer=adam', 'sgd, momentum or RMS']),
        (['--train_batch_size=many'], ['train_batch_size=many', 'a whole number']),
        (['--train_batch_size=1.5'], ['train_batch_size=1.5', 'a whole number']),
        (['--learning_rate=fast'], ['learning_rate=fast', 'a number']),
        (['--use_tpu=maybe'], ['use_tpu=maybe', 'True or False']),
        (['--train_steps'], ['train_steps', 'value']),
        (['train'], ['train: not a flag', '--name=value']),
        (['--flagfile=/no/such/file'], ['/no/such/file']),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(arguments: List[str], parts: List[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse(*arguments)
    for part in parts:
        assert part in str(error.value)


def test_help_names_every_flag_in_its_group_with_default_and_allowed_values() -> None:
    text = flags.help_text('inception_v3.main', 'Trains.', [('fast=False', 'train fast')])
    assert text.startswith('Trains.') and '--fast=False  train fast' in text and '-m inception_v3.main' in text
    _, *groups = text.split('\n\n')
    sections = {lines[0].rstrip(':'): '\n'.join(lines) for lines in (group.splitlines() for group in groups)}
    for field in dataclasses.fields(Config):
        setting = setting_of(field)
        section = ' '.join(sections[setting.group].split())
        assert f'--{field.name}=' in section
        assert setting.help in section
        assert setting.allowed in section
    assert '--preset=imagenet' in text and 'digits' in text and 'imagenet_large_batch' in text
    assert text.index('--preset') < text.index('cluster:')
    assert max(len(line) for line in text.splitlines()) <= 100
