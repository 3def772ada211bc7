"""The content of a report: a comparison has cases, which have runs, which have values by step."""

import contextlib
import dataclasses
import os
import re
import shlex
from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from compat import tf
from compat.messages import listed
from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.machines.cluster import OF_PLACE
from inception_v3.model_dir import CONFIG_FILE, read_config, recorded_config
from inception_v3.run.evaluations import Evaluation, read_unchanged, shows_top_5
from inception_v3.run.starts import Start, read_starts
from inception_v3.run.trained_data import changes_of_start
from tools.evaluate_report import predictions
from tools.evaluate_report.predictions import Predictions
from tools.studies.report.statistics import Estimate, Summary, share

# Maximum number of points in a run's loss curve: more would overlap in the figure, and make the page large.
LOSS_POINTS = 300
# The most characters of a case's name: a few lines in a figure.
_LONGEST_NAME = 80
# Settings that may differ between the runs of a case: the seed, the place of a run, and the number of threads, which
# affects only the last bits of a sum.
_NOT_COMPARED = OF_PLACE | {'seed', 'intra_op_threads'}
# These settings identify the data of a run if nothing else does.
_PATHS_OF_DATA = {'data_dir', 'train_files', 'eval_files'}
_NO_VALUE = '–'


@dataclass(frozen=True)
class Metric:
    """A quantity of a run, and the format of its values; `scale` is the factor from recorded values to these."""

    label: str
    unit: str
    difference_unit: str
    decimals: int
    scale: float = 1
    # The value of a perfect run, which none exceeds; 0 if a lower value is better.
    best: float = 0

    @property
    def heading(self) -> str:
        """The label with the unit."""
        return f'{self.label}, {self.unit}' if self.unit else self.label

    def text(self, value: float, sign: str = '') -> str:
        """A value without its unit; with the sign '+', positive values have a sign, too."""
        return f'{value:{sign},.{self.decimals}f}'.replace('-', '\N{MINUS SIGN}')

    def mean(self, summary: Summary) -> str:
        """A mean ± the standard deviation, without the unit."""
        if not summary.n:
            return _NO_VALUE
        return self.text(summary.mean) + (f' ± {self.text(summary.deviation)}' if summary.n > 1 else '')

    def share(self, fraction: float, images: int) -> str:
        """An accuracy of images with its interval, without the unit."""
        return self.estimate(Estimate(*(self.scale * each for each in share(fraction, images))))

    def estimate(self, estimate: Optional[Estimate], sign: str = '') -> str:
        """An estimate with its interval, without the unit."""
        if not estimate:
            return _NO_VALUE
        value, *ends = (self.text(each, sign) for each in estimate)
        return f'{value} [{", ".join(ends)}]' if np.isfinite(estimate.low) else value


# By their names in `results.jsonl`.
METRICS = {
    'top_1': Metric('top-1', '%', 'points', 2, 100, best=100),
    'top_5': Metric('top-5', '%', 'points', 2, 100, best=100),
    'cross_entropy': Metric('cross-entropy', 'nats', 'nats', 4),
}
LOSS = Metric('training loss', '', '', 4)
THROUGHPUT = Metric('training', 'images/s', 'images/s', 1)


class TrainingPoint(NamedTuple):
    """The loss of a step, with weight decay, and the throughput since the previous point of the session, if any."""

    step: int
    loss: float
    images_per_second: Optional[float] = None


