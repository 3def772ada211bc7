"""A copy of the program without `tools` trains, evaluates, resumes and exports on an existing data set."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, List, Tuple

import pytest

from tests.support.project import PACKAGES, ROOT

pytestmark = pytest.mark.program

SMALL = (
    *('--preset=digits', '--seed=1', '--train_batch_size=8', '--eval_batch_size=8', '--eval_total_size=16'),
    *('--num_parallel_calls=2', '--train_steps_per_eval=2'),
)

# Trains to step 2, and resumes with an export.
TWICE = """
import sys
from tests.support.one_layer_program import run
sys.exit(run([*sys.argv, '--train_steps=2']) or run([*sys.argv, '--train_steps=4', '--export_dir=export']))
"""


@pytest.fixture(scope='module')
def copy(tmp_path_factory: Any) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('copy')
    for package in {*PACKAGES} - {'tools', 'examples'}:
        shutil.copytree(str(ROOT / package), str(folder / package), ignore=shutil.ignore_patterns('__pycache__'))
    # The program with a network of one layer.
    shutil.copytree(str(ROOT / 'tests' / 'support'), str(folder / 'tests' / 'support'))
    (folder / 'tests' / '__init__.py').touch()
    return folder


def run(copy: pathlib.Path, *arguments: str) -> Tuple[int, str]:
    command = [sys.executable, '-W', 'ignore', *arguments]
    environment = {**os.environ, 'PYTHONPATH': str(copy)}
    done = subprocess.run(command, cwd=str(copy), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode()


def evaluated_steps(model_dir: pathlib.Path) -> List[int]:
    return [json.loads(line)['step'] for line in (model_dir / 'results.jsonl').read_text().splitlines()]


def test_program__trains_evaluates_resumes_and_exports_without_tools(copy: pathlib.Path, digits_dir: str) -> None:
    # One process, because loading TensorFlow takes seconds.
    code, output = run(copy, '-c', TWICE, *SMALL, f'--data_dir={digits_dir}', '--model_dir=run')
    assert code == 0, output
    assert evaluated_steps(copy / 'run') == [2, 4]
    assert list((copy / 'export').glob('*/saved_model.pb'))


def test_entries__say_that_tools_is_missing(copy: pathlib.Path) -> None:
    code, output = run(copy, '-m', 'inception_v3.main', *SMALL, '--model_dir=none')
    assert code == 2 and 'the folder `tools`' in output and '--data_dir' in output, output
    code, output = run(copy, '-m', 'inception_v3_tpu', 'predict', 'image.jpg')
    assert (code, output.count('\n')) == (
        2,
        1,
    ) and 'predict: this copy of the program lacks the folder `tools`' in output
    code, output = run(copy, '-m', 'inception_v3_tpu', 'train', '--help')
    assert code == 0, output
