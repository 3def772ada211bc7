"""Tests of the memory that a run needs and that a process can use, and of the refusal of runs that do not fit."""

import dataclasses
import functools
import pathlib
import re
import subprocess
import sys
from typing import Any, Dict

import pytest

from compat import tf
from compat.tensorflow import IS_REFERENCE
from inception_v3.config import Config, ConfigError
from inception_v3.model_fn import inception_model_fn, network_options
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet
from inception_v3.networks.sizes import sizes_of
from inception_v3.presets import PRESETS
from inception_v3.run.memory import (
    _FURTHER_CORE,
    _FURTHER_REPLICA,
    ERROR,
    PROGRAM,
    available_memory,
    check_fits,
    evaluation_memory,
    in_words,
    sizes_for,
    training_memory,
)
from tools.estimate import _padded, core_memory

GIB = 1 << 30
DIGITS = Config(**{**PRESETS['digits'], 'model_dir': 'unused', 'use_data': 'fake'})
SMALL = dataclasses.replace(DIGITS, depth_multiplier=0.01)


def size(tensor: Any) -> int:
    return tensor.shape.num_elements() * tensor.dtype.base_dtype.size


def test_sizes_for__are_made_once_for_a_network(tiny: None) -> None:
    sizes = sizes_for(SMALL)
    assert sizes_for(dataclasses.replace(SMALL, model_dir='another', seed=SMALL.seed or 1)) is sizes
    # The sizes include the dropout of the configuration.
    size = SMALL.height, SMALL.width
    assert sizes_of(NETWORKS['inception_v3'], *size, SMALL.num_classes, network_options(SMALL)) == sizes
    assert sizes_for(dataclasses.replace(SMALL, num_classes=12)).parameters > sizes.parameters


def test_training_memory__agrees_with_the_graph(monkeypatch: Any) -> None:
    short = functools.partial(revnet, REVNET_38._replace(units=(1, 1, 1)))
    monkeypatch.setitem(NETWORKS, 'revnet38', NETWORKS['revnet38']._replace(build=short))
    config = dataclasses.replace(SMALL, network='revnet38', height=33, width=33, rebuild_activations=False)
    images, labels = tf.zeros([2, 33, 33, 3]), tf.constant([1, 2])
    inception_model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, {'config': config})
    trainable = sum(map(size, tf.trainable_variables()))
    step = 8
    # All variables, twice for optimizer and averages, and the gradients of the weight decay; 2.15 takes more.
    need = training_memory(config).variables
    further = 0 if IS_REFERENCE else 4
    assert need == sum(map(size, tf.global_variables())) - step + (3 + 1 + further) * trainable
    # The same variables on a TPU core, by purpose.
    core = core_memory(config, 2, is_training=True)
    assert sum(core[:4]) == sum(map(size, tf.global_variables()))
    assert core[:3] == (trainable, 2 * trainable, trainable) and core.parameter_count == trainable / 4
    # Evaluation keeps the variables in memory, except on a TPU: the emulation builds each graph anew.
    alone, beside, emulated = (
        evaluation_memory(dataclasses.replace(config, mode=mode, use_tpu=use_tpu)).variables
        for mode, use_tpu in (('eval', False), ('train_and_eval', False), ('train_and_eval', True))
    )
    assert beside - alone == sum(map(size, tf.global_variables())) - step
    assert emulated == alone
    # Other optimizers lack the root mean square of the gradients, then also their momentum.
    for optimizer, fewer in (('momentum', 1), ('sgd', 2)):
        other = training_memory(dataclasses.replace(config, optimizer=optimizer)).variables
        assert need - other == 2 * fewer * trainable
    # The tensors of the forward pass that the backward pass reads.
    read = {
        tensor
        for operation in tf.get_default_graph().get_operations()
        if operation.name.startswith('gradients/')
        for tensor in operation.inputs
        if not tensor.op.name.startswith('gradients/') and tensor.shape.rank == 4 and tensor.shape[0] == 2
    }
    kept = sum(size(tensor) for tensor in read) / 2
    without_images = training_memory(config).per_image - 4 * (33 * 33 * 3 * 4) - 2 * config.num_classes * 4
    # Gradients of activations take memory besides the activations.
    assert 0.8 < without_images / kept / 1.15 < 1.2


