"""Sweeps: whole ones of the program with one layer, and what becomes of trials as processes."""

import io
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any, Dict, List

import pytest
import yaml

from inception_v3.model_dir.evaluations import read_evaluations
from studies.study import Study
from studies.sweep import __main__ as sweep
from studies.sweep import trials
from studies.sweep.__main__ import Stopping, perform
from studies.sweep.live import Display, Progress
from studies.sweep.trials import State
from studies.sweep.workers import ThisMachine
from tests.support.processes import shell, text_of, wait_for
from tests.support.sweeps import PROGRAM, WholeSweep, study_file


def sweep_of(*arguments: str) -> int:
    return sweep.main(['sweep', *arguments], PROGRAM)


def mistake(capsys: Any, *arguments: str) -> str:
    assert sweep_of(*arguments) == 2
    return capsys.readouterr().err


def test_a_sweep_runs_what_is_not_done_and_reports(digits_dir: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    axes = '[{cases: {fine: {}, wild: {learning_rate: 1.0e+30}}}]'
    file, out = study_file(tmp_path, axes, data_dir=digits_dir), f'--out={tmp_path}/out'
    assert sweep_of(file, out, '--workers=2') == 1
    output = capsys.readouterr()
    assert '1 of 2 trials are done, 1 failed' in output.out
    assert re.search(r'fine +1 of 1 seeds  top-1 [\d.]+ %  top-5 [\d.]+ %  cross-entropy [\d.]+ nats\n', output.out)
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
    for name in ('report.html', 'report.md'):
        assert '--learning_rate=1e+30 ' in (tmp_path / 'out' / name).read_text()
    study = json.loads((tmp_path / 'out' / 'study.json').read_text())
    assert (study['name'], study['question'], study['cost']['steps']) == ('rates', 'Which?', 12)
    start = json.loads((fine / 'model' / 'starts.jsonl').read_text())
    assert shlex.split(study['commands']['fine/seed-1'])[3:] == start['command'][1:]

    # What is done is not run again.
    before = (fine / 'outcome.json').read_text()
    assert sweep_of(file, out, '--filter=fine*') == 0
    assert (fine / 'outcome.json').read_text() == before and len(
        (fine / 'model' / 'starts.jsonl').read_text().splitlines()
    ) == 1
    assert sweep_of(file, out, '--list') == 0
    listed = capsys.readouterr().out.splitlines()[-2:]
    assert [line.rpartition('  # ')[2] for line in listed] == ['done', 'failed']

    # Nor is it mixed with what would be run with other flags, or of another study.
    study_file(tmp_path, axes, data_dir=digits_dir, learning_rate=0.5)
    assert f'{fine}: was run with other flags than the study has now (learning_rate: 0.06 -> 0.5)' in mistake(
        capsys, file, out
    )
    other = shutil.copy(study_file(tmp_path, axes, data_dir=digits_dir), str(tmp_path / 'other.yaml'))
    assert 'holds the study rates; name another folder for other' in mistake(capsys, other, out)
    assert (fine / 'outcome.json').read_text() == before


def test_the_list_is_command_lines_for_a_shell(tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [sgd, RMS]}}]', seeds=2, data_dir='a b')
    out = f'--out={tmp_path}/out'
    assert sweep_of(file, out, '--list') == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert len(lines) == 4 and all(line.endswith('  # waiting') for line in lines)
    words = shlex.split(lines[3], comments=True)
    assert tuple(words[:3]) == PROGRAM
    assert {'--preset=digits', '--data_dir=a b', '--optimizer=RMS', '--seed=2'} < set(words)
    assert f'--model_dir={tmp_path}/out/trials/optimizer=RMS/seed-2/model' in words
    assert '4 trials, 24 training steps' in output.err
    assert not (tmp_path / 'out').exists()
    sweep_of(file, out, '--list', '--filter=*RMS*', '--limit=1')
    (line,) = capsys.readouterr().out.splitlines()
    assert 'optimizer=RMS/seed-1' in line


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (
            ['--filter=*adam*'],
            r'--filter=\*adam\*: no trial has such a name\. There are optimizer=sgd/seed-1, optimizer=RMS/',
        ),
        (['--out=gs://bucket/out'], r'--out=gs://bucket/out: must be a folder of this machine'),
        (['--digits'], r'rates\.yaml: .*has no small version'),
        (['--out='], r'--out=: must be the path of a folder'),
        (['--limit=0'], r'--limit: 0: must be a whole number, at least 1'),
        (['--', '--preset=imagenet'], r'after --: only flags of a run; a preset is for the study to name'),
        (['--', '--flagfile={}/flags'], r'after --: only flags of a run; a preset is for the study to name'),
    ],
)
def test_what_cannot_be_done_is_told(tmp_path: pathlib.Path, capsys: Any, arguments: List[str], message: str) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [sgd, RMS]}}]', data_dir='nowhere')
    (tmp_path / 'flags').write_text('--train_steps=9\n--preset=imagenet\n')
    arguments = [argument.format(tmp_path) for argument in arguments]
    try:
        assert sweep_of(file, f'--out={tmp_path}/out', *arguments) == 2
    except SystemExit as error:  # argparse's
        assert error.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_tpu_is_for_one_trial_at_a_time(digits_dir: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [sgd, RMS]}}]', data_dir=digits_dir)
    told = mistake(capsys, file, f'--out={tmp_path}/out', '--workers=2', '--', '--tpu=node')
    assert (
        '--tpu=node: is of several trials, and would run 2 at a time, but a TPU runs one. Leave out --workers' in told
    )
    assert not (tmp_path / 'out' / 'trials').exists()


