"""Tests of the preflight's reports of whole runs, of its command line, and of its checks of flags.

It reports contradictions, and values that are allowed but rarely intended.
"""

import json
import re
from typing import Any, List

import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.fitting import fit_to_data_set
from inception_v3.flags import parse
from tests.support.preflights import FAKE, SMALL, errors_of, run, warnings_of
from tools.estimate import core_memory
from tools.preflight.graphs import replica_memory
from tools.preflight.report import Report


def test_revnet__fits_a_v2_8_as_published() -> None:
    # 128 images per core in float32, as published, on another device.
    config = Config(network='revnet104', height=224, width=224)
    assert core_memory(config, 128, True).total < 8 << 30


@pytest.mark.program
def test_revnet__sums_the_gradient_of_each_variable() -> None:
    result = run(*FAKE, '--topology=v2-8', '--network=revnet38', '--mode=train')
    sums, variables = re.findall(r'  collectives +(\d+), for (\d+) trainable variables', result.out)[0]
    assert result.code == 0 and sums == variables and int(sums) > 100


@pytest.mark.program
def test_documented_default__may_start_on_a_v2_8() -> None:
    result = run('--topology=v2-8', '--mode=train', '--json')
    report = result.report
    assert (result.code, report['may_start'], report['errors']) == (0, True, [])
    # Flags that a run needs and this command line lacks.
    assert [warning.split(':')[0] for warning in report['warnings']] == ['--model_dir', '--tpu', '--data_dir']
    assert report['training']['collectives'] == 196
    memory = report['training_memory_of_a_core']
    assert memory['parameter_count'] == 27_145_970
    # Published runs of this size used a v2-8: the estimate must fit, and be close to the memory.
    assert 0.75 * memory['memory_bytes'] < memory['total_bytes'] < memory['memory_bytes'] == 8 << 30


def test_documented_default__has_these_batches_steps_files_and_infeed(one_layer: None) -> None:
    report = run('--topology=v2-8', '--json').report
    assert report['cluster'] == {'topology': 'v2-8', 'cores': 8, 'hosts': 1}
    training, evaluation = report['training'], report['evaluation']
    assert [training[key] for key in ('batch', 'batch_per_host', 'batch_per_core')] == [1024, 1024, 128]
    assert [evaluation[key] for key in ('batch', 'batch_per_host', 'batch_per_core')] == [1024, 1024, 128]
    assert training['steps'] == 213000
    assert training['steps_per_epoch'] == pytest.approx(1281167 / 1024)
    assert training['epochs'] == pytest.approx(213000 * 1024 / 1281167)
    # 50,000 images, and 176 of padding.
    assert evaluation['steps'] == 49
    assert training['files_per_host'] == [1024, 1024] and evaluation['files_per_host'] == [128, 128]
    of_a_core = 128 * 299 * 299 * 3 * 4 + 128 * 4
    for section in (training, evaluation):
        assert (section['infeed_bytes'], section['infeed_bytes_per_host']) == (of_a_core, 8 * of_a_core)
    assert (training['collectives'], training['batch_norm_collectives']) == (4, 0)
    # The network of one layer: 16 filters and their shifts, and the logits of 1,001 classes.
    parameters = 3 * 3 * 3 * 16 + 16 + 16 * 1001 + 1001
    statistics = 2 * 16 * 4 + 8
    memory = report['training_memory_of_a_core']
    assert memory.pop('activation_bytes') + 16 * parameters + statistics == memory.pop('total_bytes')
    assert memory == {
        'parameter_count': parameters,
        'parameter_bytes': 4 * parameters,
        'optimizer_bytes': 8 * parameters,
        'average_bytes': 4 * parameters,
        'other_bytes': statistics,
        'memory_bytes': 8 << 30,
    }
    assert 'average_bytes' not in report['evaluation_memory_of_a_core']
    assert 'xla_step' not in report


