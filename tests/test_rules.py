"""Tests of refused combinations of values, each with an allowed neighbour."""

import pathlib
from typing import Any, Dict, Tuple

import pytest

from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.presets import PRESETS
from inception_v3.rules import check, problems_with_data_set

WARM_UP = {'use_learning_rate_warmup': True, 'warmup_epochs': 0, 'learning_rate_decay_epochs': 1}
GPU = {'layout': 'NCHW', 'use_tpu': False}
GROUPS = {'batch_norm': 'synchronized', 'batch_norm_group_size': 3}
TAR_BOXES = {'data_format': 'tar', 'use_annotated_bbox': True}
LIST_OF_STEPS = 'the first and the last step, counted from 1, such as 101,110: at most 100 training steps'

# Refused values, the message's flag with its value, another part of the message, and a change that makes them allowed.
CASES: Tuple[Tuple[Dict[str, Any], str, str, Dict[str, Any]], ...] = (
    ({'train_batch_size': 1020}, 'train_batch_size=1020', '--num_shards=8; the nearest is 1024', {'use_tpu': False}),
    ({'eval_batch_size': 3}, 'eval_batch_size=3', 'the nearest is 8', {'eval_batch_size': 8}),
    ({'num_gpus': 2}, 'num_gpus=2', 'here --use_tpu=True', {'use_tpu': False}),
    ({'num_gpus': 2, 'tpu': 'node'}, 'num_gpus=2', '--tpu=node', {'num_gpus': 1}),
    ({'num_gpus': 0, 'use_tpu': False}, 'num_gpus=0', 'at least 1, or -1', {'num_gpus': -1}),
    ({'num_gpus': -1, 'use_tpu': False, 'accelerator': 'cpu'}, 'num_gpus=-1', 'virtual', {'accelerator': 'gpu'}),
    (
        {'num_gpus': 8, 'use_tpu': False, 'train_batch_size': 1020},
        'train_batch_size=1020',
        'replicas, --num_gpus=8; the nearest is 1024',
        {'num_gpus': 4},
    ),
    ({'master': 'http://a'}, 'master=http://a', 'begins with grpc://', {'master': 'grpc://a'}),
    ({'master': 'grpc:a'}, 'master=grpc:a', 'begins with grpc://', {'master': ''}),
    ({'master': 'grpc://a', 'tpu': 'node'}, 'master=grpc://a', 'leave out --tpu=node', {'tpu': None}),
    ({'master': 'grpc://a', 'tpu': 'emulated:8'}, 'master=grpc://a', 'has no address', {'master': ''}),
    ({'tpu': 'local', 'num_shards': 32}, 'num_shards=32', '--tpu=local is', {'num_shards': 8}),
    ({'accelerator': 'gpu', 'tpu': 'node'}, 'accelerator=gpu', '--tpu=node', {'accelerator': 'auto'}),
    ({'accelerator': 'cpu'}, 'accelerator=cpu', '--use_tpu=False', {'use_tpu': False}),
    ({'precision': 'float16'}, 'precision=float16', '--precision=bfloat16', {'use_tpu': False}),
    ({'layout': 'NCHW'}, 'layout=NCHW', 'a TPU computes in NHWC', {'use_tpu': False}),
    ({**GPU, 'accelerator': 'cpu'}, 'layout=NCHW', 'a CPU computes in NHWC', {'accelerator': 'gpu'}),
    ({**GPU, 'batch_norm': 'synchronized'}, 'layout=NCHW', '--batch_norm=synchronized', {'layout': 'NHWC'}),
    ({'tpu': 'emulated:'}, 'tpu=emulated:', 'emulated:CORES or emulated:CORESxHOSTS', {'tpu': 'emulated:8'}),
    ({'tpu': 'emulated:4'}, 'num_shards=8', '--tpu=emulated:4 has 4 cores', {'use_tpu': False}),
    (GROUPS, 'batch_norm_group_size=3', 'cores, 8 (--num_shards)', {'batch_norm_group_size': 4}),
    ({**GROUPS, 'use_tpu': False}, 'batch_norm_group_size=3', 'replicas, 1 (--num_gpus)', {'mode': 'eval'}),
    ({**GROUPS, 'batch_norm': 'averaged'}, 'batch_norm_group_size=3', 'here it is averaged', {'mode': 'eval'}),
    (WARM_UP, 'warmup_epochs=0', '--learning_rate_decay_epochs=1', {'warmup_epochs': 1}),
    (WARM_UP, 'warmup_epochs=0', 'must be at least 1', {'learning_rate_decay_epochs': 2}),
    ({**WARM_UP, 'schedule': 'step'}, 'warmup_epochs=0', '--schedule=step', {'warmup_epochs': 1}),
    ({**WARM_UP, 'schedule': 'cosine'}, 'warmup_epochs=0', '=cosine', {'use_learning_rate_warmup': False}),
    *(
        ({'step_epochs': wrong}, f'step_epochs={wrong}', 'increasing epochs from 1', {'step_epochs': '1,999999'})
        for wrong in ('5,1000000', '', '30,', '60,30', '30,30', '0,30', '1.5', 'a')
    ),
    ({'width': 74}, 'width=74', 'at least 75 with --network=inception_v3', {'width': 75}),
    ({'width': 31, 'height': 32, 'network': 'resnet50'}, 'width=31', 'at least 32', {'width': 32}),
    (
        {'network': 'revnet56', 'zero_init_last_scale': True},
        'zero_init_last_scale=True',
        'resnet50',
        {'network': 'resnet50'},
    ),
    *(
        ({'model_dir': folder}, f'model_dir={folder}', 'any of the characters * ? [', {'model_dir': 'run]'})
        for folder in ('run*', 'r?n', '[run')
    ),
    ({'model_dir': 'runs/../x', 'data_dir': 'x/'}, 'model_dir=runs/../x', '--data_dir', {'model_dir': 'x/model'}),
    (TAR_BOXES, 'use_annotated_bbox=True', '--data_format=tar', {'data_format': 'tfrecord'}),
    (TAR_BOXES, 'use_annotated_bbox=True', 'no bounding boxes', {'use_annotated_bbox': False}),
    *(
        ({'profile_steps': steps}, f'profile_steps={steps}', LIST_OF_STEPS, {'profile_steps': mended})
        for steps, mended in (
            *(('5', '5,5'), ('0,5', '1,5'), ('1, 5', '1,5'), ('5,4', '4,5'), ('1,101', '2,101')),
            *(('212991,213001', '212991,213000'), ('2000,2001', '2001,2002'), ('1999,2001', '1999,2000')),
        )
    ),
    ({'profile_steps': '1,5', 'mode': 'eval'}, 'profile_steps=1,5', '--mode=eval', {'mode': 'train'}),
    ({'image_summaries': 2, 'use_data': 'fake'}, 'image_summaries=2', '--use_data=real', {'use_data': 'real'}),
    ({'max_bad_records': 2}, 'max_bad_records=2', 'needs --model_dir', {'model_dir': 'run'}),
    ({'transfer': 'uint8', 'fast_mode': False}, 'transfer=uint8', '--fast_mode=True', {'preprocessing': 'vgg'}),
)


