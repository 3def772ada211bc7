"""Every documented flag does what it says: a table of flag, another value, and what is seen to change."""

import dataclasses
import io
import os
from typing import Any, Callable, Dict, List, Set, Tuple

import numpy as np
import pytest
import tensorflow as tf

from console.screen import Screen
from data import records
from inception_v3 import cycles, estimator, input_pipeline, training
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.evaluation import Evaluating
from inception_v3.input_pipeline import InputPipeline
from inception_v3.learning_rate import learning_rate
from inception_v3.model_dir import checkpoints
from inception_v3.model_dir.evaluations import Evaluation
from inception_v3.model_dir.files import check_writable
from inception_v3.model_fn import inception_model_fn
from inception_v3.training import Training
from tests.support.evaluations import EVALUATION
from tests.support.graphs import evaluate
from tests.test_config import DOCUMENTED

MODES = tf.estimator.ModeKeys
FAST_COLOR_DRAWS = ('brightness', 'cb', 'cr')


@pytest.fixture
def base(photo_dir: str, tmp_path: Any) -> Config:
    """What each flag is changed in: a small run on the CPU, of 2,000 steps."""
    return Config(
        use_tpu=False,
        data_dir=photo_dir,
        model_dir=str(tmp_path / 'model'),
        num_train_images=40,
        num_eval_images=5,
        num_classes=6,
        train_batch_size=8,
        eval_batch_size=8,
        height=75,
        width=75,
        depth_multiplier=0.01,
        train_steps=2000,
    )


# What is looked at: each function builds something from a configuration as the program does, and says what it sees.
# `patch` is pytest's monkeypatch, for those that stop the program before it takes minutes or needs a TPU.


def of_run_config(name: str) -> Callable[..., Any]:
    """A value of the estimator's RunConfig, on the CPU."""
    return lambda config, patch: getattr(make_estimator(config).config, name)


def on_tpu(config: Config, **changes: Any) -> Any:
    """The estimator of the same run on a TPU, which is not spoken to until it is used."""
    folders = {'data_dir': 'gs://bucket/data', 'model_dir': 'gs://bucket/run'}
    changes = {'use_tpu': True, 'master': config.master or 'grpc://worker:8470', **folders, **changes}
    return make_estimator(dataclasses.replace(config, **changes))


def cluster(config: Config, patch: Any) -> Any:
    """What the address of the TPU is asked for with; there is none here to answer."""
    asked: List[Any] = []
    resolver = estimator.tf.distribute.cluster_resolver.TPUClusterResolver

    def look_up(self: Any) -> Any:
        asked.extend([self._tpu.decode(), self._zone, self._project])
        return {'state': 'READY', 'health': 'HEALTHY', 'networkEndpoints': [{'ipAddress': '127.0.0.1', 'port': 8470}]}

    patch.setattr(resolver, '_fetch_cloud_tpu_metadata', look_up)
    asked_with = {'tpu': 'node', 'tpu_zone': 'near', 'gcp_project': 'ours'}
    named = on_tpu(config, master='', **{name: getattr(config, name) or value for name, value in asked_with.items()})
    assert named.config.master == 'grpc://127.0.0.1:8470'
    return asked[:3]


def operations(config: Config, kind: str) -> List[List[Any]]:
    """The training pipeline's operations of a kind, in its functions too: the constants that each is given."""
    with tf.Graph().as_default() as graph:
        tf.compat.v1.data.make_initializable_iterator(InputPipeline(True, config)({'batch_size': 4}))
        definition = graph.as_graph_def()
    found = []
    for nodes in [definition.node, *[function.node_def for function in definition.library.function]]:
        constants = {node.name: tf.make_ndarray(node.attr['value'].tensor) for node in nodes if node.op == 'Const'}
        for node in nodes:
            if node.op == kind:
                inputs = [constants.get(name.split(':')[0]) for name in node.input]
                found.append([value.tolist() for value in inputs if value is not None])
    return found


