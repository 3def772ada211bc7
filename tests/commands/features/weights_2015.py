"""Weights of the Inception graph of 2015 in small shapes, in the layouts of its files."""

from typing import Dict, Tuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.commands.features import graph_2015
from tests.support.state_dicts import state_dict

LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1'


def small() -> Dict[str, np.ndarray]:
    """Values of all variables, by name. Sizes of kernels are those of the network, numbers of channels are not."""
    random, values = np.random.RandomState(0), {}

    def add(name: str, *shape: int) -> None:
        values[name] = random.normal(size=shape).astype(np.float32)

    for layer in graph_2015.layers():
        height, width = map(int, layer.scope.rpartition('_')[2].split('x'))
        add(f'{layer.scope}/weights', height, width, 2, 3)
        for name in ('beta', 'moving_mean', 'moving_variance'):
            add(f'{layer.scope}/BatchNorm/{name}', 3)
    add(f'{LOGITS}/weights', 1, 1, 3, 5)
    add(f'{LOGITS}/biases', 5)
    return values


def shapes_of(values: Dict[str, np.ndarray]) -> Dict[str, Tuple[int, ...]]:
    return {name: value.shape for name, value in values.items()}


def frozen_graph(values: Dict[str, np.ndarray]) -> bytes:
    """The constants of classify_image_graph_def.pb."""
    graph = tf.GraphDef()

    def add(name: str, value: np.ndarray) -> None:
        node = graph.node.add(name=name, op='Const')
        node.attr['dtype'].type = tf.as_dtype(value.dtype).as_datatype_enum
        node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(value))

    add('ResizeBilinear/size', np.array([299, 299], np.int32))
    for layer in graph_2015.layers():
        add(f'{layer.graph}/conv2d_params', values[f'{layer.scope}/weights'])
        add(f'{layer.graph}/batchnorm/gamma', np.ones(3, np.float32))
        for name in ('beta', 'moving_mean', 'moving_variance'):
            add(f'{layer.graph}/batchnorm/{name}', values[f'{layer.scope}/BatchNorm/{name}'])
    add('softmax/weights', values[f'{LOGITS}/weights'][0, 0])
    add('softmax/biases', values[f'{LOGITS}/biases'])
    return graph.SerializeToString()


def pytorch_fid(values: Dict[str, np.ndarray], scale: float = 1.0) -> Dict[str, np.ndarray]:
    """The tensors of pytorch-fid's file."""
    tensors = {}
    for layer in graph_2015.layers():
        tensors[f'{layer.module}.conv.weight'] = values[f'{layer.scope}/weights'].transpose(3, 2, 0, 1).copy()
        tensors[f'{layer.module}.bn.weight'] = np.full(3, scale, np.float32)
        for name, key in (('beta', 'bias'), ('moving_mean', 'running_mean'), ('moving_variance', 'running_var')):
            tensors[f'{layer.module}.bn.{key}'] = values[f'{layer.scope}/BatchNorm/{name}']
        tensors[f'{layer.module}.bn.num_batches_tracked'] = np.array(0)
    tensors['fc.weight'] = values[f'{LOGITS}/weights'][0, 0].T.copy()
    tensors['fc.bias'] = values[f'{LOGITS}/biases']
    return tensors


def pytorch_file(values: Dict[str, np.ndarray], scale: float = 1.0) -> bytes:
    return state_dict(pytorch_fid(values, scale))
