"""Test of the README's main command in an empty folder, with a third of its steps."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from inception_v3.config import Config
from inception_v3.presets import PRESETS
from tests.support.records import validation_set
from tests.support.saved_models import classify

STEPS = 250


@pytest.mark.slow
def test_digits__are_learned_by_the_first_command_alone(tmp_path: Any) -> None:
    def run() -> 'subprocess.CompletedProcess[str]':
        command = [sys.executable, '-m', 'inception_v3.main', '--preset=digits', f'--train_steps={STEPS}']
        return subprocess.run(command, cwd=str(tmp_path), capture_output=True, text=True, timeout=1200)

    first = run()
    assert first.returncode == 0, first.stderr
    lines = (tmp_path / 'runs' / 'digits' / 'results.jsonl').read_text().splitlines()
    *_, last = [json.loads(line) for line in lines]
    assert last['step'] == STEPS == PRESETS['digits']['train_steps'] / 3
    assert last['images'] == PRESETS['digits']['num_eval_images']
    # Five seeds had 85.2 to 91.4 % at this step, and 97.8 to 99.2 % after all.
    assert last['top_1'] >= 0.75
    assert f'{last["top_1"]:.2%}' in first.stdout
    assert 'Traceback' not in first.stderr and 'WARNING' not in first.stderr

    # The SavedModel gives the same top-1 accuracy and cross-entropy as the evaluation.
    (saved_model,) = (tmp_path / 'runs' / 'digits' / 'export').iterdir()
    encoded, labels = zip(*validation_set(Config(data_dir=str(tmp_path / 'runs' / 'digits_data'))))
    outputs = classify(str(saved_model), list(encoded))
    assert (outputs['classes'] == labels).mean() == pytest.approx(last['top_1'])
    likelihoods = outputs['probabilities'][np.arange(len(labels)), labels]
    assert -np.log(likelihoods).mean() == pytest.approx(last['cross_entropy'], rel=1e-4)

    second = run()
    assert second.returncode == 0, second.stderr
    assert 'nothing is left to train' in second.stderr
    assert (tmp_path / 'runs' / 'digits' / 'results.jsonl').read_text().splitlines() == lines
