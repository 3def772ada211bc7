"""Runs, read from their model_dirs, and the cases that group them."""

import contextlib
import os
import re
import shlex
from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from console.tensorflow_versions import tf
from data import remote
from inception_v3.config import Config
from inception_v3.run import history
from inception_v3.run.files import recorded_config
from inception_v3.run.history import Evaluation, Start, read_unchanged


@dataclass(frozen=True)
class TrainingPoint:
    """The training summaries of a step.

    Attributes:
      step: the global step.
      loss: training loss, including weight decay.
      learning_rate: the learning rate; None if the summaries lack it (--skip_host_call).
      images_per_second: throughput since the previous point; None for the first point of a session.
    """

    step: int
    loss: float
    learning_rate: Optional[float] = None
    images_per_second: Optional[float] = None


@dataclass(frozen=True)
class Run:
    """A run, as recorded in its model_dir.

    Attributes:
      name: name in the report.
      model_dir: the folder.
      command: command line of the last start of training; before the first start the planned one, or None.
      seed: seed in the configuration; None if there is none.
      config: configuration of the last start of training; None before the first start, or if it is damaged.
      evaluations: the last evaluation of each step, in order; without those with other settings than the training's.
      training: points of the training summaries, in the order of the steps.
      environment: versions, revision, host and data set, by name.
      failure: reason of a failure; None if the run has not failed.
    """

    name: str
    model_dir: str
    command: Optional[str]
    seed: Optional[int]
    config: Optional[Config]
    evaluations: Tuple[Evaluation, ...]
    training: Tuple[TrainingPoint, ...]
    environment: Mapping[str, str]
    failure: Optional[str] = None


@dataclass(frozen=True)
class Case:
    """Runs that differ only in their seeds.

    Attributes:
      name: unique in a comparison.
      settings: the flags that distinguish this case, as written on a command line.
      runs: one run per seed, including those that have not started.
    """

    name: str
    settings: Mapping[str, str]
    runs: Tuple[Run, ...]


@dataclass(frozen=True)
class Comparison:
    """The content of a report.

    Attributes:
      title: the title.
      question: the question that the comparison answers; may be empty.
      cases: the cases, in the order of the report.
      notes: further facts, such as the cost: a sentence each.
      report: the metrics to report, the most important first: keys of `METRICS`.
    """

    title: str
    question: str
    cases: Tuple[Case, ...]
    notes: Tuple[str, ...] = ()
    report: Tuple[str, ...] = ('top_1', 'top_5', 'cross_entropy')


@dataclass(frozen=True)
class Metric:
    """The display format of a quantity.

    Attributes:
      label: its name.
      unit: the unit of displayed values; may be empty.
      difference_unit: the unit of displayed differences.
      scale: factor from recorded to displayed values.
      decimals: decimals of displayed values.
      is_better_lower: whether lower values are better.
    """

    label: str
    unit: str
    difference_unit: str
    scale: float
    decimals: int
    is_better_lower: bool = False

    def text(self, value: float, signed: bool = False) -> str:
        """A recorded value as displayed, without its unit."""
        text = f'{self.scale * value:{"+" if signed else ""},.{self.decimals}f}'
        return text.replace('-', '\N{MINUS SIGN}')


# By their names in `results.jsonl`.
METRICS = {
    'top_1': Metric('top-1', '%', 'points', 100, 2),
    'top_5': Metric('top-5', '%', 'points', 100, 2),
    'cross_entropy': Metric('cross-entropy', 'nats', 'nats', 1, 4, is_better_lower=True),
}
LOSS = Metric('training loss', '', '', 1, 4)
THROUGHPUT = Metric('training', 'images/s', 'images/s', 1, 1)


