"""The replicas of a run without a TPU: the strategy of `tf.distribute` that its graphs are built with.

Each replica is a copy of the network on a device of its own. It stands for a core of a TPU: `--train_batch_size` is the
batch of all replicas, which take consecutive shares of it.
"""

import functools
from typing import Optional

from compat import tf
from inception_v3.config import Config
from inception_v3.machines import sums
from inception_v3.tpu import accelerator


def strategy_of(config: Config) -> Optional[tf.distribute.Strategy]:
    """The strategy of a run with several replicas; None on a TPU, or with one replica."""
    if config.use_tpu or config.replicas == 1:
        return None
    kind = 'gpu' if accelerator.on_gpu(config) else 'cpu'
    devices = [f'/{kind}:{index}' for index in range(config.num_gpus)]
    # Without a seed, TensorFlow chooses: NCCL, if the GPUs support it.
    is_ordered = config.seed is not None or kind == 'cpu'
    if config.machines > 1:
        within = ordered_sums() if is_ordered else tf.distribute.ReductionToOneDevice()
        return sums.AcrossMachines(devices, within, config)
    return tf.distribute.MirroredStrategy(devices, ordered_sums() if is_ordered else None)


def ordered_sums() -> tf.distribute.CrossDeviceOps:
    """Sums over replicas on the device of the first replica, in the order of the replicas.

    TensorFlow's own `AddN` begins with any value whose memory it can reuse, so the last bits of a sum of three or more
    values vary.
    """
    return tf.distribute.ReductionToOneDevice(accumulation_fn=lambda values: functools.reduce(tf.add, values))
