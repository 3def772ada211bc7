"""Tests of comparing two models on images."""

import os
from typing import Any, Dict, List

import numpy as np
import pytest
import skimage.data

from compat import tf
from inception_v3.networks.registry import NETWORKS
from inception_v3.weights.sources import WeightsError
from tests.support.photos import encode_jpeg
from tests.support.weights import CLASSES, NARROW, narrow
from tools.weights import __main__ as command
from tools.weights import architecture, comparison, writing
from tools.weights.changes import change_class_0
from tools.weights.choices import DROP
from tools.weights.comparison import converted


def compared(one: Dict[str, np.ndarray], other: Dict[str, np.ndarray], folder: Any, capsys: Any) -> List[str]:
    """The lines that the command prints for two sets of weights and two images."""
    for name, values in (('a', one), ('b', other)):
        writing.export(narrow()._replace(values=values), str(folder / f'{name}.npz'), 'npz')
    for name, pixels in (('cat', skimage.data.chelsea()), ('cup', skimage.data.coffee())):
        (folder / f'{name}.jpg').write_bytes(encode_jpeg(pixels))
    paths = [str(folder / name) for name in ('a.npz', 'b.npz', 'cat.jpg', 'cup.jpg')]
    assert command.main(['compare', *paths, f'--depth_multiplier={NARROW}']) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.program
def test_compare__shows_the_first_layer_that_differs(tmp_path: Any, capsys: Any) -> None:
    values = narrow().values
    changed = dict(values)
    name = 'InceptionV3/Mixed_7a/Branch_0/Conv2d_1a_3x3/BatchNorm/beta'
    changed[name] = values[name] + 0.5
    lines = compared(values, changed, tmp_path, capsys)
    start = next(number for number, line in enumerate(lines) if line.startswith('layer'))
    differences = {line.split()[0]: float(line.split()[1]) for line in lines[start + 1 : start + 19]}
    assert len(differences) == 5 + 11 + 2
    unequal = {row for row, difference in differences.items() if difference}
    assert unequal == {'Mixed_7a', 'Mixed_7b', 'Mixed_7c', 'features', 'logits'}
    assert differences['Mixed_7a'] == pytest.approx(0.5, abs=1e-3)
    # Long paths are shortened in their middle.
    assert [os.path.basename(line.split()[-1]) for line in lines[-3:-1]] == ['cat.jpg', 'cup.jpg']
    assert 'the same top-1 for' in lines[-1]


@pytest.mark.program
def test_compare__of_other_classes_leaves_out_the_logits(tmp_path: Any, capsys: Any) -> None:
    values = narrow().values
    lines = compared(values, change_class_0(values, narrow().architecture, DROP), tmp_path, capsys)
    assert any(f'A has {CLASSES} classes and B {CLASSES - 1}' in line for line in lines)
    assert next(line for line in lines if line.startswith('features')).split()[1] == '0'


def test_classes__are_the_most_probable_of_each_image_in_both_models() -> None:
    # Probabilities of 1/4 and 3/4, and of three classes; logits of any size.
    ours, theirs = np.log([[1.0, 3.0], [3.0, 1.0]]) + 1e4, np.log([[6.0, 1.0, 1.0], [8.0, 1.0, 1.0]])
    lines = comparison._classes(['/a/cat.jpg', '/a/cup.jpg'], [ours, theirs])
    assert lines == [
        'logits: not compared, because A has 2 classes and B 3. If one of them has a background as class 0, convert it '
        'with --class_0=drop.',
        '',
        '      top-1 of A        top-1 of B  image',
        '       1  75.00%         0  75.00%  /a/cat.jpg',
        '       0  75.00%         0  80.00%  /a/cup.jpg',
        'the same top-1 for 1 of 2 images',
    ]
    assert comparison._classes(['/a/cat.jpg'], [ours[:1], ours[:1]])[0] == ''
    assert 'because A has 3 classes and B 2.' in comparison._classes(['/a/cat.jpg'], [theirs[:1], ours[:1]])[0]