def test_training_memory__counts_the_images_that_are_tried_together() -> None:
    config = dataclasses.replace(SMALL, seed=1, train_batch_size=32, model_dir='run')
    alone = training_memory(config)
    tried = training_memory(dataclasses.replace(config, max_bad_records=2))
    # 16 lanes supply 2 records each per step; 8 records tried together are those of 4 steps, in every lane.
    assert tried.variables - alone.variables == 3 * (16 * 4 * 2) * (75 * 75 * 3 * 4)
    assert tried.per_image == alone.per_image
    # The two hosts of an emulated TPU, of 8 lanes each, are on this machine.
    tpu: Dict[str, Any] = {'use_tpu': True, 'tpu': 'emulated:4x2', 'num_shards': 4}
    alone, both = (training_memory(dataclasses.replace(config, **tpu, max_bad_records=most)) for most in (0, 2))
    assert both.variables - alone.variables == tried.variables - training_memory(config).variables


def test_memory__counts_variables_for_each_replica_and_emulated_core() -> None:
    replicas = [dataclasses.replace(SMALL, num_gpus=number) for number in (1, 4)]
    cores = dataclasses.replace(SMALL, use_tpu=True, tpu='emulated:4', num_shards=4)
    (one, four), emulated = map(training_memory, replicas), training_memory(cores)
    # Only the first replica has averages, which count twice in training.
    averages = 4 * sizes_for(SMALL).parameters
    assert four.variables - 4 * one.variables + 3 * 2 * averages == 3 * _FURTHER_REPLICA
    further = _FURTHER_CORE - _FURTHER_REPLICA
    assert emulated.variables == four.variables + 3 * (2 * averages + further)
    assert emulated.per_image == four.per_image == one.per_image
    with pytest.raises(ConfigError, match='decrease --num_gpus=4, or use a smaller network'):
        check_fits(replicas[1], 3 * 10**8)
    one, four = map(evaluation_memory, replicas)
    assert four.variables + 3 * averages == 4 * one.variables and four.per_image == one.per_image


def test_evaluation_memory__grows_with_the_batches_read_ahead() -> None:
    one, four = (
        evaluation_memory(dataclasses.replace(SMALL, eval_batch_size=10, eval_total_size=images))
        for images in (10, 400)
    )
    assert four.per_image - one.per_image == 3 * (75 * 75 * 3 * 4)
    # Conv2d_2a is the largest: from 37 x 37 to 35 x 35, each with 16 channels.
    largest = (37 * 37 + 35 * 35) * 16 * 4
    assert one.per_image == largest + 75 * 75 * 3 * 4 + 11 * 4


@pytest.mark.parametrize(
    ('values', 'flag', 'allowed'),
    [
        ({'train_batch_size': 100_000_000}, 'train_batch_size', r'At most --train_batch_size=(\d+) fits'),
        ({'eval_batch_size': 1_000_000, 'mode': 'eval'}, 'eval_batch_size', r'At most --eval_batch_size=(\d+) fits'),
        ({'height': 1_000_000, 'width': 1_000_000}, 'height', 'Images of this size do not fit, for any --train_batch'),
        ({'depth_multiplier': 100.0}, 'depth_multiplier', 'Use a smaller network'),
        ({'num_classes': 2_000_000_000}, 'num_classes', 'Use a smaller network'),
    ],
)
def test_check_fits__names_the_flag_and_the_most_that_fits(values: Dict[str, Any], flag: str, allowed: str) -> None:
    config = dataclasses.replace(SMALL, **{'mode': 'train', **values})
    with pytest.raises(ConfigError, match=f'--{flag}=') as caught:
        check_fits(config, 4 * GIB)
    match = re.search(allowed, str(caught.value))
    assert match and 'GiB are available' in str(caught.value)
    for most in map(int, match.groups()):
        check_fits(dataclasses.replace(config, **{flag: most}), 4 * GIB)
        with pytest.raises(ConfigError):
            check_fits(dataclasses.replace(config, **{flag: most + 1}), 4 * GIB)


def test_check_fits__a_run_may_fill_the_memory() -> None:
    config = dataclasses.replace(SMALL, mode='eval', depth_multiplier=1.0)
    memory = evaluation_memory(config)
    need = memory.of(config.eval_batch_size)
    check_fits(config, need)
    for available, problem in (
        (need - 1, f'^--eval_batch_size={config.eval_batch_size}, '),
        (memory.variables, 'Images of this size do not fit'),
        (memory.variables - 1, f'^--network={config.network}, --num_classes='),
    ):
        with pytest.raises(ConfigError, match=problem):
            check_fits(config, available)


