"""The training records of a host in the order for a seed, as the input pipeline preprocesses them."""

import functools
from typing import Callable, Sequence

from console.tensorflow_versions import tf
from data import order
from inception_v3.config import Config
from inception_v3.storage import usable_records


def completed_steps(config: Config) -> tf.Tensor:
    """The number of completed steps, int64 scalar, where a pipeline with a seed resumes; without a seed, 0.

    The step is that of the checkpoint: a session restores it before it initializes its iterators.
    """
    step = tf.train.get_global_step() if config.seed is not None else None
    return tf.constant(0, tf.int64) if step is None else tf.cast(step, tf.int64)


def ordered_records(
    config: Config, paths: Sequence[str], host: int, hosts: int, read: Callable[..., tf.data.Dataset]
) -> tf.data.Dataset:
    """A host's records of endless global batches, after the completed steps.

    Args:
      config: of the run, with a seed.
      paths: the training files.
      host: index of the host.
      hosts: number of hosts.
      read: a function from the number of files that are read at a time, a path and a size to the records of a file.

    Returns:
      A data set as that of `order.ordered`; with `max_bad_records`, of groups for `usable_records.map_or_replace`.

    Raises:
      DataError: there are no records, or they cannot be counted.
      RemoteError: access to a file is denied, or the store cannot be reached.
    """
    assert config.seed is not None
    share = order.Share(config.train_batch_size, host, hosts)
    files = order.files_of(paths, config.source.contents(paths))
    lanes = order.lanes_for(share.batch, hosts, sum(file.records for file in files))
    own, width = lanes // hosts, share.batch // lanes
    steps = -(-usable_records.RUN_RECORDS // width) if config.max_bad_records else 1
    dataset = order.ordered(
        files,
        functools.partial(read, own),
        config.seed,
        completed_steps(config),
        share,
        config.initial_shuffle_buffer_size,
        config.followup_shuffle_buffer_size,
        steps,
    )
    if not config.max_bad_records:
        return dataset
    if steps == 1:
        own = max(1, usable_records.GROUP_RECORDS // width)
    dataset = dataset.batch(own * steps * width, drop_remainder=True)

    def divided(tensor: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tensor, [own, steps, width, *tensor.shape[1:]])

    return dataset.map(lambda *group: tf.nest.map_structure(divided, group))
