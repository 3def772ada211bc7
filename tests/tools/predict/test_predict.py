"""Tests of predict: predictions, reports of unreadable images, messages, and the classifiers that it loads."""

import base64
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shutil
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import PIL.Image
import pytest
import skimage.data

from compat import tf
from console import program
from console.screen import Screen
from data.remote import RemoteError
from inception_v3.config import Config
from inception_v3.model_fn import EXPORT_SIGNATURE
from inception_v3.run.evaluations import read_evaluations
from preprocessing.decoding import decode_image
from preprocessing.preprocessings import preprocessing_for
from tests.support import commands
from tests.support.graphs import evaluate
from tests.support.images import CAT
from tests.support.pages import read_page
from tests.support.photos import encode_jpeg
from tests.support.runs import FinishedRun
from tests.support.spellings import spellings
from tools import drawing, image_files
from tools.image_files import ImageFiles
from tools.predict import __main__ as predict
from tools.predict import classifier, prediction
from tools.predict.classifier import Classifier

IMAGES = 359
# Files of the fixture `odd_images`, and the problem that is reported.
PROBLEMS = {
    'moving.gif': 'is a damaged or animated GIF image',
    'cut.jpg': 'truncated or damaged',
    'empty.jpg': 'is empty',
    'text.jpg': 'is not a JPEG, PNG, GIF, WebP, BMP or TIFF image',
    'huge.png': 'has 20,000 x 20,000 pixels; at most 100,000,000 are allowed',
    'pipe.jpg': 'is a named pipe; only regular files are read',
}


def run(*arguments: str) -> Tuple[int, List[str], List[str]]:
    """Runs predict; returns its exit code and the lines of standard output and standard error."""
    code, out, err = commands.run(predict.main, *arguments)
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
        # The rest is the background's, which is not shown.
        probabilities[row, 0] = 1 - probabilities[row].sum()
    return labels, probabilities


def test_predict__checkpoint_and_saved_model_reproduce_the_evaluation(finished_run: FinishedRun, images: str) -> None:
    config = finished_run.config
    evaluation = read_evaluations(str(config.model_dir))[-1]
    found = {}
    # 50 does not divide 359 images.
    for model in (config.model_dir, config.export_dir):
        code, out, err = run(images, f'--model={model}', '--json', '--top=11', '--batch_size=50')
        assert code == 0
        origin = (
            f': run {config.model_dir}, step 5, average weights, top-1 {evaluation.top_1:.2%} of 359 validation images'
        )
        assert any(line.endswith(origin) for line in err), err
        assert [o['image'] for o in objects(out)] == sorted(os.path.join(images, name) for name in os.listdir(images))
        # Label 1 is the digit 0: label 0 is the background.
        assert all(each['name'] == str(each['class'] - 1) for o in objects(out) for each in o['predictions'])
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


@pytest.mark.parametrize(
    ('encoding', 'is_terminal', 'expected'),
    [
        # A third of 100 columns, at most 40, for the bar.
        ('utf-8', False, '   50.00%  ' + '█' * 16 + '▌' + ' ' * 18 + 'Käse and more words'),
        ('ascii', False, '   50.00%  ' + '#' * 16 + ' ' * 19 + r'K\xe4se and more words'),
        ('utf-8', True, '   50.00%  ' + '█' * 5 + '▌' + ' ' * 7 + 'Käse and '),
    ],
)
def test_text_output__fits_the_terminal_and_its_encoding(
    monkeypatch: Any, encoding: str, is_terminal: bool, expected: str
) -> None:
    content = io.BytesIO()
    stdout = io.TextIOWrapper(content, encoding=encoding)
    monkeypatch.setattr(sys, 'stdout', stdout)
    monkeypatch.setattr(stdout, 'isatty', lambda: is_terminal, raising=False)
    monkeypatch.setattr(prediction.shutil, 'get_terminal_size', lambda: os.terminal_size((33, 24)))

    def command(screen: Screen) -> None:
        likeliest = (prediction.ScoredClass(3, 'Käse and more words', 0.5),)
        print(*prediction.lines_of(prediction.Prediction('a.jpg', likeliest)), sep='\n')

    program.run(command)
    stdout.flush()
    assert content.getvalue().decode(encoding).splitlines() == ['a.jpg', expected]


