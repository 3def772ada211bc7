"""Fixtures of the tests of predict: a run, and images."""

import io
import os
from typing import Any

import numpy as np
import pytest
import skimage.data
from PIL import Image

from compat import tf
from tests.support.records import validation_set
from tests.support.runs import FinishedRun
from tests.support.shared import once


@pytest.fixture(scope='module')
def images(finished_run: FinishedRun, tmp_path_factory: Any) -> str:
    """A folder of the run's validation images, named NUMBER-LABEL.jpg."""

    def make(folder: str) -> None:
        for number, (encoded, label) in enumerate(validation_set(finished_run.config)):
            with open(os.path.join(folder, f'{number:03d}-{label}.jpg'), 'wb') as file:
                file.write(encoded)

    return once(tmp_path_factory, 'validation-images', make)


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Replaces the network by a small one: these tests do not depend on it."""


@pytest.fixture(scope='module')
def odd_images(tmp_path_factory: Any) -> str:
    """A folder of unusual images, and of files that are not images."""
    folder = tmp_path_factory.mktemp('odd') / 'a b'
    pixels = skimage.data.chelsea()[:96, :96]
    cat = Image.fromarray(pixels)
    files = {
        'cat.png': cat,
        'cat.gif': cat.quantize(256),
        'cmyk.jpg': cat.convert('CMYK'),
        'grey.png': cat.convert('L'),
    }
    files['one.png'] = Image.fromarray(np.zeros([1, 1, 3], np.uint8))
    (folder / 'sub').mkdir(parents=True)
    for name, image in files.items():
        image.save(str(folder / name))
    with tf.Graph().as_default(), tf.Session() as session:
        deep = tf.image.encode_png(tf.constant(pixels.astype(np.uint16) * 257))
        (folder / 'sixteen.png').write_bytes(session.run(deep))
    cat.save(str(folder / 'webp.jpg'), 'WEBP')
    cat.save(str(folder / 'moving.gif'), save_all=True, append_images=[cat.rotate(90)])
    encoded = io.BytesIO()
    cat.save(encoded, 'JPEG')
    (folder / 'cut.jpg').write_bytes(encoded.getvalue()[:1500])
    (folder / 'empty.jpg').write_bytes(b'')
    (folder / 'text.jpg').write_text('no image')
    (folder / 'huge.png').write_bytes(_png_header(20000, 20000))
    os.mkfifo(str(folder / 'pipe.jpg'))
    (folder / 'sub' / 'K\u00e4se & <b>.JPEG').write_bytes(encoded.getvalue())
    with open(os.path.join(os.fsencode(str(folder)), b'sub', b'\xff.jpg'), 'wb') as file:
        file.write(encoded.getvalue())
    (folder / 'notes.txt').write_text('no image, and not said to be one')
    (folder / '.hidden.jpg').write_text('skipped')
    return str(folder)


def _png_header(width: int, height: int) -> bytes:
    with tf.Graph().as_default(), tf.Session() as session:
        small = session.run(tf.image.encode_png(np.zeros([1, 1, 3], np.uint8)))
    return small[:16] + width.to_bytes(4, 'big') + height.to_bytes(4, 'big') + small[24:]
