"""Observations of a run: each builds a part of the program from a configuration, and returns a property of it.

`tests/test_flag_effects.py` makes each observation twice: with the default, and with another value of one flag. `patch`
is pytest's monkeypatch; observations use it to replace parts that take minutes or need a TPU.
"""

import dataclasses
import functools
import io
import os
import shutil
from typing import Any, Callable, Dict, List, Set, Tuple

import numpy as np
import tensorflow as tf

from console.screen import Screen
from data import records
from inception_v3 import cycles, estimator, input_pipeline, training
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.evaluation import Evaluating
from inception_v3.hooks import image_summaries
from inception_v3.hooks.summaries import TrainingSummaries
from inception_v3.input_pipeline import InputPipeline
from inception_v3.learning_rate import learning_rate
from inception_v3.model_dir import checkpoints
from inception_v3.model_dir.evaluations import Evaluation
from inception_v3.model_dir.files import check_writable
from inception_v3.model_fn import inception_model_fn, total_loss
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet
from inception_v3.training import Training
from tests.support.evaluations import EVALUATION
from tests.support.graphs import evaluate
from tests.support.runs import one_layer_network
from tests.support.tar_files import write_tar

MODES = tf.estimator.ModeKeys
FAST_COLOR_DRAWS = ('brightness', 'cb', 'cr')


# The estimator, and the requested TPU.


def run_config(name: str) -> Callable[..., Any]:
    """A value of the estimator's RunConfig."""
    return lambda config, patch: getattr(make_estimator(config).config, name)


def session_config(name: str) -> Callable[..., Any]:
    """A value of the configuration of TensorFlow's sessions."""
    return lambda config, patch: getattr(make_estimator(config).config.session_config, name)


def tpu_config(name: str) -> Callable[..., Any]:
    """A value of the estimator's TPUConfig."""
    return lambda config, patch: getattr(make_estimator(config).config.tpu_config, name)


def batch_size(name: str) -> Callable[..., Any]:
    """A batch size of the estimator."""
    return lambda config, patch: getattr(make_estimator(config)._ctx, f'_{name}_batch_size')


def on_tpu(config: Config, **changes: Any) -> Any:
    """The estimator of the same run on a TPU. Creating it does not contact the TPU."""
    folders = {'data_dir': 'gs://bucket/data', 'model_dir': 'gs://bucket/run'}
    changes = {'use_tpu': True, 'master': config.master or 'grpc://worker:8470', **folders, **changes}
    return make_estimator(dataclasses.replace(config, **changes))


def uses_tpu(config: Config, patch: Any) -> bool:
    return on_tpu(config, use_tpu=config.use_tpu)._ctx._use_tpu


def address(config: Config, patch: Any) -> str:
    return on_tpu(config).config.master


def cores(config: Config, patch: Any) -> int:
    return on_tpu(config).config.tpu_config.num_shards


def cluster(config: Config, patch: Any) -> List[Any]:
    """The name, zone and project in the lookup of the TPU's address; the response is made up."""
    requested: List[Any] = []
    resolver = estimator.tf.distribute.cluster_resolver.TPUClusterResolver

    def look_up(self: Any) -> Any:
        requested.extend([self._tpu.decode(), self._zone, self._project])
        return {'state': 'READY', 'health': 'HEALTHY', 'networkEndpoints': [{'ipAddress': '127.0.0.1', 'port': 8470}]}

    patch.setattr(resolver, '_fetch_cloud_tpu_metadata', look_up)
    fallbacks = {'tpu': 'node', 'tpu_zone': 'near', 'gcp_project': 'ours'}
    named = on_tpu(config, master='', **{name: getattr(config, name) or value for name, value in fallbacks.items()})
    assert named.config.master == 'grpc://127.0.0.1:8470'
    return requested[:3]


# The input pipeline.


@functools.lru_cache(maxsize=None)
def pipeline(config: Config) -> tf.compat.v1.GraphDef:
    """The graph of the training pipeline."""
    with tf.Graph().as_default() as graph:
        tf.compat.v1.data.make_initializable_iterator(InputPipeline(True, config)({'batch_size': 4}))
        return graph.as_graph_def()