def test_unreadable_images__are_reported_and_others_classified(
    finished_run: FinishedRun, odd_images: str, tmp_path: Any
) -> None:
    # In some batches, no image can be read.
    model, path = f'--model={finished_run.config.model_dir}', tmp_path / 'sheet.html'
    arguments = (odd_images, 'nowhere.jpg', model, '--json', '--top=11', '--batch_size=1', f'--html={path}')
    code, out, err = run(*arguments)
    assert code == 2
    found = {os.path.basename(o['image']): o for o in objects(out)}
    problems = {**PROBLEMS, 'nowhere.jpg': 'no such file or folder'}
    assert {name for name, o in found.items() if 'error' in o} == {*problems}
    page = read_page(path)
    for name, problem in problems.items():
        assert problem in found[name]['error']
        for lines in (err, page.text):
            (line,) = [line for line in lines if f'{name}: ' in line]
            assert problem in line
    (skipped,) = [line for line in err if line.startswith('skipped')]
    assert skipped.startswith('skipped 1 files that are not images') and skipped.endswith('notes.txt')
    assert f'{len(problems)} of {len(found)} images could not be classified' in err
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
        assert len(probabilities(name)) == 10 and 0.5 < sum(probabilities(name)) < 1

    done = [o for o in objects(out) if 'predictions' in o]
    assert f'{len(done)} classified.' in page.text and len(page.images) == len(done)
    assert {os.path.join(odd_images, 'sub', name) for name in ('K\u00e4se & <b>.JPEG', '\\udcff.jpg')} <= {*page.text}
    for o in done:
        for likely in o['predictions']:
            assert f'{100 * likely["probability"]:.1f} %' in page.text
    # A thumbnail shows the whole image: its mean colour is that of the photograph.
    number = [os.path.basename(o['image']) for o in done].index('cat.png')
    encoded = base64.b64decode(page.images[number].partition(',')[2])
    thumbnail = np.asarray(PIL.Image.open(io.BytesIO(encoded)))
    assert thumbnail.shape == (96, 96, 3)
    np.testing.assert_allclose(thumbnail.mean((0, 1)), skimage.data.chelsea()[:96, :96].mean((0, 1)), atol=1.5)
    assert not os.path.exists(f'{path}.unfinished')
    with drawing.thumbnails() as thumbnail:
        small = PIL.Image.open(io.BytesIO(thumbnail(np.zeros([800, 1300, 3], np.uint8))))
    assert small.size == (320, 197)


END_OF_JPEG = b'\xff\xd9'


def test_interruption__leaves_a_page_of_the_images_that_were_done(
    finished_run: FinishedRun, images: str, tmp_path: Any, monkeypatch: Any
) -> None:
    load, batches = classifier.load, []

    def interrupted_in_batch_3(path: str) -> Classifier:
        model = load(path)

        def classify(batch: Sequence[Any]) -> List[np.ndarray]:
            batches.append(len(batch))
            if len(batches) == 3:
                raise KeyboardInterrupt
            return model.classify(batch)

        return model._replace(classify=classify)

    monkeypatch.setattr(classifier, 'load', interrupted_in_batch_3)
    path = tmp_path / 'sheet.html'
    arguments = (images, f'--model={finished_run.config.export_dir}', f'--html={path}', '--batch_size=8')
    code, out, err = run(*arguments)
    assert code == 130
    assert err[-1] == 'error: interrupted; the output holds the images that were done'
    page = read_page(path)
    assert len(page.images) == 16
    assert '16 classified, then interrupted.' in page.text
    assert sum(line.endswith('.jpg') for line in out) == 16