@dataclass(frozen=True)
class Run:
    """A run, as recorded in its model_dir."""

    name: str
    # From the last start of training; before the first start, the planned command and no configuration.
    command: Optional[str]
    config: Optional[Config]
    # The last evaluation of each step, in order, without evaluations whose settings differ from the training's.
    evaluations: Tuple[Evaluation, ...]
    training: Tuple[TrainingPoint, ...]
    # Versions, revision, host and data set, by name.
    environment: Mapping[str, str]
    # The reason, if the run has failed.
    failure: Optional[str] = None
    # The predictions of the last evaluation, if its report is in the model_dir.
    predictions: Optional[Predictions] = None
    starts: Tuple[Start, ...] = ()
    # The name of an earlier run of the case with the same weights or the same first start, which counts instead.
    copy_of: str = ''

    @property
    def seed(self) -> Optional[int]:
        """The seed; None if there is none, or before the first start."""
        return self.config.seed if self.config else None

    @property
    def is_finished(self) -> bool:
        """Whether the last step has been evaluated; a later failure, such as of the export, does not change that.

        A copy of another run is never finished, so that it does not count.
        """
        is_at_end = self.config and self.evaluations and self.evaluations[-1].step >= self.config.train_steps
        return bool(is_at_end and not self.copy_of)

    @property
    def state(self) -> str:
        """The progress, in words."""
        if self.is_finished:
            return 'finished'
        if self.copy_of:
            return f'not counted: a copy of {self.copy_of}'
        steps = [evaluation.step for evaluation in self.evaluations] + [point.step for point in self.training]
        if not self.config:
            progress = 'not started'
        elif not steps:
            progress = f'started, of {self.config.train_steps:,} steps'
        else:
            progress = f'at step {max(steps):,} of {self.config.train_steps:,}'
        return f'failed, {progress}' if self.failure else progress

    def values(self, name: str) -> Dict[int, float]:
        """The values of a metric by step, in its unit."""
        return {each.step: METRICS[name].scale * getattr(each, name) for each in self.evaluations}

    def is_copy_of(self, other: 'Run') -> bool:
        """Whether a run with the same settings has the same last weights as another, or began with the same start."""
        ours, theirs = (run.evaluations[-1].digest if run.evaluations else '' for run in (self, other))
        return bool(ours == theirs != '' or (self.starts and self.starts[:1] == other.starts[:1]))

    @property
    def tensorflow(self) -> str:
        """The versions of TensorFlow that trained it, in order; empty if none is recorded."""
        versions = [start.versions.get('tensorflow') for start in self.starts]
        return ', '.join(dict.fromkeys(str(version) for version in versions if version))

    @property
    def losses(self) -> Dict[int, float]:
        """The mean training loss of each span of steps, by the last step of the span that has a summary."""
        spans: Dict[int, List[TrainingPoint]] = {}
        for point in self.training:
            last = self.config.train_steps if self.config else self.training[-1].step
            spans.setdefault(point.step // max(1, -(-last // LOSS_POINTS)), []).append(point)
        return {points[-1].step: sum(point.loss for point in points) / len(points) for points in spans.values()}


@dataclass(frozen=True)
class Case:
    """Runs that differ only in their seeds, and the flags that distinguish them, as written on a command line."""

    name: str
    settings: Mapping[str, str]
    runs: Tuple[Run, ...]

    @property
    def counted(self) -> List[Run]:
        """The runs without copies of others."""
        return [run for run in self.runs if not run.copy_of]

    @property
    def by_key(self) -> Dict[object, Run]:
        """The runs by seed if the seeds are distinct, else by name. Runs that have not started are always by name."""
        # The seed of a run that has not started is not known.
        seeds = [run.seed for run in self.counted if run.config]
        are_keys = None not in seeds and len({*seeds}) == len(seeds)
        return {run.seed if are_keys and run.config else run.name: run for run in self.counted}

    def finals(self, name: str) -> Dict[object, float]:
        """The values of a metric at the last step, by key; only of finished runs."""
        scale = METRICS[name].scale
        finished = {key: run.evaluations[-1] for key, run in self.by_key.items() if run.is_finished}
        return {key: scale * getattr(last, name) for key, last in finished.items()}

    @property
    def throughputs(self) -> Dict[object, float]:
        """Images/s by key: the median over a run's training summaries."""
        rates = {
            key: [p.images_per_second for p in run.training if p.images_per_second] for key, run in self.by_key.items()
        }
        return {key: float(np.median(of_run)) for key, of_run in rates.items() if of_run}

    @property
    def config(self) -> Optional[Config]:
        """The configuration of the first run that has started."""
        return next((run.config for run in self.runs if run.config), None)

    @property
    def steps_per_epoch(self) -> Optional[float]:
        """Steps in an epoch; None before a run has started."""
        return self.config.num_train_images / self.config.train_batch_size if self.config else None


@dataclass(frozen=True)
class Comparison:
    """The content of a report: its question may be empty; notes are further facts, such as the cost."""

    title: str
    question: str
    cases: Tuple[Case, ...]
    notes: Tuple[str, ...] = ()
    # Keys of `METRICS`, the most important first.
    report: Tuple[str, ...] = tuple(METRICS)

    @property
    def runs(self) -> List[Run]:
        """All runs, in the order of the cases."""
        return [run for case in self.cases for run in case.runs]

    @property
    def metrics(self) -> Dict[str, Metric]:
        """The metrics to report, by name; without the top-5 accuracy if all runs have too few classes for it."""
        classes = [run.config.num_classes for run in self.runs if run.config]
        hides_top_5 = self.report != ('top_5',) and bool(classes) and not any(map(shows_top_5, classes))
        return {name: METRICS[name] for name in self.report if name != 'top_5' or not hides_top_5}

    @property
    def by_epoch(self) -> bool:
        """Whether curves are compared by epoch rather than by step, because epochs of the cases differ in length."""
        return len({case.steps_per_epoch for case in self.cases} - {None}) > 1


def case_of(name: str, settings: Mapping[str, str], runs: Sequence[Run]) -> Case:
    """A case of runs with the same settings. Copies of an earlier run are marked: a run must not count twice."""
    marked: List[Run] = []
    for run in runs:
        original = next((each.name for each in marked if not each.copy_of and run.is_copy_of(each)), '')
        marked.append(dataclasses.replace(run, copy_of=original))
    return Case(name, settings, tuple(marked))


def cautions(cases: Sequence[Case]) -> List[str]:
    """Reasons, besides settings, why runs are not comparable: copies, data, images, versions, seeds."""
    runs = [run for case in cases for run in case.runs if run.starts or run.evaluations]
    found = [f'{run.name} is not counted: it is a copy of {run.copy_of}' for run in runs if run.copy_of]
    runs = [run for run in runs if not run.copy_of]
    groups = _by_data(runs)
    for run in (of_group[0] for of_group in groups[1:]):
        first = groups[0][0]
        changes = '; '.join(changes_of_start(first.starts[-1], run.starts[-1]))
        found.append(f'{run.name} has other data than {first.name}, and its accuracy is of other images: {changes}')
    counts = _names_by({run.name: f'{run.evaluations[-1].images:,} images' for run in runs if run.evaluations})
    if len(counts) > 1:
        found.append(f'The last evaluations are of different numbers of images: {_listed(counts)}')
    for case in cases:
        versions = _names_by({run.name: run.tensorflow for run in case.counted})
        if len(versions) > 1:
            found.append(f'{case.name}: its runs are of different versions of TensorFlow: {_listed(versions)}')
    begun: Dict[str, str] = {}
    for run in runs:
        first_start = str(run.starts[:1])
        if run.starts and begun.setdefault(first_start, run.name) != run.name:
            found.append(f'{run.name} began as {begun[first_start]}: they are copies, and not independent runs')
        seeds = {str(start.config.get('seed')) for start in run.starts}
        for what, values in (('versions of TensorFlow', run.tensorflow.split(', ')), ('seeds', sorted(seeds))):
            if len(values) > 1:
                found.append(f'{run.name} was trained with several {what}: {", ".join(values)}')
    return [f'{text}.' for text in found]


def _by_data(runs: Sequence[Run]) -> List[List[Run]]:
    """The runs that have started, grouped by their data sets."""
    groups: List[List[Run]] = []
    for run in runs:
        if run.starts:
            same = (each for each in groups if not changes_of_start(each[0].starts[-1], run.starts[-1]))
            group = next(same, None)
            if group is None:
                groups.append([run])
            else:
                group.append(run)
    return groups


def _names_by(values: Mapping[str, str]) -> Dict[str, List[str]]:
    """The names of runs by a value; those without a value are left out."""
    names: Dict[str, List[str]] = {}
    for name, value in values.items():
        if value:
            names.setdefault(value, []).append(name)
    return names


def _listed(names_by: Mapping[str, Sequence[str]]) -> str:
    return '; '.join(f'{value} in {listed(names, 3, ", ")}' for value, names in names_by.items())


def read_run(model_dir: str, name: str, failure: Optional[str] = None, planned: Optional[str] = None) -> Run:
    """Reads a run, which may not have started; `name` is for the report, `planned` the command that will start it."""
    config = recorded_config(model_dir)
    started = read_starts(model_dir)
    evaluations = tuple(read_unchanged(model_dir))
    return Run(
        name=name,
        command=_command_line(started[-1]) if started else planned,
        config=config,
        evaluations=evaluations,
        training=_training(model_dir, config.train_batch_size if config else None),
        environment=_environment(started),
        failure=failure,
        predictions=_predictions(model_dir, evaluations[-1]) if evaluations else None,
        starts=tuple(started),
    )


def _predictions(model_dir: str, last: Evaluation) -> Optional[Predictions]:
    with contextlib.suppress(ConfigError):
        found = predictions.read(model_dir)
        return found if found.evaluation.identity == last.identity else None
    return None


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


# Event files: host call and Estimator write one each, named after the second in which they were opened.
_EVENT_FILE = re.compile(r'events\.out\.tfevents\.\d+\..*')


def _training(model_dir: str, batch_size: Optional[int]) -> Tuple[TrainingPoint, ...]:
    """The points of the training summaries.

    A session that resumes from a checkpoint repeats the steps after it; its points replace those of the session before.
    """
    kept: List[Tuple[float, int, float, Tuple[str, int]]] = []
    for point in sorted(_losses(model_dir)):
        while kept and kept[-1][1] >= point[1]:
            kept.pop()
        kept.append(point)
    found = []
    for before, (time, step, loss, session) in zip([None, *kept], kept):
        rate = None
        if batch_size and before and before[3] == session and time > before[0]:
            rate = (step - before[1]) * batch_size / (time - before[0])
        found.append(TrainingPoint(step, loss, rate))
    return tuple(found)


def _losses(model_dir: str) -> Iterator[Tuple[float, int, float, Tuple[str, int]]]:
    """Time, step, value and session of each loss in a folder's event files."""
    for name in filter(_EVENT_FILE.fullmatch, remote.names_in(model_dir) or ()):
        session, path = 0, os.path.join(model_dir, name)
        remote.check_kind(path)
        # A file ends with a partial event while it is being written, or if its writer was killed.
        with contextlib.suppress(tf.errors.DataLossError):
            for event in tf.train.summary_iterator(path):
                # A file may hold several sessions; each begins with this event.
                session += event.session_log.status == tf.SessionLog.START
                for value in event.summary.value:
                    if value.tag == 'loss':
                        # Summaries of version 1 hold numbers, those of version 2 tensors.
                        is_tensor = value.HasField('tensor')
                        number = float(tf.make_ndarray(value.tensor)) if is_tensor else value.simple_value
                        yield event.wall_time, event.step, number, (name, session)


def compare(model_dirs: Sequence[str]) -> Comparison:
    """Reads runs by their folders, and groups them into cases. A folder that is named twice is read once.

    Raises ConfigError with a line for each folder that is not the model_dir of a run.
    """
    if not all(model_dirs):
        raise ConfigError('RUN: must be the model_dir of a run; it is empty.')
    of_path: Dict[str, str] = {}
    for model_dir in model_dirs:
        # A run must not count twice: the spread would be too small.
        path = model_dir.rstrip('/') if remote.is_remote(model_dir) else os.path.realpath(model_dir)
        of_path.setdefault(path, model_dir.rstrip('/') or '/')
    folders = [*of_path.values()]
    problems = [problem for problem in map(_problem_of, folders) if problem]
    if problems:
        raise ConfigError('\n'.join(problems))
    cases = cases_of([read_run(folder, folder) for folder in folders])
    return Comparison('Comparison of runs', '', tuple(cases), tuple(cautions(cases)))


def cases_of(runs: Sequence[Run]) -> List[Case]:
    """Groups runs with a configuration that differ only in their seeds, in their given order.

    Runs on different versions of TensorFlow, or on different data, are different cases, too. Cases are named after
    their differences, or after their first run if those names would be too long.
    """
    data_of = {
        run.name: f'{of[0].starts[-1].data_set or "unnamed"} of {of[0].name}' for of in _by_data(runs) for run in of
    }
    are_known = all(run.starts and (run.starts[-1].fingerprint or run.starts[-1].samples) for run in runs if run.config)
    ignored = _NOT_COMPARED - (set() if are_known else _PATHS_OF_DATA)
    settings = [
        {
            **{name: str(value) for name, value in dataclasses.asdict(run.config).items() if name not in ignored},
            'machines': str(run.config.machines),
            'tensorflow': run.tensorflow or 'unknown',
            'data': data_of.get(run.name, 'unknown'),
        }
        for run in runs
        if run.config
    ]
    differing = [name for name in settings[0] if len({each[name] for each in settings}) > 1] if settings else []
    grouped: Dict[Tuple[str, ...], List[Run]] = {}
    for run, of_run in zip(runs, settings):
        grouped.setdefault(tuple(of_run[name] for name in differing), []).append(run)
    names = [','.join(f'{name}={value}' for name, value in zip(differing, values)) or 'all runs' for values in grouped]
    flags = {field.name for field in dataclasses.fields(Config)}
    if max(map(len, names), default=0) > _LONGEST_NAME:
        names = [of_case[0].name for of_case in grouped.values()]
    return [
        case_of(name, {key: value for key, value in zip(differing, values) if key in flags}, of_case)
        for name, (values, of_case) in zip(names, grouped.items())
    ]


def _problem_of(folder: str) -> str:
    """The reason why a folder cannot be read as a run; empty if it can."""
    try:
        if read_config(folder):
            return ''
    except ConfigError as error:
        return str(error)
    return f'{folder}: is not the model_dir of a run: it has no {CONFIG_FILE}.'
