"""Studies: the flags that all trials share, the cases that vary them, and the seeds that repeat each case.

A study file is a Python file whose docstring is its question:

    '''Does warm-up keep large batches from diverging?'''

    from inception_v3_tpu import Small, Study, cases, grid

    STUDY = Study(
        flags={'use_learning_rate_warmup': False},
        axes=[grid(train_batch_size=[1024, 4096]), cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}})],
        seeds=3,
        step_ms=815,
        digits=Small(flags={'train_steps': 300}, axes=[grid(train_batch_size=[32, 128])]),
    )

`digits_whole` is a second small version, with runs that are long enough to answer the question.
"""

import dataclasses
import inspect
import itertools
import os
import pathlib
import re
import traceback
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from compat.errors import CommandError
from compat.messages import shown
from inception_v3.config import Config
from inception_v3.presets import PRESETS
from tools.studies import files
from tools.studies.report.runs import METRICS

Value = Union[bool, int, float, str]
Flags = Mapping[str, Value]

# Flags that a study cannot set, with the reason.
_RESERVED = {
    'seed': 'is set by the sweep; list the seeds in `seeds`',
    'model_dir': 'is set by the sweep: each trial has its own, in --out',
    'export_dir': 'cannot be set: trials of a sweep export nothing',
    'mode': 'is always train_and_eval in a sweep',
    'preset': 'is not a flag of a trial; name the preset in `preset`',
}
_SETTINGS = {field.name for field in dataclasses.fields(Config)}
_CASE_NAME = re.compile(r'\w[\w.,=+-]*')
# Folders are named after cases; file systems allow 255 bytes.
_LONGEST_NAME = 150
_UNSAFE = re.compile(r'[^\w.+-]+')
_DEFAULT_CASE = 'default'

# The fields of a study with a small version.
SMALL_VERSIONS = ('digits', 'digits_whole')


class StudyError(CommandError):
    """A study or a sweep that cannot be run as given."""


# A dimension of a study: pairs of a name and flags.
Axis = Sequence[Tuple[str, Flags]]


def grid(**values: Sequence[Value]) -> Axis:
    """An axis of every combination of the values of some flags, named after them; the last flag varies fastest."""
    if not values or not all(isinstance(each, (list, tuple)) and each for each in values.values()):
        raise StudyError('grid: must map flags to lists of values.')
    variants = [dict(zip(values, each)) for each in itertools.product(*values.values())]
    # A flag with the same value in all variants distinguishes none of them.
    varying = [name for name in values if len({str(variant[name]) for variant in variants}) > 1]
    names = [','.join(f'{name}={_UNSAFE.sub("-", str(variant[name]))}' for name in varying) for variant in variants]
    return [*zip(names, variants)]


def without(names: Sequence[str], flags: Flags) -> Flags:
    """The flags without those that the cases of a study set themselves."""
    return {name: value for name, value in flags.items() if name not in names}


def cases(named: Mapping[str, Flags]) -> Axis:
    """An axis of named cases; the flags of a case may be empty."""
    if not named:
        raise StudyError('cases: must map names to flags.')
    for name in named:
        if not _CASE_NAME.fullmatch(name):
            raise StudyError(f'cases: {shown(name)}: a name must consist of letters, digits and _ . , = + - only.')
    return [*named.items()]


@dataclasses.dataclass(frozen=True)
class Small:
    """A small version of a study, on the digits; its flags replace the study's, and so do axes and seeds if given."""

    flags: Flags = dataclasses.field(default_factory=dict)
    axes: Optional[Sequence[Axis]] = None
    seeds: Union[int, Sequence[int], None] = None


class Case(NamedTuple):
    """A setting under study, whose trials differ in the seed only; its name is unique, and valid for a folder."""

    name: str
    # The flags that distinguish this case from the others, and all of its flags, including those of the study.
    settings: Flags
    flags: Flags


