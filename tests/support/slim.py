"""TF-Slim's Inception v3, an independent implementation, and Inception v3 in float64.

TF-Slim is part of TensorFlow 1.15, and a separate package for 2.15.

If the argument of a ReLU is nearly 0, rounding decides its sign; if two values are nearly equal, rounding decides which
is the maximum. Both change a gradient by far more than the rounding itself. In float64, this does not happen: only
2 ** -29 times as many values are near enough. Gradients are therefore compared in float64; only the outputs, which are
continuous, are compared in float32.
"""

import importlib.util
import sys
from typing import Any, Dict, Tuple

import numpy as np

from compat import tf
from inception_v3.networks import layers
from tests.support.weights import value_of

try:
    from tensorflow.contrib import slim
    from tensorflow.contrib.slim.nets import inception
except ImportError:
    # TF-Slim uses this module of Keras 2, which both Keras packages have in another place.
    keras = 'tf_keras' if importlib.util.find_spec('tf_keras') else 'keras'
    sys.modules['tf_keras.legacy_tf_layers.normalization'] = importlib.import_module(
        f'{keras}.src.legacy_tf_layers.normalization'
    )
    import tf_slim as slim
    from tf_slim.nets import inception


def build_slim(
    images: tf.Tensor, classes: int, is_training: bool, decay: float, depth_multiplier: float = 1.0
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Builds TF-Slim's network without dropout and weight decay; returns logits and auxiliary logits."""
    fused = images.dtype == tf.float32
    scope = inception.inception_v3_arg_scope(weight_decay=0.0, batch_norm_decay=decay, use_fused_batchnorm=fused)
    with slim.arg_scope(scope):
        logits, end_points = inception.inception_v3(
            images, classes, is_training=is_training, dropout_keep_prob=1.0, depth_multiplier=depth_multiplier
        )
    return logits, end_points['AuxLogits']


def allow_float64(patch: Any) -> None:
    """Lets Inception v3 compute in float64, by an average pooling without the cast to float32."""
    patch.setattr(
        layers, 'average_pool', lambda x, window, stride, padding, layout: tf.nn.avg_pool2d(x, window, stride, padding)
    )


def values_by_name() -> Dict[str, np.ndarray]:
    """A float64 value for every variable of the graph."""
    return {v.op.name: value_of(v.op.name, v.shape.as_list()) for v in tf.global_variables()}


def load(values: Dict[str, np.ndarray], session: tf.Session) -> None:
    """Sets variables of the graph, by name."""
    variables = {v.op.name: v for v in tf.global_variables()}
    session.run(
        [variables[name].initializer for name in values],
        {variables[name].initializer.inputs[1]: value for name, value in values.items()},
    )