@pytest.mark.parametrize(('values', 'flag', 'part', 'mended'), CASES)
def test_contradictions__are_named_alone_and_can_be_mended(values: Any, flag: str, part: str, mended: Any) -> None:
    with pytest.raises(ConfigError) as error:
        check(Config(**values))
    (line,) = str(error.value).splitlines()
    assert line.startswith(f'--{flag}: ') and part in line
    check(Config(**{**values, **mended}))


def test_contradictions__are_all_named() -> None:
    with pytest.raises(ConfigError) as error:
        check(Config(height=74, width=74, train_batch_size=4, max_bad_records=1))
    assert [line.partition('=')[0] for line in str(error.value).splitlines()] == [
        '--train_batch_size',
        '--height',
        '--width',
        '--max_bad_records',
    ]


def parsed(text: str) -> flags.CommandLine:
    return flags.parse(['main', '--model_dir=m', *text.split()])


@pytest.mark.parametrize(
    ('text', 'flag', 'other'),
    [
        ('--use_tpu=False --tpu=node', '--tpu=node', '--use_tpu=False'),
        ('--use_tpu=False --tpu=emulated:2', '--tpu=emulated:2', '--use_tpu=False'),
        ('--use_tpu=False --master=grpc://10.0.0.2:8470', '--master=grpc://10.0.0.2:8470', '--use_tpu=False'),
        ('--use_tpu=False --tpu_zone=z', '--tpu_zone=z', '--use_tpu=False'),
        ('--tpu=emulated:8 --gcp_project=p', '--gcp_project=p', '--tpu=emulated:8'),
        ('--master=grpc://a:1 --tpu_zone=z', '--tpu_zone=z', '--master=grpc://a:1'),
        ('--tpu=node --num_shards=16', '--num_shards=16', '8, 32, 64'),
        ('--master=grpc://a:1 --num_shards=16', '--num_shards=16', 'they have 8, 32, '),
        ('--use_tpu=False --tpu= --num_shards=16 --label_smoothing=1', '--label_smoothing=1', 'below 1'),
        ('--schedule=cosine --step_epochs=30,60', '--step_epochs=30,60', '--schedule=cosine'),
        ('--schedule=exponential --step_epochs=30,60,80', '--step_epochs=30,60,80', '--schedule=step'),
        ('--schedule=cosine --learning_rate_decay=0.5', '--learning_rate_decay=0.5', '--schedule=cosine'),
        ('--schedule=step --learning_rate_decay_epochs=2', '--learning_rate_decay_epochs=2', '--schedule=step'),
        ('--schedule=step --use_learning_rate_warmup --cold_epochs=2', '--cold_epochs=2', '--schedule=step'),
        ('--schedule=cosine --use_learning_rate_warmup --cap_warmup', '--cap_warmup=True', '--schedule=cosine'),
        ('--use_learning_rate_warmup=False --warmup_epochs=5', '--warmup_epochs=5', '--use_learning_rate_warmup=False'),
        ('--moving_average=False --moving_average_decay=0.9', '--moving_average_decay=0.9', '--moving_average=False'),
        ('--moving_average_decay=1', '--moving_average_decay=1', 'below 1'),
        ('--batch_norm_decay=1', '--batch_norm_decay=1', 'below 1'),
        # A value without an effect is refused only for that reason.
        ('--moving_average=False --moving_average_decay=1', '--moving_average_decay=1.0', '--moving_average=False'),
        ('--moving_average=False --batch_norm_decay=1', '--batch_norm_decay=1', 'below 1'),
        ('--label_smoothing=1', '--label_smoothing=1', 'below 1'),
        ('--preprocessing=vgg --crop_area_min=0.3', '--crop_area_min=0.3', '--preprocessing=vgg'),
        ('--preprocessing=vgg --crop_padding=2', '--crop_padding=2', '--preprocessing=vgg'),
        ('--preprocessing=vgg --fast_mode=True', '--fast_mode=True', '--preprocessing=vgg'),
        ('--use_fast_color_distort=False --cb_distortion_range=0.2', '--cb_distortion_range=0.2', 'use_fast_color_'),
        ('--use_data=fake --data_format=tar', '--data_format=tar', '--use_data=fake'),
        ('--use_data=fake --max_bad_records=3', '--max_bad_records=3', '--use_data=fake'),
        ('--network=resnet50 --auxiliary_head=True', '--auxiliary_head=True', '--network=resnet50'),
        ('--network=revnet38 --auxiliary_head=True', '--auxiliary_head=True', '--network=revnet38'),
        ('--network=inception_v3 --rebuild_activations=True', '--rebuild_activations=True', 'inception_v3'),
        ('--height=80 --width=299 --auxiliary_head=True', '--auxiliary_head=True', '107'),
        ('--learning_rate_decay=1 --learning_rate_decay_epochs=4', '--learning_rate_decay_epochs=4', 'decay=1.0'),
        ('--mode=train --eval_timeout=5', '--eval_timeout=5', '--mode=train'),
        ('--mode=train --keep_best', '--keep_best=True', '--mode=train'),
        ('--export_dir=m', '--export_dir=m', '--model_dir'),
        ('--init_from=m/', '--init_from=m/', '--model_dir'),
        ('--init_except=Logits', '--init_except=Logits', '--init_from'),
        ('--init_from=w --init_except=a,,b', '--init_except=a,,b', 'names of scopes'),
        ('--freeze=/', '--freeze=/', 'names of scopes'),
        ('--freeze= --freeze_batch_norm=False', '--freeze_batch_norm=False', '--freeze='),
        ('--init_from= --init_averages=False', '--init_averages=False', '--init_from='),
        ('--export_dir=d --data_dir=d/', '--export_dir=d', '--data_dir'),
    ],
)
def test_parse__refuses_flags_that_contradict_each_other(text: str, flag: str, other: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(text)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f'{flag}: ') and other in line and line.endswith('.')