def nodes(config: Config, kind: str) -> List[Tuple[Any, List[Any]]]:
    """The operations of a kind in the training pipeline and its functions, each with its constant inputs."""
    definition = pipeline(config)
    found = []
    for scope in [definition.node, *[function.node_def for function in definition.library.function]]:
        constants = {node.name: tf.make_ndarray(node.attr['value'].tensor) for node in scope if node.op == 'Const'}
        for node in scope:
            if node.op == kind:
                inputs = [constants.get(name.split(':')[0]) for name in node.input]
                found.append((node, [value.tolist() for value in inputs if value is not None]))
    return found


def operations(kind: str) -> Callable[..., Any]:
    """The constants of all operations of a kind in the training pipeline."""
    return lambda config, patch: [constants for _, constants in nodes(config, kind)]


def has_operation(kind: str) -> Callable[..., bool]:
    """Whether the training pipeline has an operation of a kind."""
    return lambda config, patch: bool(nodes(config, kind))


def operations_on_tpu(kind: str) -> Callable[..., Any]:
    """Like `operations`, on the host of a TPU, where the number of this machine's cores does not matter."""
    on_cpu = operations(kind)
    return lambda config, patch: on_cpu(dataclasses.replace(config, use_tpu=True, num_shards=1), patch)


def random_draws(config: Config, patch: Any) -> int:
    """The number of operations that draw random numbers for a training image."""
    return len(nodes(config, 'RandomUniform'))


def files_at_once(config: Config, patch: Any) -> int:
    return nodes(config, 'ParallelInterleaveDataset')[0][1][0]


def shuffle_buffers(config: Config, patch: Any) -> List[int]:
    return [constants[0] for _, constants in nodes(config, 'ShuffleDataset')]


def crop_range(name: str) -> Callable[..., Any]:
    """A range from which random crops are drawn."""

    def observe(config: Config, patch: Any) -> List[float]:
        ((node, _),) = nodes(config, 'SampleDistortedBoundingBoxV2')
        return [round(bound, 4) for bound in node.attr[name].list.f]

    return observe


def batch(config: Config, is_training: bool, size: int = 4) -> Tuple[Any, np.ndarray]:
    with tf.Graph().as_default():
        dataset = InputPipeline(is_training, config)({'batch_size': size})
        features, labels = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        with tf.compat.v1.Session() as session:
            return session.run([features, labels])


def training_batch_layout(config: Config, patch: Any) -> Any:
    images, _ = batch(config, True, size=3)
    return images.shape, images.dtype


def sent_types(config: Config, patch: Any) -> Any:
    """The dtypes of the tensors sent to the device for a training batch."""
    with tf.Graph().as_default():
        features, _ = InputPipeline(True, config)({'batch_size': 4}).element_spec
    return tf.nest.map_structure(lambda spec: spec.dtype.name, features)


def evaluation_pixels(config: Config, patch: Any) -> bytes:
    return batch(config, False)[0].tobytes()


def evaluated_labels(config: Config, patch: Any) -> int:
    return int((batch(config, False, size=5)[1] >= 0).sum())


def evaluated_fake_images(config: Config, patch: Any) -> int:
    return evaluated_labels(dataclasses.replace(config, use_data='fake'), patch)


def evaluated_with_a_bad_record(config: Config, patch: Any) -> Any:
    """The number of images in a data set with one bad record, or the kind of error that it causes."""
    folder = f'{config.model_dir}-bad-{config.max_bad_records}'
    shutil.copytree(config.data_dir, folder)
    bad = tf.train.Example().SerializeToString()
    with tf.io.TFRecordWriter(os.path.join(folder, 'validation-00001-of-00002')) as writer:
        writer.write(bad)
    try:
        return evaluated_labels(dataclasses.replace(config, data_dir=folder), patch)
    except tf.errors.OpError as error:
        return type(error).__name__


