"""Records each start of training in `starts.jsonl`: checkpoint, configuration, data set, versions and host."""

import dataclasses
import os
import platform
from typing import Any, Dict, List, NamedTuple, Optional

from console import json_content
from console.log import logger
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.json_lines import append_line, read_lines
from inception_v3.config import Config, ConfigError, differences
from inception_v3.data_set import samples_of
from inception_v3.run import source
from inception_v3.run.checkpoints import latest_checkpoint, step_of
from inception_v3.run.files import BEST_FOLDER, CONFIG_FILE, now, read_config, recorded_config

STARTS_FILE = 'starts.jsonl'


class Start(NamedTuple):
    """A start of training: a line of `starts.jsonl`.

    Attributes:
      step: the number of steps completed before.
      checkpoint: the path of the checkpoint that was resumed, relative to model_dir; empty at step 0.
      time: UTC, ISO 8601.
      command: the program and its arguments.
      directory: the working directory, the base of relative paths.
      config: the fields of the configuration that differ from their defaults.
      data_set: the name of the data set in `dataset.json`; empty without that file.
      fingerprint: the fingerprint of the data set in `dataset.json`; empty without that file.
      versions: the versions of everything that a result depends on (`source.versions`).
      host: the `name` of the machine, its `processor`, and the number of `cores` that this process may use.
      weights: with `--init_from` at step 0, the weights that the run begins from: their `path`, `kind` and `step`, the
        `values` (average or raw), and the `digest` of all variables there; else None.
      description: the content of `dataset.json`, with the names of the classes; None without that file.
      samples: the samples of the record files, by split (`data_set.samples_of`); None of runs that an
        earlier version started.
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

    @property
    def info(self) -> Optional[DatasetInfo]:
        """The description of the data set; None if there was none, or an earlier version started the run."""
        return DatasetInfo(**self.description) if self.description else None


def with_settled_threads(config: Config) -> Config:
    """Sets the number of CPU threads of a run with a seed: the number of its first start, or one per core.

    Operations divide sums among threads, so a different number of threads changes the last bits of results.
    """
    if config.seed is None or config.intra_op_threads:
        return config
    first = recorded_config(str(config.model_dir)) if config.model_dir else None
    threads = first.intra_op_threads if first and first.seed is not None else 0
    return dataclasses.replace(config, intra_op_threads=threads or len(os.sched_getaffinity(0)))


def this_start(config: Config, data_set: Optional[DatasetInfo], weights: Optional[Dict[str, Any]] = None) -> Start:
    """The record of a start of training now, on this machine; the arguments are those of `record`."""
    model_dir = str(config.model_dir)
    checkpoint = latest_checkpoint(model_dir)
    versions = source.versions()
    command = versions.pop('command')
    return Start(
        step=step_of(checkpoint) if checkpoint else 0,
        checkpoint=os.path.relpath(checkpoint, model_dir) if checkpoint else '',
        time=now(),
        command=command,
        directory=os.getcwd(),
        config=not_default(config),
        data_set=data_set.name if data_set else '',
        fingerprint=data_set.fingerprint if data_set else '',
        versions=versions,
        host=this_host(),
        weights=weights,
        description=dataclasses.asdict(data_set) if data_set else None,
        samples=samples_of(config),
    )


def not_default(config: Config) -> Dict[str, Any]:
    """The fields of a configuration that differ from their defaults."""
    default = Config()
    values = dataclasses.asdict(config)
    return {name: value for name, value in values.items() if value != getattr(default, name)}


def this_host() -> Dict[str, Any]:
    """The `name` of this machine, its `processor`, and the number of `cores` that this process may use."""
    return {'name': platform.node(), 'processor': _processor(), 'cores': len(os.sched_getaffinity(0))}


def _processor() -> str:
    try:
        with open('/proc/cpuinfo') as file:
            names = [line.partition(':')[2].strip() for line in file if line.startswith('model name')]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def read(model_dir: str) -> List[Start]:
    """The starts of a run, oldest first. Damaged lines are skipped."""
    return read_lines(os.path.join(model_dir, STARTS_FILE), _start_of)


def _start_of(values: Any) -> Start:
    start: Start = json_content.record(Start, values)
    problem = start.info and start.info.problem()
    if problem:
        raise ValueError(problem)
    return start


def before(checkpoint: str) -> List[Start]:
    """The starts of training that led to a checkpoint, oldest first; empty if none is recorded.

    Beside a checkpoint in a folder `best` is a copy of the record. Earlier versions kept it in the run around it alone.
    """
    folder = os.path.dirname(checkpoint)
    outer = os.path.dirname(folder)
    recorded = read(folder) or (read(os.path.dirname(outer)) if os.path.basename(outer) == BEST_FOLDER else [])
    # A start from a step sees that step's checkpoint, and makes the later ones. Imported weights are of step 0.
    past = [start for start in recorded if start.step < max(step_of(checkpoint), 1)]
    anew = [number for number, start in enumerate(past) if not start.step]
    return past[anew[-1] :] if anew else past


def record(config: Config, data_set: Optional[DatasetInfo], weights: Optional[Dict[str, Any]] = None) -> None:
    """Writes `config.json` into model_dir, and adds a line to `starts.jsonl`.

    If `config.json` exists, it is replaced, and the differences are logged: users may resume with more steps, for
    example.

    Args:
      config: the configuration of the run.
      data_set: the description of the data set, if it has one.
      weights: the origin of the weights that the run begins from, as in `Start`; None without them.
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
    append_line(os.path.join(model_dir, STARTS_FILE), this_start(config, data_set, weights)._asdict())