def test_compare__has_the_largest_differences_over_all_images(tmp_path: Any, monkeypatch: Any) -> None:
    paths = [str(tmp_path / f'{number}.jpg') for number in range(9)]
    for number in range(9):
        # The last image, in a batch of its own, is the lightest.
        encoded = encode_jpeg(np.full([20, 20, 3], 25 * number, np.uint8))
        (tmp_path / f'{number}.jpg').write_bytes(encoded)

    def outputs(weights: Any, images: np.ndarray) -> Dict[str, np.ndarray]:
        # The mean of the pixels, which are in [-1, 1], or in [0, 1] for the second model.
        means = images.mean((1, 2, 3)).reshape([-1, 1])
        own = {'Conv2d_1a_3x3': means, 'features': means[:, :0] if weights.path == 'b' else means}
        return {**own, 'Mixed_5b': 0 * means, 'logits': np.concatenate([means, 0 * means], 1)}

    monkeypatch.setattr(comparison, 'in_this_program', outputs)
    one, other = narrow()._replace(path='a', notes=['  note']), narrow()._replace(path='b', images='unit')
    lines = comparison.compare([one, other], paths)
    assert lines[:4] == [f'A  {one}', '  note', f'B  {other}', '']
    assert lines[4] == 'layer                 largest difference  largest value of A'
    rows = [line.split() for line in lines[5:8]]
    # Pixels of 0: -1 and 0. The rows are those of the network, in its order; features differ in shape.
    assert [row[0] for row in rows] == ['Conv2d_1a_3x3', 'Mixed_5b', 'logits']
    np.testing.assert_allclose([float(value) for row in rows for value in row[1:]], [1, 1, 0, 0, 1, 1], atol=0.02)
    # The second model's pixels are never below 0, so that it always chooses class 0.
    assert lines[-1] == 'the same top-1 for 3 of 9 images'
    # Rows of another network are others, whatever they are called.
    values = {'ResNet50/logits/biases': np.zeros(5)}
    another = one._replace(path='c', architecture=architecture.resnet50(NARROW), values=values)
    lines = comparison.compare([one, another], paths[:1])
    assert [line.split()[0] for line in lines[-6:] if line.split()[1:] == ['0', '1']] == ['logits']
    with pytest.raises(WeightsError, match=r'^b: has no classifier'):
        comparison.compare([one, other._replace(values={})], paths)


def test_in_this_program__has_the_last_activation_of_each_row(monkeypatch: Any) -> None:
    def build(images: tf.Tensor, num_classes: int, is_training: bool, conv: Any, **others: Any) -> Any:
        assert not is_training and others.keys() == {'norm', 'depth_multiplier'}
        with tf.variable_scope('Tiny/row'):
            net = tf.nn.relu(tf.nn.relu(conv(images, 2, (1, 1))) - 1)
            pooled = tf.reduce_mean(net, [1, 2], keepdims=True)
        with tf.variable_scope('Tiny/Logits'):
            return tf.squeeze(conv(pooled, num_classes, (1, 1)), [1, 2]), None

    monkeypatch.setitem(NETWORKS, 'tiny', NETWORKS['resnet50']._replace(build=build))
    monkeypatch.setattr(comparison, 'rows_of', lambda architecture: {'row': 'row'})
    random = np.random.RandomState(0)
    images = random.normal(size=[2, 3, 4, 3]).astype(np.float32)
    kernels = [random.normal(size=shape).astype(np.float32) for shape in ([3, 2], [2, 5])]
    names = ('Tiny/row/weights', 'Tiny/Logits/weights')
    values = {**{name: k[np.newaxis, np.newaxis] for name, k in zip(names, kernels)}, 'Tiny/Logits/biases': np.zeros(5)}
    tiny = architecture.Architecture('tiny', 'Tiny', 'Tiny/Logits', False, [])
    found = comparison.in_this_program(narrow()._replace(architecture=tiny, values=values), images)
    row = np.maximum(images @ kernels[0] - 1, 0)
    expected = {'row': row, 'features': row.mean((1, 2)), 'logits': row.mean((1, 2)) @ kernels[1]}
    assert found.keys() == expected.keys() and 0 < np.mean(row > 0) < 1
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_rows_of__are_those_of_the_tables_of_the_papers() -> None:
    rows = comparison.rows_of(narrow().architecture)
    assert [*rows][:6] == [f'Conv2d_{n}' for n in ('1a_3x3', '2a_3x3', '2b_3x3', '3b_1x1', '4a_3x3')] + ['Mixed_5b']
    assert rows == dict(zip(rows, rows)) and len(rows) == 5 + 11
    blocks = comparison.rows_of(architecture.resnet50())
    assert len(blocks) == 16 and next(iter(blocks.items())) == ('stage_1/block_1', 'layer1.0')
    assert [*blocks.items()][-1] == ('stage_4/block_3', 'layer4.2')


def test_converted__gives_a_pixel_its_value_in_another_range() -> None:
    # Black, and white, in the range of each preprocessing.
    pixels = np.array([[-1.0] * 3, [1.0] * 3], np.float32)
    vgg = [[-123.68, -116.78, -103.94], [255 - 123.68, 255 - 116.78, 255 - 103.94]]
    np.testing.assert_allclose(converted(pixels, 'inception', 'vgg'), vgg, rtol=1e-5)
    np.testing.assert_allclose(converted(np.array(vgg), 'vgg', 'inception'), pixels, rtol=1e-5)
    assert converted(pixels, 'vgg', 'vgg') is pixels