def test_flags_for_every_trial_may_have_any_value(tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, '[]')
    assert sweep_of(file, f'--out={tmp_path}/out', '--list', '--', '--data_dir', 'presets/x') == 0
    assert '--data_dir=presets/x' in capsys.readouterr().out


def test_what_the_program_would_refuse_is_told_before_anything_runs(tmp_path: pathlib.Path, capsys: Any) -> None:
    out = f'--out={tmp_path}/out'
    file = study_file(tmp_path, '[{grid: {optimizer: [sgd, Adam]}}]')
    assert f'{file}: case optimizer=Adam: --optimizer=Adam: must be sgd, momentum or RMS' in mistake(capsys, file, out)
    file = study_file(tmp_path, '[]', data_dir=str(tmp_path / 'nowhere'))
    assert f'{file}: case default: --data_dir={tmp_path}/nowhere: no such folder' in mistake(capsys, file, out)
    assert not (tmp_path / 'out' / 'trials').exists()


def test_two_sweeps_in_a_folder_are_refused(digits_dir: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, '[]', data_dir=digits_dir)
    (tmp_path / 'out').mkdir()
    folder = os.open(str(tmp_path / 'out'), os.O_RDONLY)
    try:
        sweep._lock(folder, 'out')
        assert 'another sweep runs there' in mistake(capsys, file, f'--out={tmp_path}/out')
    finally:
        os.close(folder)


class Performance:
    """A sweep of shell scripts."""

    def __init__(self, tmp_path: pathlib.Path, script: str, seeds: int, workers: int):
        study = Study(preset='digits', seeds=seeds)
        self.all_progress = [Progress(t, State.WAITING) for t in trials.trials_of(study, str(tmp_path / 'out'))]
        self.told: List[Dict[State, int]] = []
        self.screen = io.StringIO()
        self.place = ThisMachine(workers, shell(script))

    def run(self) -> Stopping:
        with Stopping() as stopping, Display(self.screen, self.all_progress) as display:
            perform(self.all_progress, self.place, display, stopping, lambda: self.told.append(self.states()))
        return stopping

    def states(self) -> Dict[State, int]:
        states = [progress.state for progress in self.all_progress]
        return {state: states.count(state) for state in set(states)}

    def logs(self) -> List[str]:
        return [text_of(progress.trial.log) for progress in self.all_progress]


