"""Tests of `preprocessing.json`: its steps, carried out with NumPy alone, against the preprocessing of evaluation."""

import json
import pathlib
import textwrap

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from preprocessing.viewing import resize_as_viewed
from tests.preprocessing.test_viewing import with_gradient
from tests.support.images import CAT, saved
from tests.support.tiers import further
from tools.export import prepare as prepare_module
from tools.export.network import describe
from tools.export.prepare import prepare


@pytest.mark.parametrize(
    ('flags', 'tolerance'),
    [
        # In [-1, 1]: a few rounding errors of 1.2e-7.
        ({}, 1e-6),
        ({'transfer': 'uint8'}, 1e-6),
        ({'preprocessing': 'cifar'}, 1e-6),
        # In [0, 255]: VGG resizes only the pixels that it needs, whose positions are rounded differently.
        ({'preprocessing': 'vgg'}, 2e-2),
    ],
)
def test_prepare__gives_the_input_of_evaluation(flags: dict, tolerance: float) -> None:
    config = Config(height=75, width=91, auxiliary_head=False, use_tpu=False, **flags)
    # As users read them.
    steps = json.loads(json.dumps(describe(config, [])))['steps']
    infeed, given = Infeed(config), tf.placeholder(tf.uint8, [None, None, 3])
    evaluated = infeed.as_evaluated(infeed.preprocessing.resize_encoded(tf.image.encode_png(given)))
    with tf.Session() as session:
        for size in ((80, 80), (37, 211), (301, 77)):
            pixels = np.random.RandomState(0).randint(0, 256, [*size, 3]).astype(np.uint8)
            prepared = prepare(pixels, steps)
            assert prepared.dtype == np.float32 and prepared.shape == (75, 91, 3)
            expected = session.run(evaluated, {given: pixels})
            np.testing.assert_allclose(prepared, expected, rtol=0, atol=tolerance, err_msg=str(size))


@pytest.mark.parametrize('kind', ['transparent', further('palette'), 'CMYK'])
def test_prepare__its_example_gives_the_input_that_a_saved_model_makes(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(height=75, width=91, auxiliary_head=False, use_tpu=False)
    image = PIL.Image.fromarray(CAT)
    encoded = {
        'transparent': lambda: saved(with_gradient(image), 'PNG'),
        'palette': lambda: saved(image.quantize(9), 'PNG', transparency=3),
        'CMYK': lambda: saved(image.convert('CMYK'), 'JPEG', 5, quality=100),
    }[kind]()
    (tmp_path / 'photo.jpg').write_bytes(encoded)
    (tmp_path / 'preprocessing.json').write_text(json.dumps(describe(config, [])))
    monkeypatch.chdir(tmp_path)
    code = [line for line in str(prepare_module.__doc__).splitlines() if line.startswith('    ')]
    names: dict = {'json': json, 'numpy': np, 'PIL': PIL, 'prepare': prepare}
    exec(textwrap.dedent('\n'.join(code)), names)
    with tf.Graph().as_default(), tf.Session() as session:
        infeed = Infeed(config)
        expected = session.run(infeed.as_evaluated(resize_as_viewed(tf.constant(encoded), infeed.preprocessing)))
    # A level of 255; of a JPEG, the decoders' cosine transforms differ.
    tolerance = 1.01 * 2 / 255 if kind != 'CMYK' else 0.1
    np.testing.assert_allclose(names['image'], expected, rtol=0, atol=tolerance)


def test_description__names_the_classes() -> None:
    config = Config(height=75, width=91, num_classes=3, auxiliary_head=False)
    assert describe(config, ['background', 'cat', 'dog'])['labels'] == ['background', 'cat', 'dog']
    assert describe(config, [])['labels'] == ['', '', '']
