"""Tests of the preflight's checks of flags: contradictions, and values that are allowed but rarely intended."""

from typing import Any, List

import pytest

from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from tests.support.preflights import FAKE, SMALL, errors_of, run, warnings_of


@pytest.mark.parametrize(
    ('arguments', 'findings'),
    [
        (['--train_batch_size=1000'], [['--train_batch_size=1000', '32', '992']]),
        (['--num_shards=8'], [['--num_shards=8', 'v2-32 has 32 cores']]),
        (['--use_tpu=False'], [['--use_tpu=False', 'CPU']]),
        (['--tpu=emulated:8'], [['--tpu=emulated:8', '--topology=v2-32']]),
        (['--model_dir=/runs/1'], [['--model_dir=/runs/1', "this machine's disk", 'gs://']]),
        (
            ['--model_dir=s3://bucket/run', '--data_dir=s3://bucket/data'],
            [['--data_dir=s3://bucket/data', 'gs:// path'], ['--model_dir=s3://bucket/run', 'gs:// path']],
        ),
        (['--height=10'], [['--height=10', 'at least 75']]),
        (['--max_bad_records=3'], [['--max_bad_records=3', '--model_dir']]),
        (
            ['--data_dir=/records/x'],
            [['--data_dir=/records/x', "this machine's disk"]],
        ),
        # All at once.
        (
            ['--num_shards=8', '--train_batch_size=1000', '--eval_batch_size=1', '--model_dir=/m'],
            [['--num_shards=8'], ['--train_batch_size=1000'], ['--eval_batch_size=1'], ['--model_dir=/m']],
        ),
    ],
)
def test_inconsistent_flags__every_problem_is_reported(
    capsys: Any, without_graphs: None, arguments: List[str], findings: List[List[str]]
) -> None:
    errors = errors_of(capsys, '--topology=v2-32', *SMALL, *arguments)
    for parts in findings:
        assert any(all(part in error for part in parts) for error in errors), errors
    assert len(errors) == len(findings)


@pytest.mark.parametrize('flag', ['--num_shards=32', '--use_tpu', '--tpu=node'])
def test_flags_of_the_run_on_the_tpu__not_refused(capsys: Any, without_graphs: None, flag: str) -> None:
    missing = ['--model_dir'] if flag == '--tpu=node' else ['--model_dir', '--tpu']
    # The decay of batch normalization for 32 cores: 0.9997 ** 32.
    warnings = warnings_of(capsys, '--topology=v2-32', *FAKE, '--batch_norm_decay=0.9904', flag)
    assert [warning.split(':')[0] for warning in warnings] == missing


def test_decay_of_batch_normalization__that_of_other_cores_is_told(capsys: Any, without_graphs: None) -> None:
    flags = ['--topology=v2-32', *FAKE]
    (warning,) = [text for text in warnings_of(capsys, *flags, '--mode=train') if 'decay' in text]
    assert warning.startswith('--batch_norm_decay=0.9976 is for 8 cores') and '--batch_norm_decay=0.9904' in warning
    assert not [text for text in warnings_of(capsys, *flags, '--mode=eval') if 'decay' in text]


def test_unused_folder__not_refused(capsys: Any, without_graphs: None) -> None:
    flags = [*FAKE, '--topology=v2-8', '--data_dir=/records/x']
    assert run(capsys, *flags).code == 0
    # The same flags in a run on the TPU.
    config = Config(use_data='fake', data_dir='/records/x', model_dir='gs://bucket/run', master='grpc://10.0.0.2:8470')
    assert make_estimator(config).model_dir == 'gs://bucket/run'


@pytest.mark.parametrize(
    ('arguments', 'parts'),
    [
        # Steps of 1,024 of 102,400 images: 500 steps are 5 epochs.
        (['--use_learning_rate_warmup', '--train_steps=500', '--cold_epochs=2', '--warmup_epochs=3'], ['5.0 epochs']),
        (['--use_learning_rate_warmup', '--train_steps=501', '--cold_epochs=2', '--warmup_epochs=3'], []),
        (
            ['--use_learning_rate_warmup', '--train_steps=500', '--cold_epochs=2', '--warmup_epochs=3', '--mode=eval'],
            [],
        ),
        (['--train_batch_size=4096'], ['--train_batch_size=4096: batches of 4096 images or more']),
        (['--train_batch_size=4096', '--mode=eval'], []),
        (['--train_batch_size=4096', '--use_learning_rate_warmup'], []),
        (['--train_batch_size=40'], ['--train_batch_size=40: 5 images per core']),
        (['--train_batch_size=40', '--mode=eval'], []),
        (['--eval_batch_size=72'], ['--eval_batch_size=72: 9 images per core']),
        (['--eval_batch_size=72', '--mode=train'], []),
        (['--eval_total_size=5001'], ['--eval_total_size=5001: exceeds the 5000 validation images']),
        (['--eval_total_size=5001', '--mode=train'], []),
    ],
)
def test_schedule__warns_about_values_that_are_rarely_intended(
    capsys: Any, without_graphs: None, arguments: List[str], parts: List[str]
) -> None:
    images = ['--num_train_images=102400', '--num_eval_images=5000']
    warnings = warnings_of(capsys, '--topology=v2-8', *FAKE, *images, *arguments)
    # The first two warnings are about --model_dir and --tpu, which are not given.
    assert len(warnings) == 2 + len(parts)
    for part, warning in zip(parts, warnings[2:]):
        assert part in warning


@pytest.mark.parametrize(
    ('arguments', 'part'),
    [
        (['--iterations=2001'], '--iterations=2001: longer than --train_steps_per_eval=2000'),
        (['--iterations=600', '--train_steps=500'], '--iterations=600: longer than --train_steps=500'),
        (['--iterations=2001', '--mode=train'], ''),
        (['--iterations=9999', '--mode=eval'], ''),
        # The default of 100 is cut to the steps of a short run.
        (['--train_steps=50'], ''),
    ],
)
def test_iterations__longer_than_the_steps_between_checkpoints(
    capsys: Any, without_graphs: None, arguments: List[str], part: str
) -> None:
    flags = [*FAKE, '--topology=v2-8', *arguments]
    if part:
        (error,) = errors_of(capsys, *flags)
        assert error.startswith(part) and 'Set --iterations to 100' in error
    else:
        assert run(capsys, *flags).code == 0
