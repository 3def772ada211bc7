"""Reads studies from Python and YAML files."""

import dataclasses
import importlib.util
import inspect
import os
import pathlib
import sys
import traceback
from typing import Any, Callable, Dict

import yaml

from console.messages import shown
from studies import shipped
from studies.study import SMALL_VERSIONS, Axis, Small, Study, StudyError, cases, grid, is_list_of, zipped

_AXES: Dict[str, Callable[..., Axis]] = {'grid': grid, 'zip': zipped, 'cases': cases}
_SHIPPED = {path.stem: str(path) for path in sorted(pathlib.Path(shipped.__file__).parent.glob('[a-z]*.py'))}


def load(path: str) -> Study:
    """Reads a study from a .py or .yaml file.

    Args:
      path: path of the file, or the name of a shipped study.

    Raises:
      StudyError: the file cannot be read, or does not hold a valid study.
    """
    path = _SHIPPED.get(path, path)
    stem, extension = os.path.splitext(os.path.basename(path))
    reader = {'.py': _from_python, '.yaml': _from_yaml, '.yml': _from_yaml}.get(extension)
    if not reader:
        raise StudyError(f'must be a .py or a .yaml file, or a shipped study: {", ".join(_SHIPPED)}.')
    if not os.path.isfile(path):
        raise StudyError(f'no such file. The shipped studies have names: {", ".join(_SHIPPED)}.')
    try:
        study = reader(path)
    except OSError as error:
        raise StudyError(f'cannot be read: {error.strerror}.')
    return study if study.name else dataclasses.replace(study, name=stem)


def _from_python(path: str) -> Study:
    specification = importlib.util.spec_from_file_location('a_study', path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    # Leave no __pycache__ beside a user's file.
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        specification.loader.exec_module(module)
    except (StudyError, OSError):
        raise
    except (Exception, SystemExit) as error:
        raise StudyError(f'{_line_of(error, path)}{type(error).__name__}: {shown(error, 300)}')
    finally:
        sys.dont_write_bytecode = before
    study = getattr(module, 'STUDY', None)
    if not isinstance(study, Study):
        raise StudyError('must set STUDY = Study(…).')
    return dataclasses.replace(study, question=study.question or inspect.cleandoc(module.__doc__ or ''))


def _line_of(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f'line {error.lineno}: ' if error.filename == path else ''
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f'line {lines[-1]}: ' if lines else ''


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys; the standard one silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
        """The mapping of a node."""
        names = [key.value for key, _ in node.value]
        duplicates = [name for name in names if names.count(name) > 1]
        if duplicates:
            raise StudyError(f'line {node.start_mark.line + 1}: {shown(duplicates[0])}: duplicate key.')
        return super().construct_mapping(node, deep)


def _from_yaml(path: str) -> Study:
    try:
        with open(path, encoding='utf-8') as file:
            content = yaml.load(file, _Loader)
    except (yaml.YAMLError, AttributeError, RecursionError, TypeError, ValueError) as error:
        raise StudyError(f'invalid YAML: {" ".join(str(error).split())}')
    fields = _fields(Study, content, 'a study')
    for version in SMALL_VERSIONS:
        if version in fields:
            fields[version] = Small(**_fields(Small, fields[version], version))
    return Study(**fields)


def _fields(kind: type, content: Any, where: str) -> Dict[str, Any]:
    names = [field.name for field in dataclasses.fields(kind)]
    if not isinstance(content, dict):
        raise StudyError(f'{where}: must be a mapping with the keys {", ".join(names)}.')
    unknown = [name for name in content if name not in names]
    if unknown:
        raise StudyError(f'{where}: {shown(unknown[0])}: unknown key. The keys are {", ".join(names)}.')
    axes = content.get('axes', [])
    if not isinstance(axes, list):
        raise StudyError(f'axes: must be a list of {", ".join(_AXES)}.')
    return {**content, 'axes': [_axis(axis) for axis in axes]} if 'axes' in content else dict(content)


def _axis(content: Any) -> Axis:
    if not isinstance(content, dict) or len(content) != 1 or not set(content) <= set(_AXES):
        raise StudyError(f'axes: each must be one of {", ".join(_AXES)}; it is {shown(content)}.')
    ((kind, values),) = content.items()
    if kind == 'cases':
        # A case without flags may be written as a name alone.
        return cases({name: flags or {} for name, flags in values.items()} if isinstance(values, dict) else values)
    if not isinstance(values, dict) or not is_list_of(str, list(values)):
        raise StudyError(f'{kind}: must map flags to lists of values.')
    return _AXES[kind](**values)
