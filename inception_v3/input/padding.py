"""Padding of the last batch of an evaluation, and elements of zeros."""

from typing import Tuple, Union

from compat import tf
from inception_v3.config import PADDING_LABEL

# A label, int32, or (label, path, position of the record in its file).
Label = Union[tf.Tensor, Tuple[tf.Tensor, tf.Tensor, tf.Tensor]]


def pad_batch(batch_size: int, images: tf.Tensor, labels: Label) -> Tuple[tf.Tensor, Label]:
    """Pads a batch to its full size with images of zeros, labelled `PADDING_LABEL`; places are not padded."""
    labels, *places = tf.nest.flatten(labels)
    missing = batch_size - tf.shape(labels)[0]

    def pad() -> Tuple[tf.Tensor, tf.Tensor]:
        sides = [[0, missing], *[[0, 0]] * (images.shape.ndims - 1)]
        return tf.pad(images, sides), tf.pad(labels, [[0, missing]], constant_values=PADDING_LABEL)

    # Padding copies the batch, and only the last batch needs it.
    full_images, full_labels = tf.cond(missing > 0, pad, lambda: (images, labels))
    full_images.set_shape([batch_size, *images.shape[1:]])
    full_labels.set_shape([batch_size])
    return full_images, (full_labels, *places) if places else full_labels


def zeros_like(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A data set of one element of zeros, shaped like the elements of `dataset`; unknown sizes become 0."""

    def zeros(shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
        return tf.zeros([size or 0 for size in shape.as_list()], dtype)

    shapes, types = tf.data.get_output_shapes(dataset), tf.data.get_output_types(dataset)
    return tf.data.Dataset.from_tensors(tf.nest.map_structure(zeros, shapes, types))
