"""What a study is: a base, the cases that differ from it, and how often each is repeated; read from a file.

A study file is a Python file whose docstring is its question:

    '''Does warm-up keep large batches from diverging?'''

    from studies.study import Small, Study, cases, grid

    STUDY = Study(
        flags={'use_learning_rate_warmup': False},
        axes=[grid(train_batch_size=[1024, 4096]), cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}})],
        seeds=3,
        step_ms=815,
        digits=Small(flags={'train_steps': 300}, axes=[grid(train_batch_size=[32, 128])]),
    )

or a YAML file with the same names:

    question: Does warm-up keep large batches from diverging?
    flags: {use_learning_rate_warmup: false}
    axes:
      - grid: {train_batch_size: [1024, 4096]}
      - cases: {plain: {}, warm-up: {use_learning_rate_warmup: true}}
    seeds: 3
    step_ms: 815
    digits: {flags: {train_steps: 300}, axes: [{grid: {train_batch_size: [32, 128]}}]}

A third kind of axis varies flags together: zipped(train_batch_size=[1024, 4096], train_steps=[213000, 53250]), in YAML
zip: {train_batch_size: [1024, 4096], train_steps: [213000, 53250]}.
"""

import dataclasses
import difflib
import importlib.util
import inspect
import itertools
import os
import re
import sys
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, get_type_hints

import yaml

from console.errors import CommandError
from console.messages import shown
from inception_v3.config import Config
from inception_v3.presets import PRESETS
from inception_v3.setting import plain_type
from studies.report.runs import METRICS

Value = Union[bool, int, float, str]
Flags = Mapping[str, Value]

# What a sweep decides for each trial, and what to say of it.
_RESERVED = {
    'seed': "is the sweep's to give; name the seeds in `seeds`",
    'model_dir': "is the sweep's to give: each trial has its own, in --out",
    'export_dir': 'is not for a sweep, whose trials export nothing',
    'mode': 'is train_and_eval in a sweep',
    'preset': 'is not a flag of a trial; name it in `preset`',
}
_CASE_NAME = re.compile(r'\w[\w.,=+-]*')
# Folders are named after cases; file systems allow 255 bytes.
_LONGEST_NAME = 150
_UNSAFE = re.compile(r'[^\w.+-]+')
_DEFAULT_CASE = 'default'


