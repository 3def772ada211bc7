"""Tests of reading the weights of the Inception graph of 2015, from each kind of file and from wrong ones."""

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.weights.sources import WeightsError
from tools.features import extraction, graph_2015
from tools.weights import state_dicts
from tools.weights.architecture import inception

LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1'
LAYERS = [layer for layer in inception().of(auxiliary_head=False) if not layer.is_classifier]
NORM = {'beta': 'bias', 'moving_mean': 'running_mean', 'moving_variance': 'running_var'}


def small() -> Dict[str, np.ndarray]:
    """Values of all variables by name, with the network's sizes of kernels, but not its numbers of channels."""
    shapes = {f'{LOGITS}/weights': (1, 1, 3, 5), f'{LOGITS}/biases': (5,)}
    for layer in LAYERS:
        height, width = map(int, layer.scope.rpartition('_')[2].split('x'))
        shapes[f'{layer.scope}/weights'] = (height, width, 2, 3)
        shapes.update({f'{layer.scope}/BatchNorm/{name}': (3,) for name in NORM})
    random = np.random.RandomState(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def shapes_of(values: Dict[str, np.ndarray]) -> Dict[str, Tuple[int, ...]]:
    return {name: value.shape for name, value in values.items()}


def frozen_graph(values: Dict[str, np.ndarray]) -> bytes:
    """The constants of classify_image_graph_def.pb."""
    constants = {
        'ResizeBilinear/size': np.array([299, 299], np.int32),
        'softmax/weights': values[f'{LOGITS}/weights'][0, 0],
        'softmax/biases': values[f'{LOGITS}/biases'],
    }
    for scope, name in graph_2015.names_in_graph().items():
        constants[f'{name}/conv2d_params'] = values[f'{scope}/weights']
        constants[f'{name}/batchnorm/gamma'] = np.full(3, 9, np.float32)
        constants.update({f'{name}/batchnorm/{n}': values[f'{scope}/BatchNorm/{n}'] for n in NORM})
    graph = tf.GraphDef()
    for name, value in constants.items():
        node = graph.node.add(name=name, op='Const')
        node.attr['dtype'].type = tf.as_dtype(value.dtype).as_datatype_enum
        node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(value))
    return graph.SerializeToString()