@pytest.mark.parametrize('flag', ['data_dir', 'export_dir', 'init_from'])
def test_parse__knows_the_model_dir_by_any_spelling(flag: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'm').mkdir()
    (tmp_path / 'link').symlink_to(tmp_path / 'm')
    for spelling in ('m/', './m', '../' + tmp_path.name + '/m', str(tmp_path / 'm'), 'link'):
        with pytest.raises(ConfigError, match='model_dir'):
            parsed(f'--{flag}={spelling}')
    assert parsed(f'--{flag}=gs://m')


@pytest.mark.parametrize(
    'text',
    [
        *(f'--preset={name}' for name in PRESETS),
        '--preset=resnet50_imagenet --schedule=cosine',
        '--preset=digits --network=resnet50 --use_tpu=False',
        '--preset=digits --tpu=emulated:4x2 --iterations=5',
        '--preset=cifar10_stream --train_batch_size=2048 --num_shards=8',
        '--schedule=step --step_epochs=30,60 --learning_rate_decay=0.1',
        '--mode=eval --eval_timeout=5 --keep_best --train_steps=5',
        '--num_shards=16',
        '--image_key=a --label_key=a/b',
        *(f'--data_format=tar --label_key={key}' for key in ('cls', 'txt', 'json:a')),
        '--tpu=node --tpu_zone=z --gcp_project=p --num_shards=32',
        '--use_data=fake --brightness_distortion_range=0.5 --num_train_images=100000',
        '--moving_average_decay=0.9 --batch_norm_decay=0.9 --label_smoothing=0',
        # The number of steps is unknown until the number of images is known.
        '--train_epochs=1 --profile_steps=2000,2010',
    ],
)
def test_parse__accepts_flags_that_agree(text: str) -> None:
    parsed(text)


