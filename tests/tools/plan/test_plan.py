"""Tests of the plan of a run, against formulas in NumPy."""

import dataclasses
import math
import pathlib
import re
import sys
from typing import Any, List

import numpy as np
import pytest

from compat import tf
from inception_v3 import flags as command_lines
from inception_v3.config import Config
from inception_v3.presets import PRESETS
from tests.support.pages import read_page
from tests.support.recorded import write_start
from tests.support.runs import FinishedRun
from tools.estimate import Estimate
from tools.plan import writing
from tools.plan.__main__ import main
from tools.plan.writing import measured_step_ms

LARGE_BATCH = Config(**PRESETS['imagenet_large_batch'])


def run(tmp_path: pathlib.Path, *flags: str) -> int:
    return main(['plan', f'--out={tmp_path}/plan', *flags])


def test_estimate__of_the_default_agrees_with_arithmetic() -> None:
    plan = Estimate(Config())
    assert plan.epochs == pytest.approx(213000 * 1024 / 1281167)
    assert plan.hours == pytest.approx(213000 * 0.815 / 3600)
    assert not plan.warnings
    assert plan.images_per_second == pytest.approx(1024 / 0.815)
    faster = Estimate(Config(), step_ms=200.0)
    assert (faster.hours, faster.images_per_second) == pytest.approx((213000 * 0.2 / 3600, 1024 / 0.2))
    assert plan.bytes_per_image == 299 * 299 * 3 * 4 + 4


