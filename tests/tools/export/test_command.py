"""Tests of `inception-v3 export`: every format in its own runtime, and what stands beside it."""

import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import runpy
import shutil
import sys
import tempfile
import types
from typing import Any, List, Tuple
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from compat import tf
from compat.errors import CommandError
from compat.messages import in_markdown
from data import dataset_info, records
from inception_v3.networks.registry import NETWORKS
from inception_v3.run.trained_data import TrainedData
from tests.data.written_records import examples
from tests.support import commands
from tests.support.records import validation_set
from tests.support.runs import ONE_LAYER, FinishedRun, evaluations
from tests.support.spellings import spellings
from tests.support.tiers import further
from tools import trained_model
from tools.datasets.writing import label_and_image
from tools.export import __main__ as command
from tools.export import exports, prepare
from tools.export import network as network_of_run
from tools.export.exports import Agreement
from tools.export.formats import FORMATS, of_variables
from tools.export.network import Batch, FrozenNetwork, batches
from tools.predict.classifier import of_checkpoint

AVERAGE = '/ExponentialMovingAverage'
CLASSES = ['background', *'0123456789']


def exported(run: FinishedRun, out: pathlib.Path, *formats: str) -> pathlib.Path:
    """Makes verified exports in a folder, with what the command prints in `printed.txt`."""
    words = [f'--format={",".join(formats)}', f'--out={out}', '--verify']
    words += ['--calibration_images=20'] if any('int8' in name for name in formats) else []
    screen = os.dup(2)
    # The network of the run.
    with mock.patch.dict(NETWORKS, inception_v3=ONE_LAYER), tempfile.TemporaryFile() as native:
        os.dup2(native.fileno(), 2)
        try:
            code, printed, err = commands.run(command.main, run.config.model_dir, *words)
        finally:
            os.dup2(screen, 2)
            os.close(screen)
        # TensorFlow 2's converter to int8 leaves its graphs to the collector of garbage, open on the stack of graphs.
        gc.collect()
        native.seek(0)
        # The libraries of TensorFlow Lite and ONNX write nothing between the lines of the command.
        assert not native.read()
    assert code == 0, err
    assert sorted(os.listdir(str(out))) == sorted(formats)
    (out / 'printed.txt').write_text(printed)
    return out


def check(out: pathlib.Path, run: FinishedRun, name: str) -> None:
    """Checks that an export classifies as the run was evaluated, and what stands beside it."""
    top_1 = evaluations(run.config)[-1].top_1
    line = next(line for line in (out / 'printed.txt').read_text().splitlines() if line.startswith(f'{name}: '))
    assert 'of 359 validation images' in line and line.endswith(f'; the checkpoint has top-1 {top_1:.2%}')
    # The logits of this run are at most 5, of which this is rounding in float32 whatever the processor.
    tolerance = 0.5 if 'int8' in name else 5e-5
    assert float(line.split(';')[1].split()[-1]) <= {'saved_model': 0, 'npz': 0}.get(name, tolerance)
    assert 'int8' in name or f'{name}: in its own runtime, top-1 {top_1:.2%} of' in line
    folder = out / name
    files = {FORMATS[name].file, 'README.md', 'labels.txt', 'preprocessing.json', 'prepare.py'}
    assert {*os.listdir(str(folder))} == files
    assert (folder / 'labels.txt').read_text().splitlines() == CLASSES
    card = (folder / 'README.md').read_text()
    low, high = stats.binomtest(round(top_1 * 359), 359).proportion_ci(method='wilson')
    assert f'95 % interval {low:.2%} to {high:.2%}' in card or 'int8' in name
    for text in ('step 5;', 'moving averages', '1,438 training and 359 validation', '--learning_rate=0.3', 'EXIF'):
        assert text in card
    assert '--model_dir' not in card