def test_topology__hosts_share_files_and_feed_their_own_cores(one_layer: None, without_files: None) -> None:
    flags = ['--topology=v3-32', '--train_batch_size=512', '--eval_batch_size=256', '--use_learning_rate_warmup']
    result = run(*SMALL, *flags, '--json')
    assert result.code == 0, result.out
    training, evaluation = result.report['training'], result.report['evaluation']
    hosts, image = 4, 75 * 75 * 3 * 4 + 4
    assert (training['batch_per_host'], training['batch_per_core']) == (512 // hosts, 16)
    assert (training['input_pipelines'], training['files_per_host']) == (hosts, [1024 // hosts] * 2)
    assert (training['infeed_bytes'], training['infeed_bytes_per_host']) == (16 * image, 512 // hosts * image)
    # In evaluation, too, each host feeds its own cores.
    files = [128 // hosts, -(-128 // hosts)]
    assert (evaluation['input_pipelines'], evaluation['files_per_host']) == (hosts, files)
    # 50,000 images in 128 files: 390 or 391 in each.
    most = evaluation['images_per_host'][1]
    assert evaluation['steps'] == -(-most * hosts // 256) and 50_000 // hosts <= most <= 391 * files[1]


def test_gpus__of_two_machines_share_files_and_batches(
    one_layer: None, without_files: None, digits_dir: str, tmp_path: Any
) -> None:
    flags = [f'--data_dir={digits_dir}', f'--model_dir={tmp_path}/model', '--batch_norm=synchronized', '--json']
    hosts = ['--worker_hosts=a:2222,b:2222', '--task_index=1', '--num_gpus=4', '--batch_norm_group_size=4']
    batches = ['--preset=digits', '--train_batch_size=64', '--eval_batch_size=80']
    result = run(*batches, *hosts, *flags)
    assert result.code == 0, result.out
    report = result.report
    assert report['cluster'] == {'num_gpus': 4, 'machines': 2, 'replicas': 8}
    training, evaluation = report['training'], report['evaluation']
    sizes = [[part[f'batch{each}'] for each in ('', '_per_machine', '_per_gpu')] for part in (training, evaluation)]
    assert sizes == [[64, 32, 8], [80, 40, 10]]
    # The graphs of two replicas of a machine, with sums across machines.
    assert training['operations'] > evaluation['operations'] > 0
    memory = report['training_memory_of_a_gpu']
    assert memory['total_bytes'] == memory['variable_bytes'] + memory['activation_bytes']
    config = fit_to_data_set(parse(['', *batches, *hosts, *flags[:-1]], tf_config=''))
    assert memory['activation_bytes'] == 8 * replica_memory(config, True).per_image
    assert any(text.startswith('the other machines: ') for text in report['not_checked'])
    assert not any('TPU' in text for text in [*report['not_checked'], *report['warnings']])


def test_gpus__have_their_problems_reported(without_graphs: None) -> None:
    batch = errors_of(*FAKE, '--num_gpus=3', '--train_batch_size=32', '--eval_batch_size=3')
    assert [text.split(':')[0] for text in batch] == ['--train_batch_size=32']
    assert 'name the TPU of the run' in run(*FAKE).err and 'for a run on GPUs, --num_gpus' in run(*FAKE).err
    assert '--num_gpus=-1: give the number' in run(*FAKE, '--num_gpus=-1').err
    assert '--xla: is for a TPU' in run(*FAKE, '--num_gpus=2', '--xla').err
    assert run(*FAKE, '--accelerator=gpu').out.startswith('preflight of a run on GPUs')
    assert any('--num_gpus' in text for text in errors_of(*FAKE, '--topology=v2-8', '--num_gpus=2'))


@pytest.mark.parametrize(
    ('name', 'machines', 'version', 'command'),
    [
        ('v3-8', '1 TPU VM;', 'tpu-vm-tf-2.15.1-se', 'python -m inception_v3.main --tpu=local'),
        ('v3-32', '4 TPU VMs;', 'tpu-vm-tf-2.15.1-pod-se', 'python -m inception_v3.main --tpu=NAME --num_shards=32'),
        ('emulated:8', '', '', ''),
    ],
)
def test_software__is_what_can_be_rented_today(
    without_graphs: None, name: str, machines: str, version: str, command: str
) -> None:
    flag = f'--topology={name}' if machines else f'--tpu={name}'
    report = run(*FAKE, flag, '--json').report
    if not machines:
        assert 'software' not in report
        return
    software = report['software']
    assert (software['architecture'], software['software_version']) == ('TPU VM', version)
    assert software['command'].endswith(f'./run --tf=image {command}')
    assert software['command'].startswith('TPU_LOAD_LIBRARY=0 ') == (name == 'v3-32')
    lines = run(*FAKE, flag).out.splitlines()
    assert lines[0] == f'preflight of a run on {name}' and lines[-1].startswith('may start, ')
    text = ' '.join(' '.join(lines).split())
    assert f'{machines} TPU nodes ended in April 2025' in text
    assert ('built the graphs below: check again' in text) != tf.__version__.startswith('2.15')


@pytest.mark.program
def test_emulated_tpu__defines_the_topology(one_layer: None, digits_dir: str, tmp_path: Any) -> None:
    flags = ['--tpu=emulated:6x3', '--train_batch_size=48', '--eval_batch_size=48', '--json']
    result = run(*SMALL, *flags, f'--data_dir={digits_dir}', f'--model_dir={tmp_path}/model')
    assert result.code == 0, result.out
    report = result.report
    assert report['cluster'] == {'topology': 'emulated:6x3', 'cores': 6, 'hosts': 3}
    # An emulated TPU has no memory of its own.
    assert 'memory_bytes' not in report['training_memory_of_a_core']
    # From dataset.json: 1,438 images in 8 files.
    assert report['training']['epochs'] == pytest.approx(213000 * 48 / 1438)
    assert report['training']['files_per_host'] == [2, 3]
    decay, warning, of_evaluation = report['warnings']
    assert decay.startswith('--batch_norm_decay=0.9976 is not alpha ** 6 = 0.9982')
    # Four files of 89 or 90 images: the first host has two of them.
    assert report['evaluation']['images_per_host'] == [90, 179]
    assert of_evaluation.startswith('evaluation: 12 steps, where 8 would do')
    assert '8 train files cannot be divided equally among 3 hosts' in warning


def test_seed__hosts_divide_records_instead_of_files(one_layer: None, digits_dir: str, tmp_path: Any) -> None:
    sizes = ['--train_batch_size=48', '--eval_batch_size=48', f'--data_dir={digits_dir}']
    flags = ['--tpu=emulated:6x3', '--mode=train', '--seed=3', f'--model_dir={tmp_path}/model', '--json']
    result = run(*SMALL, *sizes, *flags)
    assert result.code == 0, result.out
    # 12 lanes for 3 hosts; without them, 16.
    assert result.report['training']['lanes_per_host'] == 4 and 'files_per_host' not in result.report['training']
    warnings = ' '.join(result.report['warnings'])
    assert 'hosts that divides 16' in warnings and 'cannot be divided equally' not in warnings


@pytest.mark.parametrize(
    ('arguments', 'parts'),
    [
        (['--topology=w2-8'], ['--topology=w2-8', 'no such Cloud TPU', 'v2-8', 'v3-2048']),
        (['--topology=v5litepod-16'], ['--topology=v5litepod-16: this program runs on v2 and v3 only; ', '(PJRT)']),
        *((['--topology=' + name], ['this program runs on v2 and v3 only']) for name in ('v4-8', 'v9-8', 'tpu7x')),
        *((['--topology=' + name], ['no such Cloud TPU']) for name in ('v3-16', 'v10-8', 'xv4-8')),
        (['--tpu=node'], ['--topology', 'name the TPU', 'v2-8', '--tpu=emulated:CORES']),
        (['--tpu=emulated:8x3'], ['--tpu=emulated:8x3', '3 hosts']),
        (['--topology=v2-8', '--xla=7'], ['xla=7', 'must be True or False']),
        (['--topology=v2-8', '--train_stpes=3'], ['train_stpes', 'train_steps']),
    ],
)
def test_invalid_command_line__has_one_message_and_exit_code_2(arguments: List[str], parts: List[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, '')
    assert result.err.startswith('error: ') and 'Traceback' not in result.err
    for part in parts:
        assert part in result.err


def test_report__has_sections_findings_and_the_verdict() -> None:
    report = Report('a title')
    report.add('of_a_core', key_bytes=3 << 20, hosts=[3, 1200])
    report.add('of_a_core', 'three', k=3.14159)
    report.warn('careful')
    path = '--model_dir=gs://bucket/' + 'a-long-path/' * 12
    report.error(f'{"word " * 18}{path}: cannot be written to')
    report.not_checked.append('the weather')
    lines = report.text().splitlines()
    assert lines[2:6] == [
        'of a core',
        '  key bytes  3,145,728 (3.0 MiB)',
        '  hosts      3 to 1,200',
        '  k          3.14, three',
    ]
    assert f'{path}: cannot' in lines[-7], 'long paths are not broken'
    assert lines[-6:] == ['  warning  careful', '', 'not checked', '    the weather', '', 'may not start: 1 problem']
    assert json.loads(report.json()) == {
        'of_a_core': {'key_bytes': 3 << 20, 'hosts': [3, 1200], 'k': 3.14159},
        'errors': report.errors,
        'warnings': ['careful'],
        'not_checked': ['the weather'],
        'may_start': False,
    }


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
            '--num_shards=8 --height=10 --eval_batch_size=1 --model_dir=/m --data_dir=/data',
            [
                '--num_shards=8: --topology=v2-32 has 32 cores',
                '--height=10: ',
                '--eval_batch_size=1: ',
                "--model_dir=/m: a Cloud TPU's hosts can only reach gs://",
                "--data_dir=/data: a Cloud TPU's hosts can only reach gs://",
            ],
        ),
    ],
)
def test_inconsistent_flags__are_all_reported(without_graphs: None, flags: str, findings: List[str]) -> None:
    errors = errors_of('--topology=v2-32', '--width=75', *flags.split())
    assert len(errors) == len(findings) and all(any(part in error for error in errors) for part in findings), errors


@pytest.mark.parametrize('flag', ['--num_shards=32', '--use_tpu', '--tpu=node'])
def test_flags_of_the_run_on_the_tpu__are_accepted(without_graphs: None, flag: str) -> None:
    missing = ['--model_dir'] if flag == '--tpu=node' else ['--model_dir', '--tpu']
    # The decay of batch normalization for 32 cores: 0.9997 ** 32.
    warnings = warnings_of('--topology=v2-32', *FAKE, '--batch_norm_decay=0.9904', flag)
    assert [warning.split(':')[0] for warning in warnings] == missing


def test_unused_folder__is_accepted(without_graphs: None) -> None:
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
def test_iterations__must_not_exceed_the_steps_between_checkpoints(
    without_graphs: None, flags: str, finding: str
) -> None:
    report = run(*FAKE, '--topology=v2-8', *flags.split(), '--json').report
    assert len(report['errors']) == bool(finding)
    assert all(text.startswith(finding) and 'Set --iterations to 100' in text for text in report['errors'])
