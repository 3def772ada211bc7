"""Tests of the command on a run: rows, layers, the .npz file, and images that cannot be read."""

import contextlib
import io
import os
import shutil
from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from compat.errors import DONE, FIX, CommandError
from console.screen import Screen
from inception_v3.model_dir import digest_of_checkpoint
from tests.support import commands
from tests.support.records import validation_set
from tests.support.runs import FinishedRun
from tests.support.spellings import spellings
from tools.features import __main__ as features
from tools.features import extraction
from tools.predict import classifier


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Replaces the network by a small one: these tests do not depend on it."""


@pytest.fixture
def images(finished_run: FinishedRun, tmp_path: Any) -> str:
    """A folder of five images and two files that are not images."""
    folder = tmp_path / 'images'
    folder.mkdir()
    for number, (encoded, _) in zip(range(5), validation_set(finished_run.config)):
        (folder / f'{number}.jpg').write_bytes(encoded)
    (folder / '1b.jpg').write_bytes(b'')
    (folder / 'text.txt').write_text('no image')
    return str(folder)


def run(*arguments: str) -> Tuple[int, str, List[str]]:
    done = commands.run(features.main, *arguments)
    return done.returncode, done.stdout, done.stderr.splitlines()


def test_features__are_those_of_predictions(finished_run: FinishedRun, images: str, tmp_path: Any) -> None:
    model_dir, out = str(finished_run.config.model_dir), str(tmp_path / 'out.npz')
    code, text, err = run(images, f'--model={model_dir}', '--layer=Logits', f'--out={out}', '--batch_size=2')
    assert code == FIX
    assert any(line.endswith('1b.jpg: is empty') for line in err) and '1 of 6 images could not be read' in err
    assert any('skipped 1 files' in line and 'text.txt' in line for line in err)
    checkpoint = os.path.join(model_dir, 'model.ckpt-5')
    assert text == f'{out}: 5 images x 11 features of the layer Logits of {checkpoint}\n'
    with np.load(out) as arrays:
        found = dict(arrays)
    assert found['paths'].tolist() == [os.path.join(images, f'{number}.jpg') for number in range(5)]
    assert str(found['layer']) == 'Logits' and str(found['model']) == checkpoint
    assert str(found['digest']) == digest_of_checkpoint(checkpoint)
    model = classifier.load(model_dir)
    try:
        prepared = [model.prepare((tmp_path / 'images' / f'{number}.jpg').read_bytes(), None) for number in range(5)]
        expected = np.stack([np.asarray(each) for each in model.classify(prepared)])
    finally:
        model.close()
    exponentials = np.exp(found['features'])
    np.testing.assert_allclose(exponentials / exponentials.sum(axis=1, keepdims=True), expected, rtol=1e-5)
    assert set(found) == {'features', 'paths', 'layer', 'model', 'digest'}


def test_model__may_be_a_checkpoint_here(finished_run: FinishedRun, monkeypatch: Any) -> None:
    model_dir = str(finished_run.config.model_dir)
    monkeypatch.chdir(model_dir)
    extractor = extraction.of_run('model.ckpt-2', 'pool')
    extractor.close()
    assert os.path.abspath(extractor.name) == os.path.join(model_dir, 'model.ckpt-2')
    assert extractor.digest == digest_of_checkpoint(extractor.name)


def test_features_that_are_not_finite__are_refused(finished_run: FinishedRun, images: str) -> None:
    extractor = extraction.of_run(str(finished_run.config.model_dir), 'Logits')
    found = extraction.find([f'{images}/0.jpg', f'{images}/2.jpg'])
    # Features of the classifier, because in some versions a ReLU turns NaN into 0.
    variable = extractor.session.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)[-1]
    values = extractor.session.run(variable)
    values.flat[0] = np.nan
    variable.load(values, extractor.session)
    with contextlib.closing(extractor), pytest.raises(CommandError, match='features are not finite'):
        extraction.extract(extractor, found, 2, Screen(io.StringIO()))


def test_mistakes__are_one_message(finished_run: FinishedRun, images: str, tmp_path: Any) -> None:
    model, out = f'--model={finished_run.config.model_dir}', f'--out={tmp_path / "out.npz"}'

    def message(*arguments: str) -> str:
        code, text, err = run(*arguments)
        assert (code, text) == (FIX, '')
        assert sum(line.startswith('error: ') or ': error: ' in line for line in err) == 1
        return '\n'.join(err)

    weights = f'{tmp_path}/weights.npz'
    shutil.copy(f'{images}/0.jpg', weights)
    for name in (weights, *spellings(weights, tmp_path)):
        # As weights, and as an image.
        for arguments in ((images, f'--weights={weights}'), (weights, model)):
            assert f'{name}: is one of the files to read, and would be' in message(*arguments, f'--out={name}')
    assert 'no such layer. It has pool, ' in message(images, model, out, '--layer=Mixed_9z')
    (tmp_path / 'empty').mkdir()
    assert 'no images in this folder' in message(str(tmp_path / 'empty'), model, out)
    assert '1b.jpg: is empty' in message(f'{images}/1b.jpg', model, out)
    for name in ('absent', 'empty'):
        assert f'{name}: contains no checkpoint' in message(images, f'--model={tmp_path}/{name}', out)
    (export,) = (each for each in os.listdir(str(finished_run.config.export_dir)) if each.isdigit())
    assert 'contains no checkpoint' in message(images, f'--model={finished_run.config.export_dir}/{export}', out)
    assert 'cannot be written' in message(images, model, f'--out={images}/0.jpg/out.npz')
    assert 'must end in .npz' in message(images, model, '--out=out.csv')
    assert '--batch_size: 0: must be a whole number' in message(images, model, out, '--batch_size=0')
    assert 'one of the arguments --model --weights is required' in message(images, out)
    assert not os.path.exists(str(tmp_path / 'out.npz')) and not os.path.exists(str(tmp_path / 'out.npz.unfinished'))
    # What cannot be written is said before the model is loaded.
    (tmp_path / 'folder.npz').mkdir()
    assert 'folder.npz: cannot be written: it is a folder' in message(
        images, f'--model={tmp_path}/absent', f'--out={tmp_path}/folder.npz'
    )
    # A batch has no more images than there are.
    assert run(f'{images}/0.jpg', model, out, f'--batch_size={10**12}')[0] == DONE