def evaluated_beside_tar_files(config: Config, patch: Any) -> int:
    """The number of images read from a folder with 5 images in TFRecord files and 2 in tar files."""
    folder = f'{config.model_dir}-{config.data_format}'
    shutil.copytree(config.data_dir, folder)
    with tf.Graph().as_default():
        jpeg = evaluate(tf.image.encode_jpeg(tf.zeros([80, 80, 3], tf.uint8)))
    files = [
        (f'{number}.{extension}', content) for number in '12' for extension, content in (('jpg', jpeg), ('cls', b'1'))
    ]
    write_tar(os.path.join(folder, 'validation-000000.tar'), files)
    return evaluated_labels(dataclasses.replace(config, data_dir=folder), patch)


def uniform_ranges(config: Config, patch: Any) -> Dict[str, float]:
    """The ranges of the fast colour distortion, recognized as the only symmetric ones."""
    ranges: List[float] = []

    def uniform(shape: Any, minval: Any = 0, maxval: Any = None, *rest: Any, **options: Any) -> tf.Tensor:
        if maxval is not None and minval == -maxval:
            ranges.append(maxval)
        return tf.random.uniform(shape, minval, maxval, *rest, **options)

    input_pipeline.preprocess_for_train(tf.constant(''), tf.zeros([1, 0, 4]), config, uniform)
    return dict(zip(FAST_COLOR_DRAWS, ranges))


def crop_boxes(config: Config, patch: Any) -> Any:
    """The shape of the boxes passed to the random crop, for an image with seven annotated boxes."""
    shapes: List[Any] = []
    original = tf.image.sample_distorted_bounding_box

    def sample(image_shape: tf.Tensor, bounding_boxes: tf.Tensor, **options: Any) -> Any:
        shapes.append(bounding_boxes.shape.as_list())
        return original(image_shape, bounding_boxes, **options)

    patch.setattr(tf.image, 'sample_distorted_bounding_box', sample)
    input_pipeline.preprocess_for_train(tf.constant(''), tf.zeros([1, 7, 4]), config)
    return shapes


# The graph of a step.


def training_step(config: Config, size: int = 75) -> Any:
    labels = tf.zeros([4], tf.int32)
    return inception_model_fn(tf.zeros([4, size, size, 3]), labels, MODES.TRAIN, {'config': config})


def variable_kinds(config: Config, patch: Any) -> Set[str]:
    """The kinds of variables in a training step besides those of the network."""
    training_step(config)
    kinds = {variable.op.name.rpartition('/')[2] for variable in tf.compat.v1.global_variables()}
    return kinds - {'weights', 'beta', 'biases', 'moving_mean', 'moving_variance', 'global_step'}


def variables() -> Dict[str, tf.Variable]:
    return {variable.op.name: variable for variable in tf.compat.v1.global_variables()}


def classes(config: Config, patch: Any) -> List[int]:
    training_step(config)
    return variables()['Logits/biases'].shape.as_list()


def update_ops(config: Config, patch: Any) -> int:
    training_step(config)
    return len(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))


def has_host_call(config: Config, patch: Any) -> bool:
    return training_step(config).host_call is not None


def prints(config: Config, patch: Any) -> int:
    images, labels = tf.zeros([4, 75, 75, 3]), tf.zeros([4], tf.int32)
    inception_model_fn(images, labels, MODES.EVAL, {'config': config}).as_estimator_spec()
    graph = tf.compat.v1.get_default_graph()
    return len([operation for operation in graph.get_operations() if operation.type == 'PrintV2'])


def cross_entropies(config: Config, patch: Any) -> int:
    """The number of classifiers in the loss, for a network with an optional auxiliary head."""

    def build(images: tf.Tensor, num_classes: int, is_training: bool, auxiliary_head: bool, **options: Any) -> Any:
        logits, _ = one_layer_network(images, num_classes, is_training, **options)
        return logits, logits if auxiliary_head else None

    patch.setitem(NETWORKS, 'inception_v3', NETWORKS['inception_v3']._replace(build=build))
    training_step(dataclasses.replace(config, height=107, width=107), size=107)
    return len(tf.compat.v1.losses.get_losses())


