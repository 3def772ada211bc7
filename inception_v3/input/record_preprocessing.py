"""Preprocesses records. The first steps take one record or a group, with the same results."""

from typing import Any, NamedTuple, Tuple

from compat import tf
from compat.graph_checks import require
from data.records import Record
from inception_v3.config import Config
from inception_v3.input.infeed import Features, Infeed
from preprocessing.decoding import DecodePlan, decode_plan, decode_planned, image_shape
from preprocessing.stateless import uniform_of


class DrawnRecord(NamedTuple):
    """A record that is parsed and drawn, but not decoded; in a group, the first dimension of each part is the records.

    The shape is int32 [3]: height, width and channels of the image. The distortion is from `Preprocessing.draw`; () in
    evaluation. The plan says how to decode the crop.
    """

    encoded: tf.Tensor
    shape: tf.Tensor
    distortion: Any
    plan: DecodePlan
    label: tf.Tensor


class RecordPreprocessing:
    """Preprocesses the records of a split: with distortions in training, otherwise for evaluation.

    Attributes:
      infeed: packs the images of the run; has their preprocessing.
    """

    def __init__(self, is_training: bool, config: Config):
        self._is_training = is_training
        self._config = config
        self.infeed = Infeed(config)

    def preprocess(self, record: Record) -> Tuple[Features, tf.Tensor]:
        """Preprocesses one record to the data to send for it (see `infeed`) and its label, int32."""
        return self.finish(self.draw(record))

    def draw(self, record: Record) -> DrawnRecord:
        """Parses a record, or a group of records, and draws the distortions.

        Records without a key get numbers from TensorFlow's generators.
        """
        serialized = record.serialized
        preprocessing = self.infeed.preprocessing
        records = serialized.shape.as_list()[0] if serialized.shape.ndims else None

        def of_each(number: tf.Tensor) -> tf.Tensor:
            return tf.fill([records], number) if records and not number.shape.ndims else number

        with tf.name_scope('preprocessing'):  # A profile finds the phase by this scope.
            encoded, bbox, label = self.parse(serialized)
            shape, distortion = image_shape(encoded), ()
            if self._is_training:
                drawn = preprocessing.draw(shape, bbox, uniform_of(record.seed, records))
                distortion = tf.nest.map_structure(of_each, drawn)
            window = preprocessing.crop(shape, distortion or None)
            return DrawnRecord(encoded, shape, distortion, decode_plan(encoded, shape, window.crop), label)

    def finish(self, drawn: DrawnRecord) -> Tuple[Features, tf.Tensor]:
        """Decodes the image of one record, and finishes it: returns what `preprocess` returns."""
        encoded, shape, distortion, plan, label = drawn
        preprocessing = self.infeed.preprocessing
        with tf.name_scope('preprocessing'):
            window = preprocessing.crop(shape, distortion or None)
            image = preprocessing.resize(decode_planned(encoded, plan), window)
            if self._is_training:
                return self.infeed.for_training(image, distortion), label
            return self.infeed.for_evaluation(image), label

    def parse(self, serialized: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Parses a record to its encoded image, its boxes float32 [1, boxes, 4], and its label, an int32 scalar.

        For a group of records, images and labels are [records], and there are no boxes.
        """
        config, source = self._config, self._config.source
        record = source.format.parse(serialized, self._is_training and config.use_annotated_bbox, source.fields)
        in_range = tf.logical_and(record.label >= 0, record.label < config.num_classes)
        is_group = record.label.shape.ndims
        wrong = tf.gather_nd(record.label, tf.where(tf.logical_not(in_range))) if is_group else record.label
        with tf.control_dependencies([require(tf.reduce_all(in_range), ['label out of range:', wrong])]):
            return tf.identity(record.encoded), record.bbox, tf.cast(record.label, tf.int32)
