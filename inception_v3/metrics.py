"""The metrics of an evaluation, which ignore padding."""

from typing import Dict, Sequence, Tuple

from compat import tf
from inception_v3 import replicas
from inception_v3.config import PADDING_LABEL

Metric = Tuple[tf.Tensor, tf.Operation]


def evaluation_metrics(labels: tf.Tensor, logits: tf.Tensor) -> Dict[str, Metric]:
    """The metrics of an evaluation, accumulated over its batches.

    Args:
      labels: int32 [batch]; `PADDING_LABEL` for padding.
      logits: float32 [batch, num_classes].

    Returns:
      top_1, top_5: fractions of the images whose label has the highest logit, or one of the five highest;
      cross_entropy: mean of -log softmax(logits)[label], in nats, without label smoothing;
      images: the number of images.
    """
    is_real = tf.not_equal(labels, PADDING_LABEL)
    real_labels = tf.maximum(labels, 0)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=real_labels, logits=logits)

    def total(name: str, values: tf.Tensor) -> Metric:
        added = tf.reduce_sum(values)
        variable = tf.get_variable(
            name,
            [],
            added.dtype,
            initializer=tf.zeros_initializer(),
            trainable=False,
            collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES],
            use_resource=True,
            **replicas.SUMMED,
        )
        return replicas.total_of(variable), variable.assign_add(added)

    with tf.variable_scope('evaluation_metrics'):
        # float32 counts whole numbers only to 2^24.
        images, counted = total('images', tf.cast(is_real, tf.int64))
        weights = tf.cast(is_real, tf.float32)

        # Unlike means by `tf.metrics.mean`, these share one count.
        def mean(name: str, values: tf.Tensor) -> Metric:
            summed, update = total(name, tf.cast(values, tf.float32) * weights)
            return replicas.merged(_ratio, summed, images), update

        return {
            'top_1': mean('top_1', tf.nn.in_top_k(logits, real_labels, 1)),
            'top_5': mean('top_5', tf.nn.in_top_k(logits, real_labels, 5)),
            'cross_entropy': mean('cross_entropy', cross_entropy),
            'images': (images, counted),
        }


def _ratio(total: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    return tf.div_no_nan(total, tf.cast(images, tf.float32))


def names_of(classes: tf.Tensor, class_names: Sequence[str], num_classes: int) -> tf.Tensor:
    """Looks up the names of classes, in UTF-8.

    Args:
      classes: int32 or int64, of any shape.
      class_names: the names by label.
      num_classes: the number of classes of the network; classes beyond `class_names` have an empty name.

    Returns:
      A string tensor of the same shape.
    """
    # A folder's name may not be valid UTF-8; its bytes are kept.
    encoded = [name.encode('utf-8', 'surrogateescape') for name in class_names]
    return tf.gather(tf.constant([*encoded, *[b''] * (num_classes - len(encoded))]), classes)


def print_predictions(labels: tf.Tensor, logits: tf.Tensor, class_names: Sequence[str]) -> tf.Operation:
    """Prints a line per image: its label, and the five most likely classes with their probabilities.

    A class is printed as its number, with its name in brackets. A TPU's host computes the metrics, so its log has the
    lines.
    """
    num_classes = int(logits.shape[1])
    probabilities, classes = tf.nn.top_k(tf.nn.softmax(logits), k=min(5, num_classes))
    bracketed = [f' ({name})' if name else '' for name in class_names]
    real = tf.where(tf.not_equal(labels, PADDING_LABEL))[:, 0]
    columns = [tf.gather(tensor, real) for tensor in (labels, classes, probabilities)]

    def shown(classes: tf.Tensor) -> tf.Tensor:
        return tf.strings.join([tf.as_string(classes), names_of(classes, bracketed, num_classes)])

    def line(row: Tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        label, predicted, probability = row
        pairs = tf.strings.join([shown(predicted), tf.as_string(probability, precision=6)], ':')
        return tf.strings.join(['label ', shown(label), ' predictions ', tf.strings.reduce_join(pairs, separator=' ')])

    lines = tf.map_fn(line, columns, dtype=tf.string)
    return tf.print(tf.strings.reduce_join(lines, separator='\n'))
