"""Every flag has an effect: a table of flag, another value, the observation, and what is then observed."""

import dataclasses
import functools
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple

import numpy as np
import pytest

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.input import infeed
from inception_v3.networks.registry import NETWORKS
from inception_v3.run import history, origin
from inception_v3.weights.sources import AVERAGE
from preprocessing.resizing import resize_for_eval
from tests.support.observations import course, device, inputs, rate, step, weights
from tests.support.runs import ONE_LAYER

# Stands for any observation that differs from the default's, where it has no round number.
CHANGED = object()


class Effect(NamedTuple):
    """The effect of a flag.

    Attributes:
      value: another value than the default.
      look: makes the observation, from a configuration and pytest's monkeypatch.
      expected: the observation with that value. With the default there is another one.
      others: the values of other flags, in both observations, without which the flag is refused or has no effect.
    """

    value: Any
    look: Callable[[Config, Any], Any]
    expected: Any
    others: Mapping[str, Any] = MappingProxyType({})


FOUR_CORES = {'use_tpu': True, 'num_shards': 4}

EFFECTS: Dict[str, Effect] = {
    'tpu': Effect('mine', device.cluster, ['mine', 'near', 'ours']),
    'gcp_project': Effect('project', device.cluster, ['node', 'near', 'project']),
    'tpu_zone': Effect('zone', device.cluster, ['node', 'zone', 'ours']),
    'master': Effect('grpc://other:1', device.address, 'grpc://other:1'),
    'use_tpu': Effect(True, device.uses_tpu, True),
    'accelerator': Effect('gpu', device.convolution_device, '/device:GPU:0'),
    'num_shards': Effect(2, device.cores, 2),
    'iterations': Effect(7, device.tpu_config('iterations_per_loop'), 7),
    'intra_op_threads': Effect(3, device.session_config('intra_op_parallelism_threads'), 3),
    'log_device_placement': Effect(True, device.session_config('log_device_placement'), True),
    'use_data': Effect('fake', inputs.operations('TFRecordDataset'), []),
    'data_dir': Effect('{digits}', course.shards, 8),
    'data_format': Effect('tar', inputs.evaluated_beside_tar_files, 2),
    'train_files': Effect('train-00000-*', course.shards, 1),
    'eval_files': Effect('validation-00001-*', inputs.evaluated_labels, 3),
    'image_key': Effect('jpeg', inputs.parsed_keys, ['image/class/label', 'jpeg']),
    'label_key': Effect('number', inputs.parsed_keys, ['image/encoded', 'number']),
    'label_offset': Effect(-1, inputs.sum_of_labels, 10),
    'num_train_images': Effect(80, rate.epochs_at_first_rate, 6),
    'num_eval_images': Effect(3, inputs.evaluated_fake_images, 3),
    'num_classes': Effect(9, step.classes, [9]),
    'train_batch_size': Effect(2, device.batch_size('train'), 2),
    'eval_batch_size': Effect(2, device.batch_size('eval'), 2),
    'eval_total_size': Effect(3, inputs.evaluated_labels, 3),
    'num_files_infeed': Effect(3, inputs.files_at_once, 3),
    'initial_shuffle_buffer_size': Effect(17, inputs.shuffle_buffers, [17, 1000]),
    'followup_shuffle_buffer_size': Effect(18, inputs.shuffle_buffers, [1024, 18]),
    'prefetch_dataset_buffer_size': Effect(12345, inputs.read_ahead, 12345),
    'prefetch_enabled': Effect(False, inputs.operations('PrefetchDataset'), []),
    'num_parallel_calls': Effect(5, inputs.operations_on_tpu('ParallelMapDataset'), [[2], [5]]),
    'transpose_enabled': Effect(True, inputs.training_batch_layout, ((75, 75, 3, 3), np.float32)),
    'transfer': Effect('uint8', inputs.sent_types, CHANGED),
    'max_bad_records': Effect(1, inputs.evaluated_with_a_bad_record, 2),
    'preprocessing': Effect('vgg', inputs.evaluation_pixels, CHANGED),
    'height': Effect(80, inputs.training_batch_layout, ((3, 80, 75, 3), np.float32)),
    'width': Effect(80, inputs.training_batch_layout, ((3, 75, 80, 3), np.float32)),
    'use_annotated_bbox': Effect(True, inputs.crop_boxes, [[1, 7, 4]]),
    'crop_area_min': Effect(0.5, inputs.crop_range('area_range'), [0.5, 1.0]),
    'crop_aspect_ratio_max': Effect(2.0, inputs.crop_range('aspect_ratio_range'), [0.5, 2.0]),
    'crop_padding': Effect(7, inputs.shifts, 15, {'preprocessing': 'cifar'}),
    'random_flip': Effect(False, inputs.random_draws, 3),
    'fast_mode': Effect(False, inputs.has_operation('ResizeBicubic'), True),
    'use_fast_color_distort': Effect(False, inputs.has_operation('AdjustSaturation'), True),
    'cb_distortion_range': Effect(0.3, inputs.uniform_ranges, {'brightness': 32 / 255, 'cb': 0.3, 'cr': 0.1}),
    'cr_distortion_range': Effect(0.3, inputs.uniform_ranges, {'brightness': 32 / 255, 'cb': 0.1, 'cr': 0.3}),
    'brightness_distortion_range': Effect(0.3, inputs.uniform_ranges, {'brightness': 0.3, 'cb': 0.1, 'cr': 0.1}),
    'network': Effect('revnet38', step.scopes, {'RevNet'}),
    'depth_multiplier': Effect(2.0, step.channels, 64),
    'auxiliary_head': Effect(False, step.cross_entropies, 1),
    'zero_init_last_scale': Effect(True, step.last_scale, 0.0, {'network': 'resnet50'}),
    'rebuild_activations': Effect(False, step.convolutions, 18),
    'batch_norm_decay': Effect(0.5, step.kept_of_the_variance, 0.5),
    'batch_norm': Effect('averaged', step.sums_over_cores, [[[0, 1, 2, 3]]], FOUR_CORES),
    'batch_norm_group_size': Effect(
        2, step.sums_over_cores, [[[0, 1], [2, 3]]], {**FOUR_CORES, 'batch_norm': 'synchronized'}
    ),
    'clear_update_collections': Effect(False, step.update_ops, 2),
    'precision': Effect('bfloat16', inputs.training_batch_layout, ((3, 75, 75, 3), tf.bfloat16.as_numpy_dtype)),
    'layout': Effect('NHWC', device.chosen_layout, 2),
    'init_from': Effect('source', weights.read, 'source'),
    'init_except': Effect('Layer', weights.begun, {'Logits': 2.0, f'Logits{AVERAGE}': 2.0}, {'init_from': 'source'}),
    'init_averages': Effect(
        False, weights.begun, {'Layer': 1.0, 'Logits': 1.0, f'Logits{AVERAGE}': 1.0}, {'init_from': 'source'}
    ),
    'freeze': Effect('Layer', weights.trained, ['Logits/biases', 'Logits/weights']),
    'freeze_batch_norm': Effect(False, step.kept_of_the_variance, 0.9976, {'freeze': 'Layer'}),
    'head_learning_rate': Effect(0.33, weights.step_of_biases, 0.0055),
    'optimizer': Effect('momentum', step.variable_kinds, {'ExponentialMovingAverage', 'Momentum'}),
    # The cross-entropy is log(1 + e^-1) = 0.3133 for the right label and 1.3133 for the wrong one.
    'label_smoothing': Effect(0.5, step.loss, 0.5633),
    'weight_decay': Effect(1.0, step.loss, 2.3633),
    'moving_average': Effect(False, step.variable_kinds, {'RMSProp', 'RMSProp_1'}),
    'moving_average_decay': Effect(0.1, step.kept_of_the_average, 0.1),
    'learning_rate': Effect(0.33, rate.first_rate, 0.33),
    'schedule': Effect('cosine', rate.last_rate, 0.00002),
    'learning_rate_decay': Effect(0.5, rate.first_decay, 0.5),
    'learning_rate_decay_epochs': Effect(4, rate.epochs_at_first_rate, 4),
    'step_epochs': Effect('5,9', rate.epochs_with_steps, 5),
    'use_learning_rate_warmup': Effect(True, rate.first_rate, 0.0137),
    'cold_epochs': Effect(4, rate.cold_epochs, 4),
    'warmup_epochs': Effect(4, rate.highest_epoch, 8),
    'cap_warmup': Effect(True, rate.highest_epoch, 10),
    'mode': Effect('train', course.parts, ['train until 2000']),
    'model_dir': Effect('{tmp}/other', course.written_to, True),
    'export_dir': Effect('exports', course.parts, ['train until 2000', 'evaluate', 'export to exports']),
    'train_steps': Effect(50, course.parts, ['train until 50', 'evaluate']),
    'train_steps_per_eval': Effect(
        1500, course.parts, ['train until 1500', 'evaluate', 'train until 2000', 'evaluate']
    ),
    'train_epochs': Effect(2.5, course.fitted_steps, (13, 2000)),
    'epochs_per_eval': Effect(2.5, course.fitted_steps, (2000, 13)),
    'min_eval_interval': Effect(7, course.following, ['follow every 7 s, give up after None s', 'evaluate']),
    'eval_timeout': Effect(9, course.following, ['follow every 180 s, give up after 9 s', 'evaluate']),
    'save_checkpoints_secs': Effect(
        7, course.start_of_training, {'step lines': False, 'seconds between checkpoints': 7}
    ),
    'keep_best': Effect(True, course.parts, ['look for the best', 'train until 2000', 'evaluate', 'look for the best']),
    'skip_damaged_checkpoints': Effect(
        True, course.parts, ['skip damaged checkpoints', 'train until 2000', 'evaluate']
    ),
    'allow_other_data_set': Effect(True, course.resumes_on_another_data_set, True),
    'seed': Effect(1, step.repeats_itself, True),
    'skip_host_call': Effect(False, step.has_host_call, True),
    'save_summary_steps': Effect(7, device.run_config('save_summary_steps'), 7),
    'image_summaries': Effect(
        2, course.start_of_training, {'step lines': False, 'seconds between checkpoints': 1000, 'images': 4}
    ),
    'log_steps': Effect(1, course.start_of_training, {'step lines': True, 'seconds between checkpoints': 1000}),
    'profile_steps': Effect(
        '3,5', course.start_of_training, {'step lines': False, 'seconds between checkpoints': 1000, 'profiled': (3, 5)}
    ),
    'display_tensors': Effect(True, step.prints, 1),
}


