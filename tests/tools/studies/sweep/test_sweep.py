"""Sweeps of a network with one layer."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from typing import Any, List

import pytest

from inception_v3 import flags
from inception_v3.config import Config
from inception_v3.run.evaluations import read_evaluations
from tests.support import recorded
from tests.support.processes import wait_for
from tests.support.sweeps import PROGRAM, study_file, whole_sweep
from tools.studies.sweep import __main__ as sweep
from tools.studies.sweep import run


def sweep_of(*arguments: str) -> int:
    return sweep.main(['sweep', *arguments], PROGRAM)


def mistake(capsys: Any, *arguments: str) -> str:
    assert sweep_of(*arguments) == 2
    return capsys.readouterr().err


@pytest.mark.program
def test_sweep__runs_trials_that_are_not_done_and_reports(digits_dir: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    axes = "cases({'fine': {}, 'wild': {'learning_rate': 1e30}})"
    file, out = study_file(tmp_path, axes, data_dir=digits_dir), f'--out={tmp_path}/out'
    assert sweep_of(file, out, '--workers=2') == 1
    output = capsys.readouterr()
    assert '1 of 2 trials done, 1 failed' in output.out
    assert re.search(r'fine .* 1 of 1 +[\d.]+ +[\d.]+ +[\d.]+ ', output.out)
    fine, wild = (tmp_path / 'out' / 'trials' / case / 'seed-1' for case in ('fine', 'wild'))
    outcomes = {folder: json.loads((folder / 'outcome.json').read_text()) for folder in (fine, wild)}
    assert outcomes[fine]['exit_code'] == 0 and outcomes[wild]['exit_code'] == 2
    reason = outcomes[wild]['reason']
    assert re.match(r'The loss .* in step \d, at a learning rate of', reason)
    for place in (output.out, output.err, (wild / 'log.txt').read_text()):
        assert reason in place
    assert [evaluation.step for evaluation in read_evaluations(str(fine / 'model'))] == [6]
    assert (fine / 'model' / 'config.json').exists() and 'top-1' in (fine / 'log.txt').read_text()
    assert 'fine' in (tmp_path / 'out' / 'report.html').read_text()
    assert '--learning_rate=1e+30 ' in (tmp_path / 'out' / 'report.html').read_text()
    study = json.loads((tmp_path / 'out' / 'study.json').read_text())
    assert (study['name'], study['question']) == ('rates', 'Which?')
    start = json.loads((fine / 'model' / 'starts.jsonl').read_text())
    assert shlex.split(study['commands']['fine/seed-1'])[3:] == start['command'][1:]

    # A trial that is done is not run again.
    before = (fine / 'outcome.json').read_text()
    assert sweep_of(file, out, '--filter=fine*') == 0
    assert (fine / 'outcome.json').read_text() == before
    assert len((fine / 'model' / 'starts.jsonl').read_text().splitlines()) == 1
    assert sweep_of(file, out, '--list') == 0
    listed = capsys.readouterr().out.splitlines()[-2:]
    assert [line.rpartition('  # ')[2] for line in listed] == ['done', 'failed']

    # Runs with other flags, or of another study, are not mixed in.
    study_file(tmp_path, axes, data_dir=digits_dir, learning_rate=0.5)
    assert f'{fine}: was run with other flags than the study has now (learning_rate:' in mistake(capsys, file, out)
    other = shutil.copy(study_file(tmp_path, axes, data_dir=digits_dir), str(tmp_path / 'other.py'))
    assert 'holds the study rates; name another folder for other' in mistake(capsys, other, out)
    assert (fine / 'outcome.json').read_text() == before


def test_list__prints_command_lines_for_a_shell(tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, "grid(optimizer=['sgd', 'RMS'])", seeds=2, data_dir='a b')
    out = f'--out={tmp_path}/out'
    assert sweep_of(file, out, '--list') == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert len(lines) == 4 and all(line.endswith('  # waiting') for line in lines)
    words = shlex.split(lines[3], comments=True)
    assert tuple(words[:3]) == PROGRAM
    assert {'--preset=digits', '--data_dir=a b', '--optimizer=RMS', '--seed=2', '--export_dir='} < set(words)
    assert flags.parse(words[2:]).config.optimizer == 'RMS'
    assert f'--model_dir={tmp_path}/out/trials/optimizer=RMS/seed-2/model' in words
    assert '4 trials, 24 training steps' in output.err
    assert not (tmp_path / 'out').exists()
    # Flags after two hyphens apply to every trial; a value may be a separate word.
    sweep_of(file, out, '--list', '--filter=*RMS*', '--limit=1', '--', '--data_dir', 'presets/x', '--train_steps=7')
    (line,) = capsys.readouterr().out.splitlines()
    assert 'optimizer=RMS/seed-1' in line and '--data_dir=presets/x' in line and '--train_steps=7' in line


def test_detect__prints_the_seeds_that_a_difference_needs(tmp_path: pathlib.Path, capsys: Any) -> None:
    file, out = study_file(tmp_path, "cases({'a': {}, 'b': {}, 'c': {}})", seeds=3), f'--out={tmp_path}/out'
    assert '--detect=5: needs two cases with 3 finished seeds in' in mistake(capsys, file, out, '--detect=5')
    # Differences of 0, 10 and 20 points by seed: their deviation is 10, so that 5 points are half of it.
    for case, seed, top_1 in [('a', 1, 0.5), ('a', 2, 0.6), ('a', 3, 0.4), ('b', 1, 0.5), ('b', 2, 0.7), ('b', 3, 0.6)]:
        model_dir = str(tmp_path / 'out' / 'trials' / case / f'seed-{seed}' / 'model')
        recorded.write(model_dir, Config(seed=seed, train_steps=6), [recorded.evaluation(6, top_1)])
    before = sorted(tmp_path.rglob('*'))
    assert sweep_of(file, out, '--detect=5') == 0 and sorted(tmp_path.rglob('*')) == before
    _, row, _, assumptions = capsys.readouterr().out.splitlines()
    # For 0.5207 and 6.2847 times this deviation: √(2 / 7.378) and √(2 / 0.05064).
    assert row.split() == ['b', '−', 'a', '3', '10.00', '34', '11', 'to', '1,242']
    assert '80% of such studies' in assumptions and 'two-sided' in assumptions


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (
            ['--filter=*adam*'],
            r'--filter=\*adam\*: matches no trial\. The trials are optimizer=sgd/seed-1, optimizer=RMS',
        ),
        (['--out=gs://bucket/out'], r'--out=gs://bucket/out: must be a local folder'),
        (['--digits'], r'rates\.py: .*has no small version'),
        (['--out='], r'--out: must be the path of a folder'),
        (['--', '--flagfile={}/flags'], r'after --: only flags of a run are allowed; the study names the preset'),
        (['--', '--optimizer=sgd'], r'--optimizer: varies in the study'),
        (['--', '--seed=3'], r'seed: is set by the sweep'),
        (['--', '--trian_steps=3'], r"Unknown command line flag 'trian_steps'"),
        (['--', 'stray'], r'stray: not a flag'),
        (['--workers=2', '--', '--tpu=node', '--data_dir={data}'], r'--tpu=node: several trials use this TPU, and 2'),
    ],
)
def test_sweep__refuses_wrong_arguments(
    digits_dir: str, tmp_path: pathlib.Path, capsys: Any, arguments: List[str], message: str
) -> None:
    file = study_file(tmp_path, "grid(optimizer=['sgd', 'RMS'])", data_dir='nowhere')
    (tmp_path / 'flags').write_text('--train_steps=9\n--preset=imagenet\n')
    arguments = [argument.format(tmp_path, data=digits_dir) for argument in arguments]
    try:
        assert sweep_of(file, f'--out={tmp_path}/out', *arguments) == 2
    except SystemExit as error:  # argparse's
        assert error.code == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / 'out' / 'trials').exists()


def test_sweep__checks_flags_and_data_before_running(tmp_path: pathlib.Path, capsys: Any) -> None:
    out = f'--out={tmp_path}/out'
    file = study_file(tmp_path, "grid(optimizer=['sgd', 'Adam'])")
    assert f'{file}: case optimizer=Adam: --optimizer=Adam: must be sgd, momentum or RMS' in mistake(capsys, file, out)
    file = study_file(tmp_path, optimiser='sgd')
    assert f'{file}: optimiser: no such flag' in mistake(capsys, file, out)
    file = study_file(tmp_path, width='x')
    assert f'{file}: case default: flag --width=x: must be a whole number' in mistake(capsys, file, out)
    file = study_file(tmp_path, data_dir=str(tmp_path / 'nowhere'))
    assert f'case default: --data_dir={tmp_path}/nowhere: no such folder' in mistake(capsys, file, out)
    # Another trial on the same data could start.
    weights = ('', f'{tmp_path}/nowhere.csv')
    file = study_file(tmp_path, f'grid(class_weights={weights!r})', use_data='fake')
    assert f'--class_weights={tmp_path}/nowhere.csv: no such file' in mistake(capsys, file, out)
    assert not (tmp_path / 'out' / 'trials').exists()


def test_sweep__refuses_a_folder_in_use(digits_dir: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, data_dir=digits_dir)
    (tmp_path / 'out').mkdir()
    folder = os.open(str(tmp_path / 'out'), os.O_RDONLY)
    try:
        run.lock(folder, 'out')
        assert 'another sweep is running there' in mistake(capsys, file, f'--out={tmp_path}/out')
    finally:
        os.close(folder)


@pytest.mark.nightly
def test_sweep__resumes_and_gives_the_results_of_a_trial_run_alone(digits_dir: str, tmp_path: pathlib.Path) -> None:
    changes: Any = {'train_steps': 600, 'train_steps_per_eval': 600, 'data_dir': digits_dir}
    arguments = [study_file(tmp_path, **changes, save_checkpoints_secs=1), f'--out={tmp_path}/out']
    trial = tmp_path / 'out' / 'trials' / 'default' / 'seed-1'

    # Ctrl-C while the trial trains.
    sweeping = whole_sweep(*arguments)
    wait_for(lambda: list((trial / 'model').glob('model.ckpt-[1-9]*.meta')), 180)
    sweeping.send_signal(signal.SIGINT)
    output, _ = sweeping.communicate(timeout=300)
    assert sweeping.returncode == 130 and 'Traceback' not in output, output
    assert 'interrupted; the same command resumes the sweep' in output, output
    assert json.loads((trial / 'outcome.json').read_text())['exit_code'] == 75
    sweeping = whole_sweep(*arguments)
    output, _ = sweeping.communicate(timeout=300)
    assert sweeping.returncode == 0 and '1 of 1 trials done' in output, output
    assert 'resuming from' in (trial / 'log.txt').read_text()

    # Copied and run alone, the trial gives the same bits.
    alone = tmp_path / 'copied out'
    alone.mkdir()
    shutil.copy(str(trial / 'command.sh'), str(alone))
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
    subprocess.run([str(alone / 'command.sh')], check=True, env={**os.environ, 'PATH': path}, stderr=subprocess.DEVNULL)
    mine, others = (read_evaluations(str(folder / 'model'))[-1] for folder in (alone, trial))
    assert mine.step == others.step == 600
    assert (mine.top_1, mine.top_5, mine.cross_entropy) == (others.top_1, others.top_5, others.cross_entropy)
