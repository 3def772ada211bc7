"""The published experiment with its own layers, those of Keras, on virtual CPU devices; needs TensorFlow 2.15."""

from typing import Any, Dict

import numpy as np

from compat import tf2  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.eager import context

from tools.studies.batch_norm.experiments import (
    CHANNELS,
    REPLICAS,
    Statistics,
    Trained,
    differences,
    largest_difference,
)


class _Layer:
    """`BatchNormalization` with the given options, else the defaults, on the devices of a distribution strategy."""

    def __init__(self, strategy: Any, **options: Any):
        self._strategy = strategy
        with strategy.scope():
            self.layer = tf2.keras.layers.BatchNormalization(**options)
            self.layer.build([None, CHANNELS])

        def step(rows: Any, training: bool) -> Any:
            return strategy.run(self.layer, (rows,), {'training': training})

        self._step = tf2.function(step, autograph=False)

    def outputs(self, batch: np.ndarray, training: bool) -> np.ndarray:
        """Normalizes a batch, float32 [rows, channels]; the devices share the rows, in order."""
        shares = np.split(batch, self._strategy.num_replicas_in_sync)
        rows = self._strategy.experimental_distribute_values_from_function(
            lambda replica: tf2.constant(shares[replica.replica_id_in_sync_group])
        )
        outputs = self._strategy.experimental_local_results(self._step(rows, training))
        return np.concatenate([of_device.numpy() for of_device in outputs])

    def train_and_infer(self, batches: np.ndarray) -> Trained:
        """Trains on all batches, [steps, rows, channels], except the last, which is for inference."""
        trained = np.stack([self.outputs(batch, training=True) for batch in batches[:-1]])
        return Trained(trained, self.outputs(batches[-1], training=False), *self.statistics())

    def statistics(self) -> Statistics:
        """The moving statistics; with several devices, their mean."""
        return Statistics(self.layer.moving_mean.numpy(), self.layer.moving_variance.numpy())

    def mean_of_devices(self) -> Statistics:
        """The mean of the moving statistics that each device keeps."""
        variables = self.layer.moving_mean, self.layer.moving_variance
        kept = (self._strategy.experimental_local_results(variable) for variable in variables)
        return Statistics(*(np.mean([of_device.numpy() for of_device in values], 0) for values in kept))


def compare(batches: np.ndarray) -> Dict[str, Any]:
    """Compares eight devices with one, on batches [steps, rows, channels], the last for inference; see `PUBLISHED`.

    Must run before any other TensorFlow operation in the process, which would fix the number of devices.
    """
    (cpu,) = tf2.config.list_physical_devices('CPU')
    tf2.config.set_logical_device_configuration(cpu, [tf2.config.LogicalDeviceConfiguration()] * REPLICAS)
    with context.eager_mode():
        devices = tf2.distribute.MirroredStrategy([f'/cpu:{number}' for number in range(REPLICAS)])
        per_replica, synchronized = _Layer(devices), _Layer(devices, synchronized=True)
        one_device = _Layer(tf2.distribute.OneDeviceStrategy('/cpu:0'))
        reference = one_device.train_and_infer(batches)
        of_modes = {
            'per_replica': differences(reference, per_replica.train_and_infer(batches)),
            'synchronized': differences(reference, synchronized.train_and_infer(batches)),
        }
        mean_and_kept = max(map(largest_difference, per_replica.mean_of_devices(), per_replica.statistics()))
        per_replica.layer.set_weights(one_device.layer.get_weights())
        same_weights = largest_difference(per_replica.outputs(batches[-1], training=False), reference.inference_outputs)
        return {**of_modes, 'same_weights': same_weights, 'mean_and_kept': mean_and_kept}
