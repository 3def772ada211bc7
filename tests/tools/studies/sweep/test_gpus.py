"""GPUs of trials on this machine. No test needs a GPU."""

import pathlib
from typing import Any, Optional

import pytest

from inception_v3.config import ALL_GPUS
from inception_v3.tpu import accelerator
from tests.support.processes import shell, text_of, wait_for
from tools.studies.study import Study, StudyError, grid
from tools.studies.sweep import gpus, trials

# A trial that prints its GPUs, and ends when a file named after its seed exists.
PROGRAM = (
    'echo $CUDA_VISIBLE_DEVICES; case "$*" in *seed=1*) end=1 ;; *) end=2 ;; esac; '
    'until [ -e {}/$end ]; do sleep 0.02; done'
)


@pytest.mark.parametrize(
    ('count', 'named', 'expected'),
    [
        (2, None, ['0', '1']),
        (2, '3, GPU-8932f937', ['3', 'GPU-8932f937']),
        # CUDA sees none after a number that it does not know.
        (1, '5,-1,6', ['5']),
        (0, '', []),
    ],
)
def test_here__has_the_names_that_cuda_would_use(monkeypatch: Any, count: int, named: Any, expected: Any) -> None:
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: count)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    if named is not None:
        monkeypatch.setenv(gpus.VISIBLE, named)
    assert gpus.here() == expected


@pytest.mark.parametrize(
    ('flag', 'asked', 'are_there', 'expected'),
    [
        (('use_tpu', False), None, True, 1),
        (('use_tpu', False), None, False, 0),
        (('accelerator', 'cpu'), None, True, 0),
        (('use_tpu', True), None, True, 0),
        (('use_tpu', False), 0, True, 0),
        (('accelerator', 'cpu'), 3, True, 3),
        (('num_gpus', 2), None, True, 2),
        (('num_gpus', 2), 4, True, 4),
        (('num_gpus', 2), None, False, 0),
        (('num_gpus', ALL_GPUS), 0, True, 0),
        (('num_gpus', ALL_GPUS), 3, True, 3),
    ],
)
def test_per_trial__is_num_gpus_where_a_trial_may_use_them(
    flag: Any, asked: Optional[int], are_there: bool, expected: int, tmp_path: pathlib.Path
) -> None:
    waiting = trials.trials_of(Study(flags=dict([('use_tpu', False), flag]), seeds=1), str(tmp_path))
    assert gpus.per_trial(asked, waiting, are_there) == expected


@pytest.mark.parametrize(
    ('num_gpus', 'asked', 'message'),
    [
        (ALL_GPUS, None, '^--num_gpus=-1: stands for all GPUs.* or --gpus_per_trial'),
        (4, 2, r'^--gpus_per_trial=2: a trial has --num_gpus=4.*Give --gpus_per_trial=4\.'),
    ],
)
def test_per_trial__refuses_all_gpus_and_fewer_than_replicas(
    num_gpus: int, asked: Optional[int], message: str, tmp_path: pathlib.Path
) -> None:
    # The trial with the most GPUs decides.
    study = Study(flags={'use_tpu': False}, axes=[grid(num_gpus=[1, num_gpus])], seeds=1)
    with pytest.raises(StudyError, match=message):
        gpus.per_trial(asked, trials.trials_of(study, str(tmp_path)), are_there=True)


def test_trials__have_own_gpus_and_get_those_of_ended_trials(tmp_path: pathlib.Path) -> None:
    three = [
        trial._replace(program=shell(PROGRAM.format(tmp_path)))
        for trial in trials.trials_of(Study(seeds=3), str(tmp_path / 'out'))
    ]
    place = gpus.GpusOfTrials(['4', '5', '6', '7'], each=2, workers=2)
    running = [place.start(trial) for trial in three[:2]]
    (tmp_path / '2').touch()
    assert wait_for(running[1].poll).exit_code == 0
    running.append(place.start(three[2]))
    (tmp_path / '1').touch()
    for process in (running[0], running[2]):
        wait_for(process.poll)
    assert [text_of(trial.log) for trial in three] == ['4,5\n', '6,7\n', '6,7\n']


def test_trials__are_refused_when_too_few_gpus_are_there() -> None:
    with pytest.raises(
        StudyError, match=r'^--workers=3: with --gpus_per_trial=2, .* need 6 GPUs .* sees 5 .*--workers=2'
    ):
        gpus.GpusOfTrials(['0', '1', '2', '3', '4'], each=2, workers=3)
    with pytest.raises(StudyError, match=r'need 4 GPUs .*smaller --gpus_per_trial'):
        gpus.GpusOfTrials(['0'], each=4, workers=1)
    gpus.GpusOfTrials([], each=0, workers=9)