@dataclasses.dataclass(frozen=True)
class Study:
    """A study; StudyError is raised for a field of a wrong type or value."""

    preset: str = 'imagenet'  # The preset that flags start from.
    flags: Flags = dataclasses.field(default_factory=dict)  # Flags of every trial, on top of the preset.
    axes: Sequence[Axis] = ()  # The cases are all combinations of the axes. Without axes there is one case.
    seeds: Union[int, Sequence[int]] = 3  # The number of seeds, counted from 1; or a list of seeds.
    report: Sequence[str] = tuple(METRICS)  # The metrics to report, the most important first: keys of `runs.METRICS`.
    # Assumed milliseconds of a training step of 1,024 images on 8 cores, for the cost; None: unknown.
    step_ms: Optional[float] = None
    # The short version, to try a study out, if there is one: less than a minute a trial.
    digits: Optional[Small] = None
    # The small version with runs that are long enough to answer the question, if there is one.
    digits_whole: Optional[Small] = None
    question: str = ''  # The question that the study answers; by default the docstring of a Python file.
    name: str = ''  # The study's name; by default that of its file.

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name in ('.', '..') or '/' in self.name:
            raise StudyError(f'name: {shown(self.name)}: must be valid as the name of a folder.')
        if self.preset not in PRESETS:
            raise StudyError(f'preset: {shown(self.preset)}: must be one of {", ".join(sorted(PRESETS))}.')
        seeds = self.seeds if isinstance(self.seeds, (list, tuple)) else [self.seeds]
        if self.seeds == 0 or not len({*seeds}) == len(seeds) > 0 or not all(type(s) is int and s >= 0 for s in seeds):
            allowed = 'a number of seeds, at least 1, or a list of distinct seeds'
            raise StudyError(f'seeds: must be {allowed}; it is {shown(self.seeds)}.')
        if not self.report or {*self.report} - {*METRICS} or len({*self.report}) < len(self.report):
            raise StudyError(f'report: must be a list of {", ".join(METRICS)}, each once; it is {shown(self.report)}.')
        if self.step_ms is not None and self.step_ms <= 0:
            raise StudyError(f'step_ms: must be milliseconds, above 0; it is {shown(self.step_ms)}.')
        for version in SMALL_VERSIONS:
            try:
                if getattr(self, version):
                    self.small(version)
            except StudyError as error:
                raise StudyError(f'{version}: {error}')
        self.cases()

    def with_flags(self, flags: Flags) -> 'Study':
        """The study with further flags for every trial, which neither vary in it nor are set by the sweep."""
        varying = {name for axis in self.axes for _, settings in axis for name in settings}
        for name in flags:
            if name in varying:
                raise StudyError(f'--{name}: varies in the study, and cannot be set for all its trials.')
        return dataclasses.replace(self, flags={**self.flags, **flags})

    def small(self, version: str) -> 'Study':
        """A small version, one of `SMALL_VERSIONS`, as a study of its own."""
        small: Optional[Small] = getattr(self, version)
        if not small:
            raise StudyError(f'{self.name}: has no small version of this kind (`{version}`).')
        return dataclasses.replace(
            self,
            name=f'{self.name}_{version}',
            preset='digits',
            flags=small.flags,
            axes=self.axes if small.axes is None else small.axes,
            seeds=self.seeds if small.seeds is None else small.seeds,
            step_ms=None,
            **dict.fromkeys(SMALL_VERSIONS),
        )

    @property
    def all_seeds(self) -> Tuple[int, ...]:
        """The seeds of every case."""
        return tuple(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else tuple(self.seeds)

    def cases(self) -> List[Case]:
        """The cases, in the order of the axes; the last axis varies fastest."""
        found: Dict[str, Case] = {}
        for combination in itertools.product(*self.axes):
            settings: Dict[str, Value] = {}
            for _, flags in combination:
                for name in flags:
                    if name in settings:
                        raise StudyError(f'axes: {name}: varies in two axes.')
                settings.update(flags)
            for name, value in {**self.flags, **settings}.items():
                if name in _RESERVED:
                    raise StudyError(f'{name}: {_RESERVED[name]}.')
                # Flags that are not settings, such as --flagfile, have effects that the study would not show.
                if name not in _SETTINGS:
                    raise StudyError(f'{shown(name)}: no such flag.')
                if not isinstance(value, (bool, int, float, str)):
                    raise StudyError(f'{name}: must be a number, a string, True or False; it is {shown(value)}.')
            name = ','.join(part for part, _ in combination if part) or _DEFAULT_CASE
            if name in found:
                raise StudyError(f'axes: two cases are named {shown(name)}. Remove one, or name them with cases(…).')
            if len(name.encode()) > _LONGEST_NAME:
                advice = 'and a folder is named after it. Name the cases with cases(…).'
                raise StudyError(f'axes: {shown(name)}: longer than {_LONGEST_NAME} bytes, {advice}')
            found[name] = Case(name, settings, {**self.flags, **settings})
        return list(found.values())


def load(path: str) -> Study:
    """Reads a study from a Python file, or the shipped one of this name; raises StudyError if it is not valid."""
    path = files.SHIPPED.get(path, path)
    if not path.endswith('.py') or not os.path.isfile(path):
        raise StudyError(f'must be a .py file, or a shipped study: {", ".join(files.SHIPPED)}.')
    # No import: that would leave a __pycache__ beside a user's file.
    names: Dict[str, Any] = {'__name__': 'a_study', '__file__': path}
    try:
        exec(compile(pathlib.Path(path).read_bytes(), path, 'exec'), names)
    except StudyError:
        raise
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        lines = [error.lineno or 0] if isinstance(error, SyntaxError) and error.filename == path else lines
        raise StudyError(f'{f"line {lines[-1]}: " if lines else ""}{type(error).__name__}: {shown(error, 300)}')
    study = names.get('STUDY')
    if not isinstance(study, Study):
        raise StudyError('must set STUDY = Study(…).')
    question = study.question or inspect.cleandoc(names.get('__doc__') or '')
    return dataclasses.replace(study, question=question, name=study.name or pathlib.Path(path).stem)
