"""A run's records of itself: its starts, its first steps, its evaluations, and the data set that it has learned.

starts.jsonl      a line for each start of training: checkpoint, configuration, data set, versions and host
first_steps.json  loss and digest of the first steps of a run with a seed, to compare a repetition with
results.jsonl     a line for each evaluation
"""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import platform
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from compat import tf
from compat.log import logger
from compat.messages import shown
from console import outputs
from console.json_content import from_json, record, sealed, unsealed
from console.processes import usable_cores
from data import remote
from data.dataset_info import DIGITS_SHOWN, DatasetInfo
from data.files import append_line, read_lines, text_of, write_whole
from data.records import DataError
from inception_v3.config import Config, ConfigError, differences
from inception_v3.data_set import description_of, samples_of
from inception_v3.model_dir import digest_of_values as digest_of_values
from inception_v3.run import source
from inception_v3.run.checkpoints import latest_checkpoint, step_of
from inception_v3.run.files import CONFIG_FILE, now, read_config, recorded_config

STARTS_FILE, FIRST_STEPS_FILE, RESULTS_FILE = 'starts.jsonl', 'first_steps.json', 'results.jsonl'
# The number of recorded steps. A TPU returns to its host every --iterations steps; its first return is always recorded.
FIRST_STEPS = 10
# The relative error of an accuracy that was computed in float32, with a margin.
_FLOAT32_ERROR = 1e-6
# The fields of a configuration that the probabilities of an evaluated image depend on, besides the weights.
OF_MODEL = (
    'num_classes',
    'preprocessing',
    'height',
    'width',
    'network',
    'depth_multiplier',
    'precision',
    'transfer',
    'moving_average',
)
# The settings that change the result of an evaluation.
DECIDING = (
    *OF_MODEL,
    'use_data',
    'data_dir',
    'data_format',
    'eval_files',
    'image_key',
    'label_key',
    'label_offset',
    'num_eval_images',
    'eval_total_size',
    'max_bad_records',
)


# Digests: SHA-256 of the variables of a checkpoint or of a step, and of a checkpoint's index.


def digest_of_index(checkpoint: str) -> str:
    """The digest of a checkpoint's index, which has a checksum of each variable; empty if the checkpoint is gone."""
    index = remote.read(f'{checkpoint}.index')
    return hashlib.sha256(index).hexdigest() if index else ''


def digest_of_checkpoint(checkpoint: str) -> str:
    """The digest of all variables in a checkpoint. It equals `digest_of_values` of what was saved."""
    reader = tf.train.load_checkpoint(checkpoint)
    return digest_of_values({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})


# Starts.


class Start(NamedTuple):
    """A start of training: a line of `starts.jsonl`.

    Attributes:
      step: the number of steps completed before.
      checkpoint: the path of the checkpoint that was resumed, relative to model_dir; empty at step 0.
      time: UTC, ISO 8601.
      command: the program and its arguments.
      directory: the working directory, the base of relative paths.
      config: the fields of the configuration that differ from their defaults.
      data_set, fingerprint: of `dataset.json`; empty without that file.
      versions: the versions of everything that a result depends on (`source.versions`).
      host: the `name` of the machine, its `processor`, and the number of `cores` that this process may use.
      weights: with `--init_from` at step 0, the weights that the run begins from: their `path`, `kind` and `step`, the
        `values` (average or raw), and the `digest` of all variables there; else None.
      description: the content of `dataset.json`; None without that file.
      samples: the samples of the record files, by split (`data_set.samples_of`); None of runs of earlier versions.
      class_names: the names of the classes of imported weights, by label; None without names.
    """

    step: int
    checkpoint: str
    time: str
    command: List[str]
    directory: str
    config: Dict[str, Any]
    data_set: str
    fingerprint: str
    versions: Dict[str, Any]
    host: Dict[str, Any]
    weights: Optional[Dict[str, Any]] = None
    description: Optional[Dict[str, Any]] = None
    samples: Optional[Dict[str, List[Any]]] = None
    class_names: Optional[List[str]] = None

    @property
    def info(self) -> Optional[DatasetInfo]:
        """The description of the data set; None if there was none, or an earlier version started the run."""
        return DatasetInfo(**self.description) if self.description else None

    def __str__(self) -> str:
        """The data set, in words."""
        info = self.info
        images = f'{info.train_images:,} training and {info.validation_images:,} validation images, ' if info else ''
        origin = f': {shown(info.source)}; ' if info else ', '
        name = shown(self.data_set) or 'unnamed'
        return f'{name}{origin}{images}fingerprint {self.fingerprint or "unknown"}'


