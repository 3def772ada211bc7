"""The balance of host and device: arithmetic by hand, and the command."""

import json
import os
import pathlib
from typing import Any, Dict, List

import pytest

from inception_v3.run.profile import Profile
from tools.benchmarks import balance, measurement
from tools.benchmarks.measurement import Measurement


def test_balance__of_a_slow_device_agrees_with_arithmetic_by_hand() -> None:
    # 4,000 ms of work in 800 ms: 5 cores, exactly.
    for cores in (20, 5, 4):
        found = balance.balance(step_ms=800, host_images=1000, cpu_ms_per_image=4, cores=cores, hosts=4)
        assert (found['host_ms'], found['host_bound'], found['balancing_cores']) == (4000 / cores, cores < 5, 5)
    found = balance.balance(step_ms=800, host_images=1000, cpu_ms_per_image=4, cores=20, hosts=4)
    assert (found['period_ms'], found['device_idle'], found['host_idle']) == (800, 0, 0.75)
    assert found['images_per_second'] == 5000


def run(capsys: Any, *arguments: str) -> Any:
    code = balance.main(['balance', *arguments])
    return (code, *capsys.readouterr())


def test_command__prints_the_balance(capsys: Any) -> None:
    code, out, err = run(capsys, '--step_ms=815', '--cores=2', '--cpu_ms_per_image=2')
    assert code == 0 and not err
    assert out.startswith('host-bound: a step takes 1,024 ms instead of 815; the device waits 20% of the time\n')
    assert '1,024 ms per step: 1,024 images of 2.00 CPU-ms on 2 cores' in out
    assert '1,000 images/s' in out and 'with 3 cores per host' in out
    code, out, _ = run(capsys, '--step_ms=1000', '--cores=4', '--cpu_ms_per_image=2')
    assert code == 0 and out.startswith("device-bound: the host's cores wait 49% of the time\n")
    given = ['--json', '--step_ms=100', '--cores=8', '--cpu_ms_per_image=1.5']
    code, out, _ = run(capsys, *given, '--num_shards=32', '--train_batch_size=4096')
    result = json.loads(out)
    assert code == 0 and (result['hosts'], result['host_images']) == (4, 1024)
    assert result['host_ms'] == 192 and result['host_bound'] and result['balancing_cores'] == 16


def test_command__gives_each_machine_its_share_of_the_batch(capsys: Any) -> None:
    given = ['--json', '--step_ms=100', '--cores=8', '--cpu_ms_per_image=1', '--train_batch_size=64', '--num_gpus=2']
    _, out, err = run(capsys, *given, '--worker_hosts=a:2222,b:2222', '--task_index=0')
    result = json.loads(out)
    assert (result['hosts'], result['host_images'], result['images_per_second']) == (2, 32, 640), err


def test_command__measures_the_cost_if_it_is_not_given(capsys: Any, photo_dir: str, monkeypatch: Any) -> None:
    # Up to the end of storage, preprocessing and transfer; the second round is slower. Noise makes transfer negative.
    rounds = iter([(1.0, 7.0, 6.5), (1.0, 9.0, 8.5)])
    monkeypatch.setattr(
        measurement,
        'measure',
        lambda runs: [Measurement(run.images, ms, 1.0, 1.0) for run, ms in zip(runs, next(rounds))],
    )
    given = [f'--data_dir={photo_dir}', '--images=16', '--repeats=2', '--train_batch_size=64']
    code, out, err = run(capsys, '--json', '--step_ms=50', *given)
    assert code == 0, err
    result = json.loads(out)
    assert (result['cores'], result['host_images']) == (len(os.sched_getaffinity(0)), 64)
    assert result['cpu_ms_per_image'] == 7.5 and result['host_ms'] == 64 * 7.5 / result['cores']
    assert result['shares'] == pytest.approx({'storage': 1 / 8, 'preprocessing': 7 / 8, 'transfer': 0})


NUMBERS: Dict[str, Any] = {
    **{'first': 11, 'last': 14, 'step_ms': 120.0, 'device_ms': 100.0, 'wait_ms': 15.0, 'cpu_ms': 1000.0},
    **{'host_ms': {'storage': 64.0, 'preprocessing': 128.0, 'transfer': 64.0}, 'usual_ms': None, 'images': 128},
    **{'hosts': 2, 'device': 'the CPU', 'data': 'digits', 'time': '', 'tensorflow': '1.15.5'},
}
PROFILE = Profile(**NUMBERS)


def test_command__takes_the_numbers_of_a_profile(capsys: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'profile.json').write_text(PROFILE.to_json())
    code, out, err = run(capsys, '--json', f'--profile={tmp_path}', '--cores=2')
    assert code == 0, err
    result = json.loads(out)
    # 64 images for each of two hosts, in 256 ms of threads.
    assert (result['step_ms'], result['host_images'], result['hosts']) == (100, 64, 2)
    assert result['cpu_ms_per_image'] == 4 and result['host_ms'] == 128 and result['host_bound']
    assert result['shares'] == {'storage': 0.25, 'preprocessing': 0.5, 'transfer': 0.25}
    assert f'steps 11 to 14 of {tmp_path}, on the CPU' in result['cpu_ms_source']


@pytest.mark.parametrize(
    ('flag', 'profile', 'message'),
    [
        ('--step_ms=3', PROFILE, '--step_ms: leave it out; --profile='),
        ('--train_batch_size=64', PROFILE, '--train_batch_size: leave it out; --profile='),
        ('--preset=digits', PROFILE, '--preset: leave it out; --profile='),
        ('--cores=2', PROFILE._replace(device_ms=0), 'the profile shows no work of the device.'),
    ],
)
def test_command__refuses_a_profile_with_other_numbers_or_without_any(
    capsys: Any, tmp_path: pathlib.Path, flag: str, profile: Profile, message: str
) -> None:
    (tmp_path / 'profile.json').write_text(profile.to_json())
    code, out, err = run(capsys, flag, f'--profile={tmp_path}')
    assert code == 2 and not out and message in err and 'Traceback' not in err


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ([], '--step_ms: is required'),
        (['--step_ms=fast'], 'flag --step_ms=fast: must be a number'),
        (['--step_ms=nan'], '--step_ms=nan: must be above 0, and at most 1,000,000,000.'),
        (['--step_ms=1e-320', '--cpu_ms_per_image=1'], '--step_ms=1e-320: must be above 0'),
        (['--step_ms=1', '--cores=1.5'], 'flag --cores=1.5: must be a whole number'),
        (['--step_ms=1', '--data_format=tar'], '--data_format=tar: the generated photographs are TFRecord files.'),
        (['--step_ms=1', '--train_batch_size=12'], '--train_batch_size=12: must be a multiple'),
    ],
)
def test_command__refuses_wrong_arguments(capsys: Any, arguments: List[str], message: str) -> None:
    code, out, err = run(capsys, *arguments, '--images=1', '--repeats=1')
    assert code == 2 and not out
    assert f'error: {message}' in err and 'Traceback' not in err