def pytorch_fid(values: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """The tensors of pytorch-fid's file."""
    tensors = {'fc.weight': values[f'{LOGITS}/weights'][0, 0].T.copy(), 'fc.bias': values[f'{LOGITS}/biases']}
    for layer in LAYERS:
        tensors[f'{layer.conv}.weight'] = values[f'{layer.scope}/weights'].transpose(3, 2, 0, 1).copy()
        tensors[f'{layer.norm}.weight'] = np.ones(3, np.float32)
        for name, key in NORM.items():
            tensors[f'{layer.norm}.{key}'] = values[f'{layer.scope}/BatchNorm/{name}']
        tensors[f'{layer.norm}.num_batches_tracked'] = np.array(0)
    return tensors


def test_layers__have_the_names_of_the_graph_and_of_pytorch_fid() -> None:
    """The expected pairs are from torch-fidelity's converter of 2020, which matched shapes of the graph's constants.

    (https://github.com/toshas/torch-fidelity, convert_inception_weights.py)
    """
    modules = {layer.scope: layer.conv for layer in LAYERS}
    found = {name: modules[scope] for scope, name in graph_2015.names_in_graph().items()}
    assert len(found) == len({*found.values()}) == 94
    for graph, module in {
        'conv': 'Conv2d_1a_3x3',
        'conv_4': 'Conv2d_4a_3x3',
        'mixed/tower/conv_1': 'Mixed_5b.branch5x5_2',
        'mixed_2/tower_1/conv_2': 'Mixed_5d.branch3x3dbl_3',
        'mixed_2/tower_2/conv': 'Mixed_5d.branch_pool',
        'mixed_3/conv': 'Mixed_6a.branch3x3',
        'mixed_3/tower/conv_2': 'Mixed_6a.branch3x3dbl_3',
        'mixed_4/conv': 'Mixed_6b.branch1x1',
        'mixed_7/tower_1/conv_4': 'Mixed_6e.branch7x7dbl_5',
        'mixed_8/tower/conv_1': 'Mixed_7a.branch3x3_2',
        'mixed_8/tower_1/conv_3': 'Mixed_7a.branch7x7x3_4',
        'mixed_9/tower/mixed/conv_1': 'Mixed_7b.branch3x3_2b',
        'mixed_10/tower_1/conv_1': 'Mixed_7c.branch3x3dbl_2',
        'mixed_10/tower_1/mixed/conv': 'Mixed_7c.branch3x3dbl_3a',
        'mixed_10/tower_2/conv': 'Mixed_7c.branch_pool',
    }.items():
        assert found[graph] == f'{module}.conv'


def test_layers__are_those_of_the_network() -> None:
    with tf.Graph().as_default():
        extraction.build(tf.placeholder(tf.float32, [None, 299, 299, 3]))
        variables = {v.op.name: v.shape.as_list() for v in tf.global_variables()}
        operations = {o.name: o.type for o in tf.get_default_graph().get_operations()}
    assert {*variables} == {*small()}
    assert variables['InceptionV3/Logits/Conv2d_1c_1x1/weights'] == [1, 1, 2048, 1008]
    # The last block has a maximum, all others have averages.
    pools = {name: kind for name, kind in operations.items() if 'Branch_3/' in name and kind in ('MaxPool', 'AvgPool')}
    assert [name for name, kind in pools.items() if kind == 'MaxPool'] == ['InceptionV3/Mixed_7c/Branch_3/MaxPool2d']
    assert len(pools) == 9


@pytest.mark.parametrize('name', ['graph.pb', 'weights.pth', 'weights.npz'])
def test_read__returns_the_variables_of_every_kind_of_file(name: str, tmp_path: Any) -> None:
    values, path = small(), tmp_path / name
    if name.endswith('.npz'):
        np.savez(str(path), **values)
    else:
        path.write_bytes(frozen_graph(values) if name.endswith('.pb') else state_dicts.write(pytorch_fid(values)))
    np.testing.assert_equal(graph_2015.read(str(path), shapes_of(values), '--weights=FILE'), values)


def test_read__names_weights_of_another_graph(tmp_path: Any) -> None:
    values = small()
    shapes = shapes_of(values)

    def problem(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WeightsError, match=r'^--weights=FILE: ') as caught:
            graph_2015.read(str(tmp_path / name), shapes, '--weights=FILE')
        return str(caught.value)

    scaled = {**pytorch_fid(values), 'Conv2d_1a_3x3.bn.weight': np.full(3, 0.5, np.float32)}
    assert 'Conv2d_1a_3x3.bn.weight is not 1' in problem('scaled.pth', state_dicts.write(scaled))
    # ImageNet's 1,000 classes instead of 1,008 outputs.
    foreign = {**pytorch_fid(values), 'fc.bias': np.ones(4, np.float32)}
    found = problem('torchvision.pth', state_dicts.write(foreign))
    assert 'another graph, such as the Inception v3 of torchvision' in found and 'pt_inception-2015-12-05' in found
    assert 'fc.bias has the shape [4], not [5]' in found
    assert 'another graph' in problem('resnet.pth', state_dicts.write({'fc.weight': np.ones([2, 2], np.float32)}))
    assert 'another graph' in problem('other.pb', tf.GraphDef().SerializeToString())
    fewer = {**values, 'InceptionV3/Logits/Conv2d_1c_1x1/biases': np.ones(4, np.float32)}
    np.savez(str(tmp_path / 'slim.npz'), **fewer)
    found = problem('slim.npz', (tmp_path / 'slim.npz').read_bytes())
    assert 'TF-Slim' in found and 'InceptionV3/Logits/Conv2d_1c_1x1/biases has the shape [4], not [5]' in found
    infinite = {**values, 'InceptionV3/Conv2d_1a_3x3/weights': np.full([3, 3, 2, 3], np.nan, np.float32)}
    assert 'conv/conv2d_params has values that are not finite' in problem('nan.pb', frozen_graph(infinite))
    assert 'is not a frozen graph' in problem('text.pb', b'no graph at all')
    assert 'must end in .pb, .pth, .pt or .npz' in problem('weights.h5', b'')
    with pytest.raises(WeightsError, match='no such file'):
        graph_2015.read(str(tmp_path / 'missing.pb'), shapes, '--weights=FILE')
