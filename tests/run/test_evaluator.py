"""Tests of the call with which a checkpoint is evaluated; `tests/cycles/test_evaluation.py` has whole evaluations."""

import io
import types
from typing import Any, Dict

import pytest

from console.screen import Screen
from inception_v3.config import Config
from inception_v3.run.context import Context
from inception_v3.run.evaluator import Evaluator
from inception_v3.run.hooks.stopping import StepLimitHook
from tests.support.checkpoints import save_step


@pytest.mark.parametrize(
    ('values', 'limits', 'steps'),
    [
        # A CPU evaluates until the images end; several machines all take as long as the one with the most images.
        ({}, [], None),
        ({'worker_hosts': 'a:1,b:1', 'task_index': 0}, [5], None),
        ({'worker_hosts': 'a:1,b:1,c:1,d:1', 'task_index': 1}, [5], None),
        ({'use_tpu': True, 'tpu': 'emulated:4', 'num_shards': 4}, [], 5),
    ],
)
def test_evaluation__has_as_many_steps_as_its_machines_need(
    values: Dict[str, Any], limits: Any, steps: Any, tmp_path: Any
) -> None:
    save_step(str(tmp_path), 7)
    settings = {
        'use_tpu': False,
        'use_data': 'fake',
        'num_eval_images': 17,
        'eval_batch_size': 4,
        'train_batch_size': 4,
    }
    config = Config(**{**settings, 'model_dir': str(tmp_path), **values})
    calls = []
    estimator: Any = types.SimpleNamespace(evaluate=lambda pipeline, **options: calls.append(options))
    nothing: Any = None
    context = Context(config, Screen(io.StringIO()), nothing, nothing, nothing, estimator, None)
    checkpoint = f'{tmp_path}/model.ckpt-7'
    Evaluator(context)._metrics_of(checkpoint)
    (options,) = calls
    assert [hook._left for hook in options['hooks'] if isinstance(hook, StepLimitHook)] == limits
    assert (options['steps'], options['checkpoint_path']) == (steps, checkpoint)