def test_as_many_run_at_a_time_as_there_are_workers_and_a_failure_stops_none(tmp_path: pathlib.Path) -> None:
    # The third fails; each writes down how many run beside it.
    script = f'cd {tmp_path}; touch $$.runs; sleep 0.3; set -- "$*" *.runs; echo $(($# - 1)); sleep 0.1; rm $$.runs'
    script += '; case "$*" in *seed=3*) exit 1; esac'
    performance = Performance(tmp_path, script, seeds=5, workers=2)
    stopping = performance.run()
    assert performance.states() == {State.DONE: 4, State.FAILED: 1} and stopping.exit_code is None
    beside = [log.strip() for log in performance.logs()]
    assert max(beside) == '2' and min(beside) in '12'
    # What is told is told while the next ones run.
    assert performance.told and all(told[State.RUNNING] for told in performance.told)
    assert 'default/seed-3: failed after 0:0' in performance.screen.getvalue()


def test_what_cannot_be_started_is_a_failure_of_that_trial(tmp_path: pathlib.Path) -> None:
    performance = Performance(tmp_path, 'exit 0', seeds=2, workers=1)
    blocked = pathlib.Path(performance.all_progress[0].trial.folder)
    blocked.parent.mkdir(parents=True)
    blocked.write_text('in the way')
    performance.run()
    assert [progress.state for progress in performance.all_progress] == [State.FAILED, State.DONE]
    assert 'cannot be started' in performance.all_progress[0].reason


@pytest.mark.parametrize(('number', 'exit_code'), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_is_passed_on_and_waited_for(tmp_path: pathlib.Path, number: signal.Signals, exit_code: int) -> None:
    script = 'trap "sleep 0.5; echo saved; exit 75" TERM; echo ready; while :; do sleep 0.05; done'
    performance = Performance(tmp_path, script, seeds=3, workers=2)
    _when(lambda: performance.logs()[:2] == ['ready\n'] * 2, [number])
    assert performance.run().exit_code == exit_code
    assert performance.logs() == ['ready\nsaved\n'] * 2 + ['']
    assert performance.states() == {State.STOPPED: 2, State.WAITING: 1}


def test_a_second_signal_kills(tmp_path: pathlib.Path) -> None:
    performance = Performance(tmp_path, 'trap "" TERM; echo ready; while :; do sleep 0.05; done', seeds=1, workers=1)
    _when(lambda: performance.logs() == ['ready\n'], [signal.SIGINT, signal.SIGINT])
    assert performance.run().exit_code == 130
    assert performance.all_progress[0].reason == 'ended by SIGKILL'


def _when(condition: Any, signals: List[signal.Signals]) -> None:
    """Sends signals to this process, half a second apart, when a condition holds."""

    def send() -> None:
        wait_for(condition)
        for number in signals:
            threading.Event().wait(0.5)
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.slow
def test_what_was_interrupted_or_killed_goes_on_and_ends_as_if_run_alone(
    digits_dir: str, tmp_path: pathlib.Path
) -> None:
    changes: Any = {'train_steps_per_eval': 1000, 'data_dir': digits_dir, 'save_checkpoints_secs': 1}
    arguments = [study_file(tmp_path, '[{grid: {train_steps: [300, 500]}}]', **changes), f'--out={tmp_path}/out']
    first, second = (tmp_path / 'out' / 'trials' / f'train_steps={steps}' / 'seed-1' for steps in (300, 500))

    # Ctrl-C while the first one trains.
    whole = WholeSweep(*arguments)
    wait_for(lambda: (first / 'model' / 'model.ckpt-0.index').exists())
    whole.process.send_signal(signal.SIGINT)
    code, output = whole.end()
    assert code == 130 and 'stopped; the same command goes on' in output, output
    assert json.loads((first / 'outcome.json').read_text())['exit_code'] == 75
    assert not second.exists()

    # Killed while the second one trains: that is lost, and does not run on.
    whole = WholeSweep(*arguments)
    wait_for(lambda: list((second / 'model').glob('model.ckpt-[1-9]*.meta')), 180)
    claim = json.loads((second / 'model' / 'trainer.json').read_text())
    whole.process.kill()
    whole.process.communicate()
    wait_for(lambda: not pathlib.Path(f'/proc/{claim["process"]}').exists(), 10)
    assert json.loads((first / 'outcome.json').read_text())['exit_code'] == 0
    assert not (second / 'outcome.json').exists()
    done = (first / 'outcome.json').read_text()

    code, output = WholeSweep(*arguments).end()
    assert code == 0 and '2 of 2 trials are done' in output, output
    assert (first / 'outcome.json').read_text() == done
    assert 'going on from' in (second / 'log.txt').read_text()

    # Copied out and run alone: the same to the bit.
    alone = tmp_path / 'copied out'
    alone.mkdir()
    shutil.copy(str(second / 'command.sh'), str(alone))
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
    subprocess.run([str(alone / 'command.sh')], check=True, env={**os.environ, 'PATH': path}, stderr=subprocess.DEVNULL)
    mine, others = (read_evaluations(str(folder / 'model'))[-1] for folder in (alone, second))
    assert mine.step == others.step == 500
    assert (mine.top_1, mine.top_5, mine.cross_entropy) == (others.top_1, others.top_5, others.cross_entropy)


def test_a_list_whose_reader_has_seen_enough_is_no_failure(
    tmp_path: pathlib.Path, capsys: Any, monkeypatch: Any
) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [sgd, RMS]}}]')
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, 'w') as output:
        monkeypatch.setattr(sys, 'stdout', output)
        assert sweep_of(file, f'--out={tmp_path}/out', '--list') == 0
    assert 'error' not in capsys.readouterr().err


