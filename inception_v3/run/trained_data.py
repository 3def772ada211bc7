"""The data set that a checkpoint was trained on, and its differences from the one that a run names."""

import collections
import contextlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from compat.log import logger
from compat.messages import shown
from data import remote
from data.dataset_info import DIGITS_SHOWN, DatasetInfo
from data.records import DataError
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import description_of, samples_of
from inception_v3.run.starts import Start, starts_before


class TrainedData(NamedTuple):
    """The data set that a checkpoint was trained on, and the earlier ones (`--allow_other_data_set`).

    The note says that another data set has replaced it, or that nothing is recorded. Imported weights may have names of
    classes without a data set.
    """

    info: Optional[DatasetInfo]
    earlier: Tuple[str, ...] = ()
    note: str = ''
    imported_names: Tuple[str, ...] = ()

    @property
    def class_names(self) -> List[str]:
        """The names of the classes by label; empty if they are unknown."""
        return [*self.imported_names] or (self.info.class_names if self.info else [])


def trained_data_of(config: Config, checkpoint: str) -> TrainedData:
    """The data set that a checkpoint has learned. If nothing is recorded, it is the one that `config` names.

    Raises:
      DataError: nothing is recorded, and the description of the present data set cannot be read.
    """
    recorded, present = starts_before(checkpoint), None
    last = recorded[-1] if recorded else None
    info = last.info if last else None
    # The data set may no longer exist.
    with contextlib.suppress(remote.RemoteError, *((DataError,) if info else ())):
        present = description_of(config)
    names = [str(start) for start in recorded]
    earlier = tuple(name for name in dict.fromkeys(names) if name != names[-1])
    changes = changes_between(last, config, present, with_samples=False) if last and present else ()
    if last and last.class_names:
        return TrainedData(info, earlier, '', tuple(last.class_names))
    if changes:
        return TrainedData(info, earlier, _other_data(config, checkpoint, changes))
    unknown = f'{checkpoint} has no record of its classes: names are from {config.source}'
    return TrainedData(info or present, earlier, '' if info or not present else unknown)


def _other_data(config: Config, checkpoint: str, changes: Sequence[str]) -> str:
    return f'{config.source} is not the data set that {checkpoint} has learned: {"; ".join(changes)}'


def changes_between(
    start: Start, config: Config, present: Optional[DatasetInfo], with_samples: bool = True
) -> Tuple[str, ...]:
    """The differences of a data set from that of a start, each as `name: old -> new`. Unknown facts do not count."""
    samples = samples_of(config) if with_samples else {}
    return _changes(start, {'use_data': config.use_data, 'data_format': config.data_format}, present, samples)


def changes_of_start(old: Start, new: Start) -> Tuple[str, ...]:
    """The differences between the data sets of two starts, as from `changes_between`."""
    return _changes(old, new.config, new.info, new.samples or {})


def _changes(
    start: Start, config: Dict[str, Any], present: Optional[DatasetInfo], samples: Dict[str, List[Any]]
) -> Tuple[str, ...]:
    (old, old_format), (new, new_format) = (
        [each.get(name, getattr(Config, name)) for name in ('use_data', 'data_format')]
        for each in (start.config, config)
    )
    if old != new:
        return (f'use_data: {old} -> {new}',)
    changes = [*changed_classes(start, present)]
    fingerprint = present.fingerprint if present else ''
    if start.fingerprint and fingerprint and start.fingerprint != fingerprint:
        changes.append(f'fingerprint: {start.fingerprint[:DIGITS_SHOWN]} -> {fingerprint[:DIGITS_SHOWN]}')
    for split, sample in samples.items():
        before = (start.samples or {}).get(split, sample)
        # Earlier versions recorded a shorter sample. The first value is the number of files.
        different = [pair for pair in zip(before[:3], sample[:3]) if pair[0] != pair[1]]
        divided = before[0] != sample[0] or old_format != new_format
        is_whole = not any((*before[3:], *sample[3:]))
        # Equal fingerprints mean the same images, even in other files.
        if different and not (divided and is_whole and start.fingerprint and start.fingerprint == fingerprint):
            was, now_is = (str(each)[:DIGITS_SHOWN] for each in different[0])
            changes.append(f'{split} files: {was} -> {now_is}')
    if changes and present and start.data_set != present.name:
        changes.insert(0, f'data_set: {shown(start.data_set) or "unnamed"} -> {shown(present.name)}')
    return tuple(changes)


def changed_classes(start: Start, present: Optional[DatasetInfo]) -> Tuple[str, ...]:
    """The first class whose name in a data set differs from its name at a start, as `name: old -> new`."""
    old, new = (info.class_names if info else [] for info in (start.info, present))
    changed = [(label, *pair) for label, pair in enumerate(zip(old, new)) if all(pair) and pair[0] != pair[1]]
    if old and new and not changed and len(old) != len(new):
        return (f'classes: {len(old)} -> {len(new)}',)
    more = f' and {len(changed) - 1} more' if len(changed) > 1 else ''
    return tuple(f'class {label}: {shown(before)} -> {shown(now)}{more}' for label, before, now in changed[:1])


def misplaced_class(names: Sequence[str], others: Sequence[str]) -> str:
    """Describes the first name that two lists have only at different labels; empty if there is none."""
    places: Dict[str, List[int]] = {}
    counts = collections.Counter(names)
    for label, name in enumerate(others):
        places.setdefault(name, []).append(label)
    for label, name in enumerate(names):
        if name in places and label not in places[name] and counts[name] == 1:
            return f'{shown(name)} is class {label} of the weights and class {places[name][0]} of the data set'
    return ''


def check_data_set(config: Config, present: Optional[DatasetInfo], checkpoint: str) -> None:
    """Checks that training resumes on its checkpoint's data set, or that an evaluation's data set has its classes.

    Raises:
      ConfigError: they differ, and `--allow_other_data_set` is not given.
    """
    recorded = starts_before(checkpoint)
    last = recorded[-1] if recorded else None
    if not last or not (last.samples or last.fingerprint or last.config.get('use_data') == 'fake'):
        logger.info('%s has no record of its data set, which cannot be compared with %s', checkpoint, config.source)
        problem = misplaced_class((last and last.class_names) or (), present.class_names if present else ())
        if problem and not config.allow_other_data_set:
            raise ConfigError(
                f'{config.source} has the classes of {checkpoint} in another order: {problem}. Name a data '
                'set with their order with --data_dir, or add --allow_other_data_set.'
            )
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
