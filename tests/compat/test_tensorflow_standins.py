"""Other projects' Estimator programs, on a TensorFlow that has Estimator by stand-ins: 2.16 and later."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf, tf2
from compat.errors import CommandError
from compat.tensorflow import complete

ROOT = pathlib.Path(__file__).resolve().parents[2]
API = tf.estimator
POINTS = np.random.RandomState(0).rand(8, 2).astype(np.float32)
LABELS = (POINTS[:, 0] > POINTS[:, 1]).astype(np.int32)


# On 1.15 and 2.15, these programs would test TensorFlow's own Estimator.
pytestmark = pytest.mark.skipif(int(tf.__version__.split('.')[1]) <= 15, reason='this TensorFlow contains Estimator')


def points(params: Any = None) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(({'points': POINTS}, LABELS)).repeat()


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def cross_entropy(kernel: np.ndarray, bias: np.ndarray) -> float:
    return float(-np.log(softmax(POINTS @ kernel + bias)[np.arange(len(LABELS)), LABELS]).mean())


def test_canned_classifier__predicts_what_its_weights_give(tmp_path: Any) -> None:
    columns = [tf.feature_column.numeric_column('points', shape=[2])]
    config = API.RunConfig(str(tmp_path), tf_random_seed=1)
    optimizer = tf.train.GradientDescentOptimizer(0.5)
    classifier = API.DNNClassifier([3], columns, n_classes=2, optimizer=optimizer, config=config)
    classifier.train(points, steps=3)
    value = classifier.get_variable_value
    hidden = np.maximum(POINTS @ value('dnn/hiddenlayer_0/kernel') + value('dnn/hiddenlayer_0/bias'), 0)
    logits = (hidden @ value('dnn/logits/kernel') + value('dnn/logits/bias'))[:, 0]
    found = [each['logistic'][0] for each, _ in zip(classifier.predict(points), range(8))]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    assert classifier.evaluate(points, steps=1)['accuracy'] == ((logits > 0) == LABELS).mean()


def linear_model(features: Any, labels: Any, mode: str, params: Dict[str, Any]) -> Any:
    logits = tf.layers.dense(features['points'], 2, name='classifier', kernel_initializer=tf.zeros_initializer())
    if mode == API.ModeKeys.PREDICT:
        outputs = API.export.PredictOutput({'probabilities': tf.nn.softmax(logits)})
        return API.tpu.TPUEstimatorSpec(mode, outputs.outputs, export_outputs={'serving_default': outputs})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)

    def write(losses: tf.Tensor, steps: tf.Tensor) -> Any:
        writer = tf2.summary.create_file_writer(params['folder'], max_queue=1)
        with writer.as_default(), tf2.summary.record_if(True):
            tf2.summary.scalar('loss', losses[0], steps[0])
            return tf.summary.all_v2_summary_ops()

    step = tf.train.get_global_step()
    called = write, [tf.reshape(tensor, [1]) for tensor in (loss, step)]
    train_op = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
    return API.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=called)


def linear_estimator(folder: Any) -> Any:
    config = API.tpu.RunConfig(model_dir=str(folder / 'run'))
    options = {'use_tpu': False, 'export_to_tpu': False, 'params': {'folder': str(folder / 'summaries')}}
    return API.tpu.TPUEstimator(linear_model, config=config, train_batch_size=8, predict_batch_size=8, **options)


def test_tpu_estimator__takes_steps_and_writes_losses_by_a_host_call(tmp_path: Any) -> None:
    linear_estimator(tmp_path).train(points, max_steps=3)
    kernel, bias = np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
    losses = []
    for _ in range(3):
        losses.append(cross_entropy(kernel, bias))
        gradient = (softmax(POINTS @ kernel + bias) - np.eye(2)[LABELS]) / len(LABELS)
        kernel, bias = kernel - POINTS.T @ gradient, bias - gradient.sum(0)
    reader = tf.train.load_checkpoint(str(tmp_path / 'run'))
    np.testing.assert_allclose(reader.get_tensor('classifier/kernel'), kernel, rtol=1e-5)
    (file,) = (tmp_path / 'summaries').iterdir()
    events = [value for event in tf.train.summary_iterator(str(file)) for value in event.summary.value]
    np.testing.assert_allclose(
        [tf.make_ndarray(each.tensor) for each in events if each.tag == 'loss'], losses, rtol=1e-5
    )


def test_export__serves_what_the_weights_give(tmp_path: Any) -> None:
    estimator = linear_estimator(tmp_path)
    estimator.train(points, max_steps=2)
    receiver = API.export.build_raw_serving_input_receiver_fn({'points': tf.placeholder(tf.float32, [None, 2])})
    path = estimator.export_saved_model(str(tmp_path / 'export'), receiver).decode()
    with tf.Session(graph=tf.Graph()) as session:
        signature = tf.saved_model.load(session, ['serve'], path).signature_def['serving_default']
        fed = {signature.inputs['points'].name: POINTS[:3]}
        found = session.run(signature.outputs['probabilities'].name, fed)
    kernel, bias = (estimator.get_variable_value(f'classifier/{name}') for name in ('kernel', 'bias'))
    np.testing.assert_allclose(found, softmax(POINTS[:3] @ kernel + bias), rtol=1e-5)


def test_modules__are_the_package_s_by_every_name_they_had() -> None:
    package = 'tensorflow_estimator.python.estimator'
    names = {
        'tensorflow.estimator': tf2.estimator,
        'tensorflow.compat.v1.estimator.tpu': API.tpu,
        'tensorflow.compat.v1.estimator.experimental': API.experimental,
        'tensorflow.compat.v2.estimator': tf2.estimator,
        'tensorflow.python.estimator.estimator': sys.modules[f'{package}.estimator'],
        'tensorflow.python.estimator.canned.head': sys.modules[f'{package}.canned.head'],
        'tensorflow.python.tpu.tpu_config': sys.modules[f'{package}.tpu.tpu_config'],
    }
    for name, module in names.items():
        assert importlib.import_module(name) is module, name


def test_empty_name__is_a_machine_without_tpu_unless_a_variable_names_one(monkeypatch: Any) -> None:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    assert resolver('', zone=None, project=None).master() == '' == API.tpu.RunConfig(cluster=resolver('')).master
    monkeypatch.setenv('TPU_NAME', 'grpc://10.0.0.1:8470')
    assert resolver('').master() == 'grpc://10.0.0.1:8470'


@pytest.mark.parametrize('part', ['embeddings', 'distribution', 'background', 'watchdog'])
def test_what_stand_ins_lack__is_refused_with_one_sentence(part: str) -> None:
    session_support = sys.modules['tensorflow.python.tpu.session_support']
    calls: Dict[str, Any] = {
        'embeddings': lambda: API.tpu.experimental.EmbeddingConfigSpec(feature_columns=[1]),
        'distribution': lambda: API.RunConfig(train_distribute=tf.distribute.MirroredStrategy(['cpu:0'])),
        'background': lambda: sys.modules['tensorflow.python.tpu.async_checkpoint'].AsyncCheckpointSaverHook('run'),
        'watchdog': lambda: session_support.start_worker_watchdog(None, shutdown_timeout=1),
    }
    with pytest.raises(RuntimeError, match=f'{part}.*: not available on this TensorFlow.*; use 2.15$'):
        calls[part]()


def test_missing_packages__are_named_with_the_command_that_installs_them(monkeypatch: Any) -> None:
    monkeypatch.delattr(tf, 'estimator')
    monkeypatch.setattr(sys.modules['tensorflow'], '__version__', '2.21.0')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(CommandError) as error:
        complete('2.21.0')
    assert str(error.value).endswith('pip install tensorflow-estimator==2.15.0 tf_keras~=2.21.0')


# Imports, calls and order as in the programs of tensorflow/tpu.
PUBLISHED = """
import tensorflow_standins
import os
import numpy as np
import tensorflow.estimator
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as estimator_of_v1
from tensorflow.estimator import ModeKeys
from tensorflow.python.estimator import estimator
from tensorflow.python.tpu import tpu_estimator
tensorflow_standins.add_estimator()
tf.disable_v2_behavior()
IMAGES = np.random.RandomState(0).rand(64, 8, 8, 1).astype(np.float32)