def test_training_memory__has_the_images_that_are_read_ahead() -> None:
    plain = training_memory(dataclasses.replace(SMALL, prefetch_enabled=False, transfer='float')).per_image
    values = SMALL.height * SMALL.width * 3
    for is_ahead, transfer, further in ((True, 'float', 3 * 4), (True, 'uint8', 0), (False, 'uint8', 1 - 4)):
        config = dataclasses.replace(SMALL, prefetch_enabled=is_ahead, transfer=transfer)
        assert training_memory(config).per_image == plain + further * values


@pytest.mark.parametrize(('name', 'flag'), [('train_batch_size',) * 2, ('eval_batch_size', 'batch_size')])
def test_check_fits__checks_training_and_evaluation_and_names_the_flag(name: str, flag: str) -> None:
    config = dataclasses.replace(SMALL, mode='train_and_eval', **{name: 10**8})
    with pytest.raises(ConfigError, match=f'^--{flag}=100000000, [^\n]*$') as caught:
        check_fits(config, 4 * GIB, eval_flag='batch_size')
    assert 'eval_batch_size' not in str(caught.value)


def test_check_fits__each_of_several_machines_has_its_share_of_the_batch() -> None:
    config = dataclasses.replace(SMALL, mode='train', train_batch_size=1000)
    together = dataclasses.replace(config, train_batch_size=2000, worker_hosts='a:1,b:1', task_index=0)
    need = training_memory(config).of(1000)
    for each in (config, together):
        check_fits(each, need)
        with pytest.raises(ConfigError):
            check_fits(each, int(0.79 * need))


def test_check_fits__warns_if_the_error_of_the_estimate_may_not_fit(caplog: Any) -> None:
    config = dataclasses.replace(SMALL, train_batch_size=1000)
    need = training_memory(config).of(1000)
    check_fits(config, int(1.21 * need))
    assert not caplog.text
    check_fits(config, int(1.19 * need))
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith('warning: training needs an estimated ') and text.endswith('--train_batch_size=1000')
    check_fits(config, int(0.81 * need))
    with pytest.raises(ConfigError):
        check_fits(config, int(0.79 * need))


def test_core_memory__pads_whole_tiles() -> None:
    # The batch fills 128 lanes; three channels are padded to eight.
    assert _padded(128, 299, 299, 3) == 128 * 299 * 299 * 8
    # Two images are padded to eight; the channels are in the lanes.
    assert _padded(2, 35, 35, 256) == 8 * 35 * 35 * 256
    assert _padded(16, 8, 8, 100) == 16 * 8 * 8 * 128


def test_core_memory__stores_what_is_normalized_pooled_or_of_a_reversible_stage(monkeypatch: Any) -> None:
    def network(images: tf.Tensor, classes: int, is_training: bool, conv: Any, norm: Any, **_: Any) -> Any:
        net = tf.nn.relu(norm(conv(images, 16, (3, 3), 2)))
        net = tf.nn.max_pool2d(net, 3, 2, 'VALID') + 1.0
        return conv(tf.nn.relu(norm(conv(net, 24, (1, 1)))), classes, (1, 1)), None

    monkeypatch.setitem(NETWORKS, 'inception_v3', NETWORKS['inception_v3']._replace(build=network))
    config = dataclasses.replace(SMALL, height=75, width=75, num_classes=77, precision='bfloat16')
    image = 75 * 75 * 3
    # The outputs of the convolutions, and the input and the output of max pooling.
    kept = 2 * 38 * 38 * 16 + 18 * 18 * 16 + 18 * 18 * 24
    assert core_memory(config, 4, is_training=True).unpadded == 4 * 2 * (image + kept)
    assert core_memory(config, 4, is_training=False).unpadded == 4 * 2 * (image + 2 * 38 * 38 * 16)
    uint8 = dataclasses.replace(config, transfer='uint8')
    assert core_memory(uint8, 4, is_training=True).unpadded == 4 * (image + 2 * kept)
    # Rebuilt units add only the moments of their normalizations.
    monkeypatch.undo()
    for is_rebuilt in (True, False):
        activations = []
        for units in (1, 2):
            short = functools.partial(revnet, REVNET_38._replace(units=(units,), depths=(32,)))
            monkeypatch.setitem(NETWORKS, 'revnet38', NETWORKS['revnet38']._replace(build=short))
            rev = dataclasses.replace(SMALL, network='revnet38', height=32, width=32, rebuild_activations=is_rebuilt)
            activations.append(core_memory(rev, 1, is_training=True).unpadded)
        # Two halves of 16 channels, two convolutions in float32: their outputs, and their inputs, padded.
        results = 2 * 2 * 4 * 32 * 32 * 16
        assert (activations[1] == activations[0]) if is_rebuilt else activations[1] > activations[0] + 2 * results


