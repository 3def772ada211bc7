"""Tests of evaluate_report, against the run's own evaluation and scikit-learn."""

import dataclasses
import glob
import json
import os
import shutil
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from compat import tf
from data import dataset_info, records, tfrecord_files
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from inception_v3.run.evaluations import Evaluation, append_evaluation, read_evaluations
from tests.support import commands
from tests.support.graphs import evaluate
from tests.support.pages import read_page
from tests.support.photos import Photo
from tests.support.records import validation_set, write_records
from tests.support.runs import FinishedRun, make_small_config, one_layer_run
from tests.support.saved_models import classify
from tests.support.spellings import spellings
from tests.tools.evaluate_report.test_predictions import write as write_predictions
from tools import trained_model
from tools.datasets import image_example
from tools.evaluate_report import __main__ as evaluate_report
from tools.evaluate_report import evaluation as evaluating
from tools.evaluate_report.analysis import ErrorAnalysis
from tools.evaluate_report.page import ErrorReport


@pytest.fixture(autouse=True)
def _of_one_layer(one_layer: None) -> None:
    """Replaces the network by a small one: these tests do not depend on it."""


@pytest.fixture
def trained(finished_run: FinishedRun, tmp_path: Any) -> Config:
    """The configuration of a copy of a finished run with an export: the report is written into it."""
    model_dir = shutil.copytree(str(finished_run.config.model_dir), str(tmp_path / 'run'))
    return dataclasses.replace(finished_run.config, model_dir=model_dir)


def run(*arguments: str) -> Tuple[int, str, List[str]]:
    """Runs evaluate_report; returns its exit code, standard output, and standard error without progress lines."""
    code, out, err = commands.run(evaluate_report.main, *arguments)
    lines = [line for line in err.splitlines() if line[:1] != ' ' and not line.startswith('usage:')]
    return code, out, [line for line in lines if 'evaluat' not in line or 'error' in line]


def read_report(folder: str) -> Dict[str, Any]:
    with open(os.path.join(folder, 'report.json')) as file:
        return json.load(file)


def same_scores(report: Dict[str, Any], evaluation: Evaluation) -> None:
    """Asserts that a report has the scores of the run's own evaluation."""
    scored = report['evaluation']
    for name in ('top_1', 'top_5', 'cross_entropy'):
        assert scored[name] == pytest.approx(getattr(evaluation, name), rel=1e-5)
    for name in ('step', 'checkpoint', 'weights', 'images', 'changed', 'data_set'):
        assert scored[name] == json.loads(json.dumps(getattr(evaluation, name)))
    matrix = confusion_of(report)
    assert matrix.sum() == evaluation.images
    assert np.trace(matrix) / evaluation.images == pytest.approx(evaluation.top_1, rel=1e-6)


def confusion_of(report: Dict[str, Any]) -> np.ndarray:
    matrix = np.zeros([len(report['classes'])] * 2, int)
    for c in report['classes']:
        matrix[c['label'], c['label']] = round((c['top_1'] or 0) * c['images'])
    for pair in report['confusions']:
        matrix[pair['label'], pair['predicted']] = pair['images']
    return matrix


def record_at(path: str, position: int) -> Tuple[bytes, int]:
    """Returns the image and the label of a record."""
    feature = tf.train.Example.FromString([*tfrecord_files.serialized_in(path)][position]).features.feature
    return feature['image/encoded'].bytes_list.value[0], feature['image/class/label'].int64_list.value[0]


def leave_out_figures(patch: pytest.MonkeyPatch) -> None:
    """Makes a report without its figures, which take a second: one test draws them."""
    patch.setattr(ErrorReport, 'figures', lambda report: dict.fromkeys(('confusion.png', 'reliability.png'), bytes(9)))


