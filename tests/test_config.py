"""Tests of the configuration: documented defaults, bounds, contradictions, JSON and presets."""

import dataclasses
import itertools
import json
from typing import Any, Dict

import pytest

from data.sources import Source
from data.tf_example import Fields
from inception_v3.config import Config, ConfigError, setting_of
from inception_v3.networks.registry import NETWORKS, has_auxiliary_head
from inception_v3.presets import PRESETS
from inception_v3.rules import check

# The documented flags and their defaults. `docs/flags.md` has those that this project adds, too.
DOCUMENTED: Dict[str, Any] = {
    **{'tpu': None, 'gcp_project': None, 'tpu_zone': None, 'master': '', 'data_dir': '', 'model_dir': None},
    **{'export_dir': None, 'num_shards': 8, 'iterations': 100, 'skip_host_call': True, 'train_batch_size': 1024},
    **{'eval_batch_size': 1024, 'eval_total_size': 0, 'train_steps': 213000, 'train_steps_per_eval': 2000},
    **{'mode': 'train_and_eval', 'min_eval_interval': 180, 'eval_timeout': None, 'use_tpu': True},
    **{'use_data': 'real', 'learning_rate': 0.165, 'optimizer': 'RMS', 'num_classes': 1001, 'width': 299},
    **{'height': 299, 'transpose_enabled': False, 'log_device_placement': False, 'save_summary_steps': 100},
    **{'save_checkpoints_secs': 1000, 'moving_average': True, 'preprocessing': 'inception'},
    **{'use_annotated_bbox': False, 'learning_rate_decay': 0.94, 'learning_rate_decay_epochs': 3},
    **{'display_tensors': False, 'clear_update_collections': True, 'cold_epochs': 2, 'warmup_epochs': 7},
    **{'use_learning_rate_warmup': False, 'prefetch_enabled': True, 'prefetch_dataset_buffer_size': 8 * 2**20},
    **{'num_files_infeed': 8, 'num_parallel_calls': 64, 'initial_shuffle_buffer_size': 1024},
    **{'followup_shuffle_buffer_size': 1000, 'precision': 'float32', 'cb_distortion_range': 0.1},
    **{'cr_distortion_range': 0.1, 'use_fast_color_distort': True},
}


def test_defaults__equal_the_documented_ones() -> None:
    assert dataclasses.asdict(Config()).items() >= DOCUMENTED.items()


def test_fields__stand_in_the_order_of_their_groups() -> None:
    groups = [setting_of(field).group for field in dataclasses.fields(Config)]
    assert [group for group, _ in itertools.groupby(groups)] == [*dict.fromkeys(groups)]


def test_source__is_that_of_the_flags_of_files_and_fields() -> None:
    files = Config(data_dir='a', data_format='tar', train_files='b', eval_files='c')
    config = dataclasses.replace(files, image_key='jpg', label_key='cls', label_offset=1)
    assert config.source == Source('a', 'tar', 'b', 'c', Fields(image='jpg', label='cls', label_offset=1))


NO_FLOAT32 = 'must be a 32-bit number, 1.2e-38 to 1.7e+38.'