def of_pipeline(kind: str) -> Callable[..., Any]:
    """All operations of a kind in the training pipeline."""
    return lambda config, patch: operations(config, kind)


def of_tpu_pipeline(kind: str) -> Callable[..., Any]:
    """As `of_pipeline`, on the host of a TPU, whose cores are not this machine's."""
    return lambda config, patch: operations(dataclasses.replace(config, use_tpu=True, num_shards=1), kind)


def shuffle_buffers(config: Config, patch: Any) -> List[Any]:
    return [constants[0] for constants in operations(config, 'ShuffleDataset')]


def batch(config: Config, is_training: bool, batch_size: int = 4) -> Tuple[np.ndarray, np.ndarray]:
    with tf.Graph().as_default():
        dataset = InputPipeline(is_training, config)({'batch_size': batch_size})
        return evaluate(*tf.compat.v1.data.make_one_shot_iterator(dataset).get_next())


def training_batch_layout(config: Config, patch: Any) -> Any:
    images, _ = batch(config, True, batch_size=3)
    return images.shape, images.dtype


def evaluation_pixels(config: Config, patch: Any) -> bytes:
    return batch(config, False)[0].tobytes()


def evaluated_labels(config: Config, patch: Any) -> int:
    return int((batch(config, False, batch_size=5)[1] >= 0).sum())


def uniform_ranges(config: Config, patch: Any) -> Dict[str, float]:
    """The ranges that the fast colour distortion draws from: the only ones here on both sides of zero."""
    ranges: List[float] = []

    def uniform(shape: Any, minval: Any = 0, maxval: Any = None, *rest: Any, **options: Any) -> tf.Tensor:
        if maxval is not None and minval == -maxval:
            ranges.append(maxval)
        return tf.random.uniform(shape, minval, maxval, *rest, **options)

    input_pipeline.preprocess_for_train(tf.constant(''), tf.zeros([1, 0, 4]), config, uniform)
    return dict(zip(FAST_COLOR_DRAWS, ranges))


def color_operations(config: Config, patch: Any) -> bool:
    return bool(operations(config, 'AdjustSaturation'))


def crop_boxes(config: Config, patch: Any) -> Any:
    """The boxes that the crop of an image with seven annotated boxes is drawn around."""
    shapes: List[Any] = []
    original = tf.image.sample_distorted_bounding_box

    def sample(image_shape: tf.Tensor, bounding_boxes: tf.Tensor, **options: Any) -> Any:
        shapes.append(bounding_boxes.shape.as_list())
        return original(image_shape, bounding_boxes, **options)

    patch.setattr(tf.image, 'sample_distorted_bounding_box', sample)
    input_pipeline.preprocess_for_train(tf.constant(''), tf.zeros([1, 7, 4]), config)
    return shapes


def training_step(config: Config) -> Any:
    labels = tf.zeros([4], tf.int32)
    return inception_model_fn(tf.zeros([4, 75, 75, 3]), labels, MODES.TRAIN, {'config': config})


def variable_kinds(config: Config, patch: Any) -> Set[str]:
    """What kinds of variables a training step has besides the network's."""
    training_step(config)
    kinds = {variable.op.name.rpartition('/')[2] for variable in tf.compat.v1.global_variables()}
    return kinds - {'weights', 'beta', 'biases', 'moving_mean', 'moving_variance', 'global_step'}


def classes(config: Config, patch: Any) -> Any:
    training_step(config)
    biases = {v.op.name: v for v in tf.compat.v1.global_variables()}['Logits/biases']
    return biases.shape.as_list()


def update_ops(config: Config, patch: Any) -> int:
    training_step(config)
    return len(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))


def host_call(config: Config, patch: Any) -> bool:
    return training_step(config).host_call is not None


def printing(config: Config, patch: Any) -> int:
    images, labels = tf.zeros([4, 75, 75, 3]), tf.zeros([4], tf.int32)
    inception_model_fn(images, labels, MODES.EVAL, {'config': config}).as_estimator_spec()
    graph = tf.compat.v1.get_default_graph()
    return len([operation for operation in graph.get_operations() if operation.type == 'PrintV2'])


