"""A trained network for conversion, its preprocessing as data, and images for checking exports."""

import dataclasses
import functools
from typing import Any, Dict, Generator, List, NamedTuple, Sequence, Tuple

import numpy as np

from compat import tf
from console.processes import usable_cores
from data import records
from data.records import Record
from inception_v3.config import Config
from inception_v3.input import usable_records
from inception_v3.input.record_preprocessing import RecordPreprocessing
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.trained_data import TrainedData
from preprocessing.preprocessings import preprocessing_for
from preprocessing.viewing import resize_as_viewed
from tools.trained_model import TrainedModel

INPUT, LOGITS, PROBABILITIES = 'images', 'logits', 'probabilities'
# A description for `preprocessing.json` and model cards.
DECODING = (
    'turn the image by its EXIF orientation, lay it on white where it is transparent, and convert it to RGB of 8 bits'
)
_BATCH_SIZE = 32


class FrozenNetwork(NamedTuple):
    """A network in float32, with the values of its variables as evaluated, and the data set that it has learned.

    The graph leads from `images`, float32 [batch, height, width, 3], to `logits` and `probabilities`, float32 [batch,
    num_classes].
    """

    graph_def: tf.GraphDef
    variables: Dict[str, np.ndarray]
    model: TrainedModel
    learned: TrainedData


def build(config: Config) -> None:
    """Builds the network into the current graph, with input and outputs named `images`, `logits`, `probabilities`."""
    images = tf.placeholder(tf.float32, [None, config.height, config.width, 3], INPUT)
    # In a scope, because a layer of the network may have the name of an output.
    with tf.name_scope('network'):
        spec = inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
    probabilities = spec.predictions['probabilities']
    # The input of the softmax is the logits.
    tf.identity(probabilities.op.inputs[0], LOGITS)
    tf.identity(probabilities, PROBABILITIES)


def freeze(model: TrainedModel, learned: TrainedData) -> FrozenNetwork:
    """Restores a checkpoint as it is evaluated, and replaces its variables by constants."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        build(model.config)
        model.restore(session)
        values = session.run({variable.op.name: variable for variable in tf.global_variables()})
        constants = tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [LOGITS, PROBABILITIES])
    return FrozenNetwork(constants, values, model, learned)


class Batch(NamedTuple):
    """Image files of a split with their labels, int32 [batch].

    The images, float32 [batch, height, width, 3], are prepared as exports need them: from those that viewers show.
    """

    encoded: List[bytes]
    images: np.ndarray
    labels: np.ndarray


def batches(is_training: bool, config: Config) -> Generator[Batch, None, None]:
    """Yields the images of a split in the order of their records: once for validation, forever for training.

    Training images are not distorted. Up to `max_bad_records` that cannot be used are skipped, and named below
    `model_dir`; more are an error.
    """
    config = dataclasses.replace(config, seed=None, initial_shuffle_buffer_size=0, followup_shuffle_buffer_size=0)
    pipeline, preprocessing = InputPipeline(is_training, config), RecordPreprocessing(is_training, config)
    infeed = preprocessing.infeed

    def prepared(record: Record) -> Tuple[Tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        encoded, _, label = preprocessing.parse(record.serialized)
        return (encoded, infeed.as_evaluated(resize_as_viewed(encoded, infeed.preprocessing))), label

    # AutoGraph has nothing to convert here, and takes seconds to find that out.
    @tf.autograph.experimental.do_not_convert
    def usable() -> tf.data.Dataset:
        if not config.max_bad_records:
            return pipeline.storage().map(prepared)
        split = records.TRAIN if is_training else records.VALIDATION
        name_bad = functools.partial(usable_records.name_bad_records, config, split)
        return usable_records.map_or_skip(pipeline.storage(), prepared, usable_cores(), name_bad)

    with tf.Graph().as_default() as graph:
        following = tf.data.make_one_shot_iterator(usable().batch(_BATCH_SIZE)).get_next()
        with tf.Session(graph=graph) as session:
            while True:
                try:
                    (encoded, images), labels = session.run(following)
                except tf.errors.OutOfRangeError:
                    return
                yield Batch([*encoded], images, labels)


def steps_of(config: Config) -> List[Dict[str, Any]]:
    """The steps from decoded pixels to the input of a run's network, for `prepare`; each is a dict with one key."""
    preprocessing = preprocessing_for(config)
    # With bytes sent to the device, the network was trained on whole numbers.
    rounded = [{'round': 'half up'}] if config.transfer == 'uint8' else []
    finish = {'scale': preprocessing.factor, 'offset': [*preprocessing.offsets]}
    return [*preprocessing.steps_of_evaluation(), *rounded, {'finish': finish}]


def describe(config: Config, class_names: Sequence[str]) -> Dict[str, Any]:
    """The content of `preprocessing.json`: the input, the outputs, the steps and the classes."""
    return {
        'input': {
            'name': INPUT,
            'type': 'float32',
            'shape': ['batch', config.height, config.width, 3],
            'channels': 'RGB',
            'decoding': f'{DECODING}; whole pixels, as libjpeg decodes; grey images have three equal channels',
        },
        'steps': steps_of(config),
        'outputs': {LOGITS: ['batch', config.num_classes], PROBABILITIES: ['batch', config.num_classes]},
        'labels': [*class_names] or [''] * config.num_classes,
    }