def test_every_field_of_the_configuration_has_an_entry() -> None:
    assert {*EFFECTS} == {field.name for field in dataclasses.fields(Config)}


@pytest.fixture(scope='module')
def base(photo_dir: str, tmp_path_factory: Any) -> Config:
    """The configuration that each flag is changed in: a small run on the CPU, of 2,000 steps."""
    return Config(
        use_tpu=False,
        data_dir=photo_dir,
        model_dir=str(tmp_path_factory.mktemp('effects') / 'model'),
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


@pytest.fixture(scope='module', autouse=True)
def one_layer_in_place_of_the_network() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, 'inception_v3', ONE_LAYER)
        yield


@pytest.fixture(scope='module')
def defaults() -> Dict[Any, Any]:
    """The observations of the default that were made so far."""
    return {}


@functools.lru_cache(maxsize=None)
def graph_of_evaluation(config: Config) -> bytes:
    with tf.Graph().as_default() as graph:
        infeed.for_evaluation(resize_for_eval(tf.constant(b''), config), config)
    return graph.as_graph_def().SerializeToString(deterministic=True)


@pytest.mark.program
@pytest.mark.both
def test_flags_that_change_evaluated_pixels_distinguish_evaluations_and_exports(base: Config) -> None:
    changing = set()
    for flag, effect in EFFECTS.items():
        config = dataclasses.replace(base, **effect.others)
        other = dataclasses.replace(config, **{flag: effect.value})
        if graph_of_evaluation(config) != graph_of_evaluation(other):
            changing.add(flag)
    assert {'preprocessing', 'height', 'width', 'precision', 'transfer'} <= changing
    # The padding of evaluation is cut off again.
    changing.discard('crop_padding')
    assert changing <= {*history.DECIDING} and changing <= {*origin.SETTINGS}


@pytest.mark.parametrize('flag', sorted(EFFECTS))
def test_the_flag_has_its_effect(
    flag: str, base: Config, defaults: Dict[Any, Any], digits_dir: str, tmp_path: Any, monkeypatch: Any
) -> None:
    value, look, expected, others = EFFECTS[flag]
    if isinstance(value, str):
        value = value.format(digits=digits_dir, tmp=tmp_path)
    config, key = dataclasses.replace(base, **others), (look, *others.items())
    if key not in defaults:
        with tf.Graph().as_default(), monkeypatch.context() as patch:
            defaults[key] = look(config, patch)
    with tf.Graph().as_default(), monkeypatch.context() as patch:
        observed = look(dataclasses.replace(config, **{flag: value}), patch)
    assert observed != defaults[key]
    if expected is not CHANGED:
        assert observed == expected