@pytest.mark.parametrize(
    ('names', 'marked'), [(['zero', 'one'], True), (['ze\u200bro', 'one'], True), (['background', 'one'], False)]
)
def test_page__marks_wrong_answers_for_class_0_unless_it_is_the_background(
    names: List[str], marked: bool, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    model = Classifier('fake', None, names, 0, lambda *unused: 0, lambda batch: [np.array([0.1, 0.9])] * len(batch))
    monkeypatch.setattr(classifier, 'load', lambda path: model)
    (tmp_path / names[0]).mkdir()
    PIL.Image.new('RGB', (8, 8)).save(str(tmp_path / names[0] / 'a.png'))
    monkeypatch.chdir(tmp_path / names[0])
    code, _, err = run('a.png', f'--model={tmp_path}', f'--html={tmp_path}/page.html')
    assert code == 0, err
    folder = names[0].replace('\u200b', r'\u200b')
    assert (f'wrong: its folder is {folder}' in read_page(tmp_path / 'page.html').text) is marked


def predictions(folder: pathlib.Path, images: int, top: int, batch_size: int, **changes: Any) -> List[Any]:
    """Classifies images as class 0, with an image's number, appended to its file, as the probability."""
    file = io.BytesIO()
    PIL.Image.new('RGB', (8, 8)).save(file, 'JPEG')
    for number in range(images):
        (folder / f'{number}.jpg').write_bytes(file.getvalue() + b'%d' % number)
    found = ImageFiles([str(folder / f'{number}.jpg') for number in range(images)], {}, [])
    model = Classifier('fake', None, ['zero', 'one'], 0, number_of, lambda batch: [np.array([n, 0]) for n in batch])
    return [*prediction.predict(model._replace(**changes), found, top, batch_size)]


def number_of(encoded: bytes, pixels: Optional[np.ndarray] = None) -> int:
    return int(encoded.rpartition(END_OF_JPEG)[2])


def test_predict__holds_at_most_three_batches_in_memory(tmp_path: Any) -> None:
    lock, waiting, most = threading.Lock(), 0, 0

    def prepare(encoded: bytes, pixels: Any) -> int:
        nonlocal waiting, most
        with lock:
            waiting += 1
            most = max(most, waiting)
        return number_of(encoded)

    def classify(batch: Sequence[int]) -> List[np.ndarray]:
        nonlocal waiting
        if batch[0] in (0, 14):
            # The threads prepare as many images as they may.
            time.sleep(0.2)
        with lock:
            waiting -= len(batch)
        return [np.array([number, 0]) for number in batch]

    # The results are in the order of the files.
    done = predictions(tmp_path, 500, top=1, batch_size=7, prepare=prepare, classify=classify)
    assert [each.likeliest[0].probability for each in done] == [*range(500)]
    assert 7 <= most <= 3 * 7 and not waiting


@pytest.mark.parametrize(
    ('names', 'shown'),
    [
        (['', '', ''], [0, 2]),
        (['zero', 'one', 'two'], [0, 2]),
        (['background', 'one', 'two'], [2, 1]),
        (['', 'one', 'two'], [2, 1]),
    ],
)
def test_predict__shows_label_0_unless_it_is_the_background(names: List[str], shown: List[int], tmp_path: Any) -> None:
    # Label 0 is the likeliest; the background does not count among the classes to show.
    values: Any = {'class_names': names, 'classify': lambda batch: [np.array([0.5, 0.2, 0.3])]}
    (done,) = predictions(tmp_path, 1, top=2, batch_size=1, **values)
    assert [likely.label for likely in done.likeliest] == shown
    # Of equally likely classes, the lower one is first.
    (tied,) = predictions(tmp_path, 1, top=2, batch_size=1, **{**values, 'classify': lambda batch: [np.full(3, 1 / 3)]})
    assert [likely.label for likely in tied.likeliest] == ([0, 1] if 0 in shown else [1, 2])
    of_json = [(each['class'], each['name']) for each in json.loads(done.json())['predictions']]
    assert of_json == [(label, names[label] or None) for label in shown]


def test_nan_probabilities__are_reported_as_a_problem(tmp_path: Any) -> None:
    def classify(batch: Sequence[int]) -> List[np.ndarray]:
        return [np.array([number or np.nan, 0]) for number in batch]

    first, second = predictions(tmp_path, 2, top=1, batch_size=2, classify=classify)
    assert first.problem == 'the network returns NaN as probabilities: its training has diverged'
    assert json.loads(first.json()) == {'image': str(tmp_path / '0.jpg'), 'error': first.problem}
    assert not second.problem and second.likeliest[0].probability == 1


def test_user_errors__have_one_message_and_exit_code_2(finished_run: FinishedRun, images: str, tmp_path: Any) -> None:
    config = finished_run.config
    model_dir = str(config.model_dir)
    model = f'--model={model_dir}'
    image = os.path.join(images, sorted(os.listdir(images))[0])
    empty, begun, broken = (tmp_path / name for name in ('empty', 'begun', 'broken'))
    for folder in (empty, begun, broken):
        folder.mkdir()
    shutil.copy(os.path.join(model_dir, 'config.json'), str(begun))
    bare = shutil.copytree(model_dir, str(tmp_path / 'bare'))
    os.remove(os.path.join(bare, 'config.json'))
    damaged = shutil.copytree(model_dir, str(tmp_path / 'damaged'))
    with open(os.path.join(damaged, 'model.ckpt-5.data-00000-of-00001'), 'r+b') as file:
        file.truncate(100)
    (broken / 'saved_model.pb').write_bytes(b'no protocol buffer')
    with tf.Graph().as_default(), tf.Session() as session:
        tensor = tf.placeholder(tf.float32, [])
        tf.saved_model.simple_save(session, str(tmp_path / 'foreign'), {'x': tensor}, {'y': tensor + 1})
    huge = pathlib.Path(shutil.copytree(model_dir, str(tmp_path / 'huge')), 'config.json')
    huge.write_text(json.dumps({**json.loads(huge.read_text()), 'height': 10_000_000}))
    cases = [
        ((image, f'--model={tmp_path}/none'), f'--model={tmp_path}/none: no such folder.'),
        ((image, f'--model={images}'), 'is neither the model_dir of a run, nor a SavedModel'),
        ((image, f'--model={begun}'), f'{begun}: contains no checkpoint.'),
        ((image, f'--model={bare}'), 'config.json: is missing or empty'),
        ((image, f'--model={damaged}'), 'is damaged'),
        ((image, f'--model={huge.parent}'), 'GiB'),
        ((image, f'--model={broken}'), f'--model={broken}: the SavedModel cannot be read'),
        (
            (image, f'--model={tmp_path}/foreign'),
            'has no signature image_bytes; was it exported by this program? Its signatures: serving_default.',
        ),
        ((str(empty), model), 'no images in this folder'),
        (('nothing.jpg', model), 'nothing.jpg: no such file or folder'),
        ((image, model, f'--html={image}/page.html'), 'cannot be written'),
        ((image, model, f'--html={empty}'), f'{empty}: cannot be written: it is a folder'),
        ((image, model, f'--html={tmp_path}/none/'), f'--html={tmp_path}/none/: must be the path of a file.'),
        ((image, model, '--html='), '--html=: must be the path of a file.'),
        *(
            ((image, model, f'--html={page}'), f'{page}: is one of the files to read, and would be replaced')
            for page in (image, *spellings(image, tmp_path))
        ),
        ((image, model, '--top=0'), '--top: 0: must be a whole number, at least 1'),
    ]
    for arguments, message in cases:
        code, out, err = run(*arguments)
        assert (code, out) == (2, []), arguments
        notes = ('loading', 'a SavedModel is a program')
        err = [line for line in err if not any(note in line for note in notes)]
        messages = [line for line in err if not line.startswith('usage:') and line[:1] != ' ']
        assert len(messages) == 1 and message in messages[0], (arguments, err)


def test_page__that_is_a_hard_link_to_an_image_leaves_the_image(
    finished_run: FinishedRun, images: str, tmp_path: Any
) -> None:
    image, page = tmp_path / 'image.jpg', tmp_path / 'page.html'
    shutil.copy(os.path.join(images, sorted(os.listdir(images))[0]), str(image))
    content = image.read_bytes()
    os.link(str(image), str(page))
    code, _, _ = run(str(image), f'--model={finished_run.config.export_dir}', f'--html={page}')
    assert code == 0 and image.read_bytes() == content and len(read_page(page).images) == 1


def test_json__has_an_object_for_each_file_in_order(finished_run: FinishedRun, images: str) -> None:
    first, second = (os.path.join(images, name) for name in sorted(os.listdir(images))[:2])
    model = f'--model={finished_run.config.export_dir}'
    # More images in a batch than there are, and than the memory holds.
    many = f'--batch_size={10**12}'
    code, out, err = run('x.jpg', second, 'y.jpg', first, 'x.jpg', model, '--json', '--top=99', many)
    assert code == 2
    assert err[-1] == '2 of 4 images could not be classified'
    assert [found['image'] for found in objects(out)] == ['x.jpg', second, 'y.jpg', first]
    assert [found.get('error') for found in objects(out)] == 2 * ['no such file or folder', None]
    # All classes, without the background, most probable first.
    probabilities = [likely['probability'] for likely in objects(out)[1]['predictions']]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sorted(likely['class'] for likely in objects(out)[1]['predictions']) == [*range(1, 11)]
    code, out, err = run('x.jpg', 'y.jpg', model, '--json')
    assert code == 2 and [found['image'] for found in objects(out)] == ['x.jpg', 'y.jpg']
    assert err == ['x.jpg: no such file or folder', 'y.jpg: no such file or folder']


def test_load__takes_the_newest_saved_model_of_an_export_dir(
    finished_run: FinishedRun, tmp_path: Any, caplog: Any
) -> None:
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
    os.mkfifo(os.path.join(newest, 'assets.extra', 'pipe'))
    with pytest.raises(RemoteError, match=r'assets\.extra/pipe: is a named pipe'):
        classifier.load(str(tmp_path))


def test_load__takes_a_saved_model_without_names_of_classes(tmp_path: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        files = tf.placeholder(tf.string, [None])
        outputs = {'probabilities': tf.tile([[0.25, 0.5, 0.25]], [tf.size(files), 1])}
        signature = tf.saved_model.predict_signature_def({EXPORT_SIGNATURE: files}, outputs)
        builder = tf.saved_model.Builder(str(tmp_path / 'export'))
        builder.add_meta_graph_and_variables(session, [tf.saved_model.SERVING], {EXPORT_SIGNATURE: signature})
        builder.save()
    with contextlib.closing(classifier.load(str(tmp_path / 'export'))) as model:
        assert [*model.class_names] == ['', '', ''] and model.has_class_0
        np.testing.assert_array_equal(model.classify([b'1', b'2']), [[0.25, 0.5, 0.25]] * 2)


@pytest.mark.parametrize('preprocessing', ['inception', 'vgg', 'cifar'])
def test_resize_decoded__equals_resize_encoded(preprocessing: str) -> None:
    kind = preprocessing_for(Config(preprocessing=preprocessing, height=90, width=75, use_tpu=False))
    encoded = tf.constant(encode_jpeg(CAT))
    decoded, expected = evaluate(kind.resize_decoded(decode_image(encoded)), kind.resize_encoded(encoded))
    np.testing.assert_array_equal(decoded, expected)


def test_load__a_run_of_a_tpu_takes_pixels_without_decoding(
    finished_run: FinishedRun, images: str, tmp_path: Any
) -> None:
    config = finished_run.config
    model_dir = pathlib.Path(shutil.copytree(str(config.model_dir), str(tmp_path / 'moved')))
    there = dataclasses.replace(
        config, use_tpu=True, tpu='a-node', train_batch_size=1024, eval_batch_size=1024, batch_norm='synchronized'
    )
    # Settings of the training and of its data set, which does not exist here.
    settings: Any = {'batch_norm_group_size': 4, 'freeze': 'Layer', 'head_learning_rate': 0.5, 'init_from': '/none'}
    of_data: Any = {'train_files': 'none/*', 'eval_files': 'none/*', 'label_offset': 3, 'data_dir': '/none'}
    (model_dir / 'config.json').write_text(dataclasses.replace(there, **settings, **of_data).to_json())
    files = image_files.find(sorted(map(str, pathlib.Path(str(images)).glob('00[01]*'))))
    found = []
    for path in (str(model_dir), str(config.model_dir)):
        with contextlib.closing(classifier.load(path)) as model:
            assert [*model.class_names] == ['background', *'0123456789']
            found.append([*prediction.predict(model, files, 5, 8)])
            encoded = pathlib.Path(files.paths[0]).read_bytes()
            pixels = evaluate(decode_image(tf.constant(encoded)))
            np.testing.assert_array_equal(model.prepare(b'not decoded', pixels), model.prepare(encoded, None))
    assert found[0] == found[1]
