"""Compiles a training step with XLA for this CPU. An operation that fails to compile here also fails on a TPU."""

import dataclasses
import os
import time
from typing import Tuple

import numpy as np
from tensorflow.python.compiler.xla import xla

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn

# With XLA's default optimization, compiling the network at 299 pixels for a CPU takes far too long.
_FAST_COMPILATION = '--xla_backend_optimization_level=0'
# One image is too few: a last feature map of one pixel would give batch normalization a variance of 0.
BATCH_SIZE = 2


def compile_fast() -> None:
    """Makes XLA compile without optimization. Call it before the process's first compilation."""
    os.environ['XLA_FLAGS'] = f'{_FAST_COMPILATION} {os.environ.get("XLA_FLAGS", "")}'


def run_once(config: Config) -> Tuple[float, float]:
    """Compiles the training step of one core, without sums over the cores, and runs it on random images.

    Returns its loss, and the seconds of both.

    Raises:
      tf.errors.OpError: XLA cannot compile the step; the message names the operations.
    """
    config = dataclasses.replace(
        config,
        use_tpu=False,
        tpu=None,
        master='',
        train_batch_size=BATCH_SIZE,
        batch_norm_group_size=0,
        # The host call does not run on a core.
        skip_host_call=True,
    )
    start = time.monotonic()
    draw = np.random.RandomState(0)
    shape = [BATCH_SIZE, config.height, config.width, 3]
    images = draw.uniform(-1, 1, [*shape[1:], BATCH_SIZE] if config.transpose_enabled else shape)
    labels = draw.randint(config.num_classes, size=BATCH_SIZE)

    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        spec = inception_model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, {'config': config})
        with tf.control_dependencies([spec.train_op]):
            return tf.identity(spec.loss)

    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope(tf.get_variable_scope(), use_resource=True):
            tf.train.create_global_step()
        dtype = tf.as_dtype(config.precision)
        (loss,) = xla.compile(step, [tf.constant(images, dtype), tf.constant(labels, tf.int32)])
        session.run(tf.global_variables_initializer())
        value = float(session.run(loss))
    return value, time.monotonic() - start
