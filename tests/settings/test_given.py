"""Tests of the judgement of the flags that a user gave: contradictions are refused, flags without effect are named."""

from typing import Any, List, Tuple

import pytest

from inception_v3.config import ConfigError
from inception_v3.settings import flags
from inception_v3.settings.given import contradictions_of_data_set, without_effect
from inception_v3.settings.presets import PRESETS


def parsed(text: str) -> flags.CommandLine:
    return flags.parse(['main', '--model_dir=m', *text.split()])


def named(text: str) -> List[str]:
    command_line = parsed(text)
    return [*without_effect(command_line.given, command_line.config)]


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
        ('--schedule=cosine --step_epochs=30,60', '--step_epochs=30,60', '--schedule=cosine'),
        ('--schedule=exponential --step_epochs=30,60,80', '--step_epochs=30,60,80', '--schedule=step'),
        ('--schedule=cosine --learning_rate_decay=0.5', '--learning_rate_decay=0.5', '--schedule=cosine'),
        ('--schedule=step --learning_rate_decay_epochs=2', '--learning_rate_decay_epochs=2', '--schedule=step'),
        ('--schedule=step --use_learning_rate_warmup --cold_epochs=2', '--cold_epochs=2', '--schedule=step'),
        ('--use_learning_rate_warmup=False --warmup_epochs=5', '--warmup_epochs=5', '--use_learning_rate_warmup=False'),
        ('--moving_average=False --moving_average_decay=0.9', '--moving_average_decay=0.9', '--moving_average=False'),
        ('--moving_average_decay=1', '--moving_average_decay=1', 'below 1'),
        ('--batch_norm_decay=1', '--batch_norm_decay=1', 'below 1'),
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


@pytest.mark.parametrize(
    ('text', 'parts'),
    [
        ('--step_epochs=30', ['--schedule=exponential', '--step_epochs=30', 'needs --schedule=step']),
        ('--warmup_epochs=5', ['--use_learning_rate_warmup=False', '--warmup_epochs=5']),
        ('--preset=digits --num_shards=8', ['--use_tpu=False', '--num_shards=8']),
        ('--preset=digits --iterations=8', ['--use_tpu=False', '--iterations=8']),
        ('--preset=digits --tpu_zone=z', ['--use_tpu=False', '--tpu_zone=z']),
        ('--use_data=fake --data_dir=d', ['--use_data=fake', '--data_dir=d']),
        (
            '--mode=eval --learning_rate=1 --train_batch_size=8',
            ['--mode=eval', '--learning_rate=1.0', '--train_batch_size=8'],
        ),
        ('--mode=train --keep_best --train_steps_per_eval=3', ['--mode=train', '--keep_best=True']),
        ('--eval_timeout=5', ['--mode=train_and_eval', '--eval_timeout=5']),
        ('--preset=resnet50_imagenet --moving_average_decay=0.9', ['--moving_average=False', 'decay=0.9']),
        ('--network=resnet50 --rebuild_activations=False', ['--rebuild_activations=False', 'reversible']),
        ('--use_tpu=False --batch_norm=synchronized', ['--batch_norm=synchronized', 'one core']),
        ('--batch_norm=synchronized --batch_norm_group_size=1', ['--batch_norm_group_size=1', 'local']),
        ('--moving_average_decay=0', ['--moving_average_decay=0', '--moving_average=False']),
        (
            '--schedule=step --step_epochs=30,200',
            ['--step_epochs=30,200', 'epoch 200 is never reached', '170.2 epochs'],
        ),
        ('--learning_rate_decay_epochs=300', ['--learning_rate_decay_epochs=300', 'never decays']),
        ('--use_learning_rate_warmup --train_batch_size=8', ['warm-up takes 9 epochs', '1.3']),
        ('--train_batch_size=2000000', ['--train_batch_size=2000000', '1,281,167']),
        ('--train_steps=50 --save_summary_steps=60', ['--save_summary_steps=60', '--train_steps=50']),
        ('--train_steps=50 --train_steps_per_eval=60', ['--train_steps_per_eval=60', '--train_steps=50']),
        ('--iterations=300000', ['--iterations=300000', '--train_steps=213000']),
        ('--iterations=500', ['--save_summary_steps=100', '--iterations=500']),
    ],
)
def test_without_effect__names_flags(text: str, parts: List[str]) -> None:
    notes = '\n'.join(named(text))
    assert all(part in notes for part in parts), notes


@pytest.mark.parametrize(
    'text',
    [
        *(f'--preset={name}' for name in PRESETS),
        '--preset=digits --schedule=cosine',
        '--preset=digits --train_steps=30 --seed=1',
        '--preset=resnet50_imagenet --schedule=cosine',
        '--preset=digits --network=resnet50 --use_tpu=False',
        '--preset=digits --tpu=emulated:4x2 --iterations=5',
        '--preset=cifar10_stream --train_batch_size=2048 --num_shards=8',
        '--schedule=step --step_epochs=30,60 --learning_rate_decay=0.1',
        '--mode=eval --eval_timeout=5 --keep_best --train_steps=5',
        '--tpu=node --tpu_zone=z --gcp_project=p --num_shards=32',
        '--use_data=fake --brightness_distortion_range=0.5 --num_train_images=100000',
        '--moving_average_decay=0.9 --batch_norm_decay=0.9 --label_smoothing=0',
        '--preprocessing=vgg --random_flip=False',
    ],
)
def test_judgement__accepts(text: str) -> None:
    assert not named(text)


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
    ],
)
def test_contradictions_of_data_set(text: str, refused: Tuple[str, ...]) -> None:
    command_line: Any = parsed(text)
    problems = [*contradictions_of_data_set(command_line.given, command_line.config)]
    assert len(problems) == bool(refused)
    assert all(part in problems[0] for part in refused)