def test_estimate__curves_are_the_documented_formula() -> None:
    plan = Estimate(LARGE_BATCH)
    steps = np.array(plan.steps)
    assert steps[0] == 0 and steps[-1] == 53249 and np.all(np.diff(steps) > 0)
    base = 0.165 * 4096 / 256
    plain = np.maximum(base * 0.94 ** (steps // (3 * 1281167 // 4096)), 1e-4 * base)
    adjusted = base * 0.94 ** (9 / 3)
    epoch = steps * 4096 // 1281167
    rising = np.where(epoch < 2, 0.1 * adjusted, 0.1 * adjusted + (epoch - 1) * 0.9 * adjusted / 9)
    np.testing.assert_allclose(plan.documented, plain)
    np.testing.assert_allclose(plan.rates, np.where(epoch < 12, rising, plain))
    assert max(plan.rates) == pytest.approx(1.1 * adjusted)
    assert plan.images_per_second == pytest.approx(4096 / 4 / 0.815), 'of each of four hosts'


@pytest.mark.parametrize(('decay', 'window'), [(0.995, 200), (0.9976, 417)])
def test_remembered__is_the_share_of_each_value_in_the_average(decay: float, window: int) -> None:
    average, values = 0.0, np.random.RandomState(0).normal(size=4 * window)
    for value in values:
        average = decay * average + (1 - decay) * value
    weights = writing.remembered(decay, 9999)
    assert len(writing.remembered(decay, 99)) == 99
    assert average == pytest.approx(float(weights @ values[::-1][: len(weights)]), abs=1e-3)
    assert weights[:window].sum() == pytest.approx(1 - math.exp(-1), abs=0.002)


def test_estimate__marks_the_overshoot_of_the_warm_up() -> None:
    adjusted = 0.165 * 4096 / 256 * 0.94**3
    over = Estimate(LARGE_BATCH).overshoot
    assert over and over.epoch == 11
    assert (over.rate, over.plain) == pytest.approx((1.1 * adjusted, adjusted))
    assert Estimate(Config(use_learning_rate_warmup=True, schedule='cosine')).overshoot is None
    assert Estimate(dataclasses.replace(LARGE_BATCH, cap_warmup=True)).overshoot is None
    assert Estimate(Config(use_learning_rate_warmup=True, train_steps=13000)).overshoot is None, 'ends in epoch 10'


@pytest.mark.parametrize(
    ('changes', 'bytes_sent'),
    [
        ({'precision': 'bfloat16'}, 299 * 299 * 3 * 2),
        # Words of four bytes, and four numbers of the distortion.
        ({'transfer': 'uint8'}, -(-299 * 299 * 3 // 4) * 4 + 4 * 4),
        ({'preprocessing': 'vgg', 'height': 224, 'width': 224, 'auxiliary_head': False}, 224 * 224 * 3 * 4),
    ],
)
def test_estimate__bytes_of_an_image_follow_the_flags(changes: Any, bytes_sent: int) -> None:
    assert Estimate(Config(train_steps=10, **changes)).bytes_per_image == bytes_sent + 4


@pytest.mark.parametrize(
    ('changes', 'part'),
    [
        ({'num_shards': 32, 'train_batch_size': 4096, 'eval_batch_size': 4096}, 'is not alpha ** 32 = 0.9904'),
        ({'use_tpu': False}, 'is not alpha ** 1 = 0.9997'),
        ({}, ''),
        ({'num_shards': 32, 'batch_norm_decay': 0.9904}, ''),
        ({'num_shards': 32, 'batch_norm_decay': 0.9}, '--batch_norm_decay=0.9 is not alpha ** 32 = 0.9904'),
    ],
)
def test_decay_warning__names_alpha_to_the_power_of_the_cores(changes: Any, part: str) -> None:
    warnings = Estimate(Config(**changes)).warnings
    assert len(warnings) == bool(part) and all(part in warning for warning in warnings)


@pytest.mark.parametrize('preset', ['own_images', 'digits', 'finetune'])
def test_decay_warning__is_not_given_for_a_preset_of_few_images(preset: str) -> None:
    found = []
    for words in ([preset], [preset, '--batch_norm_decay=0.5'], ['imagenet_large_batch', '--num_shards=64']):
        line = command_lines.parse(['plan', '--preset=' + words[0], *words[1:]])
        warnings = Estimate(line.config, 1.0, line.chooses_statistics).warnings
        found.append([text for text in warnings if 'is not alpha **' in text])
    assert not found[0] and '=0.5 is not' in found[1][0] and 'alpha ** 64' in found[2][0]


def test_measured_step_ms__is_the_median_of_the_last_start(tmp_path: pathlib.Path) -> None:
    config = Config(model_dir=str(tmp_path), train_batch_size=64, use_tpu=False, use_data='fake')
    assert measured_step_ms(config) is None
    write_start(config, None)
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        for step, speed in ((2, 100.0), (3, 640.0), (4, 6400.0)):
            writer.add_summary(tf.Summary(value=[{'tag': 'images_per_second', 'simple_value': speed}]), step)
    assert measured_step_ms(config) == pytest.approx(100)
    assert measured_step_ms(dataclasses.replace(config, train_steps=9)) == pytest.approx(100)
    others: List[Any] = [{'train_batch_size': 65}, {'num_gpus': 2}, {'worker_hosts': 'a:1,b:1', 'task_index': 0}]
    for other in others:
        assert measured_step_ms(dataclasses.replace(config, **other)) is None
    starts = tmp_path / 'starts.jsonl'
    starts.write_text(starts.read_text().replace('"step": 0', '"step": 3'))
    assert measured_step_ms(config) == pytest.approx(10), 'steps before the last start'
    # A start that was killed before its first checkpoint, and the one after it.
    starts.write_text(re.sub('"time": "[^"]*"', '"time": "2999-01-01T00:00:00+00:00"', starts.read_text()))
    assert measured_step_ms(config) is None


def test_plan__counts_the_replicas_of_all_machines(tmp_path: pathlib.Path, capsys: Any) -> None:
    hosts = ['--worker_hosts=a:2222,b:2222', '--task_index=1', '--num_gpus=4']
    assert run(tmp_path, *hosts, '--train_steps=100', '--train_batch_size=64', '--step_ms=100') == 0
    rows = dict(line.split('  ', 1) for line in capsys.readouterr().out.splitlines())
    assert rows['devices'].strip() == '8 replicas on 2 machines, 8 images each'
    assert rows['input'].strip().startswith('each of 2 hosts: 320 images/s')


def test_plan__writes_page_picture_and_numbers_without_a_session(
    tmp_path: pathlib.Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(tf, 'Session', None)
    model_dir = tmp_path / 'run'
    flags = ['--preset=imagenet_large_batch', '--train_steps=4000', '--step_ms=1630']
    assert run(tmp_path, *flags, f'--model_dir={model_dir}') == 0
    out, err = capsys.readouterr()
    rows = {name: value.strip() for name, value in (line.split('  ', 1) for line in out.splitlines())}
    # By hand: an epoch has 1,281,167 / 4,096 = 312.8 steps, and 4 hosts have 8 cores each. The rate is 16 times that of
    # 256 images, 2.64. The warm-up begins with a tenth of 2.64 * 0.94 ** 3 = 2.193, and exceeds 2.193 by a tenth in
    # epoch 11. The last step is in the fifth period of 3 epochs: 2.64 * 0.94 ** 4.
    left = 'less than 1% of the initial values is left at the end'
    assert rows == {
        'network': 'inception_v3, 299 x 299 pixels, float32',
        'epochs': '12.8 of 1,281,167 images',
        'steps': '4,000 of 4,096 images, 312.8 per epoch',
        'devices': '32 cores, 128 images each',
        'hours': '1.8 if a step takes 1630 ms (--step_ms)',
        'learning rate': '0.2193 at first, at most 2.412 (from epoch 11.0), 2.061 at last',
        'averages': f'decay 0.995: about the last 200 steps (0.64 epochs); {left}',
        'batch normalization': f'decay 0.9904: about the last 104 steps (0.33 epochs); {left}',
        'its documented decay': ('alpha = 0.9997 per update of a GPU job, beta = alpha ** 32 = 0.9904 for 32 cores'),
        'input': ('each of 4 hosts: 628 images/s, 674.0 MB/s to the devices at 1630 ms; 1,072,816 bytes per image'),
        'page': f'{tmp_path}/plan/plan.html',
    }
    assert 'warning: the warm-up overshoots: 2.412 in epoch 11' in err
    assert not model_dir.exists()
    folder = tmp_path / 'plan'
    assert sorted(path.name for path in folder.iterdir()) == ['plan.html', 'plan.png']
    assert (folder / 'plan.png').read_bytes().startswith(b'\x89PNG')
    page = (folder / 'plan.html').read_text()
    assert page.count('data:image/png;base64,') == 1 and '://' not in page
    text = ' '.join(' '.join(read_page(folder / 'plan.html').text).split())
    assert [name for name, value in rows.items() if name != 'page' and value not in text] == []
    assert 'the warm-up overshoots: 2.412' in text and '1630 ms (--step_ms)' in text


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        (['--train_steps=0'], '--train_steps=0'),
        (['--mode=eval'], '--mode=eval: does not train'),
        (['--preset=own_images'], '--data_dir: name the folder'),
        (['--data_dir=/none/here'], '/none/here'),
        (['--use_data=fake', '--init_from=/none/here'], '--init_from=/none/here: no complete checkpoint'),
        (['--out='], '--out: must be the path'),
        (['--step_ms=0'], '--step_ms=0: must be the milliseconds'),
        (['--out=plan', '--model_dir=plan'], 'is the folder of a run'),
    ],
)
def test_plan__refuses_runs_without_training_and_writes_nothing(
    flags: List[str], words: str, tmp_path: pathlib.Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(['plan', *flags]) == 2
    assert words in capsys.readouterr().err and not [*tmp_path.iterdir()]


def test_plan__tells_of_the_weights_to_begin_from(
    finished_run: FinishedRun, one_layer: None, tmp_path: pathlib.Path, capsys: Any
) -> None:
    begin = ['--use_data=fake', '--height=75', '--width=75', f'--init_from={finished_run.config.model_dir}']
    short = ['--train_steps=2', '--batch_norm_decay=0.9']
    assert run(tmp_path, *begin, '--num_classes=7', '--preprocessing=vgg', *short) == 0
    out, err = capsys.readouterr()
    rows = dict(line.split('  ', 1) for line in out.splitlines())
    assert 'model.ckpt-5 (checkpoint, step 5): averages of the weights' in rows['begins from']
    # 16 filters of 3 x 3 x 3, a shift, a mean and a variance for each.
    assert rows['loaded'].split() == f'4 variables of the network with {16 * 27 + 3 * 16} values'.split()
    assert 'Logits/biases ([11] in the source, [7] here)' in rows['left new']
    assert 'preprocessing: inception -> vgg' in err
    # 2/11 * 3/12, and 0.9 ** 2.
    assert '; 5% of the initial' in rows['averages'] and '; 81% of the initial' in rows['batch normalization']
    assert run(tmp_path, *begin, '--num_classes=7', '--init_except=Layer') == 2
    assert 'Logits/biases has the shape [11], not [7]' in capsys.readouterr().err


def test_plan__of_a_run_that_resumes_does_not_read_other_weights(
    finished_run: FinishedRun, tmp_path: pathlib.Path, capsys: Any
) -> None:
    model_dir = finished_run.config.model_dir
    # Also with unusual values.
    unusual = ['--train_steps=9', '--batch_norm_decay=0', '--moving_average=False']
    assert run(tmp_path, '--use_data=fake', f'--model_dir={model_dir}', '--init_from=/none/here', *unusual) == 0
    rows = dict(line.split('  ', 1) for line in capsys.readouterr().out.splitlines())
    begins = f'{model_dir}/model.ckpt-5, which the run resumes; --init_from is not read'
    assert (rows['begins from'].strip(), rows['averages'].strip()) == (begins, 'none')


def test_plan__of_digits_does_not_write_them(tmp_path: pathlib.Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, '--preset=digits') == 0
    assert [path.name for path in tmp_path.iterdir()] == ['plan']
    assert '16.7 of 1,438 images' in capsys.readouterr().out


def test_plan__without_matplotlib_names_the_extra(tmp_path: pathlib.Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    assert run(tmp_path, '--train_steps=10') == 2
    assert "pip install 'inception-v3-tpu[studies]'" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
