"""The host call: writes the training summaries of a TPU, which cannot write files itself."""

from typing import Any, Callable, List, Tuple

from compat import tf, tf2
from inception_v3.config import Config

LOSS = 'loss'
LEARNING_RATE = 'learning_rate'
EPOCH = 'epoch'

# Shown by TensorBoard beside each curve.
DESCRIPTIONS = {
    LOSS: (
        'Training loss of a step, in nats: cross-entropy with smoothed labels, plus the auxiliary loss, plus weight '
        'decay. Written by the host: the loss of the first core, or the mean over GPUs. Written by a host call: the '
        'mean over all cores.'
    ),
    LEARNING_RATE: 'Learning rate of a step, for the whole batch.',
    EPOCH: 'Number of passes over the training images, before a step.',
}


def host_call(
    loss: tf.Tensor, rate: tf.Tensor, step: tf.Tensor, config: Config
) -> Tuple[Callable[..., Any], List[tf.Tensor]]:
    """Makes the host call of a training step, for `TPUEstimatorSpec`.

    Every `save_summary_steps` steps it writes loss, learning rate and epoch to `model_dir`, for TensorBoard.

    Args:
      loss: float32 scalar, the loss of one core.
      rate: float32 scalar, the learning rate.
      step: integer scalar, the number of steps done before this one.
      config: the run's configuration.

    Returns:
      The function that runs on the host, and its arguments, each of shape [1]: the host receives one value per core.
    """

    def write(losses: tf.Tensor, rates: tf.Tensor, steps: tf.Tensor) -> Any:
        at = tf.cast(steps[0], tf.int64)
        writer = tf2.summary.create_file_writer(config.model_dir, max_queue=1)
        with writer.as_default(), tf2.summary.record_if(tf.equal(at % config.save_summary_steps, 0)):
            epoch = tf.cast(at, tf.float32) * (config.train_batch_size / config.num_train_images)
            for tag, value in ((LOSS, tf.reduce_mean(losses)), (LEARNING_RATE, rates[0]), (EPOCH, epoch)):
                tf2.summary.scalar(tag, value, at, description=DESCRIPTIONS[tag])
            return tf.summary.all_v2_summary_ops()

    return write, [tf.reshape(tensor, [1]) for tensor in (loss, rate, tf.cast(step, tf.int32))]
