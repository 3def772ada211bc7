"""The images that exports are calibrated with and checked on: a run's data set, prepared as for `predict`."""

import dataclasses
from typing import Iterator, List, NamedTuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.input import infeed
from inception_v3.input.record_preprocessing import RecordPreprocessing
from inception_v3.input_pipeline import InputPipeline
from preprocessing.viewing import resize_as_viewed

_BATCH_SIZE = 32


class Batch(NamedTuple):
    """Images of a split.

    Attributes:
      encoded: the image files.
      images: float32 [batch, height, width, 3], prepared as exports need them: from the image as viewers show it.
      labels: int32 [batch].
    """

    encoded: List[bytes]
    images: np.ndarray
    labels: np.ndarray


def batches(is_training: bool, config: Config) -> Iterator[Batch]:
    """Yields the images of a split in the order of their records: once for validation, without end for training.

    Args:
      is_training: the training split, without distortions; False: the validation split.
      config: of the run. A record that cannot be used is an error.

    Raises:
      records.DataError: there are no usable files of the split.
    """
    config = dataclasses.replace(
        config, seed=None, initial_shuffle_buffer_size=0, followup_shuffle_buffer_size=0, max_bad_records=0
    )
    pipeline, preprocessing = InputPipeline(is_training, config), RecordPreprocessing(is_training, config)

    def prepared(serialized: tf.Tensor) -> tf.Tensor:
        encoded, _, label = preprocessing.parse(serialized)
        return encoded, infeed.as_evaluated(resize_as_viewed(encoded, config), config), label

    with tf.Graph().as_default() as graph:
        dataset = pipeline.storage().map(prepared).batch(_BATCH_SIZE)
        following = tf.data.make_one_shot_iterator(dataset).get_next()
        with tf.Session(graph=graph) as session:
            while True:
                try:
                    encoded, images, labels = session.run(following)
                except tf.errors.OutOfRangeError:
                    return
                yield Batch([*encoded], images, labels)
