"""Tests of the classifiers that predict loads."""

import dataclasses
import json
import os
import shutil
from typing import Any

import numpy as np
import pytest

from console.tensorflow_versions import tf
from data import image_files
from inception_v3.commands.predict import classifier, prediction
from inception_v3.config import Config, ConfigError
from inception_v3.run import origin
from preprocessing.decoding import decode_image
from preprocessing.resizing import resize_decoded, resize_for_eval
from tests.commands.predict.predictions import Trained, objects
from tests.support.graphs import evaluate
from tests.support.images import CAT
from tests.support.photos import encode_jpeg


def test_load__newest_saved_model_of_an_export_dir(trained: Trained, tmp_path: Any, caplog: Any) -> None:
    caplog.set_level('INFO', 'inception_v3')
    (exported,) = os.listdir(str(trained.config.export_dir))
    for name in ('9', '10'):
        shutil.copytree(os.path.join(str(trained.config.export_dir), exported), str(tmp_path / name))
    (tmp_path / '11').mkdir()
    (tmp_path / 'zzz').mkdir()
    model = classifier.load(str(tmp_path))
    try:
        assert model.name == f'SavedModel {tmp_path}/10'
        assert 'a SavedModel is a program' in caplog.text
        assert [*model.class_names] == ['background', *'0123456789']
    finally:
        model.close()


def test_load__refuses_an_export_dir_of_several_runs(trained: Trained, tmp_path: Any) -> None:
    (exported,) = os.listdir(str(trained.config.export_dir))
    for name in ('9', '10'):
        shutil.copytree(os.path.join(str(trained.config.export_dir), exported), str(tmp_path / name))
    path = str(tmp_path / '10')
    own = origin.read(path)
    assert own
    origin.write(path, own._replace(model_dir='/another/run', step=1500, top_1=0.0975))
    with pytest.raises(ConfigError) as refused:
        classifier.load(str(tmp_path))
    first, *others = str(refused.value).splitlines()
    assert first == f'--model={tmp_path}: has SavedModels of 2 runs. Name one of them:'
    assert others == [
        f'  {path}: run /another/run, step 1,500, average weights, top-1 9.75% of 359 validation images',
        f'  {tmp_path}/9: {own}',
    ]
    # A model without an origin may be of the same run.
    os.remove(os.path.join(path, 'assets.extra', 'origin.json'))
    model = classifier.load(str(tmp_path))
    model.close()
    assert str(model) == f'SavedModel {path}: run, step and accuracy are unknown'


@pytest.mark.parametrize('preprocessing', ['inception', 'vgg', 'cifar'])
def test_resize_decoded__equals_resize_for_eval(preprocessing: str) -> None:
    config = Config(preprocessing=preprocessing, height=90, width=75, use_tpu=False)
    encoded = tf.constant(encode_jpeg(CAT))
    decoded, expected = evaluate(resize_decoded(decode_image(encoded), config), resize_for_eval(encoded, config))
    np.testing.assert_array_equal(decoded, expected)


def test_prepare__decodes_no_image_whose_pixels_are_given(trained: Trained) -> None:
    path = image_files.find([trained.images]).paths[0]
    with open(path, 'rb') as file:
        encoded = file.read()
    pixels = evaluate(decode_image(tf.constant(encoded)))
    model = classifier.load(str(trained.config.model_dir))
    try:
        np.testing.assert_array_equal(model.prepare(b'not decoded', pixels), model.prepare(encoded))
    finally:
        model.close()


def test_load__run_that_was_started_on_a_tpu_in_another_folder(
    trained: Trained, tmp_path: Any, monkeypatch: Any
) -> None:
    config, images = trained
    model_dir = shutil.copytree(str(config.model_dir), str(tmp_path / 'moved'))
    # The config.json of a run on a TPU, whose data_dir is relative to the folder where the run was started.
    there = dataclasses.replace(
        config, data_dir='data', use_tpu=True, tpu='a-node', batch_norm='synchronized', batch_norm_group_size=4
    )
    there = dataclasses.replace(there, train_batch_size=1024, eval_batch_size=1024)
    with open(os.path.join(model_dir, 'config.json'), 'w') as file:
        file.write(there.to_json())
    starts = os.path.join(model_dir, 'starts.jsonl')
    with open(starts) as file:
        (start,) = objects(file.readlines())
    (tmp_path / 'began').mkdir()
    os.symlink(config.data_dir, str(tmp_path / 'began' / 'data'))
    with open(starts, 'w') as file:
        file.write(json.dumps({**start, 'directory': str(tmp_path / 'began')}) + '\n')
    monkeypatch.chdir(tmp_path)
    found_files = image_files.find([f'{images}/0[01]*'])
    found = []
    for path in ('moved', str(config.model_dir)):
        model = classifier.load(path)
        assert [*model.class_names] == ['background', *'0123456789']
        found.append([*prediction.predict(model, found_files, 5, 8)])
        model.close()
    assert found[0] == found[1]