def input_fn(params):
    data = tf.data.Dataset.from_tensor_slices((IMAGES, (IMAGES.mean((1, 2, 3)) > 0.5).astype(np.int32)))
    return data.repeat().batch(params['batch_size'], drop_remainder=True)


def model_fn(features, labels, mode, params):
    if isinstance(features, dict):  # When it is exported.
        features = features['feature']
    y = tf.layers.Conv2D(filters=4, kernel_size=3, padding='same')(features)
    y = tf.layers.Flatten()(tf.layers.MaxPooling2D(pool_size=(2, 2), strides=(2, 2))(y))
    logits = tf.layers.Dense(2)(y)
    if mode == ModeKeys.PREDICT:
        served = {'classes': tf.argmax(logits, axis=1)}
        outputs = {'classify': tf.estimator.export.PredictOutput(served)}
        return tf.estimator.EstimatorSpec(mode=mode, predictions=served, export_outputs=outputs)
    loss = tf.losses.softmax_cross_entropy(logits=logits, onehot_labels=tf.one_hot(labels, 2))
    train_op = tf.train.MomentumOptimizer(params['rate'], 0.9).minimize(loss, tf.train.get_global_step())
    metrics = lambda labels, logits: {'top_1_accuracy': tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))}
    return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, eval_metrics=(metrics, [labels, logits]))