def loss(config: Config, patch: Any) -> float:
    """The loss for the logits 1 (the right class) and 0, and a single weight of 2."""
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.WEIGHTS, tf.constant([2.0]))
    value = evaluate(total_loss(tf.constant([[1.0, 0.0]]), None, tf.constant([0]), config))
    return round(float(value), 4)


def trained(config: Config, *names: str) -> List[Tuple[np.ndarray, np.ndarray]]:
    """The values of variables before and after a step on black images."""
    spec = training_step(config)
    found = [variables()[name] for name in names]
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        before = session.run(found)
        session.run(spec.train_op)
        return list(zip(before, session.run(found)))


def kept_of_the_variance(config: Config, patch: Any) -> float:
    """The ratio of the moving variance after a step to that before it; the batch's variance is 0."""
    ((before, after),) = trained(config, 'Layer/BatchNorm/moving_variance')
    return round(float((after / before)[0]), 4)


def kept_of_the_average(config: Config, patch: Any) -> float:
    """The decay of a weight's moving average in the first step; the average starts at the weight's initial value."""
    name = 'Logits/biases'
    (initial, weight), (_, average) = trained(config, name, f'{name}/ExponentialMovingAverage')
    return round(float(((average - weight) / (initial - weight))[0]), 2)


def initial_weights(config: Config, patch: Any) -> float:
    """The sum of the initial weights of a layer."""
    training_step(config)
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        return float(session.run(variables()['Layer/weights']).sum())


def repeats_itself(config: Config, patch: Any) -> bool:
    found = set()
    for _ in range(2):
        with tf.Graph().as_default():
            found.add(initial_weights(config, patch))
    return len(found) == 1


def sums_over_cores(config: Config, patch: Any) -> List[List[List[int]]]:
    """The groups of cores over which the batch normalization of a training step sums."""
    training_step(config)
    return [
        tf.make_ndarray(operation.inputs[1].op.get_attr('value')).tolist()
        for operation in tf.compat.v1.get_default_graph().get_operations()
        if operation.type == 'CrossReplicaSum' and 'BatchNorm' in operation.name and 'gradients' not in operation.name
    ]


def scopes(config: Config, patch: Any) -> Set[str]:
    """The outer scopes of the network's variables."""
    images = tf.zeros([1, config.height, config.width, 3])
    inception_model_fn(images, None, MODES.PREDICT, {'config': config})
    return {name.partition('/')[0] for name in variables()}


def channels(config: Config, patch: Any) -> int:
    """The channels of the first layer of a small RevNet."""
    scopes(dataclasses.replace(config, network='revnet38'), patch)
    return int(variables()['RevNet/stem/weights'].shape[-1])


def convolutions(config: Config, patch: Any) -> int:
    """The number of Conv2D operations in a RevNet's training step, without the convolutions of gradients."""
    small = REVNET_38._replace(units=(2, 1, 1))
    patch.setitem(NETWORKS, 'revnet38', NETWORKS['revnet38']._replace(build=functools.partial(revnet, small)))
    training_step(dataclasses.replace(config, network='revnet38', height=32, width=32), size=32)
    return len([op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == 'Conv2D'])


def last_scale(config: Config, patch: Any) -> float:
    """The initial batch normalization scale after the last convolution of ResNet-50's first block."""
    scopes(dataclasses.replace(config, height=32, width=32), patch)
    return float(evaluate(variables()['ResNet50/stage_1/block_1/conv_3/BatchNorm/gamma'])[0])


# The learning rate.


def rates(config: Config, patch: Any) -> List[float]:
    """The learning rates of the first 16 epochs, of five steps each, scaled to a batch of 256."""
    return [round(learning_rate(5 * epoch, config) / (8 / 256), 4) for epoch in range(16)]


def first_rate(config: Config, patch: Any) -> float:
    return rates(config, patch)[0]


def first_decay(config: Config, patch: Any) -> float:
    """The ratio of the rate after the first decay to that before it."""
    return rates(config, patch)[3] / rates(config, patch)[0]


def epochs_at_first_rate(config: Config, patch: Any) -> int:
    return rates(config, patch).count(rates(config, patch)[0])


def epochs_with_steps(config: Config, patch: Any) -> int:
    return epochs_at_first_rate(dataclasses.replace(config, schedule='step'), patch)