@pytest.fixture
def plain_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepares images without a look for EXIF and transparency: two thirds of a graph that tests of others build."""
    monkeypatch.setattr(
        network_of_run, 'resize_as_viewed', lambda encoded, preprocessing: preprocessing.resize_encoded(encoded)
    )


@pytest.fixture(scope='module')
def made(finished_run: FinishedRun, tmp_path_factory: Any) -> pathlib.Path:
    return exported(finished_run, tmp_path_factory.mktemp('exports'), 'saved_model', 'onnx', 'onnx_nchw', 'npz')


@pytest.mark.parametrize('name', ['saved_model', 'onnx', 'onnx_nchw', 'npz'])
def test_exports__classify_as_the_run_was_evaluated(made: pathlib.Path, finished_run: FinishedRun, name: str) -> None:
    check(made, finished_run, name)


# TensorFlow 1.15 converts to each in a process of its own.
@pytest.mark.program
@pytest.mark.both
def test_tflite__classifies_as_the_run_was_evaluated(finished_run: FinishedRun, tmp_path: pathlib.Path) -> None:
    exported(finished_run, tmp_path, 'tflite', 'tflite_int8', 'tflite_full_int8')
    for name in ('tflite', 'tflite_int8', 'tflite_full_int8'):
        check(tmp_path, finished_run, name)
    interpreter = tf.lite.Interpreter(model_path=str(tmp_path / 'tflite_int8' / 'model_int8.tflite'))
    types = {tensor['dtype'] for tensor in interpreter.get_tensor_details() if len(tensor['shape']) == 4}
    assert np.int8 in types and interpreter.get_input_details()[0]['dtype'] == np.float32
    _check_integers(tmp_path / 'tflite_full_int8', finished_run)


def _check_integers(folder: pathlib.Path, run: FinishedRun) -> None:
    """Checks that the files of an export are enough to use it with integers alone."""
    content = json.loads((folder / 'preprocessing.json').read_text())
    numpy_alone = runpy.run_path(str(folder / 'prepare.py'))
    interpreter = tf.lite.Interpreter(model_path=str(folder / 'model_full_int8.tflite'))
    interpreter.allocate_tensors()
    (source,), targets = interpreter.get_input_details(), interpreter.get_output_details()
    assert {each['dtype'] for each in [source, *targets]} == {np.int8} and content['input']['type'] == 'int8'
    pixels = np.full([100, 90, 3], 255, np.uint8)
    pixels[:, :50] = 0
    image = numpy_alone['prepare'](pixels, content['steps'])
    # Pixels from black to white fill the range.
    assert image.dtype == np.int8 and image.shape == (75, 75, 3) and image.min() < -120 and image.max() > 120
    back = numpy_alone['dequantize'](image, **content['input']['quantization'])
    np.testing.assert_allclose(back, numpy_alone['prepare'](pixels, content['steps'][:-1]), atol=0.01)
    interpreter.set_tensor(source['index'], image[np.newaxis])
    interpreter.invoke()
    for target in targets:
        name = 'logits' if 'logits' in target['name'] else 'probabilities'
        scales = content['output_quantization'][name]
        assert (scales['scale'], scales['zero_point']) == target['quantization']
        values = numpy_alone['dequantize'](interpreter.get_tensor(target['index']), **scales)
        assert name == 'logits' or values.sum() == pytest.approx(1, abs=0.05)
        assert f'`{name}`: int8; a number n stands for {scales["scale"]:.9g}' in (folder / 'README.md').read_text()


def test_numbers__stand_for_the_values_of_their_scale() -> None:
    values = np.array([-3.0, -1.0, 0.0, 0.26, 1.0, 9.0], np.float32)
    numbers = prepare.quantize(values, 0.5, 3)
    assert numbers.dtype == np.int8 and numbers.tolist() == [-3, 1, 3, 4, 5, 21]
    assert prepare.quantize(np.array([-99.0, 99.0]), 0.5, 3).tolist() == [-128, 127]
    assert prepare.dequantize(numbers, 0.5, 3).tolist() == [-3, -1, 0, 0.5, 1, 9]


@pytest.fixture(scope='module')
def classified(finished_run: FinishedRun) -> Tuple[List[bytes], np.ndarray]:
    """Image files, and the probabilities that the checkpoint gives them."""
    encoded = [image for image, _ in validation_set(finished_run.config)][:64]
    with mock.patch.dict(NETWORKS, inception_v3=ONE_LAYER):
        network = trained_model.find(str(finished_run.config.model_dir))
        with contextlib.closing(of_checkpoint(network)) as classifier:
            found = classifier.classify([classifier.prepare(image, None) for image in encoded])
    return encoded, np.stack([np.asarray(each) for each in found])


@pytest.mark.parametrize(('name', 'shape'), [('onnx', (75, 75, 3)), ('onnx_nchw', (3, 75, 75))])
def test_onnx__classifies_an_image_that_numpy_has_prepared(
    name: str, shape: tuple, made: pathlib.Path, classified: Tuple[List[bytes], np.ndarray]
) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    folder = made / name
    content = json.loads((folder / 'preprocessing.json').read_text())
    session = onnxruntime.InferenceSession(str(folder / FORMATS[name].file), providers=['CPUExecutionProvider'])
    (source,) = session.get_inputs()
    assert (source.name, source.shape) == (content['input']['name'], content['input']['shape'])
    assert source.shape == ['batch', *shape]
    assert {each.name: each.shape for each in session.get_outputs()} == content['outputs']
    encoded, expected = classified
    with tf.Graph().as_default(), tf.Session() as run:
        file = tf.placeholder(tf.string, [])
        decoded = tf.image.decode_image(file, channels=3)
        # The copy beside the export, by itself.
        prepare = runpy.run_path(str(folder / 'prepare.py'))['prepare']
        images = np.stack([prepare(run.run(decoded, {file: image}), content['steps']) for image in encoded])
    probabilities = session.run(['probabilities'], {source.name: images})[0]
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)


def test_npz__has_averages_under_the_names_of_the_weights(made: pathlib.Path, finished_run: FinishedRun) -> None:
    arrays = np.load(str(made / 'npz' / 'weights.npz'))
    trained = tf.train.load_checkpoint(str(finished_run.config.model_dir))
    assert {'Layer/weights', 'Logits/weights', 'Layer/BatchNorm/moving_mean'} <= {*arrays.files}
    for name in arrays.files:
        stored = name + AVERAGE if trained.has_tensor(name + AVERAGE) else name
        np.testing.assert_array_equal(arrays[name], trained.get_tensor(stored))
    assert (arrays['Logits/weights'] != trained.get_tensor('Logits/weights')).any()


@pytest.mark.parametrize(
    ('name', 'images', 'alone', 'checkpoint_alone', 'is_kept'),
    [
        *(('onnx', 300, 0, 0, True), ('onnx', 300, 0, 1, False), ('onnx', 300, 1, 0, False)),
        # A loss of one point, and more, in answers that chance explains and does not.
        *(('tflite_int8', 300, 1, 4, True), ('tflite_full_int8', 300, 1, 4, True), ('tflite_int8', 300, 12, 2, True)),
        *(('tflite_int8', 300, 0, 5, None), ('tflite_int8', 300, 0, 6, False), ('tflite_int8', 300, 1, 8, False)),
        *(('tflite_int8', 300, 1, 7, None), ('tflite_int8', 24, 0, 1, None), ('tflite_int8', 50000, 100, 580, True)),
    ],
)
def test_agreement__allows_int8_one_point(
    name: str, images: int, alone: int, checkpoint_alone: int, is_kept: bool
) -> None:
    expected = images // 2 + checkpoint_alone
    found = Agreement(name, images, expected - checkpoint_alone + alone, expected, alone, checkpoint_alone)
    assert found.is_kept is is_kept and bool(found.verdict) is (is_kept is not True)
    if images == 24:
        assert '24 images are too few' in found.verdict and 'about 144 validation' in found.verdict


def test_compare__sums_over_all_batches_with_the_largest_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    # By batch: the logits of the checkpoint, those of the export, and labels.
    values = [
        ([[2, 1], [3, 1], [0, 1]], [[1, 2], [0, 5], [0, 1]], [0, 1, 0]),
        ([[1, 0]], [[1.5, 0]], [0]),
        ([[1, np.nan]], [[1, np.nan]], [0]),
    ]
    given = [Batch([], np.array([ours, theirs]), np.array(labels)) for ours, theirs, labels in values]
    opened = mock.Mock(open=lambda path, network: lambda batch: batch.images[1])
    monkeypatch.setattr(exports, 'of_variables', lambda network, restore: lambda batch: batch.images[0])
    monkeypatch.setitem(FORMATS, 'onnx', opened)
    network, screen = mock.Mock(), mock.Mock()
    # Right of the first: the export's second image, the checkpoint's first.
    found = exports.compare({'onnx': 'file'}, network, given[:2], screen)
    assert found == {'onnx': Agreement('onnx', 4, 2, 2, 1, 1, 4.0)}
    assert np.isnan(exports.compare({'onnx': 'file'}, network, given[::-1], screen)['onnx'].difference)


@pytest.fixture
def of_made_up_images(finished_run: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the finished run for one on made-up images."""
    model = trained_model.find(str(finished_run.config.model_dir))
    fake = model._replace(config=dataclasses.replace(model.config, use_data='fake'))
    monkeypatch.setattr(trained_model, 'find', lambda *unused: fake)


