"""Tests of the classifiers that predict loads."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from console.tensorflow_versions import tf
from data import image_files
from inception_v3.commands.predict import classifier, prediction
from inception_v3.config import Config
from preprocessing.decoding import decode_image
from preprocessing.resizing import resize_decoded, resize_for_eval
from tests.support.graphs import evaluate
from tests.support.images import CAT
from tests.support.photos import encode_jpeg
from tests.support.runs import FinishedRun


def test_load__newest_saved_model_of_an_export_dir(finished_run: FinishedRun, tmp_path: Any, caplog: Any) -> None:
    caplog.set_level('INFO', 'inception_v3')
    (exported,) = os.listdir(str(finished_run.config.export_dir))
    for name in ('9', '10'):
        shutil.copytree(os.path.join(str(finished_run.config.export_dir), exported), str(tmp_path / name))
    (tmp_path / '11').mkdir()
    (tmp_path / 'zzz').mkdir()
    newest = str(tmp_path / '10')
    with contextlib.closing(classifier.load(str(tmp_path))) as model:
        assert model.name == f'SavedModel {newest}' and 'a SavedModel is a program' in caplog.text
        assert [*model.class_names] == ['background', *'0123456789']
    os.remove(os.path.join(newest, 'assets.extra', 'origin.json'))
    with contextlib.closing(classifier.load(str(tmp_path))) as model:
        assert str(model) == f'SavedModel {newest}: run, step and accuracy are unknown'


@pytest.mark.parametrize('preprocessing', ['inception', 'vgg', 'cifar'])
def test_resize_decoded__equals_resize_for_eval(preprocessing: str) -> None:
    config = Config(preprocessing=preprocessing, height=90, width=75, use_tpu=False)
    encoded = tf.constant(encode_jpeg(CAT))
    decoded, expected = evaluate(resize_decoded(decode_image(encoded), config), resize_for_eval(encoded, config))
    np.testing.assert_array_equal(decoded, expected)


def test_load__run_that_was_trained_on_a_tpu_decodes_no_image_whose_pixels_are_given(
    finished_run: FinishedRun, images: str, tmp_path: Any
) -> None:
    config = finished_run.config
    model_dir = pathlib.Path(shutil.copytree(str(config.model_dir), str(tmp_path / 'moved')))
    there = dataclasses.replace(
        config, use_tpu=True, tpu='a-node', train_batch_size=1024, eval_batch_size=1024, batch_norm='synchronized'
    )
    (model_dir / 'config.json').write_text(dataclasses.replace(there, batch_norm_group_size=4).to_json())
    files = image_files.find(sorted(map(str, pathlib.Path(str(images)).glob('0[01]*'))))
    found = []
    for path in (str(model_dir), str(config.model_dir)):
        with contextlib.closing(classifier.load(path)) as model:
            assert [*model.class_names] == ['background', *'0123456789']
            found.append([*prediction.predict(model, files, 5, 8)])
            encoded = pathlib.Path(files.paths[0]).read_bytes()
            pixels = evaluate(decode_image(tf.constant(encoded)))
            np.testing.assert_array_equal(model.prepare(b'not decoded', pixels), model.prepare(encoded, None))
    assert found[0] == found[1]
