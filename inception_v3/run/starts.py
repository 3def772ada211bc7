"""The starts of a run, and its first steps.

starts.jsonl      a line for each start of training: checkpoint, configuration, data set, versions and host
first_steps.json loss and digest of the first steps of a run with a seed, for comparison with a repetition
"""

import contextlib
import dataclasses
import json
import os
import platform
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from compat.log import logger
from compat.messages import shown
from console.json_content import from_json, record
from console.processes import usable_cores
from data.dataset_info import DatasetInfo
from data.files import append_line, read_lines, text_of, write_whole
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import samples_of
from inception_v3.machines import cluster
from inception_v3.model_dir import CONFIG_FILE, differences, latest_checkpoint, now, read_config, step_of
from inception_v3.run import versions

STARTS_FILE, FIRST_STEPS_FILE = 'starts.jsonl', 'first_steps.json'
# The number of recorded steps. A TPU returns to its host every --iterations steps; its first return is always recorded.
FIRST_STEPS = 10
# The settings of a run's devices, machines and data set.
_OF_PLACE = cluster.OF_PLACE | {
    *('use_data', 'data_format', 'image_key', 'label_key', 'label_offset'),
    *('num_train_images', 'num_eval_images'),
}


class Start(NamedTuple):
    """A start of training: a line of `starts.jsonl`.

    Attributes:
      step: the number of steps completed before this start.
      checkpoint: the path of the checkpoint that was resumed, relative to model_dir; empty at step 0.
      time: UTC, ISO 8601.
      command: the program and its arguments.
      directory: the working directory, the base of relative paths.
      config: the fields of the configuration that differ from their defaults.
      data_set, fingerprint: from `dataset.json`; empty without that file.
      versions: the versions of everything that a result depends on (`versions.current`).
      host: the `name` of the machine, its `processor`, and the number of `cores` that this process may use.
      weights: with `--init_from` at step 0, the weights that the run begins from: their `path`, `kind` and `step`, the
        `values` (average or raw), and the `digest` of all variables there; else None.
      description: the content of `dataset.json`; None without that file.
      samples: the samples of the record files, by split (`data_set.samples_of`); None for runs of earlier versions.
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


def this_start(
    config: Config,
    data_set: Optional[DatasetInfo],
    weights: Optional[Dict[str, Any]] = None,
    class_names: Sequence[str] = (),
) -> Start:
    """The record of a start of training now, on this machine, with the origin of weights and class names."""
    model_dir = str(config.model_dir)
    checkpoint = latest_checkpoint(model_dir)
    found = versions.current()
    return Start(
        step=step_of(checkpoint) if checkpoint else 0,
        checkpoint=os.path.relpath(checkpoint, model_dir) if checkpoint else '',
        time=now(),
        command=found.pop('command'),
        directory=os.getcwd(),
        config=not_default(config),
        data_set=data_set.name if data_set else '',
        fingerprint=data_set.fingerprint if data_set else '',
        versions=found,
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


def read_starts(model_dir: str) -> List[Start]:
    """The starts of a run, oldest first. Damaged lines are skipped.

    A start that resumes the checkpoint of step 0 has the weights of the start that saved it.
    """
    starts: List[Start] = []
    for start in read_lines(os.path.join(model_dir, STARTS_FILE), _start_of):
        if starts and start.checkpoint and not start.step and not start.weights:
            start = start._replace(weights=starts[-1].weights)
        starts.append(start)
    return starts


def _start_of(values: Any) -> Start:
    start: Start = record(Start, values)
    problem = start.info and start.info.problem()
    if problem:
        raise ValueError(problem)
    return start


def starts_before(checkpoint: str) -> List[Start]:
    """The starts of training that led to a checkpoint, oldest first; empty if none is recorded."""
    recorded = read_starts(os.path.dirname(checkpoint))
    led: List[Start] = []
    step = step_of(checkpoint) if recorded else 0
    for start in recorded:
        # A start from a step finds that step's checkpoint, and makes the later ones. Imported weights have step 0.
        if start.step < step or not start.checkpoint:
            # This start discards the steps of earlier starts from the same step or a later one.
            led = [*(earlier for earlier in led if earlier.step < start.step), start]
    return led


def config_of(checkpoint: str, newest: Config) -> Config:
    """The configuration with which a checkpoint was trained, given `config.json`, that of its run's newest checkpoint.

    If a run was resumed with other flags, its older checkpoints have the former settings. The data set may have moved
    since, and may have another format: the settings that find and read it are the newest.
    """
    led, recorded = starts_before(checkpoint), read_starts(os.path.dirname(checkpoint))
    if not led or led[-1] == recorded[-1]:
        return newest
    places = {name: getattr(newest, name) for name in _OF_PLACE}
    return dataclasses.replace(Config.from_json(json.dumps(led[-1].config)), **places)


# The versions on which the last bits of training depend.
_OF_BITS = ('tensorflow', 'numpy', 'inception_v3')


def changed_surroundings(config: Config, checkpoint: str) -> Optional[str]:
    """A warning if a run with a seed resumes on other versions or another processor than before; otherwise None."""
    recorded = starts_before(checkpoint) if config.seed is not None else []
    if not recorded:
        return None
    last, present = recorded[-1], versions.current()
    pairs = [(name, last.versions.get(name), present[name]) for name in _OF_BITS]
    pairs.append(('processor', last.host.get('processor'), _processor()))
    changes = [f'{name}: {old} -> {new}' for name, old, new in pairs if old and old != new]
    if not changes:
        return None
    return (
        f'--seed={config.seed}: the run has trained in other surroundings up to step {step_of(checkpoint):,}: '
        f'{"; ".join(changes)}. No run in one of them repeats its bits; to repeat it, restore them'
    )


def append_start(config: Config, start: Start) -> None:
    """Adds a line to `starts.jsonl`, and logs the differences from `config.json`.

    Differences are allowed: users may, for example, resume with more steps.
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
    append_line(os.path.join(model_dir, STARTS_FILE), start._asdict())


def write_config(config: Config) -> None:
    """Writes `config.json`, the settings of the newest checkpoint, into model_dir."""
    write_whole(os.path.join(str(config.model_dir), CONFIG_FILE), config.to_json())


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
