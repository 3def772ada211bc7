"""Tests that the program gives the same results on emulated cores as on one device."""

import dataclasses
import os
from typing import Any, Dict

import numpy as np
import pytest

from compat import tf
from inception_v3 import main
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.run.history import read_evaluations
from tests.support.checkpoints import saved_variables
from tests.support.runs import make_small_config


def largest_difference(a: Dict[str, np.ndarray], b: Dict[str, np.ndarray]) -> float:
    """The largest difference between weights."""
    return max(float(np.abs(a[name] - b[name]).max()) for name in a if name.endswith('/weights'))


@pytest.mark.both
@pytest.mark.program
def test_synchronized_cores__train_with_bytes_as_one_device_does(
    digits_dir: str, tmp_path: Any, one_layer: None
) -> None:
    def trained_on(cores: int, **changes: Any) -> Dict[str, np.ndarray]:
        model_dir = str(tmp_path / f'{cores} {changes}')
        flags = {'batch_norm': 'synchronized', 'seed': 1, 'iterations': 2, 'transfer': 'uint8', **changes}
        config = make_small_config(digits_dir, model_dir=model_dir, train_batch_size=16, **flags)
        if cores:
            config = dataclasses.replace(config, use_tpu=True, tpu=f'emulated:{cores}', num_shards=cores)
        make_estimator(config).train(InputPipeline(True, config), max_steps=2)
        return saved_variables(model_dir)

    one = trained_on(0)
    for transpose in (False, True):
        several = trained_on(2, transpose_enabled=transpose)
        assert one.keys() == several.keys() and one['global_step'] == 2
        for name, value in one.items():
            np.testing.assert_allclose(several[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    # The rounding to bytes has an effect, so the cores did receive bytes; and so have moments of all cores.
    for other in (trained_on(0, transfer='float'), trained_on(2, batch_norm='local')):
        assert largest_difference(one, other) > 10 * largest_difference(one, several)


@pytest.mark.both
@pytest.mark.program
def test_program__trains_evaluates_resumes_and_exports_on_emulated_cores(
    digits_dir: str, tmp_path: Any, capsys: Any, one_layer: None
) -> None:
    model_dir = str(tmp_path / 'run')
    command = ['main', '--preset=digits', '--tpu=emulated:2x2', f'--data_dir={digits_dir}', f'--model_dir={model_dir}']
    command += ['--train_steps_per_eval=3', '--iterations=2', '--precision=bfloat16', '--batch_norm=synchronized']
    assert main.main([*command, '--train_steps=3', '--export_dir=']) == 0
    assert 'THE TPU IS EMULATED: 2 cores on 2 hosts' in capsys.readouterr().err
    export_dir = str(tmp_path / 'export')
    assert main.main([*command, '--train_steps=6', f'--export_dir={export_dir}']) == 0
    assert [(e.step, e.images) for e in read_evaluations(model_dir)] == [(3, 359), (6, 359)]
    kept = saved_variables(model_dir)
    assert not [name for name in kept if 'core_' in name], 'only variables of the first core are saved'
    assert {v.dtype for v in kept.values()} == {np.dtype(np.float32), np.dtype(np.int64)}
    (saved_model,) = os.listdir(export_dir)
    with tf.Session() as session:
        graph = tf.saved_model.load(session, ['serve'], os.path.join(export_dir, saved_model)).graph_def
    assert not [node.name for node in graph.node if node.attr['T'].type == tf.bfloat16.as_datatype_enum]