def rates(config: Config, patch: Any) -> List[float]:
    """The learning rate of the first 16 epochs, of five steps each, in units of that of a batch of 256."""
    return [round(learning_rate(5 * epoch, config) / (8 / 256), 4) for epoch in range(16)]


def warm_up(config: Config, patch: Any) -> List[float]:
    return rates(dataclasses.replace(config, use_learning_rate_warmup=True), patch)


def course(config: Config, patch: Any) -> List[Any]:
    """What a whole run does, in order; the parts that take minutes are left out."""
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

    patch.setattr(Evaluating, 'evaluate', evaluation)
    patch.setattr(Training, 'train', train)
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


def seconds_between_checkpoints(config: Config, patch: Any) -> int:
    asked: List[Any] = []

    def hook(model_dir: str, save_secs: int, steps_per_run: int, writes_graph: bool) -> tf.estimator.SessionRunHook:
        asked.append(save_secs)
        return tf.estimator.SessionRunHook()

    patch.setattr(training, 'CheckpointHook', hook)
    patch.setattr(tf.compat.v1.estimator.tpu.TPUEstimator, 'train', lambda self, *unused, **hooks: None)
    patch.setattr(training, 'latest_step', lambda model_dir: config.train_steps)
    patch.setattr(checkpoints, 'latest_step', lambda model_dir: 1)
    cycles.Run(dataclasses.replace(config, mode='train'), Screen(io.StringIO())).execute()
    return asked[0]


def shards(config: Config, patch: Any) -> int:
    return len(records.find_shards(config.data_dir, records.TRAIN))


def written_to(config: Config, patch: Any) -> List[str]:
    check_writable('model_dir', str(config.model_dir))
    return sorted(os.listdir(os.path.dirname(str(config.model_dir))))


# The whole of another observation, where what is seen has no round number.
CHANGED = object()