def test_report__agrees_with_the_run_and_with_scikit_learn(trained: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    model_dir = str(trained.model_dir)
    before = sorted(os.listdir(model_dir))
    # 359 images in batches of 50: the last batch is padded.
    code, out, err = run(model_dir, '--batch_size=50')
    assert (code, err) == (0, [])
    folder = os.path.join(model_dir, 'evaluation_report')
    assert sorted(os.listdir(model_dir)) == sorted([*before, 'evaluation_report'])
    assert sorted(os.listdir(folder)) == [
        *('confusion.png', 'predictions.csv', 'reliability.png', 'report.html', 'report.json')
    ]
    report, evaluation = read_report(folder), read_evaluations(model_dir)[-1]
    assert evaluation.step == 5
    same_scores(report, evaluation)
    assert report['evaluation']['fingerprint'] == evaluation.fingerprint != ''

    (exported,) = glob.glob(os.path.join(str(trained.export_dir), '*'))
    encoded, labels = zip(*validation_set(trained))
    outputs = classify(exported, [*encoded])
    predicted, probabilities = outputs['classes'], outputs['probabilities']
    expected = sklearn.metrics.confusion_matrix(labels, predicted, labels=range(11))
    np.testing.assert_array_equal(confusion_of(report), expected)
    right = predicted == labels
    worst = np.sort(probabilities.max(axis=1)[~right])[::-1][:48]
    assert [m['confidence'] for m in report['mistakes']] == pytest.approx(worst.tolist(), rel=1e-5)
    for mistake in report['mistakes']:
        image, label = record_at(mistake['path'], mistake['position'])
        row = probabilities[encoded.index(image)]
        assert (mistake['label'], mistake['predicted']) == (label, row.argmax())
        assert mistake['probability_of_label'] == pytest.approx(row[label], rel=1e-5)

    page = read_page(os.path.join(folder, 'report.html'))
    assert len(page.images) == 2 + 48
    printed = out.splitlines()
    assert printed[0].split() == ['top-1', f'{evaluation.top_1:.2%}']
    assert f'{evaluation.top_1:.2%}' in page.text
    assert [line.split()[0] for line in printed].count('confused') == 3
    assert printed[-1].split() == ['report', os.path.join(folder, 'report.html')]
    assert 'The run itself recorded' in out
    # Wilson's interval, of the number of right images.
    ends = scipy.stats.binomtest(int(right.sum()), 359).proportion_ci(method='wilson')
    assert printed[1].split(maxsplit=3)[3] == f'{ends.low:.2%} to {ends.high:.2%}'

    leave_out_figures(monkeypatch)
    # The checkpoint before, on the same images. The last evaluation of the same checkpoint and settings counts.
    before_last = read_evaluations(model_dir)[-2]
    several: List[Dict[str, Any]] = [{'top_1': 0.125}, {'top_1': 0.375, 'weights': 'other'}]
    for changes in several:
        append_evaluation(model_dir, before_last._replace(**changes))
    code, out, err = run(model_dir, '--checkpoint=model.ckpt-4', f'--against={model_dir}', f'--out={folder}/4')
    assert (code, err) == (0, [])
    paths = [os.path.join(folder, part, 'predictions.csv') for part in ('', '4')]
    theirs, ours = (np.genfromtxt(path, int, delimiter=',', skip_header=1, usecols=(2, 3)) for path in paths)
    assert sorted(theirs.tolist()) == sorted(np.stack([labels, predicted], axis=1).tolist())
    assert (ours[:, 0] == theirs[:, 0]).all()
    same_scores(read_report(f'{folder}/4'), before_last)
    assert 'recorded top-1 12.50%' in out
    compared = read_report(f'{folder}/4')['against']
    here, there = (each[:, 0] == each[:, 1] for each in (ours, theirs))
    alone = int((here > there).sum()), int((there > here).sum())
    assert (compared['images'], compared['ours_alone'], compared['theirs_alone']) == (359, *alone) != (359, 0, 0)
    assert compared['top_1_difference'] == pytest.approx(before_last.top_1 - evaluation.top_1)
    for text in (out, ' '.join(read_page(f'{folder}/4/report.html').text)):
        assert f'Against {model_dir}: ' in text and f'{alone[0]:,} are right only here, {alone[1]:,} only there' in text


@pytest.fixture(scope='module')
def photo_run(photo_dir: str, tmp_path_factory: Any) -> Config:
    """A run of one step, with nearly all predictions wrong, and with unusual settings."""
    config = make_small_config(
        photo_dir,
        num_train_images=5,
        num_eval_images=5,
        num_classes=6,
        train_batch_size=4,
        eval_batch_size=3,
        train_steps=1,
        height=80,
        width=96,
        preprocessing='vgg',
        transfer='uint8',
        transpose_enabled=True,
        moving_average=False,
        eval_total_size=4,
    )
    return one_layer_run(tmp_path_factory, 'photo-run', config).config


def copied(config: Config, folder: str, **changes: Any) -> str:
    """Copies a run's model_dir, and changes its recorded configuration."""
    model_dir = shutil.copytree(str(config.model_dir), folder)
    with open(os.path.join(model_dir, 'config.json'), 'w') as file:
        file.write(dataclasses.replace(config, **changes).to_json())
    return model_dir


@pytest.mark.program
def test_report__evaluates_as_the_run_did(photo_run: Config, tmp_path: Any) -> None:
    model_dir = copied(photo_run, str(tmp_path / 'run'))
    code, _, err = run(model_dir)
    # The photographs of both splits are the same.
    assert code == 0 and len(err) == 1 and 'are also training files' in err[0]
    report = read_report(os.path.join(model_dir, 'evaluation_report'))
    (evaluation,) = read_evaluations(model_dir)
    assert (evaluation.images, evaluation.weights) == (4, 'raw')
    same_scores(report, evaluation)
    assert len(report['mistakes']) == round((1 - evaluation.top_1) * 4) > 0
    for mistake in report['mistakes']:
        assert record_at(mistake['path'], mistake['position'])[1] == mistake['label']


@pytest.mark.parametrize('changes', [{}, {'preprocessing': 'vgg'}, {'transfer': 'uint8'}, {'precision': 'bfloat16'}])
def test_visible__gives_the_pixels_that_the_network_saw(
    small_config: Config, photos: Sequence[Photo], changes: Dict[str, Any]
) -> None:
    config = dataclasses.replace(small_config, height=80, width=96, **changes)
    infeed = Infeed(config)
    resized = infeed.preprocessing.resize_encoded(tf.constant(photos[0].encoded))
    sent = infeed.for_evaluation(resized)[tf.newaxis]
    visible = infeed.preprocessing.visible(infeed.received(sent, is_batch_last=False))
    shown, expected = evaluate(visible[0], resized)
    # bfloat16 has 8 bits of precision.
    tolerance = 0.5 if config.precision == 'bfloat16' else 0.001
    assert np.abs(shown - np.round(expected)).max() <= 1
    assert np.abs(shown - expected).mean() < 0.5 + tolerance
    assert np.abs(shown - expected).max() <= 0.5 + 2 * tolerance


@pytest.mark.program
def test_skipped_records__are_reported_and_not_counted(photo_run: Config, tmp_path: Any) -> None:
    data_dir = shutil.copytree(photo_run.data_dir, str(tmp_path / 'data'))
    path = records.find_shards(data_dir, records.VALIDATION)[0]
    all_records = [*tfrecord_files.serialized_in(path)]
    example = tf.train.Example.FromString(all_records[0])
    example.features.feature['image/encoded'].bytes_list.value[:] = [b'no image']
    with tf.io.TFRecordWriter(path) as writer:
        for number, serialized in enumerate(all_records):
            writer.write(serialized if number else example.SerializeToString())
    model_dir = copied(photo_run, str(tmp_path / 'run'), max_bad_records=1, eval_total_size=0)
    out = str(tmp_path / 'out')
    before = sorted(os.listdir(model_dir))
    code, printed, _ = run(model_dir, f'--data_dir={data_dir}', f'--out={out}')
    assert code == 0
    assert sorted(os.listdir(model_dir)) == before
    assert 'Skipped records: 1.' in printed and path in printed
    # Data sets are compared by the content of their files, which differs, not by their folders.
    assert 'Settings that differ from training: validation files: ' in printed and ' -> ' in printed
    report = read_report(out)
    assert report['evaluation']['images'] == 4
    places = {(mistake['path'], mistake['position']) for mistake in report['mistakes']}
    assert len(places) == len(report['mistakes']) > 0 and (path, 0) not in places
    for mistake in report['mistakes']:
        assert record_at(mistake['path'], mistake['position'])[1] == mistake['label']

    # Without --max_bad_records, the bad record is an error that names it.
    model_dir = copied(photo_run, str(tmp_path / 'strict'))
    code, _, err = run(model_dir, f'--data_dir={data_dir}', f'--out={tmp_path}/not')
    assert code == 2
    assert any(path in line and 'cannot be decoded' in line for line in err)
    assert os.listdir(str(tmp_path / 'not')) == []


def test_user_errors__have_one_message_and_exit_code_2(trained: Config, photo_dir: str, tmp_path: Any) -> None:
    model_dir = str(trained.model_dir)
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'file').write_text('')
    more_classes = shutil.copytree(photo_dir, str(tmp_path / 'more'))
    info = dataset_info.read(more_classes)
    assert info
    dataclasses.replace(info, num_classes=12, class_names=['x'] * 12).write(more_classes)
    other_data = write_predictions(tmp_path / 'other', [], data_set='others', fingerprint='f')
    write_predictions(tmp_path / 'same', [])
    report = str(tmp_path / 'same' / 'evaluation_report')
    (tmp_path / 'names').mkdir()
    names = [report, *spellings(report, tmp_path / 'names')]
    cases: List[Tuple[List[str], str]] = [
        ([str(tmp_path / 'none')], f'{tmp_path}/none: no such folder.'),
        ([model_dir, '--checkpoint=model.ckpt-6'], '--checkpoint=model.ckpt-6: no checkpoint of this name'),
        ([model_dir, f'--data_dir={tmp_path}/empty'], f'{tmp_path}/empty'),
        ([model_dir, f'--data_dir={more_classes}'], 'has 12 classes, including the background; the network has 11.'),
        ([model_dir, '--data_format=tar'], trained.data_dir),
        ([model_dir, f'--out={tmp_path}/file'], f'--out={tmp_path}/file: cannot be written to'),
        ([model_dir, f'--against={tmp_path}/none'], f'{tmp_path}/none: has no evaluation report'),
        ([model_dir, f'--against={other_data}'], f'--against={other_data}: its report is of another data set, others'),
        *(
            (
                [model_dir, f'--against={other}', f'--out={out}'],
                'predictions.csv: is one of the files to read, and would',
            )
            for other in (report, str(tmp_path / 'same'))
            for out in names
        ),
        ([model_dir, '--batch_size=0'], '--batch_size: 0: must be a whole number, at least 1'),
    ]
    for arguments, message in cases:
        code, out, err = run(*arguments)
        assert (code, out) == (2, ''), arguments
        assert len(err) == 1 and message in err[0], (arguments, err)


