"""Runs as a report sees them: what each has left in its model_dir, and the cases that they are repetitions of."""

import os
import re
import shlex
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import tensorflow as tf

from data import remote
from inception_v3.config import Config
from inception_v3.model_dir import starts
from inception_v3.model_dir.evaluations import Evaluation, read_unchanged
from inception_v3.model_dir.files import recorded_config
from inception_v3.model_dir.starts import Start


@dataclass(frozen=True)
class TrainingPoint:
    """What the training summaries tell of a step.

    Attributes:
      step: the global step.
      loss: of the training, weight decay included.
      learning_rate: None if it is left out of the summaries (--skip_host_call).
      images_per_second: of the steps since the point before; None for the first one of a session.
    """

    step: int
    loss: float
    learning_rate: Optional[float] = None
    images_per_second: Optional[float] = None


@dataclass(frozen=True)
class Run:
    """A run, as far as its model_dir tells.

    Attributes:
      name: what it is called in a report.
      model_dir: the folder.
      command: the command line of the last start of training; before there is one, that which is planned, if any.
      seed: of the configuration; None if there is none.
      config: of the last start of training; None before there is one, or if it cannot be read.
      evaluations: a step's last one, in the order of the steps; those with other settings than the training's are left
        out.
      training: in the order of the steps.
      environment: by name: versions, revision, host, data.
      failure: why it failed; None if it did not.
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
    """Runs that differ by their seeds alone.

    Attributes:
      name: unique in a comparison.
      settings: the flags that make it another case, as written on a command line.
      runs: a run per seed; those that have not begun are there too.
    """

    name: str
    settings: Mapping[str, str]
    runs: Tuple[Run, ...]


@dataclass(frozen=True)
class Comparison:
    """What a report is of.

    Attributes:
      title: a few words.
      question: what the comparison is to answer, one sentence or more; may be empty.
      cases: in the order in which they are shown.
      notes: what else a reader is to know, such as the cost: a sentence each.
      report: the metrics of an evaluation that are reported, the foremost first: names of `METRICS`.
    """

    title: str
    question: str
    cases: Tuple[Case, ...]
    notes: Tuple[str, ...] = ()
    report: Tuple[str, ...] = ('top_1', 'top_5', 'cross_entropy')


@dataclass(frozen=True)
class Metric:
    """A number of an evaluation, as people are shown it.

    Attributes:
      label: what it is called.
      unit: of what is shown, behind a number; empty if there is none.
      difference_unit: the same of a difference of two.
      scale: what is shown is the number times this.
      decimals: of what is shown.
    """

    label: str
    unit: str
    difference_unit: str
    scale: float
    decimals: int

    def text(self, value: float, signed: bool = False) -> str:
        """A value as it is shown, without its unit."""
        text = f'{self.scale * value:{"+" if signed else ""},.{self.decimals}f}'
        return text.replace('-', '\N{MINUS SIGN}')


# By the name that they have in `results.jsonl`.
METRICS = {
    'top_1': Metric('top-1', '%', 'points', 100, 2),
    'top_5': Metric('top-5', '%', 'points', 100, 2),
    'cross_entropy': Metric('cross-entropy', 'nats', 'nats', 1, 4),
}
LOSS = Metric('training loss', '', '', 1, 4)
THROUGHPUT = Metric('training', 'images/s', 'images/s', 1, 1)


def read_run(model_dir: str, name: str, failure: Optional[str] = None, planned: Optional[str] = None) -> Run:
    """Reads what a run has left; one that has not begun, or goes on, has left nothing, or less.

    Args:
      model_dir: its folder, which may be at gs:// or s3://, and may not be there yet.
      name: what it is to be called.
      failure: why it failed, if that is known to have happened.
      planned: the command line that is to start it, if that is known.

    Raises:
      RemoteError: something is refused, or cannot be reached.
    """
    config = recorded_config(model_dir)
    begun = starts.read(model_dir)
    return Run(
        name=name,
        model_dir=model_dir,
        command=_command_line(begun[-1]) if begun else planned,
        seed=config.seed if config else None,
        config=config,
        evaluations=tuple(read_unchanged(model_dir)),
        training=_training(model_dir, config.train_batch_size if config else None),
        environment=_environment(begun),
        failure=failure,
    )


def _command_line(start: Start) -> str:
    """What a shell is to be given, in the folder where the run began."""
    program, *arguments = start.command
    relative = os.path.relpath(program, start.directory) if os.path.isabs(program) else program
    # `python -m` puts the module's path first.
    if relative.endswith('.py') and not relative.startswith('..'):
        words = ['python', '-m', relative[: -len('.py')].replace(os.sep, '.')]
    else:
        words = ['python', program]
    return ' '.join(shlex.quote(word) for word in [*words, *arguments])


def _environment(begun: List[Start]) -> Dict[str, str]:
    if not begun:
        return {}
    last = begun[-1]
    values = {
        **{f'host {name}' if name == 'name' else name: value for name, value in last.host.items()},
        **last.versions,
        'data set': last.data_set,
        'fingerprint': last.fingerprint,
        'directory': last.directory,
        'started': ', '.join(f'step {start.step:,}' for start in begun),
    }
    return {name: 'unknown' if value in (None, '') else str(value) for name, value in values.items()}


class _Scalar(NamedTuple):
    """A number in an event file, and the session of training that wrote it."""

    time: float
    step: int
    tag: str
    value: float
    session: Tuple[str, int]


def _training(model_dir: str, batch_size: Optional[int]) -> Tuple[TrainingPoint, ...]:
    """The points of the training summaries.

    A session that goes on from a checkpoint makes the steps after it again: its points replace those of the session
    before from there on.

    Args:
      model_dir: the folder.
      batch_size: images per step, if known.
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


# Estimator's event files: host call and Estimator write one each, of the name of the second when they were begun.
_EVENT_FILE = re.compile(r'events\.out\.tfevents\.\d+\..*')


def _scalars(model_dir: str) -> List[_Scalar]:
    """The loss and learning rate in a folder's event files, in the order in which they were written."""
    names = [name for name in remote.names_in(model_dir) or () if _EVENT_FILE.fullmatch(name)]
    return sorted(scalar for name in names for scalar in _scalars_of(model_dir, name))


def _scalars_of(model_dir: str, name: str) -> Iterator[_Scalar]:
    session = 0
    try:
        for event in tf.compat.v1.train.summary_iterator(os.path.join(model_dir, name)):
            # Of several sessions in one file, each begins so.
            session += event.session_log.status == tf.compat.v1.SessionLog.START
            for value in event.summary.value:
                if value.tag in ('loss', 'learning_rate'):
                    yield _Scalar(event.wall_time, event.step, value.tag, _number_of(value), (name, session))
    except tf.errors.DataLossError:
        # A file that is being written, or whose writer was killed, ends in half an event.
        return


def _number_of(value: Any) -> float:
    # The first version of summaries has numbers, the second tensors.
    return float(tf.make_ndarray(value.tensor)) if value.HasField('tensor') else value.simple_value