def with_settled_threads(config: Config) -> Config:
    """Sets the number of CPU threads of a run with a seed: the number of its first start, or one per core.

    Operations divide sums among threads, so a different number of threads changes the last bits of results.
    """
    if config.seed is None or config.intra_op_threads:
        return config
    first = recorded_config(str(config.model_dir)) if config.model_dir else None
    threads = first.intra_op_threads if first and first.seed is not None else 0
    return dataclasses.replace(config, intra_op_threads=threads or usable_cores())


def this_start(
    config: Config,
    data_set: Optional[DatasetInfo],
    weights: Optional[Dict[str, Any]] = None,
    class_names: Sequence[str] = (),
) -> Start:
    """The record of a start of training now, on this machine; the arguments are those of `write_start`."""
    model_dir = str(config.model_dir)
    checkpoint = latest_checkpoint(model_dir)
    versions = source.versions()
    return Start(
        step=step_of(checkpoint) if checkpoint else 0,
        checkpoint=os.path.relpath(checkpoint, model_dir) if checkpoint else '',
        time=now(),
        command=versions.pop('command'),
        directory=os.getcwd(),
        config=not_default(config),
        data_set=data_set.name if data_set else '',
        fingerprint=data_set.fingerprint if data_set else '',
        versions=versions,
        host={'name': platform.node(), 'processor': _processor(), 'cores': usable_cores()},
        weights=weights,
        description=dataclasses.asdict(data_set) if data_set else None,
        samples=samples_of(config),
        class_names=[*class_names] or None,
    )


def not_default(config: Config) -> Dict[str, Any]:
    """The fields of a configuration that differ from their defaults."""
    default = Config()
    return {name: value for name, value in dataclasses.asdict(config).items() if value != getattr(default, name)}


def _processor() -> str:
    try:
        with open('/proc/cpuinfo') as file:
            names = [line.partition(':')[2].strip() for line in file if line.startswith('model name')]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def check_places(model_dir: str) -> None:
    """Raises CommandError, before hours of training, if a run cannot write its records: one of them is a folder."""
    for name in (STARTS_FILE, FIRST_STEPS_FILE, RESULTS_FILE):
        outputs.replaceable(os.path.join(model_dir, name))


def read_starts(model_dir: str) -> List[Start]:
    """The starts of a run, oldest first. Damaged lines are skipped."""
    return read_lines(os.path.join(model_dir, STARTS_FILE), _start_of)


def _start_of(values: Any) -> Start:
    start: Start = record(Start, values)
    problem = start.info and start.info.problem()
    if problem:
        raise ValueError(problem)
    return start


def starts_before(checkpoint: str) -> List[Start]:
    """The starts of training that led to a checkpoint, oldest first; empty if none is recorded."""
    recorded = read_starts(os.path.dirname(checkpoint))
    # A start from a step sees that step's checkpoint, and makes the later ones. Imported weights are of step 0.
    past = [start for start in recorded if start.step < max(step_of(checkpoint), 1)]
    anew = [number for number, start in enumerate(past) if not start.step]
    return past[anew[-1] :] if anew else past


# The versions on which the last bits of training depend.
_OF_BITS = ('tensorflow', 'numpy', 'inception_v3')


def changed_surroundings(config: Config) -> Optional[str]:
    """A warning if a run with a seed resumes on other versions or another processor than it has trained on; or None."""
    checkpoint = latest_checkpoint(str(config.model_dir)) if config.seed is not None else None
    recorded = starts_before(checkpoint) if checkpoint else []
    if not recorded:
        return None
    last, present = recorded[-1], source.versions()
    pairs = [(name, last.versions.get(name), present[name]) for name in _OF_BITS]
    pairs.append(('processor', last.host.get('processor'), _processor()))
    changes = [f'{name}: {old} -> {new}' for name, old, new in pairs if old and old != new]
    if not changes:
        return None
    return (
        f'--seed={config.seed}: the run has trained in other surroundings up to step {step_of(str(checkpoint)):,}: '
        f'{"; ".join(changes)}. No run in one of them repeats its bits; to repeat it, restore them'
    )