def test_worse_export__is_reported_and_exit_code_2(
    finished_run: FinishedRun,
    of_made_up_images: None,
    one_layer: None,
    plain_images: None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one_class(path: str, network: FrozenNetwork) -> Any:
        return lambda batch: np.full([len(batch.labels), 11], np.nan, np.float32)

    monkeypatch.setitem(FORMATS, 'npz', FORMATS['npz']._replace(open=one_class))
    words = [str(finished_run.config.model_dir), '--format=npz', f'--out={tmp_path}', '--verify']
    # A run on made-up images, too, is verified on a data set that is named.
    code, out, err = commands.run(command.main, *words, f'--data_dir={finished_run.config.data_dir}')
    assert code == 2 and 'npz: has not the accuracy of its checkpoint' in err
    assert 'npz: in its own runtime, top-1 0.00% of 359' in out and 'differenc' in out and 'nan' in out
    # The export stays, for a look at it; its card says how good it is.
    assert 'top-1 0.00%' in (tmp_path / 'npz' / 'README.md').read_text()


def spoil(data_dir: str, split: str, records_of_file: int) -> str:
    """Replaces the images of the first records in a split's first file; returns its path."""
    path = records.find_shards(data_dir, split)[0]
    all_examples = [*examples(path)]
    for example in all_examples[:records_of_file]:
        example.features.feature['image/encoded'].bytes_list.value[:] = [b'no image']
    with tf.io.TFRecordWriter(path) as writer:
        for example in all_examples:
            writer.write(example.SerializeToString())
    return path


def test_verification__on_incomplete_data_is_said_in_the_card(
    finished_run: FinishedRun, one_layer: None, plain_images: None, tmp_path: pathlib.Path
) -> None:
    model_dir = shutil.copytree(str(finished_run.config.model_dir), str(tmp_path / 'run'))
    data_dir = shutil.copytree(finished_run.config.data_dir, str(tmp_path / 'data'))
    os.remove(os.path.join(data_dir, 'validation-00003-of-00004'))
    bad = spoil(data_dir, records.VALIDATION, 1)
    config = dataclasses.replace(finished_run.config, data_dir=data_dir, model_dir=model_dir, max_bad_records=1)
    (tmp_path / 'run' / 'config.json').write_text(config.to_json())
    code, out, err = commands.run(command.main, model_dir, '--format=npz', f'--out={tmp_path}/out', '--verify')
    assert code == 0 and 'of 268 validation images' in out
    card = (tmp_path / 'out' / 'npz' / 'README.md').read_text()
    for words in ('1 of 4 validation files are missing', 'not those of the training: validation files: 4 -'):
        assert words in err and words in card
    assert '; skipped, as in the run: 1 validation record that cannot be used' in card
    assert f'skipped {bad}, record 0' in err and not os.path.exists(os.path.join(model_dir, 'bad_records'))


def test_bad_records__are_skipped_as_in_the_run_and_more_keep_the_exports(
    finished_run: FinishedRun, one_layer: None, plain_images: None, few_digits_dir: str, tmp_path: pathlib.Path
) -> None:
    model_dir = shutil.copytree(str(finished_run.config.model_dir), str(tmp_path / 'run'))
    data_dir = shutil.copytree(few_digits_dir, str(tmp_path / 'data'))
    spoil(data_dir, records.TRAIN, 1), spoil(data_dir, records.VALIDATION, 2)
    config = dataclasses.replace(finished_run.config, data_dir=data_dir, model_dir=model_dir, max_bad_records=1)
    (tmp_path / 'run' / 'config.json').write_text(config.to_json())
    seen: List[np.ndarray] = []

    def write(network: FrozenNetwork, images: Any, path: str) -> None:
        seen.extend(images)
        pathlib.Path(path).write_text('')

    own = lambda path, network: of_variables(network, network.model.restore)  # noqa: E731
    with mock.patch.dict(FORMATS, npz=FORMATS['npz']._replace(is_calibrated=True, write=write, open=own)):
        words = [model_dir, '--format=npz', '--verify', f'--out={tmp_path}/out', '--calibration_images=39']
        code, printed, err = commands.run(command.main, *words)
    # The finished export stays.
    assert code == 2 and printed == f'{tmp_path}/out/npz\n' and len(seen) == 39
    assert 'more bad records than the run allowed, --max_bad_records=1:' in err and 'raise' not in err
    card = (tmp_path / 'out' / 'npz' / 'README.md').read_text()
    assert 'not verified' in card and '; skipped, as in the run: 1 train record that cannot be used' in card


def test_images__come_from_the_files_and_labels_of_the_run(finished_run: FinishedRun, plain_images: None) -> None:
    config = finished_run.config
    config = dataclasses.replace(config, train_files='train-00002-*', eval_files='validation-00001-*', label_offset=-1)
    for split, shard, shards in ((records.TRAIN, 2, 8), (records.VALIDATION, 1, 4)):
        path = records.shard_path(config.data_dir, split, shard, shards)
        batch = next(batches(split == records.TRAIN, config))
        found = [*zip(batch.labels + 1, batch.encoded)]
        # Training reads a single file several times at once.
        assert len(found) == 32 and {*found} <= {label_and_image(example) for example in examples(path)}


def refused(*words: str) -> str:
    """The message of a command that is refused."""
    code, _, err = commands.run(command.main, *words)
    assert code == 2
    return err


def test_refusals__leave_nothing(
    finished_run: FinishedRun, one_layer: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*unused: Any) -> None:
        raise CommandError('TensorFlow Lite has no operation')

    monkeypatch.setitem(FORMATS, 'tflite', FORMATS['tflite']._replace(write=fail))
    monkeypatch.setitem(sys.modules, 'tf2onnx', None)
    model_dir, out = str(finished_run.config.model_dir), f'--out={tmp_path}/new'
    (tmp_path / 'old' / 'npz').mkdir(parents=True)
    for kind in ('dangling', 'hard'):
        (tmp_path / f'links-{kind}').mkdir()
    (tmp_path / 'links-dangling' / 'npz').symlink_to(tmp_path / 'none')
    os.link(os.path.join(model_dir, 'config.json'), str(tmp_path / 'links-hard' / 'npz'))
    for words, part in (
        ([model_dir, '--format=npz,tflite', out], 'TensorFlow Lite has no operation'),
        ([model_dir, '--format=onnx', out], "tf2onnx: not installed: pip install 'inception-v3-tpu[export]'"),
        *(
            ([model_dir, '--format=tflite,npz', f'--out={folder}'], f'{folder}/npz: exists already')
            for folder in (f'{tmp_path}/old', *spellings(f'{tmp_path}/old', tmp_path))
        ),
        *(
            ([model_dir, '--format=npz', f'--out={tmp_path}/links-{kind}'], f'links-{kind}/npz: exists already')
            for kind in ('dangling', 'hard')
        ),
        ([model_dir, '--format=npz', '--out=gs://bucket/x'], '--out=gs://bucket/x: must be a local folder'),
        ([str(tmp_path), '--format=npz', out], f'{tmp_path}: contains no checkpoint'),
    ):
        assert part in refused(*words)
    assert not [*tmp_path.glob('new/*')] and os.listdir(str(tmp_path / 'old')) == ['npz']
    assert f'keras: the formats are {", ".join(FORMATS)}' in refused('run', '--format=onnx,keras')
    unused = refused(model_dir, '--format=npz', out, '--verify', '--calibration_images=9')
    assert '--calibration_images: these exports read no training images' in unused


def test_run_on_made_up_images__is_verified_on_others_alone(
    finished_run: FinishedRun, of_made_up_images: None, tmp_path: pathlib.Path
) -> None:
    for words in (['--format=npz', '--verify'], ['--format=tflite_int8']):
        message = refused(str(finished_run.config.model_dir), *words, f'--out={tmp_path}')
        assert 'made-up images: name a data set for --verify and int8 with --data_dir' in message


def test_data_dir__replaces_a_data_set_that_is_gone(
    finished_run: FinishedRun, one_layer: None, plain_images: None, few_digits_dir: str, tmp_path: pathlib.Path
) -> None:
    model_dir = shutil.copytree(str(finished_run.config.model_dir), str(tmp_path / 'run'))
    config = dataclasses.replace(
        finished_run.config, data_dir=str(tmp_path / 'gone'), train_files='a-*', eval_files='b-*', model_dir=model_dir
    )
    (tmp_path / 'run' / 'config.json').write_text(config.to_json())
    words = [model_dir, '--format=npz,odd', '--verify', f'--out={tmp_path}/out']
    seen = []

    def write(network: FrozenNetwork, images: Any, path: str) -> None:
        seen.extend(images)
        pathlib.Path(path).write_text('')

    odd = FORMATS['npz']._replace(
        is_calibrated=True, write=write, open=lambda path, network: of_variables(network, network.model.restore)
    )
    with mock.patch.dict(FORMATS, odd=odd), mock.patch.object(command, 'NAMES', [*FORMATS, 'odd']):
        code, printed, err = commands.run(command.main, *words, f'--data_dir={few_digits_dir}')
    # Of fewer images than --calibration_images.
    assert code == 0 and len(seen) == 40 and 'of 73 validation images' in printed, err
    assert 'the validation images are not those of the training' in err
    info = dataset_info.read(few_digits_dir)
    assert info
    ranges = f'- ranges of the 8 bits: measured on 40 training images of {in_markdown(f"{info.name}: {info.source}")}\n'
    cards = {name: (tmp_path / 'out' / name / 'README.md').read_text() for name in ('npz', 'odd')}
    assert ranges in cards['odd'] and 'ranges' not in cards['npz']
    assert 'the validation images are not those' in (tmp_path / 'out' / 'npz' / 'README.md').read_text()
    assert '--eval_files=b-*' in refused(model_dir, '--format=npz', '--verify', f'--out={tmp_path}/new')
    unused = refused(model_dir, '--format=npz', f'--out={tmp_path}/new', f'--data_dir={few_digits_dir}')
    assert '--data_dir: these exports read no images' in unused
    # Without a description, the labels are the run's.
    os.remove(str(shutil.copytree(few_digits_dir, str(tmp_path / 'bare')) + '/dataset.json'))
    words = [model_dir, '--format=npz', '--verify', f'--out={tmp_path}/new', f'--data_dir={tmp_path}/bare']
    assert "the background in the run's classes" in refused(*words, '--label_offset=-1')


def network_of(graph: tf.Graph, height: int, width: int) -> FrozenNetwork:
    """A network of smaller images than a configuration allows."""
    model: Any = types.SimpleNamespace(config=types.SimpleNamespace(height=height, width=width))
    return FrozenNetwork(graph.as_graph_def(), {}, model, TrainedData(None))


@pytest.mark.program
def test_tflite__takes_one_image_of_the_runs_height_and_width(tmp_path: pathlib.Path) -> None:
    with tf.Graph().as_default() as graph:
        logits = tf.identity(tf.reduce_sum(tf.placeholder(tf.float32, [None, 2, 4, 3], 'images'), [1, 2]), 'logits')
        tf.identity(tf.nn.softmax(logits), 'probabilities')
    FORMATS['tflite'].write(network_of(graph, 2, 4), [], str(tmp_path / 'model'))
    interpreter = tf.lite.Interpreter(model_path=str(tmp_path / 'model'))
    assert [*interpreter.get_input_details()[0]['shape']] == [1, 2, 4, 3]


@pytest.mark.parametrize(
    'name', ['onnx', pytest.param('tflite', marks=(pytest.mark.program, pytest.mark.both)), further('tflite_int8')]
)
def test_operation_that_a_format_lacks__is_named(name: str, tmp_path: pathlib.Path) -> None:
    with tf.Graph().as_default() as graph:
        images = tf.placeholder(tf.float32, [None, 2, 2, 3], 'images')
        with tf.name_scope('network/Odd'):
            odd = tf.math.igamma(tf.abs(images), tf.abs(images) + 1)
        logits = tf.identity(tf.reduce_sum(odd, [1, 2]), 'logits')
        tf.identity(tf.nn.softmax(logits), 'probabilities')
    network = network_of(graph, 2, 2)
    with pytest.raises(CommandError, match=f'^{name[:4]}.*Igamma.* Export to another format'):
        FORMATS[name].write(network, [np.zeros([2, 2, 3], np.float32)] * ('int8' in name), str(tmp_path / 'model'))
    assert not os.listdir(str(tmp_path))