@pytest.mark.parametrize(
    ('text', 'refused'),
    [
        ('--eval_total_size=60000', ('--eval_total_size=60000', '50,000')),
        ('--eval_total_size=50000', ()),
        ('--eval_total_size=60000 --mode=train', ()),
        ('--use_learning_rate_warmup --train_steps=1000', ('--use_learning_rate_warmup=True', '--train_steps=1000')),
        ('--use_learning_rate_warmup --warmup_epochs=2 --train_steps=1000', ('--warmup_epochs=2', 'takes 4 epochs')),
        ('--preset=resnet50_imagenet --train_steps=1000', ()),
        ('--use_learning_rate_warmup --train_steps=12000', ()),
        # As many epochs as the warm-up has, and half an epoch more.
        (
            '--cold_epochs=5 --use_learning_rate_warmup --train_steps=12 --num_train_images=1024',
            ('--cold_epochs=5', ''),
        ),
        ('--cold_epochs=5 --use_learning_rate_warmup --train_steps=25 --num_train_images=2048', ()),
        ('--schedule=step --use_learning_rate_warmup --train_steps=8 --num_train_images=1024', ()),
        ('--schedule=step --use_learning_rate_warmup --train_steps=7 --num_train_images=1024', ('takes 7 epochs', '')),
        ('--use_learning_rate_warmup --train_epochs=2', ('--train_steps=2503 ends after 2.0.', '')),
        ('--use_learning_rate_warmup --train_epochs=2 --mode=eval', ()),
    ],
)
def test_problems_with_data_set__are_named(text: str, refused: Tuple[str, ...]) -> None:
    command_line: Any = parsed(text)
    problems = [*problems_with_data_set(command_line.config, command_line.given)]
    assert len(problems) == bool(refused)
    assert all(part in problems[0] for part in refused)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (
            '--tpu=node --num_shards=16',
            '--num_shards=16: no Cloud TPU has so many cores; they have 8, 32, 64, 128, 256, 512, 1024 or 2048.',
        ),
        (
            '--height=80 --width=299 --auxiliary_head=True',
            '--auxiliary_head=True: needs images of at least 107 x 107 pixels; --height=80 and --width=299 are too '
            'small. Leave one of the flags out.',
        ),
        (
            '--batch_norm=synchronized --batch_norm_group_size=3',
            '--batch_norm_group_size=3: must divide the number of cores, 8 (--num_shards).',
        ),
        (
            '--tpu=local --num_shards=32',
            '--num_shards=32: --tpu=local is the TPU of one machine, which has 8 cores. Name a slice with --tpu=NAME.',
        ),
        (
            '--profile_steps=1,101 --train_steps=500 --train_steps_per_eval=200',
            '--profile_steps=1,101: must be the first and the last step, counted from 1, such as 101,110: at most 100 '
            'training steps up to --train_steps=500, without an evaluation between them (--train_steps_per_eval=200, '
            '--mode=train_and_eval).',
        ),
        ('--label_smoothing=1', '--label_smoothing=1: must be below 1; every label would be spread over all classes, '),
        (f'--model_dir=*{"x" * 4000}', f'--model_dir=*{"x" * 4000}: must not contain any of the characters * ? [.'),
    ],
)
def test_message__has_what_is_wrong_and_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(text)
    (line,) = str(error.value).splitlines()
    assert line.startswith(message)


def test_num_shards__may_be_any_number_without_a_named_cloud_tpu() -> None:
    for text in ('--num_shards=16', '--use_tpu=False --num_shards=16', '--tpu=emulated:16 --num_shards=16'):
        parsed(text)
    parsed('--auxiliary_head=True --height=107 --width=107')
    parsed('--auxiliary_head=False --height=80')