def serving():
    images = tf.placeholder(tf.float32, [None, 8, 8, 1])
    return tf.estimator.export.ServingInputReceiver(images, {'images': images})


def classifier(model_dir, rate, **options):
    cluster = tf.distribute.cluster_resolver.TPUClusterResolver('', zone=None, project=None)
    config = tf.estimator.tpu.RunConfig(
        cluster=cluster, model_dir=model_dir, save_checkpoints_steps=10, tpu_config=tf.estimator.tpu.TPUConfig(10, 8))
    batches = {'train_batch_size': 16, 'eval_batch_size': 16, 'predict_batch_size': 16}
    return tpu_estimator.TPUEstimator(
        model_fn, config=config, use_tpu=False, export_to_tpu=False, params={'rate': rate}, **batches, **options)


assert estimator_of_v1 is tf.estimator
trained = classifier('run', 0.1)
early = {'run_every_secs': None, 'run_every_steps': 10}
hook = tf.estimator.experimental.stop_if_no_decrease_hook(trained, 'loss', 1000, **early)
kinds = {'best': tf.estimator.BestExporter, 'last': tf.estimator.LatestExporter, 'final': tf.estimator.FinalExporter}
exporters = [kind(name=name, serving_input_receiver_fn=serving) for name, kind in kinds.items()]
train = tf.estimator.TrainSpec(input_fn, max_steps=20, hooks=[hook])
evaluation = tf.estimator.EvalSpec(input_fn, steps=4, exporters=exporters, start_delay_secs=0, throttle_secs=0)
result, _ = tf.estimator.train_and_evaluate(trained, train, evaluation)
assert estimator._load_global_step_from_checkpoint_dir('run') == 20
warm = classifier('warm', 0.0, warm_start_from='run')
warm.train(input_fn, steps=1)
print(sorted(os.listdir('run/export')), result['loss'], warm.evaluate(input_fn, steps=4)['loss'])
"""


@pytest.mark.program
@pytest.mark.both
def test_programs_as_published__run_to_their_end(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'program.py').write_text(PUBLISHED)
    shutil.copy(str(ROOT / 'compat' / 'tensorflow_standins.py'), str(tmp_path))
    command = [sys.executable, '-E', 'program.py']
    done = subprocess.run(command, cwd=str(tmp_path), stdout=subprocess.PIPE, text=True, check=True)
    exports, losses = done.stdout.strip().rsplit(']', 1)
    assert exports == "['best', 'final', 'last'"
    trained, warm = (float(loss) for loss in losses.split())
    assert warm == pytest.approx(trained, rel=1e-6)


@pytest.mark.program
@pytest.mark.both
def test_page__runs_with_the_module_alone(tmp_path: pathlib.Path) -> None:
    page = (ROOT / 'examples' / 'estimator_elsewhere.md').read_text()
    (program,) = re.findall('```python\n(.*?)```', page, re.DOTALL)
    (tmp_path / 'program.py').write_text(program)
    shutil.copy(str(ROOT / 'compat' / 'tensorflow_standins.py'), str(tmp_path))
    # Without PYTHONPATH, which would make this project importable.
    command = [sys.executable, '-E', 'program.py']
    done = subprocess.run(command, cwd=str(tmp_path), stdout=subprocess.PIPE, text=True, check=True)
    accuracy, classes = done.stdout.splitlines()
    assert float(accuracy.split()[1]) > 0.9 and classes == 'classes [1 0]'