def last_rate(config: Config, patch: Any) -> float:
    """The learning rate at the end of the run, scaled to a batch of 256."""
    return round(learning_rate(config.train_steps, config) / (8 / 256), 5)


def cold_epochs(config: Config, patch: Any) -> int:
    return epochs_at_first_rate(dataclasses.replace(config, use_learning_rate_warmup=True), patch)


def highest_epoch(config: Config, patch: Any) -> int:
    return int(np.argmax(rates(dataclasses.replace(config, use_learning_rate_warmup=True), patch)))


# The course of a run.


def course(config: Config, patch: Any) -> List[Any]:
    """The parts of a whole run, in order. Parts that take minutes are replaced."""
    done: List[Any] = []
    step = [0]

    def train(self: Any, until_step: int) -> None:
        done.append(f'train until {until_step}')
        step[0] = until_step

    def follow(model_dir: str, min_interval_secs: int, timeout: int, timeout_fn: Callable[[], bool]) -> Any:
        done.append(f'follow every {min_interval_secs} s, give up after {timeout if timeout_fn() else None} s')
        return iter(['model.ckpt-2000'])

    def evaluation(self: Any, checkpoint: str, began_at: Any = None) -> Evaluation:
        done.append('evaluate')
        return EVALUATION._replace(step=2000)

    def best(model_dir: str) -> None:
        done.append('look for the best')

    patch.setattr(Evaluating, 'evaluate', evaluation)
    patch.setattr(Training, 'train', train)
    patch.setattr(training, 'skip_damaged', lambda model_dir: done.append('skip damaged checkpoints'))
    patch.setattr(cycles.best_checkpoint, 'read', best)
    patch.setattr(checkpoints, 'latest_step', lambda model_dir: step[0])
    patch.setattr(cycles, 'export_saved_model', lambda _, c, checkpoint: done.append(f'export to {c.export_dir}'))
    patch.setattr(tf.train, 'checkpoints_iterator', follow)
    patch.setattr(checkpoints, 'newest_checkpoint', lambda model_dir: 'model.ckpt-1')
    patch.setattr(checkpoints, 'check_holds_averages', lambda checkpoint: None)
    patch.setattr(checkpoints, 'check_undamaged', lambda checkpoint: None)
    cycles.Run(config, Screen(io.StringIO())).execute()
    return done


def following(config: Config, patch: Any) -> List[Any]:
    return course(dataclasses.replace(config, mode='eval'), patch)


def start_of_training(config: Config, patch: Any) -> Dict[str, Any]:
    """Arguments of the hooks of a training cycle, and the number of images that it draws."""
    found: Dict[str, Any] = {'step lines': False}

    def hook(model_dir: str, save_secs: int, steps_per_run: int, writes_graph: bool) -> tf.estimator.SessionRunHook:
        found['seconds between checkpoints'] = save_secs
        return tf.estimator.SessionRunHook()

    def draw(self: Any, step: int) -> None:
        drawn = image_summaries.draw(config, True, (), step)
        found['images'] = len(drawn.value)

    def lines(*unused: Any) -> None:
        found['step lines'] = True

    patch.setattr(training, 'CheckpointHook', hook)
    patch.setattr(training, 'StepLines', lines)
    patch.setattr(TrainingSummaries, 'draw_images', draw)
    patch.setattr(tf.compat.v1.estimator.tpu.TPUEstimator, 'train', lambda self, *unused, **hooks: None)
    patch.setattr(training, 'latest_step', lambda model_dir: config.train_steps)
    patch.setattr(checkpoints, 'latest_step', lambda model_dir: 1)
    cycles.Run(dataclasses.replace(config, mode='train'), Screen(io.StringIO())).execute()
    return found


def written_to(config: Config, patch: Any) -> bool:
    """Whether the folder `other` is written to."""
    check_writable('model_dir', str(config.model_dir))
    return 'other' in os.listdir(os.path.dirname(str(config.model_dir)))


def shards(config: Config, patch: Any) -> int:
    return len(records.find_shards(config.data_dir, records.TRAIN))