def write_start(
    config: Config,
    data_set: Optional[DatasetInfo],
    weights: Optional[Dict[str, Any]] = None,
    class_names: Sequence[str] = (),
) -> None:
    """Writes `config.json` into model_dir, and adds a line to `starts.jsonl`.

    An old `config.json` is replaced, and the differences are logged: users may resume with more steps, for example.
    """
    model_dir = str(config.model_dir)
    path = os.path.join(model_dir, CONFIG_FILE)
    try:
        old = read_config(model_dir)
        changed = differences(old, config) if old else []
        if changed:
            logger.info('the configuration differs from %s: %s', path, '; '.join(changed))
    except ConfigError as error:
        logger.info('replacing a damaged file: %s', error)
    write_whole(path, config.to_json())
    append_line(os.path.join(model_dir, STARTS_FILE), this_start(config, data_set, weights, class_names)._asdict())


# First steps.


class FirstStep(NamedTuple):
    """The number of completed steps, the loss of the last one, and the digest of all variables after it."""

    step: int
    loss: float
    digest: str


def read_first_steps(model_dir: str) -> List[FirstStep]:
    """The recorded first steps of a run; empty if there are none, or the file is damaged."""
    with contextlib.suppress(ValueError):
        text = text_of(os.path.join(model_dir, FIRST_STEPS_FILE))
        return from_json(text, lambda steps: [record(FirstStep, step) for step in steps])
    return []


def write_first_steps(model_dir: str, steps: Sequence[FirstStep]) -> None:
    """Replaces the recorded first steps."""
    text = json.dumps([step._asdict() for step in steps], indent=2) + '\n'
    write_whole(os.path.join(model_dir, FIRST_STEPS_FILE), text)


# Evaluations.


class Evaluation(NamedTuple):
    """One evaluation: a line of `results.jsonl`.

    Attributes:
      step: the global step of the checkpoint.
      checkpoint: the name of the checkpoint in model_dir.
      weights: 'average' or 'raw'.
      top_1: the fraction of images whose label is the most likely class.
      top_5: the fraction of images whose label is among the five most likely classes.
      cross_entropy: the mean over the images, in nats, without label smoothing.
      images: the number of images; each is evaluated once.
      seconds: the duration, including the time to build the graph.
      time: the end of the evaluation in UTC, ISO 8601.
      changed: the settings and the properties of the data set that differ from training's, as `name: old -> new`.
      data_set, fingerprint: of `dataset.json`; empty without that file.
      digest: of the checkpoint (`digest_of_index`); empty of an evaluation by an earlier version.
    """

    step: int
    checkpoint: str
    weights: str
    top_1: float
    top_5: float
    cross_entropy: float
    images: int
    seconds: float
    time: str
    changed: Tuple[str, ...] = ()
    data_set: str = ''
    fingerprint: str = ''
    digest: str = ''

    @property
    def identity(self) -> Tuple[str, str, int, str, Tuple[str, ...]]:
        """The inputs of the evaluation. Evaluations with equal identities have equal scores."""
        return self.digest, self.weights, self.images, self.fingerprint, self.changed

    def contradiction(self) -> Optional[str]:
        """The reason why no evaluation can have these scores; None if one can."""
        for name in ('top_1', 'top_5'):
            score = getattr(self, name)
            right = score * self.images
            if not 0 <= score <= 1 or abs(right - round(right)) > _FLOAT32_ERROR * self.images:
                return f'{name} is {score}, which is no number of {self.images:,} images'
        return 'top_1 is above top_5' if self.top_1 > self.top_5 else None

    def differences_of_kind(self, other: 'Evaluation') -> List[str]:
        """The differences that make another evaluation incomparable with this one, each as `name: old -> new`."""
        names = ('weights', 'images', 'data_set', 'fingerprint', 'changed')
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f'{name}: {before or "none"} -> {after or "none"}' for name, before, after in pairs if before != after]


def evaluation_of(
    config: Config,
    data_set: Optional[DatasetInfo],
    checkpoint: str,
    digest: str,
    metrics: Dict[str, Any],
    seconds: float,
) -> Evaluation:
    """The record of an evaluation that ends now; `digest` is that of the checkpoint before it."""
    return Evaluation(
        step=step_of(checkpoint),
        checkpoint=os.path.basename(checkpoint),
        weights=config.evaluated_weights,
        top_1=float(metrics['top_1']),
        top_5=float(metrics['top_5']),
        cross_entropy=float(metrics['cross_entropy']),
        images=int(metrics['images']),
        seconds=round(seconds, 3),
        time=now(),
        changed=changed_since_training(config, data_set, checkpoint),
        data_set=data_set.name if data_set else '',
        fingerprint=data_set.fingerprint if data_set else '',
        digest=digest,
    )


def shows_top_5(num_classes: int) -> bool:
    """Whether texts show the top-5 accuracy: there are more than five classes besides the background."""
    return num_classes > 6


