"""Tests of a run's device without a TPU: requests for a GPU, and graphs for it. No test needs a GPU."""

import dataclasses
from typing import Any, List, Set

import numpy as np
import pytest

from compat import tf
from inception_v3 import main, model_fn
from inception_v3.config import Config, ConfigError
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.seeding import session_config
from inception_v3.tpu import accelerator
from tests.support.graphs import plain_session
from tests.support.runs import execute
from tests.support.slim import load, values_by_name
from tests.support.tiers import further
from tests.test_model_fn import CONFIG, IMAGES, build

MODES = tf.estimator.ModeKeys
GPU = '/device:GPU:0'
# Operations that have a layout.
LAID_OUT = {'Conv2D', 'Conv2DBackpropInput', 'Conv2DBackpropFilter', 'MaxPool', 'MaxPoolGrad', 'AvgPool', 'AvgPoolGrad'}


@pytest.fixture
def one_gpu(monkeypatch: Any) -> None:
    """Lets the program believe that TensorFlow sees one GPU. Operations placed on it run on the CPU."""
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: 1)


def operations(config: Config, mode: str) -> List[tf.Operation]:
    with tf.Graph().as_default() as graph:
        build(config, mode)
        return graph.get_operations()


def convolutions(config: Config, mode: str) -> List[tf.Operation]:
    return [each for each in operations(config, mode) if each.type == 'Conv2D']


@pytest.mark.parametrize(
    ('accelerator_flag', 'gpus', 'use_tpu', 'expected'),
    [
        *(('auto', 0, False, False), ('auto', 1, False, True), ('auto', 2, False, True), ('auto', 1, True, False)),
        *(('cpu', 1, False, False), ('gpu', 1, False, True), ('gpu', 0, False, True)),
    ],
)
def test_on_gpu__is_a_visible_one_or_the_one_asked_for(
    monkeypatch: Any, accelerator_flag: str, gpus: int, use_tpu: bool, expected: bool
) -> None:
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: gpus)
    config = Config(use_tpu=use_tpu, accelerator=accelerator_flag)
    assert accelerator.on_gpu(config) == expected
    # A session takes only the first of several GPUs.
    assert session_config(config).device_count['GPU'] == int(expected)


@pytest.mark.parametrize('mode', [MODES.TRAIN, MODES.EVAL, MODES.PREDICT])
def test_placement__requests_the_gpu_but_not_in_exports(one_layer: None, one_gpu: None, mode: str) -> None:
    expected = {''} if mode == MODES.PREDICT else {GPU}
    assert {each.device for each in convolutions(CONFIG, mode)} == expected
    assert {each.device for each in convolutions(dataclasses.replace(CONFIG, accelerator='cpu'), mode)} == {''}
    if mode == MODES.TRAIN:
        updates = [each for each in operations(CONFIG, mode) if each.type == 'ResourceApplyRMSProp']
        assert {each.device for each in updates} == {GPU} and len(updates) == 4


@pytest.mark.parametrize('precision', ['bfloat16', 'float16'])
def test_precision__is_that_of_convolutions_on_a_gpu_only(one_layer: None, one_gpu: None, precision: str) -> None:
    config = dataclasses.replace(CONFIG, precision=precision)

    def types(config: Config, mode: str) -> Set[tf.DType]:
        return {each.inputs[0].dtype for each in convolutions(config, mode)}

    assert types(config, MODES.TRAIN) == types(config, MODES.EVAL) == {tf.as_dtype(precision)}
    assert types(config, MODES.PREDICT) == {tf.float32}
    # A CPU rounds the values, and multiplies in float32.
    assert types(dataclasses.replace(config, accelerator='cpu'), MODES.TRAIN) == {tf.float32}


def transposing(function: Any) -> Any:
    """A function that computes NCHW by the kernels of NHWC, because a CPU has no kernels for NCHW."""

    def compute(inputs: tf.Tensor, *arguments: Any, data_format: str = 'NHWC', **options: Any) -> Any:
        if data_format == 'NHWC':
            return function(inputs, *arguments, **options)
        outputs = function(tf.transpose(inputs, [0, 2, 3, 1]), *arguments, **options)
        if isinstance(outputs, tuple):
            return (tf.transpose(outputs[0], [0, 3, 1, 2]), *outputs[1:])
        return tf.transpose(outputs, [0, 3, 1, 2])

    return compute


@pytest.mark.parametrize('network', ['inception_v3', *map(further, ('resnet50', 'revnet38'))])
def test_layout__nchw_computes_the_same(monkeypatch: Any, one_gpu: None, few_blocks: None, network: str) -> None:
    for name in ('conv2d', 'max_pool2d', 'avg_pool2d', 'fused_batch_norm'):
        monkeypatch.setattr(tf.nn, name, transposing(getattr(tf.nn, name)))
    shape = [2, *((107, 120) if network == 'inception_v3' else (32, 48)), 3]
    images = IMAGES[: shape[0], : shape[1], : shape[2]]
    config = dataclasses.replace(CONFIG, network=network, height=shape[1], width=shape[2])

    def logits(layout: str) -> List[np.ndarray]:
        with tf.Graph().as_default(), plain_session() as session:
            found = model_fn._network(tf.constant(images), MODES.EVAL, dataclasses.replace(config, layout=layout))
            load(values_by_name(), session)
            return session.run([each for each in found if each is not None])

    plain, channels_first = logits('auto'), logits('NCHW')
    assert len(plain) == (2 if network == 'inception_v3' else 1)
    for one, other in zip(plain, channels_first):
        assert np.ptp(one) > 0.01
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_layout__nchw_trains_through_operations_of_that_layout(monkeypatch: Any, one_gpu: None) -> None:
    monkeypatch.setitem(NETWORKS, 'inception_v3', NETWORKS['inception_v3']._replace(build=pooled_network))
    config = dataclasses.replace(CONFIG, layout='NCHW', precision='float16')
    laid_out = [each for each in operations(config, MODES.TRAIN) if each.type in LAID_OUT or 'FusedBatch' in each.type]
    assert {each.get_attr('data_format') for each in laid_out} == {b'NCHW'}
    assert {'Conv2DBackpropFilter', 'MaxPoolGrad', 'AvgPoolGrad', 'FusedBatchNormGradV3'} <= {e.type for e in laid_out}


