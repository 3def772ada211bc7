"""Tests of the preflight's checks of flags: contradictions, and values that are allowed but rarely intended."""

from typing import List

import pytest

from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from tests.support.preflights import FAKE, errors_of, run, warnings_of


@pytest.mark.parametrize(
    ('flags', 'findings'),
    [
        ('--train_batch_size=1000', ['--train_batch_size=1000: must be']),
        ('--use_tpu=False', ['--use_tpu=False: a run on the CPU needs no preflight']),
        ('--tpu=emulated:8', ['--tpu=emulated:8: contradicts --topology=v2-32']),
        ('--data_dir=/records/x', ["--data_dir=/records/x: a Cloud TPU's hosts can only reach gs://"]),
        ('--max_bad_records=3', ['--max_bad_records=3: ']),
        # All at once.
        (
            '--num_shards=8 --height=10 --eval_batch_size=1 --model_dir=/m --data_dir=s3://bucket/data',
            [
                '--num_shards=8: --topology=v2-32 has 32 cores',
                '--height=10: ',
                '--eval_batch_size=1: ',
                "--model_dir=/m: a Cloud TPU's hosts can only reach gs://",
                "--data_dir=s3://bucket/data: a Cloud TPU's hosts can only reach gs://",
            ],
        ),
    ],
)
def test_inconsistent_flags__every_problem_is_reported(without_graphs: None, flags: str, findings: List[str]) -> None:
    errors = errors_of('--topology=v2-32', '--width=75', *flags.split())
    assert len(errors) == len(findings) and all(any(part in error for error in errors) for part in findings), errors


@pytest.mark.parametrize('flag', ['--num_shards=32', '--use_tpu', '--tpu=node'])
def test_flags_of_the_run_on_the_tpu__not_refused(without_graphs: None, flag: str) -> None:
    missing = ['--model_dir'] if flag == '--tpu=node' else ['--model_dir', '--tpu']
    # The decay of batch normalization for 32 cores: 0.9997 ** 32.
    warnings = warnings_of('--topology=v2-32', *FAKE, '--batch_norm_decay=0.9904', flag)
    assert [warning.split(':')[0] for warning in warnings] == missing


def test_unused_folder__not_refused(without_graphs: None) -> None:
    assert run(*FAKE, '--topology=v2-8', '--data_dir=/records/x').code == 0
    # The same flags in a run on the TPU.
    config = Config(use_data='fake', data_dir='/records/x', model_dir='gs://bucket/run', master='grpc://10.0.0.2:8470')
    assert make_estimator(config).model_dir == 'gs://bucket/run'


@pytest.mark.parametrize(('mode', 'finding'), [('train', '--batch_norm_decay=0.9976 is not alpha '), ('eval', '')])
def test_decay__of_another_number_of_cores_is_a_warning(without_graphs: None, mode: str, finding: str) -> None:
    # The first two warnings are about --model_dir and --tpu, which are not given.
    _, _, *warnings = warnings_of('--topology=v2-32', *FAKE, f'--mode={mode}')
    assert len(warnings) == bool(finding) and all(warning.startswith(finding) for warning in warnings)


@pytest.mark.parametrize('name', ['v2-128', 'v2-512'])
def test_preset__of_a_published_slice_has_no_unintended_values(without_graphs: None, name: str) -> None:
    warnings = warnings_of(f'--topology={name}', f'--preset=imagenet_{name.replace("-", "_")}', *FAKE)
    assert [warning.split(':')[0] for warning in warnings] == ['--model_dir', '--tpu']


@pytest.mark.parametrize(
    ('flags', 'finding'),
    [
        ('--iterations=2001', '--iterations=2001: longer than --train_steps_per_eval=2000'),
        ('--iterations=600 --train_steps=500', '--iterations=600: longer than --train_steps=500'),
        ('--iterations=2001 --mode=train', ''),
        ('--iterations=9999 --mode=eval', ''),
        # The default of 100 is cut to the steps of a short run.
        ('--train_steps=50', ''),
    ],
)
def test_iterations__longer_than_the_steps_between_checkpoints(without_graphs: None, flags: str, finding: str) -> None:
    report = run(*FAKE, '--topology=v2-8', *flags.split(), '--json').report
    assert len(report['errors']) == bool(finding)
    assert all(text.startswith(finding) and 'Set --iterations to 100' in text for text in report['errors'])