# Peaks of the resident memory of `python -m inception_v3.main --use_data=fake --mode=train --train_steps=4`, in GB, on
# 1.15 and on 2.15.
MEASURED = [
    (True, 'digits', 8, 0.752),
    (True, 'digits', 16, 0.771),
    (True, 'digits', 32, 0.804),
    (True, 'inception_v3', 8, 2.466),
    (True, 'inception_v3', 16, 3.504),
    (True, 'inception_v3', 32, 5.171),
    (True, 'resnet50', 8, 2.353),
    (True, 'resnet50', 16, 3.306),
    (True, 'resnet50', 32, 4.979),
    (False, 'digits', 8, 0.865),
    (False, 'digits', 32, 0.895),
    (False, 'inception_v3', 8, 3.106),
    (False, 'resnet50', 8, 2.931),
    (False, 'resnet50', 32, 5.636),
]


@pytest.mark.parametrize(
    ('name', 'batch', 'measured'), [case for is_reference, *case in MEASURED if is_reference == IS_REFERENCE]
)
def test_training_memory__agrees_with_measured_peaks(name: str, batch: int, measured: float) -> None:
    config = DIGITS
    if name != 'digits':
        side = 299 if name == 'inception_v3' else 224
        config = Config(use_tpu=False, network=name, height=side, width=side)
    assert (PROGRAM + training_memory(config).of(batch)) / 1e9 == pytest.approx(measured, rel=0.1)


@pytest.mark.nightly
def test_training_memory__agrees_with_the_peak_of_a_run(tmp_path: pathlib.Path) -> None:
    flags = ['--use_data=fake', '--mode=train', '--train_steps=4', '--train_batch_size=32', f'--model_dir={tmp_path}/m']
    run = [sys.executable, '-m', 'inception_v3.main', '--preset=digits', *flags]
    measure = 'import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); '
    measure += 'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)'
    done = subprocess.run([sys.executable, '-c', measure, *run], stdout=subprocess.PIPE, check=True, timeout=600)
    peak = int(done.stdout.split()[-1]) * 1024
    assert PROGRAM + training_memory(DIGITS).of(32) == pytest.approx(peak, rel=ERROR)


@pytest.mark.parametrize(
    ('changes', 'reference', 'training', 'evaluation'),
    [
        # Estimates that docs/known-behaviour.md compares with peaks: for one replica, three, and two emulated cores.
        ({}, (44166528, 1576376), (66232432, 1576376), (27651820, 368560)),
        (
            {'depth_multiplier': 0.01, 'num_gpus': 3},
            *((272994416, 1270972), (600769408, 1270972), (8495100, 368560)),
        ),
        (
            {'depth_multiplier': 0.01, 'use_tpu': True, 'tpu': 'emulated:2', 'num_shards': 2},
            *((450390720, 1270972), (455574048, 1270972), (1319896, 368560)),
        ),
    ],
)
def test_memory__of_the_digits_is_estimated_to_the_byte(
    changes: Any, reference: Any, training: Any, evaluation: Any
) -> None:
    config = dataclasses.replace(DIGITS, **changes)
    assert training_memory(config) == (reference if IS_REFERENCE else training)
    assert evaluation_memory(config) == evaluation
    assert (690 if IS_REFERENCE else 800) * 10**6 == PROGRAM


@pytest.mark.parametrize(
    ('size', 'text'),
    [
        (0, '0.0 MiB'),
        (3 << 19, '1.5 MiB'),
        ((1 << 30) - (1 << 19), '1,023.5 MiB'),
        (1 << 30, '1.0 GiB'),
        ((1 << 40) - (1 << 29), '1,023.5 GiB'),
        (1 << 40, '1.0 TiB'),
        (1234 << 40, '1,234.0 TiB'),
    ],
)
def test_in_words__has_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert in_words(size) == text


