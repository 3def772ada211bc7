"""Test of the published streaming example, reduced, with shards, run and best checkpoint in a remote store."""

import json
import pathlib
import re

import pytest

from tests.data.convert.cifar10 import archives as cifar10_archives
from tests.remote.store import SMALL, Store

# Converts an archive whose batches have four images.
_CONVERT = """
from data.convert.cifar10 import __main__ as cifar10
from data.convert.cifar10 import source as cifar10_source
cifar10_source._BATCH_IMAGES = 4
raise SystemExit(cifar10.main())
"""
_COUNTS = ['--train_images=20', '--validation_images=10', '--train_shards=4', '--validation_shards=2']


@pytest.mark.slow
def test_cifar10_stream__trains_and_keeps_the_best_checkpoint_in_the_store(s3: Store, tmp_path: pathlib.Path) -> None:
    archive = cifar10_archives.pack(cifar10_archives.write_binary(tmp_path, cifar10_archives.cut_out(4)))
    s3.put('published/cifar-10-binary.tar.gz', archive.read_bytes())
    data_dir, model_dir = f'{s3.url}/data', f'{s3.url}/run'
    made = s3.python('-c', _CONVERT, f'{s3.url}/published/cifar-10-binary.tar.gz', f'--data_dir={data_dir}', *_COUNTS)
    assert made.returncode == 0, made.stderr
    shards = [f'data/train-{n:05d}-of-00004.tar' for n in range(4)]
    shards += [f'data/validation-{n:05d}-of-00002.tar' for n in range(2)]
    files = sorted(name for name in s3.objects('data/') if not name.endswith('/'))
    assert files == ['data/conversion.json', 'data/dataset.json', *shards]

    flags = [
        '--preset=cifar10_stream',
        '--network=inception_v3',
        *SMALL,
        '--eval_batch_size=8',
        '--batch_norm_decay=0.1',
        '--log_steps=1',
        # The network of the test has an operation without a kernel for bfloat16 on a CPU.
        '--precision=float32',
    ]
    flags += [f'--data_dir={data_dir}', f'--model_dir={model_dir}', '--train_batch_size=8', '--learning_rate=0.01']
    done = s3.quick_main(*flags, '--train_steps=5', '--train_steps_per_eval=3')
    assert done.returncode == 0, done.stderr
    steps = re.findall(r'device CPU:0, epoch (\d), step (\d) of 5, .*GlobalRate [\d.,]+ images/s per core', done.stderr)
    assert steps == [('1', '1'), ('1', '2'), ('1', '3'), ('2', '4'), ('2', '5')]
    epochs = re.findall(
        r'epoch (\d): time [\d.]+ s, (\d+) images \(\d+ per replica\), GlobalRate [\d.]+ images/s', done.stderr
    )
    assert epochs == [('1', '24'), ('2', '16')]
    recorded = [json.loads(line) for line in s3.objects()['run/results.jsonl'].decode().splitlines()]
    assert [line['step'] for line in recorded] == [3, 5]
    best = max(recorded, key=lambda line: line['top_1'])
    assert f'Max Accuracy  {best["top_1"]:.2%} at step {best["step"]}\n' in done.stdout
    kept = s3.objects('run/best/')
    version = f'run/best/step-{best["step"]}'
    assert json.loads(kept[f'{version}/evaluation.json'].decode()) == best
    assert f'{version}/model.ckpt-{best["step"]}.index' in kept
