"""Tests of comparing two models on images."""

import os
from typing import Any, Dict, List

import numpy as np
import pytest
import skimage.data

from tests.support.photos import encode_jpeg
from tests.support.weights import CLASSES, NARROW, narrow
from tools.weights import __main__ as command
from tools.weights import writing
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


def test_converted__gives_a_pixel_its_value_in_another_range() -> None:
    # Black, and white, in the range of each preprocessing.
    pixels = np.array([[-1.0] * 3, [1.0] * 3], np.float32)
    vgg = [[-123.68, -116.78, -103.94], [255 - 123.68, 255 - 116.78, 255 - 103.94]]
    np.testing.assert_allclose(converted(pixels, 'inception', 'vgg'), vgg, rtol=1e-5)
    np.testing.assert_allclose(converted(np.array(vgg), 'vgg', 'inception'), pixels, rtol=1e-5)
    assert converted(pixels, 'vgg', 'vgg') is pixels