def pooled_network(
    images: tf.Tensor, num_classes: int, is_training: bool, conv: Any, norm: Any, layout: layers.Layout, **unused: Any
) -> Any:
    """A network of one layer with both poolings."""
    with tf.variable_scope('Layer'):
        net = tf.nn.relu(norm(conv(images, 16, (3, 3), 2, 'VALID')))
    net = layers.average_pool(layers.max_pool(net, 3, 2, 'VALID', layout), (2, 2), 2, 'VALID', layout)
    with tf.variable_scope('Logits'):
        net = layers.add_bias(conv(tf.reduce_mean(net, layout.pixels, keepdims=True), num_classes, (1, 1)), layout)
    return tf.squeeze(net, layout.pixels), None


@pytest.mark.program
@pytest.mark.both
def test_run__with_a_requested_gpu_trains_evaluates_and_exports(
    small_config: Config, tmp_path: Any, one_layer: None, one_gpu: None
) -> None:
    folders = {'model_dir': str(tmp_path / 'run'), 'export_dir': str(tmp_path / 'export')}
    config = dataclasses.replace(small_config, train_steps=2, eval_total_size=64, precision='float16', **folders)
    assert '64 images' in execute(config)
    exported = tf.Graph()
    (folder,) = (tmp_path / 'export').iterdir()
    with exported.as_default(), tf.Session() as session:
        tf.saved_model.load(session, ['serve'], str(folder))
    assert not {each.device for each in exported.get_operations() if 'GPU' in each.device}


@pytest.mark.parametrize(
    ('number', 'visible', 'settled', 'text'),
    [
        (1, 4, 1, '1 of the 4 GPUs of this machine; the others are idle: --num_gpus=-1 uses all'),
        (3, 4, 3, '3 of the 4 GPUs of this machine; the other is idle: --num_gpus=-1 uses all'),
        (-1, 4, 4, 'the 4 GPUs of this machine'),
        (-1, 1, 1, 'the GPU of this machine'),
        (-1, 0, 1, 'the CPU of this machine'),
    ],
)
def test_description__names_used_and_idle_gpus(
    monkeypatch: Any, number: int, visible: int, settled: int, text: str
) -> None:
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: visible)
    config = accelerator.settled(Config(use_tpu=False, num_gpus=number, train_batch_size=12, eval_batch_size=12))
    assert (config.num_gpus, config.replicas, accelerator.description(config)) == (settled, settled, text)
    assert session_config(config).device_count['GPU'] == (settled if visible else 0)
    accelerator.check(config)


def test_check__refuses_more_gpus_than_are_visible(monkeypatch: Any) -> None:
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: 2)
    with pytest.raises(ConfigError, match='TensorFlow sees 2 on this machine'):
        accelerator.check(Config(use_tpu=False, num_gpus=4))
    accelerator.check(Config(use_tpu=False, num_gpus=4, accelerator='cpu'))


@pytest.mark.parametrize('flag', ['--accelerator=gpu', '--layout=NCHW', '--num_gpus=2'])
def test_gpu__asked_for_but_not_visible_is_refused(monkeypatch: Any, capsys: Any, tmp_path: Any, flag: str) -> None:
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: 0)
    model_dir = tmp_path / 'run'
    argv = ['main', '--use_tpu=False', flag, '--use_data=fake', f'--model_dir={model_dir}']
    assert main.main(argv) == 2
    message = capsys.readouterr().err
    parts = [
        f'error: {flag}: ',
        tf.__version__,
        'sees no GPU',
        'inception-v3-tpu[gpu]',
        'nvidia-smi',
        'CUDA_VISIBLE_DEVICES',
    ]
    assert all(part in message for part in parts), message
    assert not model_dir.exists()


@pytest.mark.parametrize(
    ('values', 'devices'),
    [
        ({'num_gpus': 3}, {'GPU': 3}),
        ({'num_gpus': 2, 'accelerator': 'cpu'}, {'GPU': 0, 'CPU': 2}),
        ({'num_gpus': 1, 'accelerator': 'cpu'}, {'GPU': 0}),
        ({'use_tpu': True}, {'GPU': 0}),
    ],
)
def test_set_devices__has_a_device_of_the_cpu_for_each_virtual_gpu(values: Any, devices: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: 4)
    config = Config(**{'use_tpu': False, 'train_batch_size': 24, 'eval_batch_size': 24, **values})
    session = tf.ConfigProto()
    accelerator.set_devices(session, config)
    assert dict(session.device_count) == devices
    options = session.graph_options.rewrite_options
    assert options.layout_optimizer == options.DEFAULT
    if not config.use_tpu:
        accelerator.set_devices(session, dataclasses.replace(config, layout='NHWC'))
        assert options.layout_optimizer == options.OFF