def test_flags_after_two_hyphens_are_every_trials(tmp_path: pathlib.Path, capsys: Any) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [sgd, RMS]}}]')
    assert sweep_of(file, f'--out={tmp_path}/out', '--list', '--', '--data_dir=mine', '--train_steps', '7') == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 2 and all('--data_dir=mine' in line and '--train_steps=7' in line for line in listed)
    for arguments, message in (
        (['--optimizer=sgd'], '--optimizer: varies in the study'),
        (['--seed=3'], "seed: is the sweep's to give"),
        (['--preset=digits'], 'a preset is for the study to name'),
        (['--trian_steps=3'], "Unknown command line flag 'trian_steps'"),
        (['stray'], 'stray: not a flag'),
    ):
        assert message in mistake(capsys, file, '--', *arguments)


def test_a_study_becomes_jobs_for_kubernetes(tmp_path: pathlib.Path, capsys: Any) -> None:
    shipped = str(pathlib.Path(sweep.__file__).resolve().parents[1] / 'shipped' / 'large_batch.py')
    arguments = (shipped, '--out=gs://bucket/study', '--emit=gke', '--filter=*warm-up/seed-2')
    data = ('--', '--data_dir=gs://bucket/imagenet')
    assert sweep_of(*arguments, '--image=gcr.io/mine/program', *data) == 0
    jobs = list(yaml.safe_load_all(capsys.readouterr().out))
    cores = [job['spec']['template']['spec']['containers'][0]['resources']['limits'] for job in jobs]
    assert cores == [{'cloud-tpus.google.com/v2': number} for number in (8, 32, 64, 128)]
    first = jobs[0]['spec']['template']['spec']['containers'][0]['args']
    assert [argument for argument in first if argument.startswith(('--model_dir', '--seed'))] == [
        '--seed=2',
        '--model_dir=gs://bucket/study/trials/batch=1024,warm-up/seed-2/model',
    ]
    assert '--image' in mistake(capsys, *arguments, *data)
    assert 'needs a folder on gs://' in mistake(capsys, *arguments, '--image=mine')
