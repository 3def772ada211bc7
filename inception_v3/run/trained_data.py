"""The data set that a checkpoint has learned, as its run recorded it, compared with the one that a command reads."""

import contextlib
from typing import List, NamedTuple, Optional, Sequence, Tuple

from console.log import logger
from console.messages import shown
from data.dataset_info import DatasetInfo
from data.records import DataError
from data.remote import RemoteError
from data.sources import source_of
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import description_of, samples_of
from inception_v3.run import starts
from inception_v3.run.starts import Start

_DIGITS_SHOWN = 12


class TrainedData(NamedTuple):
    """The data set that a checkpoint has learned.

    Attributes:
      info: its description; None if it is unknown.
      earlier: the data sets of earlier starts, which the run left with `--allow_other_data_set`.
      note: says that another data set is in its place now, or that nothing is recorded; empty if neither is so.
    """

    info: Optional[DatasetInfo]
    earlier: Tuple[str, ...] = ()
    note: str = ''

    @property
    def class_names(self) -> List[str]:
        """The names of the classes by label; empty if they are unknown."""
        return self.info.class_names if self.info else []


def of_checkpoint(config: Config, checkpoint: str) -> TrainedData:
    """The data set that a checkpoint has learned. Where nothing is recorded, it is the one that `config` names.

    Args:
      config: of its run, or of an evaluation of it.
      checkpoint: the path of the checkpoint.

    Raises:
      DataError: nothing is recorded, and the description of the present data set cannot be read.
    """
    recorded, present = starts.before(checkpoint), None
    last = recorded[-1] if recorded else None
    info = last.info if last else None
    # The data set may be gone.
    with contextlib.suppress(RemoteError, *((DataError,) if info else ())):
        present = description_of(config)
    names = [_named(start) for start in recorded]
    earlier = tuple(name for name in dict.fromkeys(names) if name != names[-1])
    changes = changes_between(last, config, present, with_samples=False) if last and present else ()
    if changes:
        return TrainedData(info, earlier, _other_data(config, checkpoint, changes))
    is_same = last and present and last.fingerprint and last.fingerprint == present.fingerprint
    unknown = f'{checkpoint} has no record of its classes: names are from {source_of(config)}'
    return TrainedData(info or present, earlier, '' if info or is_same or not present else unknown)


def _other_data(config: Config, checkpoint: str, changes: Sequence[str]) -> str:
    return f'{source_of(config)} is not the data set that {checkpoint} has learned: {"; ".join(changes)}'


def changes_between(
    start: Start, config: Config, present: Optional[DatasetInfo], with_samples: bool = True
) -> Tuple[str, ...]:
    """The differences of a data set from that of a start, each as `name: old -> new`. What is unknown does not differ.

    Args:
      start: the start of training.
      config: of the command that reads the data set.
      present: the description of the data set.
      with_samples: compare the record files, too.
    """
    old, new = start.config.get('use_data', 'real'), config.use_data
    if old != new:
        return (f'use_data: {old} -> {new}',)
    changes = [*changed_classes(start, present)]
    fingerprint = present.fingerprint if present else ''
    if start.fingerprint and fingerprint and start.fingerprint != fingerprint:
        changes.append(f'fingerprint: {start.fingerprint[:_DIGITS_SHOWN]} -> {fingerprint[:_DIGITS_SHOWN]}')
    for split, (count, digest) in samples_of(config).items() if with_samples else ():
        old_count, old_digest = (start.samples or {}).get(split, (count, digest))
        # Equal fingerprints are of the same images, also in other files.
        divided = old_count != count or start.config.get('data_format', 'tfrecord') != config.data_format
        if old_digest != digest and not (divided and start.fingerprint and start.fingerprint == fingerprint):
            changes.append(f'{split} files: {old_digest[:_DIGITS_SHOWN]} -> {digest[:_DIGITS_SHOWN]}')
    if changes and present and start.data_set != present.name:
        changes.insert(0, f'data_set: {shown(start.data_set) or "unnamed"} -> {shown(present.name)}')
    return tuple(changes)


def changed_classes(start: Start, present: Optional[DatasetInfo]) -> Tuple[str, ...]:
    """The first class whose name differs in a data set from that at a start, as `name: old -> new`."""
    old, new = (info.class_names if info else [] for info in (start.info, present))
    changed = [(label, *pair) for label, pair in enumerate(zip(old, new)) if all(pair) and pair[0] != pair[1]]
    if old and new and not changed and len(old) != len(new):
        return (f'classes: {len(old)} -> {len(new)}',)
    more = f' and {len(changed) - 1} more' if len(changed) > 1 else ''
    return tuple(f'class {label}: {shown(before)} -> {shown(now)}{more}' for label, before, now in changed[:1])


def check(config: Config, present: Optional[DatasetInfo], checkpoint: str) -> None:
    """Checks that training resumes on the data set of its checkpoint, and that evaluation has the same classes.

    Args:
      config: of the command.
      present: the description of its data set.
      checkpoint: the path of the checkpoint to resume or to evaluate.

    Raises:
      ConfigError: they are others, and `--allow_other_data_set` is not given.
    """
    recorded = starts.before(checkpoint)
    last = recorded[-1] if recorded else None
    if not last or not (last.samples or last.fingerprint or last.config.get('use_data') == 'fake'):
        logger.info('%s has no record of its data set, which cannot be compared with %s', checkpoint, source_of(config))
        return
    changes = changed_classes(last, present) if config.mode == 'eval' else changes_between(last, config, present)
    if not changes:
        return
    text = _other_data(config, checkpoint, changes)
    if not config.allow_other_data_set:
        raise ConfigError(
            f'{text}. Restore that data set (inception-v3 audit finds damaged files), name its folder with '
            '--data_dir, use another --model_dir, or add --allow_other_data_set.'
        )
    logger.info('warning: %s (--allow_other_data_set)', text)


def _named(start: Start) -> str:
    info = start.info
    images = f'{info.train_images:,} training and {info.validation_images:,} validation images, ' if info else ''
    source = f': {shown(info.source)}; ' if info else ', '
    return f'{shown(start.data_set) or "unnamed"}{source}{images}fingerprint {start.fingerprint or "unknown"}'
