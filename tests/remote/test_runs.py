"""Test of a whole run with its data, model and export in a remote store."""

import json
import pathlib
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from tests.remote.faults import LIST, READ, STAT, WRITE
from tests.remote.store import Store, slow_in
from tests.support.records import validation_set
from tests.support.saved_models import classify

IMAGES = 359
SMALL = [
    *('--use_tpu=False', '--height=75', '--width=75', '--depth_multiplier=0.01', '--num_parallel_calls=2'),
    # At the default rate, a few steps lead to probabilities of 0 in float32 and an infinite cross-entropy.
    *('--train_batch_size=8', '--eval_batch_size=64', '--learning_rate=0.0001', '--moving_average_decay=0.5'),
    *('--batch_norm_decay=0.1', '--train_steps_per_eval=2', '--skip_host_call=False', '--save_summary_steps=1'),
]


def lines(content: bytes) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in content.decode().splitlines()]


@slow_in('s3')
def test_run__trains_evaluates_resumes_and_exports(store: Store, digits_dir: str, tmp_path: pathlib.Path) -> None:
    data_dir = store.upload(digits_dir, 'data')
    folders = [f'--data_dir={data_dir}', f'--model_dir={store.url}/run/model']
    # Transient errors: requests of each kind fail twice, at the start of the run and later.
    for operation, pattern in (
        (READ, 'data/train-00003'),
        (READ, 'data/validation-00001'),
        (LIST, '/data'),
        (STAT, 'data/dataset.json'),
        (WRITE, 'model.ckpt-2'),
        (WRITE, 'results.jsonl'),
    ):
        store.faults.add(503, pattern, [operation], times=2)
    first = store.quick_main(*SMALL, *folders, '--train_steps=3')
    assert first.returncode == 0, first.stderr
    assert '359 images, average weights of step 3' in first.stdout
    assert {access.operation for access in store.faults.log(status=503)} == {READ, LIST, STAT, WRITE}
    assert len(store.faults.log(status=503)) == 12
    before = store.objects('run/model/')

    second = store.quick_main(*SMALL, *folders, '--train_steps=4', f'--export_dir={store.url}/run/export')
    assert second.returncode == 0, second.stderr
    assert f'resuming from {store.url}/run/model/model.ckpt-3' in second.stderr
    objects = store.objects('run/model/')
    recorded = lines(objects['run/model/results.jsonl'])
    assert objects['run/model/results.jsonl'].startswith(before['run/model/results.jsonl'])
    assert [line['step'] for line in recorded] == [2, 3, 4]
    assert [line['images'] for line in recorded] == [IMAGES] * 3
    assert Config.from_json(objects['run/model/config.json'].decode()).train_steps == 4
    # No temporary files are left.
    assert not [name for name in objects if 'unfinished' in name or 'probe' in name or '_temp' in name]

    # The same checkpoint gives the same results from a local folder and from the store.
    model_dir = tmp_path / 'model'
    store.download('run/model', model_dir)
    (model_dir / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-4"\n')
    (model_dir / 'results.jsonl').unlink()
    evaluation = ['--train_steps=4', '--mode=eval']
    local = store.quick_main(*SMALL, f'--data_dir={digits_dir}', f'--model_dir={model_dir}', *evaluation)
    assert local.returncode == 0, local.stderr
    remote = store.quick_main(*SMALL, *folders, *evaluation)
    assert remote.returncode == 0, remote.stderr
    (local_result,) = lines((model_dir / 'results.jsonl').read_bytes())
    *_, trained, remote_result = lines(store.objects()['run/model/results.jsonl'])
    for line in (local_result, remote_result):
        for name in ('step', 'images', 'top_1', 'top_5', 'cross_entropy'):
            assert line[name] == pytest.approx(trained[name], rel=1e-5), name

    # The SavedModel gives the same results as the evaluation.
    store.download('run/export', tmp_path / 'export')
    (saved_model,) = (tmp_path / 'export').iterdir()
    encoded, labels = zip(*validation_set(Config(data_dir=digits_dir)))
    outputs = classify(str(saved_model), list(encoded))
    assert (outputs['classes'] == labels).mean() == pytest.approx(trained['top_1'])
    likelihoods = outputs['probabilities'][np.arange(IMAGES), labels]
    assert -np.log(likelihoods).mean() == pytest.approx(trained['cross_entropy'], rel=1e-4)
    assert tf.train.load_checkpoint(str(model_dir / 'model.ckpt-4')).get_tensor('global_step') == 4
