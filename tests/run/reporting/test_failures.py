"""Tests of explained failures: a full disk (a small file system, filled during a run), and refusals of TPUEstimator."""

import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from compat import tf
from inception_v3.config import ConfigError
from inception_v3.estimator import refusals_explained
from inception_v3.model_dir import check_undamaged
from inception_v3.run.failures import explain_disk

# Fills the disk after the run's first checkpoint; then frees it, and runs the same command for one more step.
SCRIPT = """
mount -t tmpfs -o size=48m tmpfs "$DISK" || exit 77
"$@" --train_steps=1000000 2>"$OUT/err" &
for i in $(seq 600); do [ -e "$DISK/model/checkpoint" ] && break; sleep 0.1; done
cat /dev/zero >"$DISK/filler" 2>"$OUT/filled"
wait $!
echo $? >"$OUT/code"
cp -r "$DISK/model" "$OUT/after"
rm "$DISK/filler"
"$@" --train_steps=1 2>"$OUT/err_again"
echo $? >"$OUT/code_again"
cp -r "$DISK/model" "$OUT/again"
"""


def test_explain_disk__names_a_full_disk_and_no_other_failure(tmp_path: Any) -> None:
    full = tf.errors.ResourceExhaustedError(None, None, f'{tmp_path}/export/1/variables; No space left on device')
    (tmp_path / 'export').mkdir()
    text = explain_disk(full, str(tmp_path), f'{tmp_path}/export')
    assert text and text.startswith(f'--export_dir={tmp_path}/export: cannot be written to: no space left on device; ')
    text = explain_disk(OSError(122, 'Disk quota exceeded'), str(tmp_path), None)
    assert text and text.startswith(f'--model_dir={tmp_path}: cannot be written to: disk quota exceeded')
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for limit, part in ((1 << 40, 'at most 1,099,511,627,776 bytes. Raise it'), (hard, 'Use another disk.')):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        text = explain_disk(OSError(27, 'File too large'), str(tmp_path), None)
        assert text and 'file too large' in text and part in text and 'are free' not in text
    for other in (tf.errors.ResourceExhaustedError(None, None, 'OOM when allocating tensor'), ValueError('no')):
        assert explain_disk(other, str(tmp_path), None) is None
    gone = explain_disk(ValueError("Parent directory doesn't exist"), str(tmp_path / 'gone'), None)
    assert gone and gone.startswith(f'--model_dir={tmp_path}/gone: the folder has vanished')
    assert explain_disk(ValueError('no'), 'gs://bucket/gone', None) is None


@pytest.mark.slow
def test_disk_failures__name_a_full_disk_and_keep_complete_checkpoints(digits_dir: str, tmp_path: Any) -> None:
    (tmp_path / 'disk').mkdir()
    program = [sys.executable, '-m', 'tests.support.one_layer_program', '--preset=digits', f'--data_dir={digits_dir}']
    program += [f'--model_dir={tmp_path}/disk/model', '--export_dir=', '--mode=train', '--save_checkpoints_secs=1']
    done = subprocess.run(
        ['unshare', '--map-root-user', '--mount', 'sh', '-c', SCRIPT, 'sh', *program],
        env={**os.environ, 'DISK': str(tmp_path / 'disk'), 'OUT': str(tmp_path)},
        capture_output=True,
        timeout=240,
    )
    if done.returncode and not (tmp_path / 'code').exists():
        pytest.skip(f'no file system can be mounted on this machine: {done.stderr.decode()}')
    error = (tmp_path / 'err').read_text()
    assert (tmp_path / 'code').read_text() == '2\n', error
    assert f'--model_dir={tmp_path}/disk/model: cannot be written to: no space left on device; ' in error
    assert 'Traceback' not in error
    after = tf.train.latest_checkpoint(str(tmp_path / 'after'))
    check_undamaged(after)
    step = after.rpartition('-')[2]
    assert f'The checkpoint of step {step} is kept, and the same command resumes' in error or step == '0', error
    assert not [name for name in os.listdir(str(tmp_path / 'after')) if '_temp_' in name or '.tmp' in name]
    assert (tmp_path / 'code_again').read_text() == '0\n', (tmp_path / 'err_again').read_text()
    check_undamaged(tf.train.latest_checkpoint(str(tmp_path / 'again')))


def test_refusals_explained__a_tpu_without_cores_and_no_defect_of_this_program() -> None:
    tpu = tf.estimator.tpu
    config = tpu.RunConfig(model_dir='m', tpu_config=tpu.TPUConfig(num_shards=8))
    estimator = tpu.TPUEstimator(lambda features, labels: None, config=config, use_tpu=True, train_batch_size=8)
    message = (
        r'TPUEstimator refuses the settings of this run: Cannot find any TPU cores in the system\..*worker\(s\)\.$'
    )
    with pytest.raises(ConfigError, match=message), refusals_explained():
        estimator.train(lambda: None, steps=1)
    for defect in (ValueError('a defect'), RuntimeError('a defect')):
        with pytest.raises(type(defect)) as found, refusals_explained():
            raise defect
        assert found.value is defect
