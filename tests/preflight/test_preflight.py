"""Tests of the preflight's command line."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple

import pytest
import tensorflow as tf

from data import records
from inception_v3 import input_pipeline, model_fn
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
from inception_v3.preflight import __main__ as preflight
from inception_v3.preflight import graphs, storage
from inception_v3.preflight.report import Report
from inception_v3.tpu.topology import CLOUD_TPUS, emulated
from tests.support.photos import Photo, photo_example, set_boxes

# Most of these tests do not depend on the network, and use `one_layer`.
SMALL = ['--height=75', '--width=75']


class Result(NamedTuple):
    """The exit code and the output of a preflight."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Dict[str, Any]:
        """The object that --json prints."""
        return json.loads(self.out)


def run(capsys: Any, *arguments: str) -> Result:
    code = preflight.main(['preflight', *arguments])
    return Result(code, *capsys.readouterr())


@pytest.fixture
def reachable(tmp_path: Any) -> List[str]:
    """Flags of a v2-8 at a loopback address, which can reach this machine's folders."""
    return [*SMALL, '--topology=v2-8', '--master=grpc://127.0.0.1:8470', f'--model_dir={tmp_path}/model']


@pytest.mark.slow
@pytest.mark.parametrize(
    ('flags', 'variables'),
    [
        (['--preset=resnet50_imagenet'], 161),
        # 128 images per core in float32, as published, on another device.
        (['--network=revnet104', '--height=224', '--width=224'], 321),
    ],
)
def test_other_networks__fit_a_v2_8(capsys: Any, flags: List[str], variables: int) -> None:
    result = run(capsys, '--topology=v2-8', *flags, '--json')
    assert (result.code, result.report['errors']) == (0, [])
    # There is no warning about memory.
    assert [warning.split(':')[0] for warning in result.report['warnings']] == ['--model_dir', '--data_dir']
    # One sum over the cores for the gradient of each variable.
    assert result.report['training']['collectives'] == variables


def test_documented_default__may_start_on_a_v2_8(capsys: Any) -> None:
    result = run(capsys, '--topology=v2-8', '--json')
    report = result.report
    assert (result.code, report['may_start'], report['errors']) == (0, True, [])
    # Flags that a run needs and this command line lacks.
    assert [warning.split(':')[0] for warning in report['warnings']] == ['--model_dir', '--data_dir']
    assert report['cluster'] == {'topology': 'v2-8', 'cores': 8, 'hosts': 1}
    training, evaluation = report['training'], report['evaluation']
    assert [training[key] for key in ('batch', 'batch_per_host', 'batch_per_core')] == [1024, 1024, 128]
    assert training['steps'] == 213000
    assert training['epochs'] == pytest.approx(213000 * 1024 / 1281167)
    assert training['files_per_host'] == [1024, 1024] and evaluation['files_per_host'] == [128, 128]
    assert training['infeed_bytes'] == 128 * 299 * 299 * 3 * 4 + 128 * 4
    assert training['infeed_bytes_per_host'] == 8 * training['infeed_bytes']
    assert (training['collectives'], training['batch_norm_collectives']) == (196, 0)
    assert (evaluation['steps'], evaluation['batch_per_core']) == (49, 128)
    memory = report['training_memory_of_a_core']
    assert memory['parameter_count'] == 27_145_970
    assert memory['parameter_bytes'] == 4 * 27_145_970
    # RMSProp keeps a mean square and a momentum.
    assert memory['optimizer_bytes'] == 8 * 27_145_970
    assert memory['average_bytes'] == 4 * 27_145_970
    # Published runs of this size used a v2-8: the estimate must fit, and be close to the memory.
    assert 0.75 * memory['memory_bytes'] < memory['total_bytes'] < memory['memory_bytes'] == 8 << 30
    assert 'backward pass' in report['estimate']['of_activations']