def read_run(model_dir: str, name: str, failure: Optional[str] = None, planned: Optional[str] = None) -> Run:
    """Reads a run, which may not have started or may still be running.

    Args:
      model_dir: its folder, which may be at gs:// or s3://, and may not exist yet.
      name: name in the report.
      failure: the reason of a failure, if the run failed.
      planned: the command line that will start it, if known.
    """
    config = recorded_config(model_dir)
    started = history.read_starts(model_dir)
    return Run(
        name=name,
        model_dir=model_dir,
        command=_command_line(started[-1]) if started else planned,
        seed=config.seed if config else None,
        config=config,
        evaluations=tuple(read_unchanged(model_dir)),
        training=_training(model_dir, config.train_batch_size if config else None),
        environment=_environment(started),
        failure=failure,
    )


def _command_line(start: Start) -> str:
    """The command line of a start, quoted for a shell in the directory where the run started."""
    program, *arguments = start.command
    relative = os.path.relpath(program, start.directory) if os.path.isabs(program) else program
    # `python -m MODULE` records the module's path, and the program inception-v3 its command.
    relative = relative.rpartition('site-packages/')[2]
    if program.startswith('inception-v3 '):
        words = program.split()
    elif relative.endswith('.py') and not relative.startswith('..'):
        words = ['python', '-m', relative[: -len('.py')].replace(os.sep, '.')]
    else:
        words = ['python', program]
    return ' '.join(shlex.quote(word) for word in [*words, *arguments])


def _environment(started: List[Start]) -> Dict[str, str]:
    if not started:
        return {}
    last = started[-1]
    values = {
        **{f'host {name}' if name == 'name' else name: value for name, value in last.host.items()},
        **last.versions,
        'data set': last.data_set,
        'fingerprint': last.fingerprint,
        'directory': last.directory,
        'started': ', '.join(f'step {start.step:,}' for start in started),
    }
    return {name: 'unknown' if value in (None, '') else str(value) for name, value in values.items()}


class _Scalar(NamedTuple):
    """A scalar in an event file, and the session of training that wrote it."""

    time: float
    step: int
    tag: str
    value: float
    session: Tuple[str, int]


def _training(model_dir: str, batch_size: Optional[int]) -> Tuple[TrainingPoint, ...]:
    """The points of the training summaries.

    A session that resumes from a checkpoint repeats the steps after it; its points replace those of the session before.
    """
    kept: Dict[str, List[_Scalar]] = {'loss': [], 'learning_rate': []}
    for scalar in _scalars(model_dir):
        points = kept[scalar.tag]
        while points and points[-1].step >= scalar.step:
            points.pop()
        points.append(scalar)
    rates = {scalar.step: scalar.value for scalar in kept['learning_rate']}
    found = [TrainingPoint(point.step, point.value, rates.get(point.step)) for point in kept['loss']]
    for index, (old, new) in enumerate(zip(kept['loss'], kept['loss'][1:]), start=1):
        if batch_size and old.session == new.session and new.time > old.time:
            images = (new.step - old.step) * batch_size
            found[index] = replace(found[index], images_per_second=images / (new.time - old.time))
    return tuple(found)


# Event files: host call and Estimator write one each, named after the second in which they were opened.
_EVENT_FILE = re.compile(r'events\.out\.tfevents\.\d+\..*')


def _scalars(model_dir: str) -> List[_Scalar]:
    """The losses and learning rates in a folder's event files, in the order of their time."""
    scalars: List[_Scalar] = []
    for name in filter(_EVENT_FILE.fullmatch, remote.names_in(model_dir) or ()):
        session = 0
        # A file ends with a partial event while it is being written, or if its writer was killed.
        with contextlib.suppress(tf.errors.DataLossError):
            for event in tf.train.summary_iterator(os.path.join(model_dir, name)):
                # A file may hold several sessions; each begins with this event.
                session += event.session_log.status == tf.SessionLog.START
                for value in event.summary.value:
                    if value.tag in ('loss', 'learning_rate'):
                        # Summaries of version 1 hold numbers, those of version 2 tensors.
                        is_tensor = value.HasField('tensor')
                        number = float(tf.make_ndarray(value.tensor)) if is_tensor else value.simple_value
                        scalars.append(_Scalar(event.wall_time, event.step, value.tag, number, (name, session)))
    return sorted(scalars)