def test_check_fits__names_the_copies_and_the_most_of_several_machines() -> None:
    emulated = dataclasses.replace(SMALL, mode='train', use_tpu=True, tpu='emulated:4', num_shards=4)
    with pytest.raises(
        ConfigError, match=r'^--network=inception_v3, --depth_multiplier=0\.01, --num_classes=11: '
    ) as one:
        check_fits(emulated, 10**8)
    end = 'Each of the 4 cores has a copy of them: decrease --tpu=emulated:4, or use a smaller network.'
    assert str(one.value).endswith(f'; 95.4 MiB are available on this machine. {end}')
    # Three machines of two replicas: the batch is a multiple of six, and a third of it fits on each.
    hosts = {'worker_hosts': 'a:1,b:1,c:1', 'task_index': 0, 'num_gpus': 2, 'train_batch_size': 6000}
    together = dataclasses.replace(SMALL, mode='train', eval_batch_size=6, **hosts)
    memory = training_memory(together)
    with pytest.raises(ConfigError, match=r'At most --train_batch_size=108 fits; smaller') as other:
        check_fits(together, int(0.8 * memory.of(37)))
    assert f'needs an estimated {in_words(memory.of(2000))} of memory; ' in str(other.value)
    assert str(other.value).startswith('--train_batch_size=6000, --height=75, --width=75: training needs')


def test_check_fits__accepts_the_digits_and_tasks_of_other_machines() -> None:
    check_fits(DIGITS, GIB // 4)
    for values in (
        {'use_tpu': True, 'tpu': 'my-tpu', 'train_batch_size': 8_000_000},
        {'mode': 'eval', 'train_batch_size': 100_000_000},
        {'mode': 'train', 'eval_batch_size': 100_000_000},
    ):
        check_fits(dataclasses.replace(SMALL, **values), GIB)


# Files like those of Linux.
MEMORY = 'MemTotal:       8000000 kB\nMemFree:         100 kB\nMemAvailable:    6000 kB\nSwapFree:        500 kB\n'
KIB = 1024


def group(own: str, path: str, limit: str, used: str, stat: str = '') -> Dict[str, str]:
    """The files of a control group, at a path that begins with /memory in version 1, and of the process's own group."""
    names = ('memory.limit_in_bytes', 'memory.usage_in_bytes') if 'memory' in own else ('memory.max', 'memory.current')
    contents = {**dict(zip(names, (limit, used))), 'memory.stat': stat}
    return {'proc/self/cgroup': own, **{f'sys/fs/cgroup{path}/{name}': text for name, text in contents.items()}}


@pytest.mark.parametrize(
    ('files', 'expected'),
    [
        ({}, 6500 * KIB),
        # Without swap.
        ({'proc/meminfo': 'MemAvailable:    6000 kB\n'}, 6000 * KIB),
        # Version 2: a limit of the process's own group, of the group around it, and of a container.
        (group('0::/a/b\n', '/a/b', '3000', '1000'), 2000),
        (group('0::/a/b\n', '/a', '4000', '1000'), 3000),
        (group('0::/../..\n', '', '5000', '1000'), 4000),
        # Cached files do not count as used.
        (group('0::/\n', '', '5000', '4500', 'anon 500\ninactive_file 1700\n'), 2200),
        (group('0::/\n', '', 'max', '1000'), 6500 * KIB),
        # Version 1: other controllers have other folders.
        (
            group(
                *('5:cpu,cpuacct:/x\n4:memory:/job\n', '/memory/job', '7000', '2000'),
                'inactive_file 1\ntotal_inactive_file 30\n',
            ),
            5030,
        ),
        (group('4:memory:/\n', '/memory', '9223372036854771712', '2000'), 6500 * KIB),
        # A limit of an EiB or more means no limit.
        (group('4:memory:/\n', '/memory', str(1 << 60), str((1 << 60) - 2000)), 6500 * KIB),
        (group('4:memory:/\n', '/memory', str((1 << 60) - 1), str((1 << 60) - 2001)), 2000),
    ],
)
def test_available_memory__is_the_least_of_machine_and_cgroups(
    files: Dict[str, str], expected: int, tmp_path: pathlib.Path
) -> None:
    for name, text in {'proc/meminfo': MEMORY, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # A limit of memory does not limit the use of swap.
    swap = 0 if expected >= 6000 * KIB else 500 * KIB
    assert available_memory(tmp_path) == expected + swap


def test_available_memory__of_this_machine_is_less_than_it_has(tmp_path: pathlib.Path) -> None:
    assert available_memory(tmp_path) is None, 'unknown without Linux'
    with open('/proc/meminfo') as file:
        total = int(file.readline().split()[1]) * KIB
    assert 100 * KIB * KIB < (available_memory() or 0) < 2 * total