@pytest.mark.parametrize(
    'name', [pytest.param(name, marks=pytest.mark.slow if CLOUD_TPUS[name].cores > 256 else ()) for name in CLOUD_TPUS]
)
def test_topology__report_describes_cores_hosts_and_feeding(capsys: Any, one_layer: None, name: str) -> None:
    topology = CLOUD_TPUS[name]
    batch = 16 * topology.cores
    flags = [f'--topology={name}', f'--train_batch_size={batch}', f'--eval_batch_size={8 * topology.cores}']
    result = run(capsys, *SMALL, *flags, '--use_learning_rate_warmup', '--json')
    assert result.code == 0, result.out
    report = result.report
    hosts = max(1, topology.cores // 8)
    assert report['cluster'] == {'topology': name, 'cores': topology.cores, 'hosts': hosts}
    image = 75 * 75 * 3 * 4 + 4
    training, evaluation = report['training'], report['evaluation']
    assert (training['batch_per_host'], training['batch_per_core']) == (batch // hosts, 16)
    assert (training['input_pipelines'], training['files_per_host']) == (hosts, [1024 // hosts] * 2)
    assert (training['infeed_bytes'], training['infeed_bytes_per_host']) == (16 * image, batch // hosts * image)
    assert training['collectives'] == 4
    # In evaluation, the first host feeds all cores.
    assert (evaluation['input_pipelines'], evaluation['files_per_host']) == (1, [128, 128])
    assert (
        evaluation['infeed_bytes_per_host'] == topology.cores * evaluation['infeed_bytes'] == 8 * topology.cores * image
    )
    memory = report['training_memory_of_a_core']['memory_bytes']
    assert memory == {'v2': 8 << 30, 'v3': 16 << 30}[name[:2]]


def test_text_report__ends_with_the_verdict(capsys: Any, one_layer: None) -> None:
    result = run(capsys, *SMALL, '--topology=v2-8', '--train_batch_size=24')
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == 'preflight of a run on v2-8'
    assert lines[-1] == 'may start, 3 warnings'
    assert '--train_batch_size=24: 3 images per core' in ' '.join(result.out.split())
    assert all(len(line) <= 120 for line in lines)


def test_emulated_tpu__defines_the_topology(capsys: Any, one_layer: None, digits_dir: str, tmp_path: Any) -> None:
    flags = ['--tpu=emulated:6x3', '--train_batch_size=48', '--eval_batch_size=48', '--json']
    result = run(capsys, *SMALL, *flags, f'--data_dir={digits_dir}', f'--model_dir={tmp_path}/model')
    assert result.code == 0, result.out
    report = result.report
    assert report['cluster'] == {'topology': 'emulated:6x3', 'cores': 6, 'hosts': 3}
    # An emulated TPU has no memory of its own.
    assert 'memory_bytes' not in report['training_memory_of_a_core']
    # From dataset.json: 1,438 images in 8 files.
    assert report['training']['epochs'] == pytest.approx(213000 * 48 / 1438)
    assert report['training']['files_per_host'] == [2, 3]
    (warning,) = report['warnings']
    assert '8 train files cannot be divided equally among 3 hosts' in warning


@pytest.mark.parametrize('name', ['emulated:8x2', 'emulated:6x3'])
def test_emulated_tpu__graph_of_a_real_tpu(capsys: Any, one_layer: None, tmp_path: Any, name: str) -> None:
    topology = emulated(name)
    flags = [f'--tpu={name}', '--use_data=fake', '--train_batch_size=96', '--eval_batch_size=48', '--json']
    result = run(capsys, *SMALL, *flags, f'--model_dir={tmp_path}/model')
    assert result.code == 0, result.out
    training, evaluation = result.report['training'], result.report['evaluation']
    image = 75 * 75 * 3 * 4 + 4
    of_host = 96 // topology.hosts
    assert (training['input_pipelines'], training['infeed_bytes_per_host']) == (topology.hosts, of_host * image)
    # In evaluation, the first host feeds all cores.
    assert (evaluation['input_pipelines'], evaluation['infeed_bytes_per_host']) == (1, 48 * image)
    assert training['collectives'] == 4
    assert all(
        result.report[f'{section}_memory_of_a_core']['activation_bytes'] for section in ('training', 'evaluation')
    )


def test_unused_folder__not_refused(capsys: Any, one_layer: None) -> None:
    flags = [*SMALL, '--topology=v2-8', '--use_data=fake', '--data_dir=/records/x']
    assert run(capsys, *flags).code == 0
    # The same flags in a run on the TPU.
    config = Config(use_data='fake', data_dir='/records/x', model_dir='gs://bucket/run', master='grpc://10.0.0.2:8470')
    assert make_estimator(config).model_dir == 'gs://bucket/run'


@pytest.mark.parametrize(
    'error', [OSError(28, 'No space left on device'), tf.errors.UnavailableError(None, None, 'No space\nin graph')]
)
def test_system_error__one_message_and_exit_code_1(capsys: Any, monkeypatch: Any, error: Exception) -> None:
    def fail(*others: Any) -> None:
        raise error

    monkeypatch.setattr(preflight.storage, 'stand_in', fail)
    result = run(capsys, '--topology=v2-8')
    assert (result.code, result.out) == (1, '')
    message = result.err.splitlines()[-1]
    assert message.startswith('error: ') and 'No space' in message and '--verbose' in message
    assert 'Traceback' not in result.err and 'in graph' not in result.err
    with pytest.raises(type(error)):
        run(capsys, '--topology=v2-8', '--verbose')


def test_mode__only_its_graphs_are_built(capsys: Any, one_layer: None) -> None:
    report = run(capsys, *SMALL, '--topology=v2-8', '--mode=eval', '--json').report
    assert 'training' not in report and report['evaluation']['steps'] == 49


@pytest.mark.parametrize(
    ('arguments', 'parts'),
    [
        (['--topology=v9-8'], ['--topology=v9-8', 'no such Cloud TPU', 'v2-8', 'v3-2048']),
        (['--topology=v2'], ['--topology=v2', 'v2-8']),
        ([], ['--topology', 'name the TPU', 'v2-8', '--tpu=emulated:CORES']),
        (['--tpu=node'], ['--topology', 'name the TPU']),
        (['--tpu=emulated:8x3'], ['--tpu=emulated:8x3', '3 hosts']),
        (['--topology=v2-8', '--xla=perhaps'], ['xla', 'perhaps']),
        (['--topology=v2-8', '--xla=7'], ['xla=7', 'must be True or False']),
        (['--topology=v2-8', '--train_stpes=3'], ['train_stpes', 'train_steps']),
        (['--topology=v2-8', '--train_batch_size=many'], ['train_batch_size=many', 'a whole number']),
        (['--topology=v2-8', '--preset=foo'], ['preset', 'foo', 'digits']),
        (['--topology=v2-8', 'train'], ['train: not a flag']),
    ],
)
def test_invalid_command_line__one_message_and_exit_code_2(capsys: Any, arguments: List[str], parts: List[str]) -> None:
    result = run(capsys, *arguments)
    assert (result.code, result.out) == (2, '')
    assert result.err.startswith('error: ') and 'Traceback' not in result.err
    for part in parts:
        assert part in result.err


@pytest.mark.parametrize(
    ('arguments', 'findings'),
    [
        (['--train_batch_size=1000'], [['--train_batch_size=1000', '32', '992']]),
        (['--eval_batch_size=1'], [['--eval_batch_size=1', '32']]),
        (['--num_shards=8'], [['--num_shards=8', 'v2-32 has 32 cores']]),
        (['--use_tpu=False'], [['--use_tpu=False', 'CPU']]),
        (['--tpu=emulated:8'], [['--tpu=emulated:8', '--topology=v2-32']]),
        (['--model_dir=/runs/1'], [['--model_dir=/runs/1', "this machine's disk", 'gs://']]),
        (
            ['--model_dir=s3://bucket/run', '--data_dir=s3://bucket/data'],
            [['--data_dir=s3://bucket/data', 'gs:// path'], ['--model_dir=s3://bucket/run', 'gs:// path']],
        ),
        (['--master=grpc://10.0.0.2:8470', '--model_dir=/runs/1'], [['--model_dir=/runs/1', 'gs://']]),
        (['--master=worker'], [['--master=worker', 'grpc://']]),
        (['--precision=int8'], [['--precision=int8', 'bfloat16']]),
        (['--height=10'], [['--height=10', 'at least 75']]),
        (['--batch_norm_group_size=4'], [['--batch_norm_group_size=4', '--batch_norm=synchronized']]),
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
    capsys: Any, one_layer: None, arguments: List[str], findings: List[List[str]]
) -> None:
    result = run(capsys, '--topology=v2-32', *SMALL, *arguments, '--json')
    errors = result.report['errors']
    assert result.code == 2 and not result.report['may_start']
    for parts in findings:
        assert any(all(part in error for part in parts) for error in errors), errors
    assert len(errors) <= len(findings)


def test_memory__far_too_large_batch_is_an_error(capsys: Any) -> None:
    result = run(capsys, '--topology=v2-8', '--mode=train', '--train_batch_size=2048', '--json')
    (error,) = result.report['errors']
    assert result.code == 2 and '--train_batch_size=2048' in error and 'GiB of a core, far more than fits' in error


@pytest.mark.slow
def test_memory__v3_holds_more_and_a_small_excess_is_a_warning(capsys: Any) -> None:
    assert run(capsys, '--topology=v3-8', '--mode=train', '--train_batch_size=2048', '--json').code == 0
    result = run(capsys, '--topology=v2-8', '--mode=train', '--train_batch_size=1152', '--json')
    *_, warning = result.report['warnings']
    assert result.code == 0 and 'fits only if XLA recomputes' in warning


def errors_of(capsys: Any, *arguments: str) -> List[str]:
    """Runs a preflight that must fail, and returns its errors."""
    result = run(capsys, *arguments, '--json')
    assert result.code == 2
    return result.report['errors']


def test_data__fewer_files_than_hosts_is_an_error(
    capsys: Any, one_layer: None, photo_dir: str, reachable: List[str]
) -> None:
    flags = [*reachable, '--topology=v2-32', f'--data_dir={photo_dir}', '--json']
    (error,) = errors_of(capsys, *flags)
    assert '2 train files for 4 TPU hosts' in error
    # In an evaluation, one host reads all files.
    assert run(capsys, *flags, '--mode=eval').code == 0


def test_folders__written_and_deleted(
    capsys: Any, one_layer: None, photo_dir: str, reachable: List[str], tmp_path: Any
) -> None:
    flags = [*reachable, f'--data_dir={photo_dir}', '--json']
    report = run(capsys, *flags).report
    assert report['may_start'] and report['storage'] == {'data_dir': photo_dir, 'model_dir': f'{tmp_path}/model'}
    assert os.listdir(f'{tmp_path}/model') == []
    (tmp_path / 'file').write_text('')
    (error,) = errors_of(capsys, *flags, f'--model_dir={tmp_path}/file/model')
    assert f'--model_dir={tmp_path}/file/model: cannot be written to' in error
    (error,) = errors_of(capsys, *flags, f'--export_dir={tmp_path}/file/export')
    assert f'--export_dir={tmp_path}/file/export: cannot be written to' in error


def test_data__first_files_are_read(
    capsys: Any, one_layer: None, photo_dir: str, reachable: List[str], tmp_path: Any
) -> None:
    data_dir = str(tmp_path / 'data')
    shutil.copytree(photo_dir, data_dir)
    flags = [*reachable, f'--data_dir={data_dir}']
    path = records.shard_path(data_dir, records.VALIDATION, 0, 2)
    with open(path, 'r+b') as file:
        file.seek(100)
        file.write(b'damage')
    (error,) = errors_of(capsys, *flags)
    assert path in error and 'damaged' in error
    os.remove(records.shard_path(data_dir, records.VALIDATION, 0, 2))
    os.remove(records.shard_path(data_dir, records.VALIDATION, 1, 2))
    (error,) = errors_of(capsys, *flags)
    assert 'no validation files' in error
    # A run that only trains needs no validation files; a missing training file is a warning.
    os.remove(records.shard_path(data_dir, records.TRAIN, 0, 2))
    result = run(capsys, *flags, '--mode=train', '--json')
    (warning,) = result.report['warnings']
    assert result.code == 0 and '1 of 2 train files are missing' in warning and 'train-00000-of-00002' in warning
    with open(os.path.join(data_dir, 'dataset.json'), 'w') as file:
        file.write('{}')
    (error,) = errors_of(capsys, *flags, '--mode=train')
    assert 'dataset.json: not a valid description' in error


def test_data__bad_boxes_are_an_error_if_used(
    capsys: Any, one_layer: None, photo_dir: str, photos: List[Photo], reachable: List[str], tmp_path: Any
) -> None:
    data_dir = str(tmp_path / 'data')
    shutil.copytree(photo_dir, data_dir)
    uneven = photo_example(photos[0])
    set_boxes(uneven, ymin=[0.1, 0.2], xmin=[0.1], ymax=[0.5], xmax=[0.6])
    for split in (records.TRAIN, records.VALIDATION):
        with tf.io.TFRecordWriter(records.shard_path(data_dir, split, 0, 2)) as writer:
            writer.write(uneven.SerializeToString())
    flags = [*reachable, f'--data_dir={data_dir}']
    assert run(capsys, *flags).code == 0
    (error,) = errors_of(capsys, *flags, '--use_annotated_bbox')
    assert 'train-00000-of-00002, record 0: bounding boxes with missing corners' in error


def test_checkpoint__of_another_network_is_an_error(
    capsys: Any, one_layer: None, reachable: List[str], tmp_path: Any
) -> None:
    (tmp_path / 'model').mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.train.create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(tmp_path / 'model' / 'model.ckpt'), 0)
    errors = errors_of(capsys, *reachable, '--mode=train')
    assert len(errors) == 1 and 'model.ckpt-0: does not fit this run' in errors[0]


def test_bucket_without_an_answer__reported_in_time(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    monkeypatch.setattr('inception_v3.preflight.storage._ANSWER_SECONDS', 1)
    folders = ['--model_dir=gs://no-such-bucket/run', '--data_dir=gs://no-such-bucket/records']
    errors = errors_of(capsys, *SMALL, '--topology=v2-8', *folders)
    assert ['no answer within 1 seconds' in error for error in errors] == [True, True]


def test_timeout__does_not_count_loading_tensorflow(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / 'sitecustomize.py').write_text('import time; time.sleep(6)')
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))
    monkeypatch.setattr('inception_v3.preflight.storage._ANSWER_SECONDS', 5)
    report = Report('storage')
    assert storage.unanswered(Config(model_dir=f'file://{tmp_path}'), [], report) == set()
    assert report.may_start


def test_unsupported_operation__named_with_its_source_line(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    network = NETWORKS['inception_v3']

    def with_a_unique(images: tf.Tensor, *others: Any, **settings: Any) -> Any:
        logits, auxiliary = network.build(images, *others, **settings)
        values, _ = tf.unique(tf.reshape(logits, [-1]), name='different')  # unique
        return logits + tf.reduce_sum(values), auxiliary

    monkeypatch.setitem(NETWORKS, 'inception_v3', network._replace(build=with_a_unique))
    with open(__file__) as file:
        (line,) = [number for number, text in enumerate(file, 1) if text.endswith('# unique\n')]
    # Evaluation, because the operation has no gradient.
    errors = errors_of(capsys, *SMALL, '--topology=v2-8', '--mode=eval')
    unsupported, dynamic = errors
    for error in errors:
        assert f'different (Unique), created at tests/preflight/test_preflight.py:{line}' in error
    assert 'no kernel' in unsupported and 'float32 [None]' in dynamic


@pytest.mark.parametrize(
    ('flag', 'numbers'),
    [
        ('--transpose_enabled=False', 4),
        ('--transpose_enabled', 4),
        ('--use_fast_color_distort=False', 3),
        ('--preprocessing=vgg', 1),
    ],
)
def test_transfer_uint8__infeed_of_words(capsys: Any, one_layer: None, flag: str, numbers: int) -> None:
    result = run(capsys, *SMALL, '--topology=v2-8', '--transfer=uint8', flag, '--json')
    report = result.report
    assert (result.code, report['errors']) == (0, [])
    words = 128 * -(-75 * 75 * 3 // 4) * 4
    assert report['training']['infeed_bytes'] == words + 128 * 4 * numbers + 128 * 4
    assert report['evaluation']['infeed_bytes'] == words + 128 * 4


def test_python_in_the_input_pipeline__is_an_error(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    def through_python(encoded: tf.Tensor, config: Any) -> tf.Tensor:
        length = tf.py_function(lambda x: tf.cast(tf.strings.length(x), tf.float32), [encoded], tf.float32)
        return tf.zeros([config.height, config.width, 3]) + tf.reshape(length, [])

    monkeypatch.setattr(input_pipeline, 'resize_for_eval', through_python)
    (error,) = errors_of(capsys, *SMALL, '--topology=v2-8')
    assert 'evaluation: ' in error and 'EagerPyFunc' in error and 'tests/preflight/test_preflight.py' in error


def test_unsummed_gradients_and_unknown_batch_size__are_errors(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            model_fn, 'make_optimizer', lambda rate, config: tf.compat.v1.train.GradientDescentOptimizer(rate)
        )
        (error,) = errors_of(capsys, *SMALL, '--topology=v2-8', '--mode=train')
        assert 'the graph of training cannot be built' in error and 'CrossShardOptimizer' in error
    with monkeypatch.context() as patch:
        patch.setattr(InputPipeline, 'transfer', lambda self, dataset, batch_size, parts: dataset.batch(batch_size))
        (error,) = errors_of(capsys, *SMALL, '--topology=v2-8', '--mode=train')
        assert 'the graph of training cannot be built' in error and '(?, 75, 75, 3)' in error


def test_temporary_folders__removed(capsys: Any, one_layer: None, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    built = []
    build = graphs.build

    def record(config: Config, *others: Any) -> tf.Graph:
        built.append(config)
        return build(config, *others)

    monkeypatch.setattr(graphs, 'build', record)
    assert run(capsys, *SMALL, '--topology=v2-8').code == 0
    folders = [folder for config in built for folder in (config.data_dir, str(config.model_dir))]
    assert len(folders) == 4 and not any(os.path.exists(folder) for folder in folders)
    assert os.listdir(str(tmp_path)) == []


def test_help__own_flags_and_flags_of_a_run(capsys: Any) -> None:
    result = run(capsys, '--help')
    assert result.code == 0
    for part in ('python -m inception_v3.preflight', '--topology=', 'v3-2048', '--xla=', '--json=', '--train_steps='):
        assert part in result.out


def preflight_in_a_process(*arguments: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(
        [sys.executable, '-m', 'inception_v3.preflight', *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_xla__compiles_and_runs_a_step() -> None:
    flags = [*SMALL, '--depth_multiplier=0.01', '--num_classes=11', '--mode=train', '--json', '--xla']
    done = preflight_in_a_process('--topology=v2-8', *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    step = json.loads(done.stdout)['xla_step']
    assert (step['batch'], step['size']) == (2, [75, 75])
    # The cross-entropy of random images, -log(1/11), plus the weight decay.
    assert 2 < step['loss'] < 6 and step['seconds'] > 0
    assert 'WARNING' not in done.stderr and 'deprecated' not in done.stderr


def test_xla__names_the_missing_operation(capsys: Any, one_layer: None, monkeypatch: Any) -> None:
    total_loss = model_fn.total_loss

    def loss_with_strings(logits: Any, auxiliary: Any, labels: Any, config: Config) -> Any:
        return total_loss(logits, auxiliary, labels, config) + tf.cast(
            tf.reduce_sum(tf.strings.length(tf.as_string(labels))), tf.float32
        )

    monkeypatch.setattr(model_fn, 'total_loss', loss_with_strings)
    errors = errors_of(capsys, *SMALL, '--topology=v2-8', '--mode=train', '--xla')
    assert any('XLA cannot compile' in error and 'AsString' in error for error in errors)