def test_data__that_is_incomplete_or_trained_on_is_said_in_the_report(
    trained: Config, digits_dir: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_figures(monkeypatch)
    model_dir, data_dir = str(trained.model_dir), shutil.copytree(digits_dir, str(tmp_path / 'data'))
    for path in records.find_shards(data_dir, records.VALIDATION)[1:]:
        os.remove(path)
    for arguments, parts in (
        ([f'--data_dir={data_dir}'], ('3 of 4 validation files are missing', '89 images were evaluated, and 359 were')),
        # Under another name, and from another folder.
        ([f'--eval_files={tmp_path}/copy'], ('1 of these 1 files are also training files', 'Settings that differ')),
    ):
        shutil.copy(records.find_shards(digits_dir, records.TRAIN)[0], str(tmp_path / 'copy'))
        code, out, err = run(model_dir, *arguments, f'--out={tmp_path}/out')
        assert code == 0 and any('warning: ' in line and parts[0] in line for line in err)
        page = ' '.join(read_page(f'{tmp_path}/out/report.html').text)
        assert all(part in text for part in parts for text in (out, page))


def test_files__whose_labels_begin_elsewhere_than_the_runs_are_refused(trained: Config, tmp_path: Any) -> None:
    example = image_example.make_example(b'image', 'JPEG', 0, '', 1, 1, 'name').SerializeToString()
    write_records(tmp_path, records.VALIDATION, [example])
    code, _, err = run(str(trained.model_dir), f'--eval_files={tmp_path}/validation-*', f'--out={tmp_path}/out')
    assert code == 2 and "labels are 0, the background in the run's classes" in err[-1] and '.json' not in err[-1]
    assert not os.path.exists(f'{tmp_path}/out')


def test_settings__of_the_evaluation_are_those_of_the_run_and_the_flags(
    trained: Config, digits_dir: str, tmp_path: Any
) -> None:
    model_dir = str(trained.model_dir)
    found = trained_model.find(model_dir, None)

    def settings(*arguments: str, **changes: Any) -> Config:
        model = found._replace(config=dataclasses.replace(found.config, **changes))
        return evaluating.fit_to_data_set(model, evaluate_report.parse([model_dir, *arguments]))[1].config

    # The batches of a run on a TPU are too large.
    assert settings(eval_batch_size=1024).eval_batch_size == 64
    assert settings(eval_batch_size=16).eval_batch_size == 16
    assert settings('--batch_size=100', eval_batch_size=16).eval_batch_size == 100
    assert not settings(display_tensors=True).display_tensors
    # The images of another data set are counted; the number in the run's own is known.
    assert settings(num_eval_images=7).num_eval_images == 7
    assert settings(f'--data_dir={digits_dir}', num_eval_images=7).num_eval_images == 359
    # A network may have more classes than the data set.
    assert settings(num_classes=12).num_classes == 12
    empty = shutil.copytree(digits_dir, str(tmp_path / 'empty'))
    for path in records.find_shards(empty, records.VALIDATION):
        with open(path, 'w'):
            pass
    with pytest.raises(records.DataError, match='no records'):
        settings(f'--data_dir={empty}')


@pytest.mark.parametrize(
    ('cross_entropy', 'images', 'part'),
    [(float('nan'), 1, 'the cross-entropy is nan: training has diverged'), (0.5, 0, 'no usable validation image')],
)
def test_results__that_say_nothing_are_an_error(
    trained: Config, monkeypatch: Any, cross_entropy: float, images: int, part: str
) -> None:
    analysis = ErrorAnalysis(11)
    analysis.images = images
    scores = {'cross_entropy': cross_entropy, 'top_1': 0.5, 'top_5': 0.5}
    monkeypatch.setattr(evaluating, 'evaluate', lambda *others: (scores, analysis))
    code, out, err = run(str(trained.model_dir))
    assert (code, out) == (2, '') and part in err[-1]


@pytest.mark.program
def test_synthetic_images__are_replaced_by_data_dir(photo_run: Config, tmp_path: Any) -> None:
    model_dir = copied(photo_run, str(tmp_path / 'run'), use_data='fake', data_dir='')
    code, _, err = run(model_dir)
    assert code == 2 and 'made-up images: name the data set to evaluate with --data_dir' in err[0]
    code, out, _ = run(model_dir, f'--data_dir={photo_run.data_dir}')
    assert code == 0 and 'use_data: fake -> real' in out
    report = read_report(os.path.join(model_dir, 'evaluation_report'))
    assert {os.path.dirname(mistake['path']) for mistake in report['mistakes']} == {photo_run.data_dir}
    code, _, err = run(model_dir, f'--data_dir={tmp_path}/nowhere')
    assert code == 2 and f'{tmp_path}/nowhere' in err[0]


def test_data__is_that_of_the_run_unless_flags_name_other(
    trained: Config, digits_dir: str, few_digits_dir: str, tar_dir: str, tmp_path: Any
) -> None:
    own: Dict[str, Any] = {'eval_files': 'validation-0000{1,3}-of-00004', 'num_eval_images': 180}
    model_dir = copied(trained, str(tmp_path / 'patterns'), **own)
    shifted = copied(trained, str(tmp_path / 'shifted'), **own, label_offset=1)

    def data_of(*arguments: str) -> Tuple[List[str], int]:
        parsed = evaluate_report.parse(arguments)
        _, model, _ = evaluating.fit_to_data_set(trained_model.find(parsed.model_dir), parsed)
        return model.config.source.find(records.VALIDATION), model.config.num_eval_images

    def paths(folder: str, *numbers: int) -> List[str]:
        return [records.shard_path(folder, records.VALIDATION, number, 4) for number in numbers]

    few, of_files = f'--data_dir={few_digits_dir}', f'--eval_files={paths(digits_dir, 0)[0]}'
    assert data_of(model_dir) == (paths(digits_dir, 1, 3), 180)
    # The run's patterns belong to its own folder.
    assert data_of(model_dir, few) == (paths(few_digits_dir, *range(4)), 73)
    assert data_of(model_dir, f'--data_dir={digits_dir}') == (paths(digits_dir, *range(4)), 359)
    assert data_of(model_dir, of_files) == (paths(digits_dir, 0), 89)
    assert data_of(model_dir, few, '--eval_files=validation-00002-*') == (paths(few_digits_dir, 2), 18)
    tar = data_of(model_dir, f'--data_dir={tar_dir}', '--data_format=tar')
    assert tar == ([f'{path}.tar' for path in paths(tar_dir, *range(4))], 73)
    assert data_of(shifted, '--label_offset=0') == (paths(digits_dir, 1, 3), 180)
    with pytest.raises(records.DataError, match='label'):
        data_of(shifted)
