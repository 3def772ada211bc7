"""Tests of the program's command line: a user error gives one message and no traceback."""

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Any, List, Tuple

import pytest

from compat.log import logger
from inception_v3 import fitting, main, train_and_evaluate
from inception_v3.config import Config
from inception_v3.run.hooks.stopping import Termination
from tests.support.photos import Photo
from tests.support.processes import wait_for


def run(capsys: Any, *arguments: str) -> Tuple[int, str, str]:
    code = main.main(['main', *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


NODE = ['--use_data=fake', '--model_dir=gs://b/m', '--tpu=n']
SMALL = ['--use_tpu=False', '--height=75', '--width=75', '--depth_multiplier=0.01']


@pytest.mark.parametrize(
    ('arguments', 'parts'),
    [
        ([], ['--data_dir', '--use_data=fake']),
        (['--use_data=fake'], ['--model_dir']),
        (['--use_data=fake', '--model_dir=m'], ['--use_tpu=True', '--tpu', '--use_tpu=False']),
        (NODE, ['--tpu=n', '--tpu_zone and --gcp_project']),
        ([*NODE, '--model_dir=m'], ['--model_dir=m', "a Cloud TPU's hosts", 'gs://']),
        ([*NODE, '--use_data=real', '--data_dir={photos}'], ['--data_dir={photos}', "a Cloud TPU's hosts", 'gs://']),
        ([*SMALL, '--model_dir=m', '--use_data=fake', '--width=1000000'], ['--width=1000000', 'smaller images', 'GiB']),
        ([*SMALL, '--model_dir=m', '--data_dir={tmp}/nowhere'], ['{tmp}/nowhere', 'no such folder']),
        ([*SMALL, '--model_dir=m', '--data_dir={tmp}/empty'], ['{tmp}/empty', 'train-00000-of-01024', 'empty']),
        ([*SMALL, '--model_dir=m', '--data_dir={tmp}/only'], ['{tmp}/only', 'validation-00000-of-00128', 'train-*']),
        ([*SMALL, '--model_dir={tmp}/file/m', '--use_data=fake'], ['{tmp}/file/m', 'cannot be written']),
        (['--data_dir={tmp}/damaged'], ['{tmp}/damaged/dataset.json', 'train_images']),
        (['--preset=digits', '--data_dir={tmp}/nowhere'], ['{tmp}/nowhere', 'no such folder']),
    ],
)
def test_user_errors__are_one_message_without_traceback(
    capsys: Any, tmp_path: Any, photo_dir: str, arguments: List[str], parts: List[str]
) -> None:
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'only').mkdir()
    shutil.copy(f'{photo_dir}/train-00000-of-00002', str(tmp_path / 'only' / 'train-00000-of-00001'))
    (tmp_path / 'damaged').mkdir()
    (tmp_path / 'damaged' / 'dataset.json').write_text('{"images": 3}')
    (tmp_path / 'file').write_text('')
    code, out, err = run(capsys, *[argument.format(tmp=tmp_path, photos=photo_dir) for argument in arguments])
    assert code != 0
    assert out == ''
    assert '\nerror: ' in f'\n{err}' and 'Traceback' not in err
    for part in parts:
        assert part.format(tmp=tmp_path, photos=photo_dir) in err


FAKE = [*SMALL, '--use_data=fake', '--model_dir=m']


def replace_run(monkeypatch: Any, execute: Any) -> List[Config]:
    """Replaces the run by a function; returns the list that will hold the configuration."""
    configs: List[Config] = []

    class Run:
        def __init__(self, config: Config, screen: Any, termination: Termination, channel: Any):
            configs.append(config)
            self.termination = termination

        def execute(self) -> str:
            return execute(self.termination)

    monkeypatch.setattr(train_and_evaluate, 'Run', Run)
    return configs


def test_main__prints_the_summary_of_the_run(capsys: Any, monkeypatch: Any, photo_dir: str) -> None:
    def execute(termination: Termination) -> str:
        logger.info('a line')
        return 'the summary'

    configs = replace_run(monkeypatch, execute)
    arguments = [*SMALL, f'--data_dir={photo_dir}', '--model_dir=m', '--train_steps=7', '--seed=1']
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (0, 'the summary\n')
    assert err.endswith(' a line\n')
    (config,) = configs
    assert (config.train_steps, config.num_classes, config.num_train_images) == (7, 6, 5)
    # A seed fixes the number of threads.
    assert config.intra_op_threads == len(os.sched_getaffinity(0))
    assert run(capsys, *FAKE)[0] == 0
    assert configs[1].intra_op_threads == 0


@pytest.mark.parametrize(('number', 'code', 'name'), [(signal.SIGTERM, 75, 'SIGTERM'), (signal.SIGINT, 130, 'Ctrl-C')])
def test_main__ends_at_a_signal_before_training_even_if_it_was_ignored(
    capsys: Any, monkeypatch: Any, number: signal.Signals, code: int, name: str
) -> None:
    codes: List[int] = []
    monkeypatch.setattr(main.os, '_exit', codes.append)

    def execute(termination: Termination) -> str:
        os.kill(os.getpid(), number)
        wait_for(lambda: codes)
        return ''

    replace_run(monkeypatch, execute)
    # A shell script's `command &` ignores signals like this.
    before = signal.signal(number, signal.SIG_IGN)
    try:
        _, _, err = run(capsys, *FAKE)
    finally:
        signal.signal(number, before)
    assert codes == [code]
    assert f'error: ended by {name}; the same command resumes from the last checkpoint' in err


def test_main__ends_with_130_at_ctrl_c_while_it_prepares(capsys: Any, monkeypatch: Any) -> None:
    def prepare(*unused: Any) -> Config:
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: False, 5)
        return Config()

    monkeypatch.setattr(fitting, 'fit_to_data_set', prepare)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, out, err = run(capsys, *FAKE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out) == (130, '')
    assert err == 'error: interrupted; the same command resumes from the last checkpoint\n'


@pytest.mark.both
@pytest.mark.program
def test_main__logs_only_its_own_lines(photo_dir: str, photos: List[Photo], tmp_path: Any) -> None:
    arguments = [*SMALL, f'--data_dir={photo_dir}', f'--model_dir={tmp_path}/model', f'--export_dir={tmp_path}/export']
    arguments += ['--train_batch_size=2', '--eval_batch_size=2', '--train_steps=3', '--train_steps_per_eval=10']
    done = subprocess.run(
        [sys.executable, '-m', 'tests.support.one_layer_program', *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert '5 images, average weights of step 3' in done.stdout
    # Only the program's own log lines, each with the time; none of TensorFlow's.
    lines = done.stderr.splitlines()
    assert lines and all(line[2] == ':' and line[5] == ':' for line in lines), done.stderr
    assert 'WARNING' not in done.stderr and 'deprecated' not in done.stderr
    (result,) = [json.loads(line) for line in (tmp_path / 'model' / 'results.jsonl').read_text().splitlines()]
    assert (result['step'], result['images']) == (3, 5)
    assert os.listdir(str(tmp_path / 'export'))
