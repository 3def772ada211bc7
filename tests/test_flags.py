"""The command line."""

import dataclasses
import re
from typing import Any, List

import pytest

from inception_v3 import flags
from inception_v3.config import Config, ConfigError, setting_of
from inception_v3.presets import PRESETS


def parse(*arguments: str) -> flags.CommandLine:
    return flags.parse(['program', *arguments])


def test_without_flags_it_is_the_documented_default() -> None:
    assert parse() == flags.CommandLine(Config(), frozenset(), None, False, False)


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
        (['--flagfile=/no/such/file'], ['--flagfile=/no/such/file: cannot be read']),
        (['--flagfile='], ['--flagfile=: must be a file']),
        (['--flagfile=/dev/zero'], ['--flagfile=/dev/zero: more than 1 MiB']),
        (['--nouse_tpu=1'], ['--nouse_tpu=1', '--help']),
        (['--' + 'x' * 5000], ['xxx...xxx', 'no such flag', '--help']),
        (['--train_steps=' + '9' * 5000], ['train_steps=999', 'a whole number']),
        (['--train_steps=3000000000'], ['--train_steps=3000000000: must be at most 2147483647']),
        (['--train_batch_size=1' + '0' * 99], ['--train_batch_size=1000', 'must be at most 2147483647']),
        (['--data_dir=\udcff'], [r'--data_dir=\udcff: must be a text in UTF-8']),
        (['--optimizer=a\nb'], [r'--optimizer=a\nb: must be sgd']),
        (['--tpu=emulated:1000000'], ['--tpu=emulated:1000000: must have at most 2,048 cores']),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(arguments: List[str], parts: List[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse(*arguments)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'\x7fELF\xff\xfe', 'not a text in UTF-8. It must hold flags, a line each.'),
        (b'--flagfile=FILE\n', 'names itself, or there are more than 100 such files.'),
        (b'--flagfile=FILE\n' * 9, 'names itself, or there are more than 100 such files.'),
    ],
)
def test_files_that_hold_no_flags_are_refused(content: bytes, message: str, tmp_path: Any) -> None:
    path = tmp_path / 'flags'
    path.write_bytes(content.replace(b'FILE', str(path).encode()))
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(f'--flagfile={path}')


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