def changed_since_training(config: Config, data_set: Optional[DatasetInfo], checkpoint: str) -> Tuple[str, ...]:
    """The differences of an evaluation's settings and data set from those that a checkpoint was trained with.

    Settings that do not affect the result, and whatever is not recorded beside the checkpoint, do not differ.
    """
    trained, recorded = recorded_config(os.path.dirname(checkpoint)), starts_before(checkpoint)
    changes = [each for each in differences(trained, config) if each.split(':')[0] in DECIDING] if trained else []
    changes += changes_between(recorded[-1], config, data_set) if recorded else ()
    return tuple(dict.fromkeys(changes))


def shortfall(config: Config, evaluation: Evaluation, skipped: int) -> Optional[str]:
    """A sentence if an evaluation has other images than its configuration says, besides the skipped ones; or None."""
    if evaluation.images + skipped == config.eval_images:
        return None
    flag = 'eval_total_size' if config.eval_total_size else 'num_eval_images'
    return f'{evaluation.images:,} images were evaluated, and {config.eval_images:,} were expected (--{flag})'


def append_evaluation(model_dir: str, evaluation: Evaluation) -> None:
    """Adds a line to `results.jsonl`."""
    append_line(os.path.join(model_dir, RESULTS_FILE), sealed(evaluation._asdict()))


def read_evaluations(model_dir: str) -> List[Evaluation]:
    """The evaluations in `results.jsonl`, oldest first. Damaged lines are skipped."""
    return evaluations_in(os.path.join(model_dir, RESULTS_FILE))


def read_unchanged(model_dir: str) -> List[Evaluation]:
    """The last evaluation of each step with training's own settings, in the order of the steps."""
    of_step = {evaluation.step: evaluation for evaluation in read_evaluations(model_dir) if not evaluation.changed}
    return [of_step[step] for step in sorted(of_step)]


def evaluations_in(path: str) -> List[Evaluation]:
    """The evaluations in a file, a line each. Lines that are damaged or were changed are skipped and logged."""
    return read_lines(path, evaluation_in)


def evaluation_in(values: Dict[str, Any]) -> Evaluation:
    """The evaluation with these values in JSON; raises an error of `from_json` if they are damaged or were changed."""
    content, has_digest = unsealed(values)
    made = record(Evaluation, {**content, 'changed': tuple(content.get('changed', ()))})
    datetime.datetime.fromisoformat(made.time)
    # Those of earlier versions have no digest.
    problem = None if has_digest else made.contradiction()
    if problem:
        raise ValueError(problem)
    return made


# The data set that a checkpoint has learned.


class TrainedData(NamedTuple):
    """The data set that a checkpoint has learned, and the earlier ones that it left with `--allow_other_data_set`.

    A note says that another data set is in its place now, or that nothing is recorded. Imported weights may have names
    of classes without a data set.
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
    """The data set that a checkpoint has learned. Where nothing is recorded, it is the one that `config` names.

    Raises:
      DataError: nothing is recorded, and the description of the present data set cannot be read.
    """
    recorded, present = starts_before(checkpoint), None
    last = recorded[-1] if recorded else None
    info = last.info if last else None
    # The data set may be gone.
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
    """The differences of a data set from that of a start, each as `name: old -> new`. The unknown does not differ."""
    samples = samples_of(config) if with_samples else {}
    return _changes(start, {'use_data': config.use_data, 'data_format': config.data_format}, present, samples)


def changes_of_start(old: Start, new: Start) -> Tuple[str, ...]:
    """The differences of the data set of a start from that of another, as of `changes_between`."""
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
        # Equal fingerprints are of the same images, also in other files.
        if different and not (divided and is_whole and start.fingerprint and start.fingerprint == fingerprint):
            was, now_is = (str(each)[:DIGITS_SHOWN] for each in different[0])
            changes.append(f'{split} files: {was} -> {now_is}')
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


def misplaced_class(names: Sequence[str], others: Sequence[str]) -> str:
    """The first name that two lists have at different labels alone, in words; empty if there is none."""
    places: Dict[str, List[int]] = {}
    for label, name in enumerate(others):
        places.setdefault(name, []).append(label)
    for label, name in enumerate(names):
        if name in places and label not in places[name] and names.count(name) == 1:
            return f'{shown(name)} is class {label} of the weights and class {places[name][0]} of the data set'
    return ''


def check_data_set(config: Config, present: Optional[DatasetInfo], checkpoint: str) -> None:
    """Checks that training resumes on its checkpoint's data set, and evaluation on one with the same classes.

    Raises:
      ConfigError: they are others, and `--allow_other_data_set` is not given.
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
