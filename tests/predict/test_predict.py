"""Tests of predict: predictions, reports of unreadable images, and the contact sheet."""

import base64
import dataclasses
import io
import json
import os
import shutil
import sys
import threading
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import pytest
import skimage.data
import tensorflow as tf
from PIL import Image

from data import image_files
from inception_v3.config import Config
from inception_v3.evaluate_report import __main__ as evaluate_report
from inception_v3.model_dir.evaluations import read_evaluations
from inception_v3.predict import __main__ as predict
from inception_v3.predict import classifier
from inception_v3.predict.classifier import Classifier, Outcome
from tests.support.pages import read_page
from tests.support.records import validation_set
from tests.support.runs import FinishedRun
from tests.support.shared import once

IMAGES = 359


class Trained(NamedTuple):
    """A run with an export, and a folder of its validation images, named NUMBER-LABEL.jpg."""

    config: Config
    images: str


@pytest.fixture(scope='module')
def trained(finished_run: FinishedRun, tmp_path_factory: Any) -> Trained:
    def make(folder: str) -> None:
        for number, (encoded, label) in enumerate(validation_set(finished_run.config)):
            with open(os.path.join(folder, f'{number:03d}-{label}.jpg'), 'wb') as file:
                file.write(encoded)

    return Trained(finished_run.config, once(tmp_path_factory, 'validation-images', make))


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Replaces the network by a small one: these tests do not depend on it."""


def run(capfd: Any, *arguments: str) -> Tuple[int, List[str], List[str]]:
    """Runs predict; returns its exit code and the lines of standard output and standard error."""
    capfd.readouterr()
    try:
        code = predict.main(arguments)
    except SystemExit as error:  # argparse's
        code = int(str(error.code))
    out, err = capfd.readouterr()
    return code, out.splitlines(), err.splitlines()


def objects(lines: Sequence[str]) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in lines]


def scores(lines: Sequence[str]) -> Tuple[List[int], np.ndarray]:
    """Returns the labels from the file names, and the probabilities [images, classes]."""
    labels, probabilities = [], np.zeros([len(lines), 11])
    for row, found in enumerate(objects(lines)):
        labels.append(int(os.path.splitext(found['image'])[0].rpartition('-')[2]))
        for likely in found['predictions']:
            probabilities[row, likely['class']] = likely['probability']
    return labels, probabilities


def test_predict__checkpoint_and_saved_model_reproduce_the_evaluation(trained: Trained, capfd: Any) -> None:
    config, images = trained
    evaluation = read_evaluations(str(config.model_dir))[-1]
    found = {}
    # 50 does not divide 359 images.
    for model in (config.model_dir, config.export_dir):
        code, out, _ = run(capfd, images, f'--model={model}', '--json', '--top=11', '--batch_size=50')
        assert code == 0
        assert [o['image'] for o in objects(out)] == sorted(os.path.join(images, name) for name in os.listdir(images))
        labels, found[model] = scores(out)
        rows, likeliest = np.arange(IMAGES), np.argsort(-found[model], axis=1)
        assert (likeliest[:, 0] == labels).mean() == pytest.approx(evaluation.top_1, abs=1e-6)
        assert (likeliest[:, :5] == np.array(labels)[:, np.newaxis]).any(axis=1).mean() == pytest.approx(
            evaluation.top_5, abs=1e-6
        )
        likelihoods = found[model][rows, labels]
        assert -np.log(likelihoods).mean() == pytest.approx(evaluation.cross_entropy, rel=1e-5)
    assert found[config.model_dir].std(axis=0).max() > 1e-4
    np.testing.assert_allclose(found[config.model_dir], found[config.export_dir], rtol=1e-5, atol=1e-7)


def test_text_output__bar_and_name_per_class(trained: Trained, capfd: Any) -> None:
    config, images = trained
    pattern = os.path.join(images, '00[0-2]-*')
    code, as_json, _ = run(capfd, pattern, f'--model={config.model_dir}', '--json', '--top=2')
    assert code == 0
    code, out, _ = run(capfd, pattern, f'--model={config.model_dir}', '--top=2')
    assert code == 0
    assert len(out) == 9
    for found, (path, *lines) in zip(objects(as_json), (out[:3], out[3:6], out[6:])):
        assert path == found['image']
        for line, likely in zip(lines, found['predictions']):
            percent, bar, name = line.split()
            assert percent == f'{likely["probability"]:.2%}'
            assert len(bar) == -(-round(likely['probability'] * 33 * 8) // 8)
            # Label 1 is the digit 0: label 0 is the background.
            assert name == likely['name'] == ('background' if not likely['class'] else str(likely['class'] - 1))


def test_bar__length_is_proportional() -> None:
    assert predict.bar(1, 10) == '█' * 10
    assert predict.bar(0.5, 10) == '█' * 5
    assert predict.bar(0.54, 10) == '█' * 5 + '▍'
    assert predict.bar(0, 10) == ''
    assert predict.bar(0.54, 10, '#') == '#####'


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
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
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
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        small = session.run(tf.image.encode_png(np.zeros([1, 1, 3], np.uint8)))
    return small[:16] + width.to_bytes(4, 'big') + height.to_bytes(4, 'big') + small[24:]


PROBLEMS = {
    'webp.jpg': 'is a WebP image; supported are JPEG, PNG and GIF',
    'moving.gif': 'is an animated GIF, or damaged',
    'cut.jpg': 'truncated or damaged',
    'empty.jpg': 'is empty',
    'text.jpg': 'is not a JPEG, PNG or GIF image, or its beginning is damaged',
    'huge.png': 'has 20,000 x 20,000 pixels; at most 100,000,000 are allowed',
    'pipe.jpg': 'is not a regular file',
}


@pytest.mark.parametrize('kind', ['model_dir', 'export_dir'])
def test_unreadable_images__reported_while_others_are_classified(
    trained: Trained, odd_images: str, capfd: Any, kind: str
) -> None:
    model = getattr(trained.config, kind)
    arguments = (odd_images, 'nowhere.jpg', f'--model={model}', '--json', '--top=11', '--batch_size=4')
    code, out, err = run(capfd, *arguments)
    assert code == 2
    found = {os.path.basename(o['image']): o for o in objects(out)}
    assert {name for name, o in found.items() if 'error' in o} == set(PROBLEMS)
    for name, problem in PROBLEMS.items():
        assert problem in found[name]['error']
        (line,) = [line for line in err if os.path.join(odd_images, name) in line]
        assert problem in line
    assert 'nowhere.jpg: no such file or folder.' in err
    (skipped,) = [line for line in err if line.startswith('skipped')]
    assert skipped.startswith('skipped 1 files without the extension') and skipped.endswith('notes.txt')
    assert f'{len(PROBLEMS)} of {len(found)} images could not be classified' in err
    assert not any('Traceback' in line for line in err)
    # JSON output preserves the bytes of file names.
    names = {os.fsencode(name) for name in found}
    assert {'K\u00e4se & <b>.JPEG'.encode(), b'\xff.jpg'} <= names

    # The same pixels in 8 and in 16 bits give the same prediction; a grey image gives another.
    def probabilities(name: str) -> List[float]:
        by_class = sorted(found[name]['predictions'], key=lambda likely: likely['class'])
        return [likely['probability'] for likely in by_class]

    np.testing.assert_allclose(probabilities('sixteen.png'), probabilities('cat.png'), rtol=1e-5)
    assert np.abs(np.subtract(probabilities('grey.png'), probabilities('cat.png'))).max() > 1e-4
    for name in ('one.png', 'cmyk.jpg', 'cat.gif'):
        assert sum(probabilities(name)) == pytest.approx(1, abs=1e-5)


def test_contact_sheet__self_contained_with_every_image(
    trained: Trained, odd_images: str, tmp_path: Any, capfd: Any
) -> None:
    path = tmp_path / 'sheet.html'
    arguments = (odd_images, f'--model={trained.config.model_dir}', f'--html={path}', '--top=3', '--json')
    code, out, _ = run(capfd, *arguments)
    assert code == 2
    page = read_page(path)
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
    from inception_v3.predict import contact_sheet

    encoded = io.BytesIO()
    Image.fromarray(skimage.data.chelsea()).resize((1300, 800)).save(encoded, 'PNG')
    thumbnails = contact_sheet.Thumbnails()
    try:
        small = Image.open(io.BytesIO(thumbnails.make(encoded.getvalue())))
    finally:
        thumbnails.close()
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


class Counting(Classifier):
    """A fake classifier that counts the images that are prepared but not yet classified."""

    def __init__(self) -> None:
        self.name, self.class_names = 'counting', ['', '']
        self.waiting = self.most = 0
        self._lock = threading.Lock()

    def prepare(self, encoded: bytes) -> int:
        with self._lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        return int(encoded)

    def classify(self, prepared: Sequence[int]) -> List[Outcome]:
        with self._lock:
            self.waiting -= len(prepared)
        return [np.array([number, 0], np.float32) for number in prepared]

    def close(self) -> None:
        assert not self.waiting


def test_predict__at_most_three_batches_in_memory(tmp_path: Any) -> None:
    paths = []
    for number in range(500):
        (tmp_path / f'{number}.jpg').write_text(str(number))
        paths.append(str(tmp_path / f'{number}.jpg'))
    model = Counting()
    predictions = [*predict.predict(model, paths, top=1, batch_size=7)]
    # The results are in the order of the files.
    assert [prediction.likeliest[0].probability for prediction in predictions] == [*range(500)]
    assert 7 <= model.most <= 3 * 7


class Diverged(Counting):
    """A fake classifier that returns NaN for the first image."""

    def classify(self, prepared: Sequence[int]) -> List[Outcome]:
        super().classify(prepared)
        return [np.array([number or np.nan, 0], np.float32) for number in prepared]


def test_nan_probabilities__reported_as_a_problem(tmp_path: Any) -> None:
    for number in range(2):
        (tmp_path / f'{number}.jpg').write_text(str(number))
    paths = [str(tmp_path / f'{number}.jpg') for number in range(2)]
    first, second = predict.predict(Diverged(), paths, top=1, batch_size=2)
    assert first.problem == 'the network returns NaN as probabilities: its training has diverged'
    assert json.loads(first.json()) == {'image': paths[0], 'error': first.problem}
    assert not second.problem and second.likeliest[0].probability == 1


def test_find__files_folders_and_patterns(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ('b.jpg', 'a.png', 'x.bin', 'd/e/1.gif', 'd/0.JPG', 'd/x.txt', '.git/i.jpg', '[1].jpg'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b'')
    assert image_files.find(['x.bin', 'b.jpg', 'b.jpg']) == (['x.bin', 'b.jpg'], [], [])
    assert image_files.find(['d']) == (['d/0.JPG', 'd/e/1.gif'], [], ['d/x.txt'])
    assert image_files.find(['*.*']).paths == ['[1].jpg', 'a.png', 'b.jpg', 'x.bin']
    assert image_files.find(['**/*.gif']).paths == ['d/e/1.gif']
    # An existing file of this name takes precedence over the pattern.
    assert image_files.find(['[1].jpg']).paths == ['[1].jpg']
    found = image_files.find(['gs://bucket/a.jpg', 'z*', 'nothing'])
    assert not found.paths
    assert found.problems == [
        'gs://bucket/a.jpg: remote images are not supported; copy it to this machine first.',
        'z*: no file matches this pattern.',
        'nothing: no such file or folder.',
    ]
    (tmp_path / 'none').mkdir()
    (problem,) = image_files.find(['none']).problems
    assert problem == 'none: no images in this folder; they end in .jpg, .jpeg, .png, .gif.'


def test_user_errors__one_message_and_exit_code_2(trained: Trained, tmp_path: Any, capfd: Any) -> None:
    config, images = trained
    model_dir = str(config.model_dir)
    model = f'--model={model_dir}'
    image = os.path.join(images, sorted(os.listdir(images))[0])
    empty = tmp_path / 'empty'
    empty.mkdir()
    begun = tmp_path / 'begun'
    begun.mkdir()
    shutil.copy(os.path.join(model_dir, 'config.json'), str(begun))
    bare = shutil.copytree(model_dir, str(tmp_path / 'bare'))
    os.remove(os.path.join(bare, 'config.json'))
    damaged = shutil.copytree(model_dir, str(tmp_path / 'damaged'))
    with open(os.path.join(damaged, 'model.ckpt-5.data-00000-of-00001'), 'r+b') as file:
        file.truncate(100)
    broken = tmp_path / 'broken'
    broken.mkdir()
    (broken / 'saved_model.pb').write_bytes(b'no protocol buffer')
    cases = [
        ((image, f'--model={tmp_path}/none'), f'--model={tmp_path}/none: no such folder.'),
        ((image, f'--model={images}'), 'is neither the model_dir of a run, nor a SavedModel'),
        ((image, f'--model={empty}'), 'is neither the model_dir of a run, nor a SavedModel'),
        ((image, f'--model={begun}'), f'{begun}: contains no checkpoint.'),
        ((image, f'--model={bare}'), 'config.json: is missing or empty'),
        ((image, f'--model={damaged}'), 'is damaged'),
        ((image, f'--model={broken}'), f'--model={broken}: the SavedModel cannot be read'),
        ((str(empty), model), 'no images in this folder'),
        (('nothing.jpg', model), 'nothing.jpg: no such file or folder.'),
        ((image, model, f'--html={tmp_path}/none/page.html'), 'cannot be written: No such file or directory'),
        ((image, model, f'--html={empty}'), f'--html={empty}: is a folder; name a file for the page.'),
        ((image, model, f'--html={tmp_path}/none/'), f'--html={tmp_path}/none/: is a folder'),
        ((image, model, '--html='), '--html=: must be the path of a file.'),
        ((image, model, '--top=0'), '--top=0: must be at least 1.'),
        ((image, model, '--batch_size=-1'), '--batch_size=-1: must be at least 1.'),
        ((image,), '--model'),
    ]
    for arguments, message in cases:
        code, out, err = run(capfd, *arguments)
        assert (code, out) == (2, []), arguments
        messages = [line for line in err if not line.startswith('usage:') and 'loading' not in line and line[:1] != ' ']
        assert len(messages) == 1 and message in messages[0], (arguments, err)


def test_load__newest_saved_model_of_an_export_dir(trained: Trained, tmp_path: Any) -> None:
    (exported,) = os.listdir(str(trained.config.export_dir))
    for name in ('9', '10'):
        shutil.copytree(os.path.join(str(trained.config.export_dir), exported), str(tmp_path / name))
    (tmp_path / '11').mkdir()
    (tmp_path / 'zzz').mkdir()
    model = classifier.load(str(tmp_path))
    try:
        assert model.name == f'SavedModel {tmp_path}/10'
        assert [*model.class_names] == ['background', *'0123456789']
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
    paths = image_files.find([images]).paths[:20]
    found = []
    for path in ('moved', str(config.model_dir)):
        model = classifier.load(path)
        assert [*model.class_names] == ['background', *'0123456789']
        found.append([*predict.predict(model, paths, 5, 8)])
        model.close()
    assert found[0] == found[1]


def test_missing_packages__one_message_says_what_to_install(
    trained: Trained, tmp_path: Any, capfd: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, 'jinja2', None)
    for name in ('console.html', 'inception_v3.predict.contact_sheet', 'inception_v3.evaluate_report.page'):
        package, _, module = name.rpartition('.')
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(sys.modules[package], module, raising=False)
    model_dir = str(trained.config.model_dir)
    code, out, err = run(capfd, trained.images, f'--model={model_dir}', f'--html={tmp_path}/page.html')
    assert (code, out) == (2, [])
    assert err == ["error: --html: the page needs jinja2, which is not installed: pip install '.[studies]'."]
    assert evaluate_report.main([model_dir]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "error: The report needs jinja2, which is not installed: pip install '.[studies]'."
