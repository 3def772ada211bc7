"""Tests of the preflight's check of the weights that a run begins from."""

import shutil
from typing import Any, List

import pytest

from tests.support.preflights import FAKE, errors_of, run
from tests.support.runs import FinishedRun


@pytest.fixture
def flags(finished_run: FinishedRun, one_layer: None, tmp_path: Any) -> List[str]:
    """Flags of training from the weights of the finished run."""
    on_tpu = ['--tpu=emulated:2', '--num_shards=2', '--train_batch_size=16', '--mode=train', '--num_classes=7']
    return [*FAKE, *on_tpu, f'--model_dir={tmp_path}/model', f'--init_from={finished_run.config.model_dir}']


def test_weights__loaded_and_left_new_are_reported(capsys: Any, flags: List[str]) -> None:
    result = run(capsys, *flags, '--init_except=Logits,Nothing', '--json')
    weights = result.report['weights']
    # 16 filters of 3 x 3 x 3, a shift, a mean and a variance for each.
    assert weights['loaded'] == f'4 variables of the network with {16 * 27 + 3 * 16} values'
    assert weights['left_new'] == 'Logits/biases (excepted), Logits/weights (excepted)'
    assert 'model.ckpt-5' in weights['begins_from']
    assert '--init_except: no variable matches Nothing.' in result.report['warnings']


def test_weights__that_do_not_fit_keep_the_run_from_starting(capsys: Any, flags: List[str], tmp_path: Any) -> None:
    (error,) = errors_of(capsys, *flags, '--init_except=Layer')
    assert 'Logits/biases has the shape [11], not [7]' in error
    (error,) = errors_of(capsys, *flags, f'--init_from={tmp_path}/nothing')
    assert error.startswith(f'--init_from={tmp_path}/nothing: no complete checkpoint')


def test_weights__of_a_run_that_resumes_are_not_read(
    capsys: Any, flags: List[str], finished_run: FinishedRun, tmp_path: Any, without_graphs: None
) -> None:
    shutil.copytree(str(finished_run.config.model_dir), tmp_path / 'model')
    report = run(capsys, *flags, f'--init_from={tmp_path}/nothing', '--json').report
    assert report['may_start'] and 'which the run resumes; --init_from is not' in report['weights']['begins_from']