@pytest.mark.parametrize(
    ('field', 'allowed', 'value', 'message'),
    [
        ('train_batch_size', 1, 0, '0: must be at least 1.'),
        ('train_batch_size', 8, '8', '8: must be a whole number.'),
        ('train_batch_size', 1, True, 'True: must be a whole number.'),
        ('height', 2**31 - 1, 2**31, '2147483648: must be at most 2147483647.'),
        ('learning_rate', 1, 0.0, '0.0: must be above 0.'),
        ('learning_rate', 1, float('nan'), 'nan: must be a number.'),
        ('learning_rate', 1, 10**400, 'inf: must be a number.'),
        (
            'learning_rate',
            2.0**127,
            2.0**127 * 1.001,
            f'{2.0**127 * 1.001}: {NO_FLOAT32}',
        ),
        ('learning_rate', 2.0**-126, 2.0**-127, f'{2.0**-127}: {NO_FLOAT32}'),
        ('crop_area_min', 1, 1.5, '1.5: must be above 0 and at most 1.'),
        ('moving_average_decay', 1, 1.001, '1.001: must be at least 0 and at most 1.'),
        ('weight_decay', 0.0, -0.001, '-0.001: must be at least 0 and at most 1.'),
        ('optimizer', 'sgd', 'adam', 'adam: must be sgd, momentum or RMS.'),
        ('optimizer', 'RMS', None, 'None: must be a string.'),
        ('use_tpu', True, 1, '1: must be True or False.'),
        ('num_classes', 2, 1, '1: must be at least 2.'),
        ('image_summaries', 99, 100, '100: must be at least 0 and at most 99.'),
        ('seed', 0, -1, '-1: must be at least 0.'),
        ('eval_timeout', None, -1, '-1: must be at least 0.'),
        ('data_dir', 'a' * 4096, 'a' * 4097, f'{"a" * 40}...{"a" * 40}: must be a string of at most 4,096 characters.'),
        ('data_dir', '\N{ZERO WIDTH JOINER}', 'a\0', r'a\x00: must be a UTF-8 string without control characters.'),
        ('data_dir', 'é 日本', '\ud800', r'\ud800: must be a UTF-8 string without control characters.'),
    ],
)
def test_wrong_value__message_says_what_is_allowed(field: str, allowed: Any, value: Any, message: str) -> None:
    assert getattr(Config(**{field: allowed}), field) == allowed
    with pytest.raises(ConfigError) as error:
        Config(**{field: value})
    assert str(error.value) == f'--{field}={message}'


def test_wrong_values__are_all_reported_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        Config(train_steps=0, optimizer='adam')
    assert str(error.value).splitlines() == [
        '--optimizer=adam: must be sgd, momentum or RMS.',
        '--train_steps=0: must be at least 1.',
    ]


@pytest.mark.parametrize('network', sorted(NETWORKS))
def test_network__accepts_default_and_false_for_options_it_lacks(network: str) -> None:
    check(Config(network=network))
    check(Config(network=network, auxiliary_head=False, zero_init_last_scale=False, rebuild_activations=False))


@pytest.mark.parametrize('preset', sorted(PRESETS))
def test_json__round_trip(preset: str) -> None:
    config = Config(**PRESETS[preset])
    assert Config.from_json(config.to_json()) == config
    assert json.loads(config.to_json())['train_steps'] == config.train_steps
    assert config.to_json().startswith('{\n  "tpu": ')


def test_json__accepts_missing_fields_and_whole_floats() -> None:
    config = Config.from_json('{"depth_multiplier": 1, "train_steps": 5}')
    assert config == Config(train_steps=5)
    assert type(config.depth_multiplier) is float


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        ('', 'The configuration is not JSON: Expecting value: '),
        ('[]', r'The configuration is not a JSON object\.$'),
        ('[' * 100_000, r'The configuration is not JSON: it is nested too deeply\.$'),
        ('{"no_such": 1, "train_steps": 5}', r'The configuration has unknown fields: no_such\.$'),
        ('{"train_steps": 0}', r'--train_steps=0: must be at least 1\.$'),
        ('{"train_steps": "many"}', r'--train_steps=many: must be a whole number\.$'),
    ],
)
def test_json__invalid_text_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f'^{problem}'):
        Config.from_json(text)


def test_json__of_an_earlier_version_is_read_unless_its_pixels_would_differ() -> None:
    assert Config.from_json('{"draft_decode": false, "step_lines": true}') == Config(log_steps=1)
    with pytest.raises(ConfigError, match=r'draft_decode: .* Use version'):
        Config.from_json('{"draft_decode": true}')


@pytest.mark.parametrize(
    ('size', 'asked', 'has'), [((107, 107), True, True), ((106, 299), True, False), ((299, 299), False, False)]
)
def test_auxiliary_head__is_omitted_for_small_inputs(size: Any, asked: bool, has: bool) -> None:
    assert has_auxiliary_head(Config(height=size[0], width=size[1], auxiliary_head=asked)) == has


def test_eval_images__are_all_unless_a_number_is_given() -> None:
    assert [Config(eval_total_size=each).eval_images for each in (0, 7)] == [50000, 7]
