"""Training steps of Keras' Inception v3, in graph mode: see `meter`."""

import numpy as np

from benchmarks.peers import meter
from console.tensorflow_versions import tf

# As RMSProp's in the documented program. The learning rate does not change the work of a step; this one is low enough
# for random images.
_LEARNING_RATE, _DECAY, _MOMENTUM, _EPSILON = 1e-3, 0.9, 0.9, 1.0


def training(spec: meter.Spec) -> meter.Training:
    """The program `keras`."""
    model = tf.keras.applications.InceptionV3(weights=None, classes=spec['classes'], input_shape=(*spec['size'], 3))
    optimizer = tf.keras.optimizers.RMSprop(_LEARNING_RATE, rho=_DECAY, momentum=_MOMENTUM, epsilon=_EPSILON)
    model.compile(optimizer, loss='sparse_categorical_crossentropy')
    draw = np.random.RandomState(0)
    images = draw.uniform(-1, 1, [spec['batch_size'], *spec['size'], 3]).astype(np.float32)
    labels = draw.randint(spec['classes'], size=[spec['batch_size']])
    parameters = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    return lambda: model.train_on_batch(images, labels), parameters, f'TensorFlow {tf.__version__}'


if __name__ == '__main__':
    meter.answer(training=training)
