"""Tests of the page that predict writes."""

import base64
import contextlib
import io
import os
from typing import Any, List, Sequence

import numpy as np
import skimage.data
from PIL import Image

from inception_v3.commands.predict import classifier
from inception_v3.commands.predict.classifier import Outcome
from inception_v3.commands.thumbnails import Thumbnails
from tests.commands.predict.predictions import PROBLEMS, Trained, objects, run
from tests.support.pages import read_page


def test_contact_sheet__self_contained_with_every_image(
    trained: Trained, odd_images: str, tmp_path: Any, capfd: Any
) -> None:
    path = tmp_path / 'sheet.html'
    arguments = (odd_images, f'--model={trained.config.model_dir}', f'--html={path}', '--top=3', '--json')
    code, out, _ = run(capfd, *arguments)
    assert code == 2
    page = read_page(path)
    assert f'{len(out) - len(PROBLEMS)} classified.' in page.text
    done = [o for o in objects(out) if 'predictions' in o]
    assert len(page.images) == len(done)
    assert os.path.join(odd_images, 'sub', 'K\u00e4se & <b>.JPEG') in page.text
    assert os.path.join(odd_images, 'sub', '\\udcff.jpg') in page.text
    for found in done:
        for likely in found['predictions']:
            assert f'{100 * likely["probability"]:.1f} %' in page.text
    for name, problem in PROBLEMS.items():
        assert any(name in text and problem in text for text in page.text)
    # A thumbnail shows the whole image: its mean colour is that of the photograph.
    names = [os.path.basename(found['image']) for found in done]
    encoded = base64.b64decode(page.images[names.index('cat.png')].partition(',')[2])
    thumbnail = np.asarray(Image.open(io.BytesIO(encoded)))
    assert thumbnail.shape == (96, 96, 3)
    np.testing.assert_allclose(thumbnail.mean((0, 1)), skimage.data.chelsea()[:96, :96].mean((0, 1)), atol=1.5)
    assert not os.path.exists(f'{path}.unfinished')


def test_thumbnails__small_with_the_same_aspect_ratio() -> None:
    pixels = np.asarray(Image.fromarray(skimage.data.chelsea()).resize((1300, 800)))
    with contextlib.closing(Thumbnails()) as thumbnails:
        small = Image.open(io.BytesIO(thumbnails.make(pixels)))
    assert small.size == (320, 197)


def test_interruption__page_shows_the_images_that_were_done(
    trained: Trained, tmp_path: Any, capfd: Any, monkeypatch: Any
) -> None:
    classify = classifier.CheckpointClassifier.classify
    batches: List[int] = []

    def interrupted(self: Any, prepared: Sequence[Any]) -> List[Outcome]:
        batches.append(len(prepared))
        if len(batches) == 3:
            raise KeyboardInterrupt
        return classify(self, prepared)

    monkeypatch.setattr(classifier.CheckpointClassifier, 'classify', interrupted)
    path = tmp_path / 'sheet.html'
    arguments = (trained.images, f'--model={trained.config.model_dir}', f'--html={path}', '--batch_size=8')
    code, out, err = run(capfd, *arguments)
    assert code == 130
    assert err[-1] == 'error: interrupted; the output holds the images that were done'
    page = read_page(path)
    assert len(page.images) == 16
    assert '16 classified, then interrupted.' in page.text
    assert sum(line.endswith('.jpg') for line in out) == 16
