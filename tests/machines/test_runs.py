"""Runs of two and three workers, as processes on the loopback interface."""

import glob
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import time
from typing import Any, Callable, Iterator, List

import numpy as np
import pytest

from compat import tf
from inception_v3.machines import cluster
from inception_v3.run import best_checkpoint
from tests.support.checkpoints import saved_variables
from tests.support.ports import free_addresses
from tests.support.runs import FinishedRun
from tests.support.worker_program import PER_EVAL, STEPS, Program

pytestmark = pytest.mark.program


@pytest.fixture
def program(tmp_path: pathlib.Path, digits_dir: str) -> Iterator[Callable[..., Program]]:
    """Makes programs, whose processes end with the test."""
    made: List[Program] = []

    def make(workers: int, **flags: Any) -> Program:
        addresses = free_addresses(workers) if workers > 1 else ()
        folder, data_dir = tmp_path / f'run{len(made)}', flags.pop('data_dir', digits_dir)
        made.append(Program(folder, data_dir, addresses, **flags))
        return made[-1]

    yield make
    for each in made:
        each.kill()


def evaluations(program: Program) -> List[Any]:
    lines = pathlib.Path(program.model_dir, 'results.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_same_bits(one: Program, other: Program) -> None:
    variables, others = (saved_variables(each.model_dir) for each in (one, other))
    assert variables.keys() == others.keys()
    assert [name for name in variables if variables[name].tobytes() != others[name].tobytes()] == []
    assert len(evaluations(one)) == len(evaluations(other)) > 0
    for evaluation, expected in zip(evaluations(one), evaluations(other)):
        for name in ('step', 'top_1', 'top_5', 'images'):
            assert evaluation[name] == expected[name], name
        assert evaluation['cross_entropy'] == pytest.approx(expected['cross_entropy'], abs=1e-6)


@pytest.mark.both
def test_workers__stopped_by_sigterm_resume_to_the_bits_of_one_process(program: Any) -> None:
    # Sums of three are added in the order of the replicas, wherever these are.
    three = program(3, batch_norm='synchronized')
    others = [three.start(number) for number in (0, 1)]
    late = f'waiting for worker 2 ({three.addresses[2]})'
    three.says(0, late)
    # Worker 2 is late, and is asked to end after its second step.
    assert three.ends(*others, three.start(2, step=2, signal=signal.SIGTERM)) == [75] * 3
    text = r'error: ended by SIGTERM after step (\d+) of 12, which is saved'
    ended = [re.search(text, three.log(number)) for number in range(3)]
    steps = [int(match.group(1)) if match else three.log(number) for number, match in enumerate(ended)]
    assert len({*steps}) == 1 and 2 <= steps[0] < PER_EVAL, steps
    assert os.path.exists(os.path.join(three.model_dir, f'model.ckpt-{steps[0]}.index'))
    assert not os.path.exists(os.path.join(three.model_dir, 'trainer.json'))

    # One process with three replicas takes over, then the machines again.
    three.clear_logs()
    changes: Any = {'batch_norm': 'synchronized', 'num_gpus': 3}
    until: Any = {'mode': 'train', 'train_steps': PER_EVAL - 1, 'export_dir': ''}
    taking_over = Program(three.folder, three._flags['data_dir'], **changes, **until)
    assert three.ends(taking_over.start()) == [0], three.log()
    three.clear_logs()
    assert three.ends(*three.start_all()) == [0] * 3, three.log()
    alone = program(1, **changes)
    assert alone.ends(alone.start()) == [0], alone.log()
    assert_same_bits(three, alone)
    assert [(each['step'], each['images']) for each in evaluations(three)] == [(PER_EVAL, 359), (STEPS, 359)]

    # Only the first worker writes.
    starts = pathlib.Path(three.model_dir, 'starts.jsonl').read_text().splitlines()
    assert [json.loads(start)['config'].get('task_index') for start in starts] == [0, None, 0]
    assert len(glob.glob(f'{three.folder}/export/*')) == 1
    assert len(glob.glob(f'{three.model_dir}/events.out.tfevents.*')) == 3
    assert glob.glob(f'{three.model_dir}/.workers-*') == []
    first = f'worker 0 ({three.addresses[0]})'
    for number in (1, 2):
        done = f'worker {number} ({three.addresses[number]}) is done; {first} has the results'
        assert done in three.log(number)


def write_part_of(digits_dir: str, folder: pathlib.Path, **images: int) -> None:
    """Writes two files of each split with `images` digits each; one record of each training file is damaged."""
    folder.mkdir()
    for split, number in images.items():
        for shard, path in enumerate(sorted(pathlib.Path(digits_dir).glob(f'{split}-*'))[:2]):
            contents = [*itertools.islice(tf.io.tf_record_iterator(str(path)), number)]
            contents[7] = b'nonsense' if split == 'train' else contents[7]
            with tf.io.TFRecordWriter(str(folder / f'{split}-0000{shard}-of-00002')) as writer:
                for content in contents:
                    writer.write(content)
    described = json.loads(pathlib.Path(digits_dir, 'dataset.json').read_text())
    sizes = {f'{split}_images': 2 * number for split, number in images.items()}
    unknown = {'train_images_per_class': [], 'fingerprint': ''}
    records = {'validation_records_per_file': [images['validation']] * 2, **unknown}
    (folder / 'dataset.json').write_text(json.dumps({**described, **sizes, **records}))


def test_workers__have_the_weights_best_profile_and_bad_records_of_one_process(
    program: Any, digits_dir: str, finished_run: FinishedRun, tmp_path: pathlib.Path
) -> None:
    data = tmp_path / 'data'
    write_part_of(digits_dir, data, train=24, validation=12)
    source_dir = str(finished_run.config.model_dir)
    source = saved_variables(source_dir)
    flags = {
        **{'data_dir': str(data), 'init_from': source_dir, 'precision': 'float16', 'max_bad_records': 2},
        # Two epochs.
        **{'keep_best': True, 'profile_steps': '1,2', 'train_batch_size': 24, 'eval_batch_size': 12, 'train_steps': 4},
        'train_steps_per_eval': 2,
    }
    two, alone = program(2, **flags), program(1, num_gpus=2, **flags)
    assert two.ends(*two.start_all()) == [0, 0], two.log(0) + two.log(1)
    assert alone.ends(alone.start()) == [0], alone.log()
    assert_same_bits(two, alone)
    for each in (two, alone):
        names = [path.name for path in pathlib.Path(each.model_dir, 'bad_records', 'train').iterdir()]
        assert sorted(names) == [f'train-0000{number}-of-00002@7' for number in (0, 1)]
        log = each.log(0)
        assert log.count('record 7: not a tf.train.Example') == 2
        # Both replicas skip the step, although only the gradients of one overflow.
        assert re.search(r'step 3: a gradient overflows float16.*\(steps skipped so far: 1\)', log)
        assert 'steps 1 to 2: ' in log
        best = best_checkpoint.read(each.model_dir)
        assert best and best.evaluation.step == max(evaluations(each), key=lambda one: one['top_1'])['step']
        first = saved_variables(os.path.join(each.model_dir, 'model.ckpt-0'))
        for name in ('Layer/weights', 'Logits/weights'):
            np.testing.assert_array_equal(first[name], source[f'{name}/ExponentialMovingAverage'], err_msg=name)
    assert '2 records could not be used:' in alone.log(0)
    # In the second epoch, either worker may read a record.
    assert re.search(r'2 records could not be used \([12] at worker [01] \(127', two.log(0))
    assert len(re.findall(r'skipped at worker [01] \(.*\): .*, record 7: not a', two.log(0))) == 2
    profiles = [json.loads(pathlib.Path(each.model_dir, 'profile.json').read_text()) for each in (two, alone)]
    assert [(profile['hosts'], profile['images']) for profile in profiles] == [(2, 24), (1, 24)]
    assert 'profile' not in two.log(1)


def test_workers__of_tf_config_average_the_moments_of_several_replicas(program: Any) -> None:
    # The background has no images.
    flags: Any = {'batch_norm': 'averaged', 'class_weights': f'mine=1{",2,0.5" * 5}'}
    two, alone = program(2, **flags, num_gpus=2), program(1, **flags, num_gpus=4)
    hosts = {'chief': [two.addresses[0]], 'worker': [two.addresses[1]]}
    tasks = [{'type': kind, 'index': 0} for kind in hosts]
    values = [json.dumps({'cluster': hosts, 'task': task}) for task in tasks]
    assert two.ends(*(two.start(n, tf_config=value) for n, value in enumerate(values))) == [0, 0], two.log()
    assert alone.ends(alone.start()) == [0], alone.log()
    assert f'worker 1 ({two.addresses[1]}) is done' in two.log(1)
    variables, others = (saved_variables(each.model_dir) for each in (two, alone))
    assert variables.keys() == others.keys()
    for name, value in variables.items():
        # Each machine adds the gradients of its own two replicas first.
        np.testing.assert_allclose(value, others[name], atol=1e-6, rtol=1e-6, err_msg=name)
    assert [each['images'] for each in evaluations(two)] == [359, 359]


@pytest.mark.both
def test_workers__without_a_seed_share_the_weights_and_end_together_by_ctrl_c(program: Any) -> None:
    # Without a seed, sums are passed around a ring; the initial weights and the images are random.
    two = program(2, mode='train', num_gpus=2)
    del two._flags['seed']
    # The second worker does not see the first one's checkpoint in the list.
    started = two.start(0, step=PER_EVAL + 2, signal=signal.SIGINT), two.start(1, sees_list=False)
    assert two.ends(*started) == [130, 130], two.log()
    ended = [re.findall(r'ended by Ctrl-C after step (\d+) of', two.log(number)) for number in (0, 1)]
    assert ended[0] == ended[1] and len(ended[0]) == 1
    # At the beginning, and after each step.
    digests = [re.findall(r'^weights (\w+)$', two.log(number), re.M) for number in (0, 1)]
    assert digests[0] == digests[1] and len(digests[0]) == 1 + int(ended[0][0])


@pytest.mark.both
@pytest.mark.parametrize(
    ('lost', 'sent', 'reason'),
    [
        (0, signal.SIGKILL, 'its process ended'),
        # As if its network had gone.
        (1, signal.SIGSTOP, 'no sign of life for 3 s (--worker_timeout)'),
    ],
)
def test_workers__end_when_one_is_lost(program: Any, lost: int, sent: int, reason: str) -> None:
    two = program(2, worker_timeout=3 if sent == signal.SIGSTOP else 60)
    # In the second cycle.
    processes = two.start_all(lost, step=PER_EVAL + 2, signal=sent)
    survivor = 1 - lost
    two.says(survivor, f'preparing to evaluate step {PER_EVAL}')
    began = time.monotonic()
    assert two.ends(processes[survivor]) == [1]
    name = f'worker {lost} ({two.addresses[lost]})'
    expected = f'error: {name} is lost: {reason}. The checkpoint of step {PER_EVAL} is kept, and'
    assert two.log(survivor).count('error: ') == 1 and expected in two.log(survivor), two.log(survivor)
    # A lost first worker leaves its lock behind, which the next command of this machine takes over.
    assert os.path.exists(os.path.join(two.model_dir, 'trainer.json')) == (lost == 0)
    # Less than the default of --worker_timeout, even on a busy machine.
    assert time.monotonic() - began < 55


def test_workers__that_differ_are_refused_with_both_values(program: Any, tmp_path: pathlib.Path) -> None:
    two = program(2)
    other_data = tmp_path / 'data'
    other_data.mkdir()
    for path in glob.glob(os.path.join(two._flags['data_dir'], '*')):
        (other_data / os.path.basename(path)).write_bytes(pathlib.Path(path).read_bytes())
    # One byte differs.
    changed = sorted(other_data.glob('train-*'))[0]
    content = bytearray(changed.read_bytes())
    content[60_000] ^= 1
    changed.write_bytes(content)
    other = {'learning_rate': 0.5, 'model_dir': str(tmp_path / 'elsewhere'), 'data_dir': str(other_data)}
    assert two.ends(two.start(0), two.start(1, **other)) == [2, 2]
    first, second = (f'worker {number} ({address})' for number, address in enumerate(two.addresses))
    for number in (0, 1):
        log = two.log(number)
        assert f'--model_dir={two.model_dir}: {first} has this folder, and {second} does not see it as' in log, log
        assert str(tmp_path / 'elsewhere') in log and 'NFS' in log
        assert re.search(rf'--learning_rate: [\d.]+ at {re.escape(first)}, 0.5 at {re.escape(second)}', log)
        assert re.search(
            rf'the train files: \d files, sample [\w-]+ at {re.escape(first)}, \d files, sample [\w-]+ at ', log
        )
        # Nothing else differs.
        assert log.count('at worker 1 (') + log.count(f'and {second} does') == 3
    assert not (tmp_path / 'elsewhere').exists() and os.listdir(two.model_dir) == []


def test_workers__that_fail_before_they_join_end_the_others(program: Any, tmp_path: pathlib.Path) -> None:
    two = program(2)
    first, second = (f'worker {number} ({address})' for number, address in enumerate(two.addresses))
    with socket.socket() as other:
        port = cluster.host_and_port(two.addresses[0])[1]
        other.bind(('127.0.0.1', port))
        other.listen()
        assert two.ends(*two.start_all()) == [1, 1]
    text = f'--worker_hosts: port {port}, of worker 0, is in use by another process'
    assert f'error: {text}' in two.log(0) and f'error: {first} ended: {text}' in two.log(1)
    # The first worker is ready, and waits.
    for flags, text in (({'lerning_rate': 1}, 'lerning_rate'), ({'data_dir': str(tmp_path / 'no')}, 'no such folder')):
        two.clear_logs()
        waiting = two.start(0)
        two.says(0, f'waiting for {second}')
        assert two.ends(waiting, two.start(1, **flags)) == [2, 2]
        assert re.search(rf'error: {re.escape(second)} ended: .*{text}', two.log(0)), two.log(0)
        assert re.search(f'error: .*{text}', two.log(1))
        assert os.listdir(two.model_dir) == []


def test_run__moves_from_one_machine_to_two_and_back(program: Any) -> None:
    flags = {'mode': 'train', 'export_dir': '', 'batch_norm': 'synchronized'}
    two, alone = program(2, train_steps=2, **flags), program(1, train_steps=3, **flags)
    for steps in (1, 3):
        one = Program(two.folder, two._flags['data_dir'], **flags, train_steps=steps)
        assert two.ends(one.start()) == [0], two.log()
        if steps == 1:
            assert two.ends(*two.start_all()) == [0, 0], two.log()
    assert f'worker 1 ({two.addresses[1]}) is done' in two.log(1)
    for step in (1, 2):
        assert f'resuming from {two.model_dir}/model.ckpt-{step}' in two.log()
    assert alone.ends(alone.start()) == [0], alone.log()
    variables, others = (saved_variables(each.model_dir) for each in (two, alone))
    assert variables.keys() == others.keys() and variables['global_step'] == 3
    for name, value in variables.items():
        # The machines add in another order.
        np.testing.assert_allclose(value, others[name], rtol=1e-5, atol=1e-6, err_msg=name)