class StudyError(CommandError):
    """A study that cannot be read, or that makes no sense."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """What varies together: named variants, each with the flags that make it.

    Attributes:
      variants: by name. Without names of their own they are named after the flags that differ.
    """

    variants: Tuple[Tuple[str, Flags], ...]


def grid(**values: Sequence[Value]) -> Axis:
    """An axis of every combination of the values of some flags; the last flag varies fastest."""
    _check_lists('grid', values)
    return _named_after_flags([dict(zip(values, combination)) for combination in itertools.product(*values.values())])


def zipped(**values: Sequence[Value]) -> Axis:
    """An axis along which flags vary together: the first values of all, then the second values, and so on.

    In YAML it is `zip`, which is another function in Python.
    """
    _check_lists('zip', values)
    lengths = {name: len(listed) for name, listed in values.items()}
    if len(set(lengths.values())) > 1:
        counts = ', '.join(f'{name} has {length}' for name, length in lengths.items())
        raise StudyError(f'zip: all flags must have as many values; {counts}.')
    return _named_after_flags([dict(zip(values, combination)) for combination in zip(*values.values())])


def cases(named: Mapping[str, Flags]) -> Axis:
    """An axis of named cases, each with its flags, which may be none."""
    if not isinstance(named, Mapping) or not named:
        raise StudyError('cases: must be names, and the flags of each.')
    for name, flags in named.items():
        if not isinstance(name, str) or not _CASE_NAME.fullmatch(name):
            raise StudyError(f'cases: {shown(name)}: a name must be letters, digits and any of _ . , = + - only.')
        _check_flags(f'cases: {name}', flags)
    return Axis(tuple(named.items()))


_AXES: Dict[str, Callable[..., Axis]] = {'grid': grid, 'zip': zipped, 'cases': cases}


def _check_lists(kind: str, values: Mapping[str, Any]) -> None:
    if not values:
        raise StudyError(f'{kind}: must name flags, with the values of each.')
    for name, listed in values.items():
        if not isinstance(listed, (list, tuple)) or not listed:
            raise StudyError(f'{kind}: {name}: must be a list of values; here it is {shown(repr(listed))}.')
        for value in listed:
            _check_flags(kind, {name: value})


def _check_flags(where: str, flags: Any) -> None:
    """Makes sure of what a command line cannot tell: the types, and the flags that are not for a study to give."""
    if not isinstance(flags, Mapping):
        raise StudyError(f'{where}: must be flags and their values; here it is {shown(repr(flags))}.')
    known = get_type_hints(Config)
    for name, value in flags.items():
        if name in _RESERVED:
            raise StudyError(f'{where}: {name}: {_RESERVED[name]}.')
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            meant = f' Is {near[0]} meant?' if near else ''
            raise StudyError(f'{where}: {shown(name)}: no such flag.{meant}')
        if not isinstance(value, (bool, int, float, str)):
            raise StudyError(f'{where}: {name}: must be a number, a text, True or False; here it is {shown(value)}.')
        if isinstance(value, bool) and plain_type(known[name]) is str:
            # YAML reads such words as no and on so.
            raise StudyError(f'{where}: {name}: must be a text; here it is {value}. In YAML, put quotes around it.')


def _named_after_flags(variants: List[Flags]) -> Axis:
    # What is the same in all tells nothing.
    varying = [name for name in variants[0] if len({str(variant[name]) for variant in variants}) > 1]
    return Axis(
        tuple(
            (','.join(f'{name}={_UNSAFE.sub("-", str(variant[name]))}' for name in varying), variant)
            for variant in variants
        )
    )


@dataclasses.dataclass(frozen=True)
class Small:
    """The small version of a study, on the digits: minutes on a CPU.

    Attributes:
      flags: of every trial, in place of the study's.
      axes: in place of the study's; None: the same.
      seeds: in place of the study's; None: the same.
    """

    flags: Flags = dataclasses.field(default_factory=dict)
    axes: Optional[Sequence[Axis]] = None
    seeds: Union[int, Sequence[int], None] = None


@dataclasses.dataclass(frozen=True)
class Case:
    """Trials that differ by their seeds alone.

    Attributes:
      name: unique in its study, and fit for a folder.
      settings: the flags that make it another case than the others.
      flags: all its flags, those of the study included.
    """

    name: str
    settings: Flags
    flags: Flags


@dataclasses.dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
      preset: what flags start from.
      flags: every trial's, beside the preset.
      axes: what varies; several axes are multiplied; without any there is one case.
      seeds: how many, from 1 on, or which.
      report: the metrics that the report is to tell of, the foremost first: names of `runs.METRICS`.
      step_ms: milliseconds of a training step of 1,024 images on a v2-8, for the cost; None: not told.
      digits: the small version, if there is one.
      question: what the study is to answer; a Python file's docstring.
      name: what it is called; by default as its file.

    Raises:
      StudyError: something is not what it has to be.
    """

    preset: str = 'imagenet'
    flags: Flags = dataclasses.field(default_factory=dict)
    axes: Sequence[Axis] = ()
    seeds: Union[int, Sequence[int]] = 3
    report: Sequence[str] = tuple(METRICS)
    step_ms: Optional[float] = None
    digits: Optional[Small] = None
    question: str = ''
    name: str = ''

    def __post_init__(self) -> None:
        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise StudyError(f'preset: {shown(self.preset)}: must be one of {", ".join(sorted(PRESETS))}.')
        _check_flags('flags', self.flags)
        if not _is_list_of(Axis, self.axes):
            raise StudyError('axes: must be a list of grid(…), zipped(…) and cases(…).')
        _check_seeds(self.seeds)
        if not _is_list_of(str, self.report) or not self.report or set(self.report) - set(METRICS):
            raise StudyError(f'report: must be a list of {", ".join(METRICS)}; here it is {shown(self.report)}.')
        if len({*self.report}) < len(self.report):
            raise StudyError(f'report: {shown(self.report)}: names one twice.')
        if self.step_ms is not None and not (_is_number(self.step_ms) and self.step_ms > 0):
            raise StudyError(f'step_ms: must be milliseconds, above 0; here it is {shown(self.step_ms)}.')
        if not isinstance(self.question, str) or not isinstance(self.name, str):
            raise StudyError('question and name: must be texts.')
        if self.name in ('.', '..') or '/' in self.name:
            raise StudyError(f'name: {shown(self.name)}: must be fit for the name of a folder.')
        if self.digits is not None:
            if not isinstance(self.digits, Small):
                raise StudyError('digits: must be Small(…).')
            try:
                self.small()
            except StudyError as error:
                raise StudyError(f'digits: {error}')
        self.cases()

    def with_flags(self, flags: Flags) -> 'Study':
        """The study with further flags for every trial.

        Raises:
          StudyError: a flag is not for a study to give, or varies in it.
        """
        _check_flags('flags', flags)
        varying = {name for axis in self.axes for _, settings in axis.variants for name in settings}
        for name in flags:
            if name in varying:
                raise StudyError(f'--{name}: varies in the study, and cannot be given for all its trials.')
        return dataclasses.replace(self, flags={**self.flags, **flags})

    def small(self) -> 'Study':
        """The study's small version, which is a study of its own.

        Raises:
          StudyError: it has none.
        """
        if not self.digits:
            raise StudyError(f'{self.name}: has no small version (`digits`).')
        changes: Dict[str, Any] = {'preset': 'digits', 'flags': self.digits.flags, 'digits': None, 'step_ms': None}
        for name in ('axes', 'seeds'):
            own = getattr(self.digits, name)
            if own is not None:
                changes[name] = own
        return dataclasses.replace(self, name=f'{self.name}_digits', **changes)

    @property
    def all_seeds(self) -> Tuple[int, ...]:
        """The seeds of every case."""
        return tuple(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else tuple(self.seeds)

    def cases(self) -> List[Case]:
        """The cases, in the order of the axes; the last axis varies fastest.

        Raises:
          StudyError: two axes vary the same flag, or two cases have the same name.
        """
        found: Dict[str, Case] = {}
        for combination in itertools.product(*[axis.variants for axis in self.axes]):
            settings: Dict[str, Value] = {}
            for _, flags in combination:
                for name in flags:
                    if name in settings:
                        raise StudyError(f'axes: {name}: varies in two axes.')
                settings.update(flags)
            name = ','.join(part for part, _ in combination if part) or _DEFAULT_CASE
            if name in found:
                raise StudyError(f'axes: two cases are {shown(name)}. Leave one out, or name them with cases(…).')
            if len(name.encode()) > _LONGEST_NAME:
                raise StudyError(
                    f'axes: {shown(name)}: more than {_LONGEST_NAME} letters for the name of a folder. Name the cases '
                    'with cases(…).'
                )
            found[name] = Case(name, settings, {**self.flags, **settings})
        return list(found.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list_of(kind: type, values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(isinstance(value, kind) for value in values)


def _check_seeds(seeds: Any) -> None:
    listed = seeds if isinstance(seeds, (list, tuple)) else [seeds]
    sound = all(type(seed) is int and seed >= 0 for seed in listed) and len(set(listed)) == len(listed) > 0
    if not sound or seeds == 0:
        raise StudyError(f'seeds: must be how many, from 1 on, or a list of different ones; here it is {shown(seeds)}.')


def load(path: str) -> Study:
    """Reads a study from a .py or .yaml file.

    Raises:
      StudyError: the file cannot be read, or it has no study that makes sense.
    """
    stem, extension = os.path.splitext(os.path.basename(path))
    reader = {'.py': _from_python, '.yaml': _from_yaml, '.yml': _from_yaml}.get(extension)
    if not reader:
        raise StudyError('must be a .py or a .yaml file.')
    if not os.path.isfile(path):
        raise StudyError('there is no such file.')
    try:
        study = reader(path)
    except OSError as error:
        raise StudyError(f'cannot be read: {error.strerror}.')
    return study if study.name else dataclasses.replace(study, name=stem)


def _from_python(path: str) -> Study:
    specification = importlib.util.spec_from_file_location('a_study', path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    try:
        # No compiled file is left beside a user's own.
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            specification.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = before
    except (StudyError, OSError):
        raise
    except (Exception, SystemExit) as error:
        raise StudyError(f'{_line_of(error, path)}{type(error).__name__}: {shown(error, 300)}')
    study = getattr(module, 'STUDY', None)
    if not isinstance(study, Study):
        raise StudyError('must set STUDY = Study(…).')
    if study.question or not module.__doc__:
        return study
    return dataclasses.replace(study, question=inspect.cleandoc(module.__doc__))


def _line_of(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f'line {error.lineno}: ' if error.filename == path else ''
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f'line {lines[-1]}: ' if lines else ''


class _Loader(yaml.SafeLoader):
    """YAML in which no name is given twice: the second would silently replace the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
        """The mapping of a node."""
        names = [key.value for key, _ in node.value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise StudyError(f'line {node.start_mark.line + 1}: {shown(twice[0])}: is given twice.')
        return super().construct_mapping(node, deep)


def _from_yaml(path: str) -> Study:
    try:
        with open(path, encoding='utf-8') as file:
            content = yaml.load(file, _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise StudyError(f'not YAML: {" ".join(str(error).split())}')
    fields = _fields(Study, content, 'a study')
    if 'digits' in fields:
        fields['digits'] = Small(**_with_axes(_fields(Small, fields['digits'], 'digits')))
    return Study(**_with_axes(fields))


def _fields(kind: type, content: Any, where: str) -> Dict[str, Any]:
    names = [field.name for field in dataclasses.fields(kind)]
    if not isinstance(content, dict):
        raise StudyError(f'{where}: must have names and values: {", ".join(names)}.')
    unknown = [name for name in content if name not in names]
    if unknown:
        raise StudyError(f'{where}: {shown(unknown[0])}: is no part of it. Its parts are {", ".join(names)}.')
    return dict(content)


def _with_axes(fields: Dict[str, Any]) -> Dict[str, Any]:
    if 'axes' not in fields:
        return fields
    axes = fields['axes']
    if not isinstance(axes, list):
        raise StudyError(f'axes: must be a list of {", ".join(_AXES)}.')
    return {**fields, 'axes': [_axis(axis) for axis in axes]}


def _axis(content: Any) -> Axis:
    if not isinstance(content, dict) or len(content) != 1 or not set(content) <= set(_AXES):
        raise StudyError(f'axes: each must be one of {", ".join(_AXES)}; here is {shown(content)}.')
    ((kind, values),) = content.items()
    if kind == 'cases':
        # A case without flags may be written as a name alone.
        return cases({name: flags or {} for name, flags in values.items()} if isinstance(values, dict) else values)
    if not isinstance(values, dict) or not _is_list_of(str, list(values)):
        raise StudyError(f'{kind}: must be flags, with a list of values each.')
    return _AXES[kind](**values)
