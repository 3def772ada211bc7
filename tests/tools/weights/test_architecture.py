"""Tests of the names and shapes of variables in PyTorch and Keras, at the width of the paper and without values."""

from typing import Dict, List, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from tests.support.tiers import further
from tests.support.weights import NARROW
from tools.weights import architecture
from tools.weights.architecture import Entry, variables_of


def shapes_of(entries: List[Entry], classes: int) -> Dict[str, Tuple[int, ...]]:
    """The shapes of variables in another framework."""
    return {entry.theirs: tuple(entry.shape[axis] or classes for axis in entry.axes) for entry in entries}


@pytest.mark.parametrize('name', ['inception_v3', further('resnet50')])
def test_architecture__has_the_variables_of_the_network(name: str) -> None:
    network = architecture.inception(NARROW) if name == 'inception_v3' else architecture.resnet50(NARROW)
    norm = BatchNorm(is_training=False, decay=0.9)
    # The least size whose auxiliary head has the kernel of 299 pixels.
    images = tf.zeros([1, 299, 299, 3])
    NETWORKS[name].build(images, 7, True, conv=layers.conv2d, norm=norm, depth_multiplier=NARROW)
    expected = {variable.op.name: tuple(variable.shape.as_list()) for variable in tf.global_variables()}
    found: Dict[str, Tuple[int, ...]] = {}
    for layer in network.layers:
        own = layer._replace(shape=(*layer.shape[:3], layer.shape[3] or 7))
        found.update(variables_of(own, network.has_scales))
    assert found == expected


@pytest.mark.parametrize(('name', 'parameters'), [('inception', 27161264), ('resnet50', 25557032)])
def test_of_torch__has_the_published_numbers_of_parameters(name: str, parameters: int) -> None:
    # torchvision's documentation. Inception v3 has 18,112 scales there.
    network = getattr(architecture, name)()
    shapes = shapes_of(architecture.of_torch(network.layers, network.has_scales), 1000)
    assert sum(int(np.prod(shape)) for name, shape in shapes.items() if '.running_' not in name) == parameters


def test_of_torch__has_the_names_and_shapes_of_torchvision() -> None:
    # One name for each rule, written down from the state dicts of torchvision 0.13.1.
    expected = {
        'Conv2d_1a_3x3.conv.weight': (32, 3, 3, 3),
        'Mixed_5b.branch5x5_2.conv.weight': (64, 48, 5, 5),
        'Mixed_5c.branch_pool.bn.running_var': (64,),
        'Mixed_6a.branch3x3.conv.weight': (384, 288, 3, 3),
        'Mixed_6a.branch3x3dbl_3.bn.weight': (96,),
        'Mixed_6c.branch7x7_2.conv.weight': (160, 160, 1, 7),
        'Mixed_6c.branch7x7dbl_2.conv.weight': (160, 160, 7, 1),
        'Mixed_7a.branch3x3_2.conv.weight': (320, 192, 3, 3),
        'Mixed_7a.branch7x7x3_4.bn.running_mean': (192,),
        'Mixed_7b.branch3x3_2a.conv.weight': (384, 384, 1, 3),
        'Mixed_7b.branch3x3_2b.conv.weight': (384, 384, 3, 1),
        'Mixed_7c.branch3x3dbl_3b.bn.bias': (384,),
        'AuxLogits.conv1.conv.weight': (768, 128, 5, 5),
        'AuxLogits.fc.weight': (10, 768),
        'fc.weight': (10, 2048),
        'fc.bias': (10,),
    }
    shapes = shapes_of(architecture.of_torch(architecture.inception().layers, False), 10)
    assert {name: shapes[name] for name in expected} == expected
    resnet = shapes_of(architecture.of_torch(architecture.resnet50().layers, True), 10)
    assert resnet['layer3.0.downsample.0.weight'] == (1024, 512, 1, 1)
    assert resnet['layer3.0.downsample.1.running_mean'] == (1024,)
    assert resnet['layer4.2.bn3.weight'] == (2048,) and resnet['bn1.bias'] == (64,)
    for network in (architecture.inception(), architecture.resnet50()):
        classifiers = [layer.shape for layer in network.layers if layer.is_classifier]
        assert classifiers[0] == (1, 1, 2048, 0) and {*classifiers[1:]} <= {(1, 1, 768, 0)}


@pytest.mark.parametrize(
    ('by_order', 'kernels'),
    [
        # Mixed_5b: 1x1, 5x5 after 1x1, two 3x3 after 1x1, and 1x1 after pooling. By creation: a branch after the other.
        (False, [(1, 192, 64), (1, 192, 48), (5, 48, 64), (1, 192, 64), (3, 64, 96), (3, 96, 96), (1, 192, 32)]),
        # By the distance to the end of the block: the longest branch begins.
        (True, [(1, 192, 64), (1, 192, 48), (3, 64, 96), (1, 192, 64), (5, 48, 64), (3, 96, 96), (1, 192, 32)]),
    ],
)
def test_of_keras__numbers_layers_as_keras_does(by_order: bool, kernels: List[Tuple[int, int, int]]) -> None:
    shapes = shapes_of(architecture.of_keras(architecture.inception().of(auxiliary_head=False), by_order), 10)
    # Five convolutions come before.
    found = [shapes[f'conv2d_{5 + number}/kernel'] for number in range(7)]
    assert [(height, inputs, outputs) for height, _, inputs, outputs in found] == kernels
    # Mixed_7b, after 76 convolutions: those of a fork are one layer farther from the end than a lone one.
    depths = [shapes[f'conv2d_{76 + number}/kernel'][-1] for number in range(9)]
    in_table = [320, 384, 384, 384, 448, 384, 384, 384, 192]
    assert depths == ([448, 384, 384, 384, 384, 384, 384, 320, 192] if by_order else in_table)
    assert shapes['dense_0/kernel'] == (2048, 10)


def test_to_ours__is_the_inverse_of_from_ours_to_the_bit() -> None:
    network = architecture.inception(NARROW)
    random = np.random.RandomState(0)
    entries = [e for e in architecture.of_torch(network.layers, False) if 'Mixed_7b' in e.ours or 'Logits' in e.ours]
    values = {e.ours: random.normal(size=[size or 3 for size in e.shape]).astype(np.float32) for e in entries}
    there = architecture.from_ours(values, entries)
    assert all(array.flags.c_contiguous for array in there.values())
    np.testing.assert_equal(architecture.to_ours(there, entries, 'file'), values)
    # Outputs, inputs, height, width there.
    ours = values['InceptionV3/Mixed_7b/Branch_1/Conv2d_0b_1x3/weights']
    assert there['Mixed_7b.branch3x3_2a.conv.weight'][7, 5, 0, 2] == ours[0, 2, 5, 7]
