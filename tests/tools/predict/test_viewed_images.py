"""Tests that predict and exported SavedModels see images as viewers show them, whatever their format."""

import glob
import json
import os
import pathlib
from typing import Any, Dict, Tuple

import numpy as np
import PIL.Image
import pytest

from inception_v3.run.export import saved_model
from tests.preprocessing.test_viewing import JFIF, LITTLE, UNUSUAL, big, in_jpeg, with_gradient
from tests.support.images import CAT, saved
from tests.support.runs import FinishedRun
from tests.support.saved_models import classify
from tools.export import __main__ as export
from tools.image_files import ImageFiles
from tools.predict import classifier, prediction

pytestmark = pytest.mark.program

PHOTO = PIL.Image.fromarray(CAT[:200, 40:140])
DRAWING = with_gradient(PHOTO)


def pictures() -> Dict[str, bytes]:
    """Files by name, with every orientation and of every kind that a SavedModel decodes."""
    turned = {f'{value}.jpg': saved(PHOTO, 'JPEG', value) for value in range(1, 9)}
    return {
        **turned,
        **{f'{value}.png': saved(PHOTO, 'PNG', value) for value in (3, 6)},
        'progressive.jpg': saved(PHOTO, 'JPEG', 6, progressive=True),
        'grey.jpg': saved(PHOTO.convert('L'), 'JPEG', 6),
        'cmyk.jpg': saved(PHOTO.convert('CMYK'), 'JPEG', 8),
        'after-jfif.jpg': in_jpeg(big(), before=JFIF),
        'little.jpg': in_jpeg(LITTLE),
        'cut-exif.jpg': in_jpeg(big()[:-4]),
        **{f'unusual-{i}.jpg': file for i, (file, _) in enumerate(UNUSUAL) if b'\xff\xd9' in file},
        'rgba.png': saved(DRAWING, 'PNG'),
        'rgba-turned.png': saved(DRAWING, 'PNG', 6),
        'la.png': saved(DRAWING.convert('LA'), 'PNG'),
        'palette.png': saved(PHOTO.quantize(9), 'PNG', transparency=3),
        'opaque.png': saved(PHOTO.convert('RGBA'), 'PNG'),
        'rgb.png': saved(PHOTO, 'PNG'),
        'frame.gif': saved(PHOTO.quantize(200), 'GIF'),
    }


@pytest.fixture
def folder(tmp_path: Any) -> Any:
    for name, content in pictures().items():
        (tmp_path / 'images' / name).parent.mkdir(exist_ok=True)
        (tmp_path / 'images' / name).write_bytes(content)
    return tmp_path / 'images'


def predictions(model: str, folder: Any) -> Tuple[Dict[str, np.ndarray], Dict[str, str]]:
    """The probabilities of each image in a folder, and the problems of the others, by name."""
    loaded = classifier.load(model)
    files = ImageFiles(sorted(str(path) for path in pathlib.Path(folder).iterdir()), {}, [])
    found, problems = {}, {}
    try:
        for each in prediction.predict(loaded, files, 11, 4):
            name = os.path.basename(each.path)
            if each.problem:
                problems[name] = each.problem
            else:
                found[name] = np.array([c.probability for c in sorted(each.likeliest)])
    finally:
        loaded.close()
    return found, problems


def test_served_images__are_classified_as_by_predict(finished_run: FinishedRun, folder: Any) -> None:
    (exported,) = glob.glob(os.path.join(str(finished_run.config.export_dir), '*'))
    by_checkpoint, problems = predictions(str(finished_run.config.model_dir), folder)
    by_saved_model, same_problems = predictions(exported, folder)
    assert problems == same_problems and len(problems) <= 2
    names = sorted(by_checkpoint)
    served = classify(exported, [(folder / name).read_bytes() for name in names])['probabilities']
    for name, probabilities in zip(names, served):
        np.testing.assert_allclose(by_checkpoint[name], probabilities[1:], rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(by_saved_model[name], probabilities[1:], rtol=1e-5, err_msg=name)
    # The network sees the difference.
    upright = by_checkpoint['1.jpg']
    for value in range(2, 9):
        assert np.abs(by_checkpoint[f'{value}.jpg'] / upright - 1).max() > 1e-3
    assert np.abs(by_checkpoint['rgba.png'] / by_checkpoint['opaque.png'] - 1).max() > 1e-3


def test_saved_models_of_earlier_versions__get_images_that_predict_has_turned(
    finished_run: FinishedRun, folder: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(saved_model, 'resize_as_viewed', lambda encoded, kind: kind.resize_encoded(encoded))
    assert export.main([str(finished_run.config.model_dir), '--format=saved_model', f'--out={tmp_path}']) == 0
    exported = str(tmp_path / 'saved_model' / 'saved_model')
    origin_file = os.path.join(exported, 'assets.extra', 'origin.json')
    content = json.loads(pathlib.Path(origin_file).read_text())
    del content['settings']['images_as_viewed'], content['check']
    pathlib.Path(origin_file).write_text(json.dumps(content))
    expected, _ = predictions(str(finished_run.config.model_dir), folder)
    by_earlier, _ = predictions(exported, folder)
    for name, probabilities in by_earlier.items():
        # Turned JPEGs were encoded again, with quality 95.
        np.testing.assert_allclose(
            probabilities, expected[name], rtol=2e-2 if name.endswith('jpg') else 1e-5, err_msg=name
        )
    # The earlier SavedModel itself does not turn images.
    (stored,) = classify(exported, [pictures()['6.jpg']])['probabilities']
    (upright,) = classify(exported, [pictures()['1.jpg']])['probabilities']
    np.testing.assert_allclose(stored, upright, rtol=1e-5)
