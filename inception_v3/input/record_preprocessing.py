"""The preprocessing of records, whose first steps take one record or a group, with the same results."""

from typing import Any, NamedTuple, Tuple

from compat import tf
from data.records import Record
from inception_v3.config import Config
from inception_v3.input import device_images, infeed
from preprocessing.decoding import Cut, cut_of, decode_cut, image_shape
from preprocessing.preprocessings import preprocessing_for
from preprocessing.resizing import decode_and_resize
from preprocessing.stateless import Uniform, uniform_of


class DrawnRecord(NamedTuple):
    """A record that is parsed and drawn, but not decoded; for a group, each part begins with a dimension of records.

    The shape is int32 [3]: height, width and channels of the image. The distortion is as `Preprocessing.draw` draws it;
    () in evaluation. The cut says how to decode the crop.
    """

    encoded: tf.Tensor
    shape: tf.Tensor
    distortion: Any
    cut: Cut
    label: tf.Tensor


class RecordPreprocessing:
    """Preprocesses the records of a split: with distortions in training, otherwise for evaluation."""

    def __init__(self, is_training: bool, config: Config):
        self._is_training = is_training
        self._config = config

    def preprocess(self, record: Record) -> Tuple[device_images.Features, tf.Tensor]:
        """Preprocesses one record to the data to send for it (see `infeed`) and its label, int32."""
        return self.finish(self.draw(record))

    def draw(self, record: Record) -> DrawnRecord:
        """Parses a record and draws its distortion, or those of a group of records.

        Without a key, it draws from TensorFlow's generators.
        """
        serialized = record.serialized
        preprocessing = preprocessing_for(self._config)
        records = serialized.shape.as_list()[0] if serialized.shape.ndims else None

        def of_each(number: tf.Tensor) -> tf.Tensor:
            return tf.fill([records], number) if records and not number.shape.ndims else number

        with tf.name_scope('preprocessing'):  # By which a profile finds the phase.
            encoded, bbox, label = self.parse(serialized)
            shape, distortion = image_shape(encoded), ()
            if self._is_training:
                drawn = preprocessing.draw(shape, bbox, uniform_of(record.seed, records))
                distortion = tf.nest.map_structure(of_each, drawn)
            window = preprocessing.crop(shape, distortion or None)
            return DrawnRecord(encoded, shape, distortion, cut_of(encoded, shape, window.crop), label)

    def finish(self, drawn: DrawnRecord) -> Tuple[device_images.Features, tf.Tensor]:
        """Decodes the image of one record, and finishes it: returns what `preprocess` returns."""
        encoded, shape, distortion, cut, label = drawn
        preprocessing = preprocessing_for(self._config)
        with tf.name_scope('preprocessing'):
            window = preprocessing.crop(shape, distortion or None)
            image = preprocessing.resize(decode_cut(encoded, cut), window)
            if self._is_training:
                return infeed.for_training(image, distortion, self._config), label
            return infeed.for_evaluation(image, self._config), label

    def parse(self, serialized: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Parses a record to its encoded image, its boxes float32 [1, boxes, 4], and its label, an int32 scalar.

        For a group of records, images and labels are [records], and there are no boxes.
        """
        config, source = self._config, self._config.source
        record = source.format.parse(serialized, self._is_training and config.use_annotated_bbox, source.fields)
        in_range = tf.logical_and(record.label >= 0, record.label < config.num_classes)
        wrong = tf.boolean_mask(record.label, ~in_range) if record.label.shape.ndims else record.label
        with tf.control_dependencies([tf.Assert(tf.reduce_all(in_range), ['label out of range:', wrong])]):
            return tf.identity(record.encoded), record.bbox, tf.cast(record.label, tf.int32)


def training_image(
    encoded: tf.Tensor, bbox: tf.Tensor, config: Config, uniform: Uniform = tf.random.uniform
) -> device_images.Features:
    """Draws a distortion for an encoded image and applies it: the data to send; see `infeed.for_training`.

    The boxes are float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image.
    """
    shape = image_shape(encoded)
    return distort(encoded, shape, preprocessing_for(config).draw(shape, bbox, uniform), config)


def distort(encoded: tf.Tensor, shape: tf.Tensor, distortion: Any, config: Config) -> device_images.Features:
    """Returns what `training_image` does, for a shape from `image_shape` and a given distortion."""
    image = decode_and_resize(encoded, shape, preprocessing_for(config).crop(shape, distortion), config)
    return infeed.for_training(image, distortion, config)
