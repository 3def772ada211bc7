"""Fuzz tests of command lines: each gives a configuration or one message, never a traceback."""

import dataclasses
import os
import pathlib
import re
import tempfile
from typing import Callable, Iterator, List, get_type_hints

import pytest
from absl import app
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data import remote
from data.braces import PatternError
from inception_v3 import flags
from inception_v3.config import Config, ConfigError, plain_type, setting_of
from inception_v3.fitting import fit_to_data_set, makes_digits
from inception_v3.presets import EPOCHS, PRESETS

FIELDS = [field.name for field in dataclasses.fields(Config)]
DEFAULTS = Config()
SETTINGS = {field.name: setting_of(field) for field in dataclasses.fields(Config)}
TYPES = {name: plain_type(each) for name, each in get_type_hints(Config).items() if name in FIELDS}

# The allowed forms of a line in a message: the flag, and the problem or the allowed values.
LINES = re.compile(
    r'(--\w+=.*: .+)|(--\w+: .+)|(flag --\w+=.*: .+)|(.*: not a flag\. .+)|(--flagfile with no argument)'
    r"|(Unknown command line flag '.*)|(Missing value for flag .+)|(--no\w+=.* does not take an argument)"
    r'|(-no\w+=.* does not take an argument)|(--help lists the flags\.)'
)

numbers = st.one_of(
    st.integers(-2, 300).map(str),
    st.sampled_from([2**31 - 1, 2**31, 2**63, 2**64, -(2**31), 10**30, 10**400, 10**400 + 1]).map(str),
    st.sampled_from(['0', '-0', '00', '1_000', '٣', '0x10', '1e3', '1e-400', '1e308', '1e400', '5.0', '.5', '--5']),
    st.sampled_from(['nan', 'NaN', 'inf', '-inf', 'infinity', '1e-40', '3.4e38', '1e38', '0.5', '1.5', '-0.1']),
    st.floats().map(str),
)
texts = st.one_of(
    st.sampled_from(
        ['', ' ', 'None', 'a b', 'é', '日本', '\udcff', '\ud800', 'a\nb', '\0', '\x1b[31m', '%s', '{}', '*']
    ),
    st.sampled_from(['node', 'emulated:8', 'emulated:8x2', 'emulated:', 'emulated:8x3', 'emulated:٨', 'emulated:-1']),
    st.sampled_from(
        ['emulated:99999999999', 'emulated:' + '9' * 5000, 'grpc://10.0.0.1:8470', 'http://x', 'hdfs://x/y']
    ),
    st.sampled_from(['a' * 4096, 'a' * 4097, 'a' * 100_000, '/', '.', '/dev/null', '/no/such/folder', '~', '../..']),
    st.text(max_size=20),
)
booleans = st.sampled_from(['true', 'False', '1', '0', 't', 'yes', 'maybe', '', 'TRUE', 'true '])


def values_of(name: str) -> st.SearchStrategy:
    choices = tuple(SETTINGS[name].choices if name in SETTINGS else PRESETS)
    fitting = {int: numbers, float: numbers, bool: booleans, str: texts}[TYPES.get(name, str)]
    return st.one_of(
        fitting, fitting, st.sampled_from(choices or ('8', '0.5', 'true')), st.one_of(numbers, texts, booleans)
    )


@st.composite
def arguments(draw: Callable) -> List[str]:
    """Draws the arguments of a command line: mostly valid flags; some are misspelt, repeated or without a value."""
    found: List[str] = []
    for _ in range(draw(st.integers(0, 6))):
        name = draw(st.sampled_from([*FIELDS, 'preset', 'preset', 'verbose', 'help', 'flagfile', 'flagfile']))
        value = draw(st.sampled_from([*FLAG_FILES, 'missing', 'folder', '']) if name == 'flagfile' else values_of(name))
        kind = draw(st.integers(0, 15))
        if kind == 0:
            at = draw(st.integers(0, len(name) - 1))
            name = name[:at] + draw(st.text(max_size=3)) + name[at + 1 :]
        elif kind == 1:
            name = draw(st.sampled_from(['', '-', 'no', 'undefok', 'x' * 40, 'é', 'a b', 'train_step']))
        forms = [[f'--{name}={value}']] * 8 + [
            [f'-{name}={value}'],
            [f'--{name}', value],
            [f'--{name}'],
            [f'--no{name}'],
        ]
        found += draw(st.sampled_from([*forms, [f'--no{name}={value}'], [value], ['--'], ['-']]))
    return found


FLAG_FILES = {
    'good': b'--train_steps=7\n\n# why\n// and why\n--optimizer=sgd\n--nouse_tpu\n',
    'itself': b'--train_steps=7\n--flagfile=itself\n',
    'binary': b'\x7fELF\xff\xfe\0\0',
    'empty': b'',
    'two': b'--flagfile=good\n--mode=train\r\n',
    'stray': b'hello\n',
    'wrong': b'--train_steps=many\n',
}


@pytest.fixture(scope='module', autouse=True)
def folder() -> Iterator[None]:
    """Changes to a working directory with valid and damaged flag files."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for file, content in FLAG_FILES.items():
            pathlib.Path(file).write_bytes(content)
        os.mkdir('folder')
        yield
        os.chdir(before)


def check_message(error: Exception) -> None:
    lines = str(error).splitlines()
    assert 1 <= len(lines) <= len(FIELDS) and len({*lines}) == len(lines)
    for line in lines:
        assert LINES.fullmatch(line), line
        assert len(line) < 10_000 and line.isprintable(), line


def check_command_line(command: List[str]) -> None:
    try:
        command_line = flags.parse(['program', *command])
    except (ConfigError, PatternError) as error:
        check_message(error)
        return
    config = command_line.config
    assert Config.from_json(config.to_json()) == config
    # Given flags may not be without effect, even with their default values.
    values = {name: getattr(config, name) for name in FIELDS}
    # Flags that count epochs replace those that count steps.
    replaced = {steps for steps, epochs in EPOCHS.items() if values[epochs]}
    changed = [
        f'--{name}={value}'
        for name, value in values.items()
        if value != getattr(DEFAULTS, name) and name not in replaced
    ]
    assert flags.parse(['program', *changed]).config == config
    if makes_digits(command_line) or remote.is_remote(config.data_dir):
        return
    try:
        assert isinstance(fit_to_data_set(command_line), Config)
    except app.UsageError as error:
        assert len(str(error).splitlines()) == 1 and (str(error).startswith('--') or config.data_dir in str(error))


def cases(number: int) -> Callable:
    """Returns settings that draw the same cases on every machine."""
    return settings(
        max_examples=number, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )


@pytest.mark.parametrize('number', [120, pytest.param(5_000, marks=pytest.mark.nightly)])
def test_random_command_line__gives_a_configuration_or_one_message(number: int) -> None:
    cases(number)(given(arguments())(check_command_line))()
