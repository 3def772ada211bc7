"""The training records of a host in the order for a seed, in the form that the input pipeline preprocesses."""

import functools
from typing import Callable, NamedTuple, Sequence

from compat import tf
from data import order
from inception_v3.config import Config

# Records that are tried as a group if some may be bad; with a seed, see `group_for`. Larger groups cost less per
# record; about three groups are held in memory.
GROUP_RECORDS = 128
# The fewest records in a run, within which one record can replace another.
RUN_RECORDS = 8


class Group(NamedTuple):
    """The records that `usable_records.map_or_replace` tries together: `width` records of each lane in each step."""

    lanes: int
    steps: int
    width: int

    @property
    def records(self) -> int:
        """The number of records in a group."""
        return self.lanes * self.steps * self.width


def group_for(batch: int, hosts: int, records: int) -> Group:
    """The groups of a host's records, for a size of the global batch and a number of records in the data set.

    A run of a lane has at least `RUN_RECORDS` records. If these are for several steps, a group has all lanes of the
    host, because images leave step after step: 512 in batches of 64, 896 in batches of 448.
    """
    lanes = order.lanes_for(batch, hosts, records)
    width = batch // lanes
    steps = -(-RUN_RECORDS // width)
    return Group(lanes // hosts if steps > 1 else max(1, GROUP_RECORDS // width), steps, width)


def completed_steps(config: Config) -> tf.Tensor:
    """The number of completed steps, an int64 scalar, at which a pipeline with a seed resumes; without a seed, 0.

    It is the checkpoint's step: a session restores it before it initializes its iterators.
    """
    step = tf.train.get_global_step() if config.seed is not None else None
    return tf.constant(0, tf.int64) if step is None else tf.cast(step, tf.int64)


def ordered_records(
    config: Config, paths: Sequence[str], host: int, hosts: int, read: Callable[..., tf.data.Dataset]
) -> tf.data.Dataset:
    """A host's records of endless global batches, after the completed steps.

    The run has a seed. `read` returns the records of a file; its arguments are the number of files to read at a time, a
    path and a size. Returns a data set of records, as `order.ordered` does; with `max_bad_records`, a data set of
    groups for `usable_records.map_or_replace`.

    Raises:
      DataError: there are no records, or they cannot be counted.
      RemoteError: access to a file is denied, or the store cannot be reached.
    """
    assert config.seed is not None
    share = order.Share(config.train_batch_size, host, hosts)
    files = order.files_of(paths, config.source.contents(paths))
    total = sum(file.records for file in files)
    own = order.lanes_for(share.batch, hosts, total) // hosts
    group = group_for(share.batch, hosts, total)
    dataset = order.ordered(
        files,
        functools.partial(read, own),
        config.seed,
        completed_steps(config),
        share,
        config.initial_shuffle_buffer_size,
        config.followup_shuffle_buffer_size,
        group.steps if config.max_bad_records else 1,
    )
    if not config.max_bad_records:
        return dataset

    def divided(tensor: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tensor, [*group, *tensor.shape[1:]])

    dataset = dataset.batch(group.records, drop_remainder=True)
    return dataset.map(lambda records: tf.nest.map_structure(divided, records))