# Flag: another value; what is looked at; what is seen with that value, and not with the default.
EFFECTS: Dict[str, Tuple[Any, Callable[..., Any], Any]] = {
    'tpu': ('mine', cluster, ['mine', 'near', 'ours']),
    'gcp_project': ('project', cluster, ['node', 'near', 'project']),
    'tpu_zone': ('zone', cluster, ['node', 'zone', 'ours']),
    'master': ('grpc://other:1', lambda config, patch: on_tpu(config).config.master, 'grpc://other:1'),
    'num_shards': (2, lambda config, patch: on_tpu(config).config.tpu_config.num_shards, 2),
    'use_tpu': (True, lambda config, patch: on_tpu(config, use_tpu=config.use_tpu)._ctx._use_tpu, True),
    'iterations': (7, lambda config, patch: make_estimator(config).config.tpu_config.iterations_per_loop, 7),
    'log_device_placement': (
        True,
        lambda config, patch: make_estimator(config).config.session_config.log_device_placement,
        True,
    ),
    'data_dir': ('{digits}', shards, 8),
    'use_data': ('fake', of_pipeline('TFRecordDataset'), []),
    'num_classes': (9, classes, [9]),
    'train_batch_size': (2, lambda config, patch: make_estimator(config)._ctx._train_batch_size, 2),
    'eval_batch_size': (2, lambda config, patch: make_estimator(config)._ctx._eval_batch_size, 2),
    'eval_total_size': (3, evaluated_labels, 3),
    'num_files_infeed': (3, lambda config, patch: operations(config, 'ParallelInterleaveDataset')[0][0], 3),
    'initial_shuffle_buffer_size': (17, shuffle_buffers, [17, 1000]),
    'followup_shuffle_buffer_size': (18, shuffle_buffers, [1024, 18]),
    'prefetch_dataset_buffer_size': (12345, of_pipeline('TFRecordDataset'), [[b'', 12345]]),
    'prefetch_enabled': (False, of_pipeline('PrefetchDataset'), []),
    'num_parallel_calls': (5, of_tpu_pipeline('ParallelMapDataset'), [[5]]),
    'transpose_enabled': (True, training_batch_layout, ((75, 75, 3, 3), np.float32)),
    'preprocessing': ('vgg', evaluation_pixels, CHANGED),
    'height': (80, training_batch_layout, ((3, 80, 75, 3), np.float32)),
    'width': (80, training_batch_layout, ((3, 75, 80, 3), np.float32)),
    'use_annotated_bbox': (True, crop_boxes, [[1, 7, 4]]),
    'use_fast_color_distort': (False, color_operations, True),
    'cb_distortion_range': (0.3, uniform_ranges, {'brightness': 32 / 255, 'cb': 0.3, 'cr': 0.1}),
    'cr_distortion_range': (0.3, uniform_ranges, {'brightness': 32 / 255, 'cb': 0.1, 'cr': 0.3}),
    'brightness_distortion_range': (0.3, uniform_ranges, {'brightness': 0.3, 'cb': 0.1, 'cr': 0.1}),
    'precision': ('bfloat16', training_batch_layout, ((3, 75, 75, 3), tf.bfloat16.as_numpy_dtype)),
    'clear_update_collections': (False, update_ops, 2),
    'optimizer': ('momentum', variable_kinds, {'ExponentialMovingAverage', 'Momentum'}),
    'moving_average': (False, variable_kinds, {'RMSProp', 'RMSProp_1'}),
    'learning_rate': (0.33, lambda config, patch: rates(config, patch)[0], 0.33),
    'learning_rate_decay': (0.5, lambda config, patch: rates(config, patch)[3] / 0.165, 0.5),
    'learning_rate_decay_epochs': (4, lambda config, patch: rates(config, patch).count(0.165), 4),
    'use_learning_rate_warmup': (True, lambda config, patch: rates(config, patch)[0], 0.0137),
    'cold_epochs': (
        4,
        lambda config, patch: len([r for r in warm_up(config, patch) if r == warm_up(config, patch)[0]]),
        4,
    ),
    'warmup_epochs': (4, lambda config, patch: int(np.argmax(warm_up(config, patch))), 8),
    'mode': ('train', course, ['train until 2000']),
    'model_dir': ('{tmp}/other', written_to, ['model', 'other']),
    'export_dir': ('exports', course, ['train until 2000', 'evaluate', 'export to exports']),
    'train_steps': (50, course, ['train until 50', 'evaluate']),
    'train_steps_per_eval': (1500, course, ['train until 1500', 'evaluate', 'train until 2000', 'evaluate']),
    'min_eval_interval': (7, following, ['follow every 7 s, give up after None s', 'evaluate']),
    'eval_timeout': (9, following, ['follow every 180 s, give up after 9 s', 'evaluate']),
    'save_checkpoints_secs': (7, seconds_between_checkpoints, 7),
    'save_summary_steps': (7, of_run_config('save_summary_steps'), 7),
    'skip_host_call': (False, host_call, True),
    'display_tensors': (True, printing, 1),
}


def test_the_table_is_complete() -> None:
    assert not DOCUMENTED.keys() - EFFECTS.keys()


@pytest.mark.parametrize('flag', sorted(EFFECTS))
def test_the_flag_does_what_it_says(
    flag: str, base: Config, digits_dir: str, tmp_path: Any, monkeypatch: Any, one_layer: None
) -> None:
    value, look, expected = EFFECTS[flag]
    if isinstance(value, str):
        value = value.format(digits=digits_dir, tmp=tmp_path)
    with tf.Graph().as_default(), monkeypatch.context() as patch:
        default = look(base, patch)
    with tf.Graph().as_default(), monkeypatch.context() as patch:
        seen = look(dataclasses.replace(base, **{flag: value}), patch)
    assert seen != default
    if expected is not CHANGED:
        assert seen == expected
