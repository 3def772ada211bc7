"""Tests of the comparison of two runs, and of the text about a run, with records made by hand."""

from typing import Any, Dict, List

import pytest

from inception_v3.commands.provenance import record
from inception_v3.commands.provenance.record import Checkpoint, Difference, RunRecord
from inception_v3.config import Config
from inception_v3.run.history import Evaluation, Start


def start(**changes: Any) -> Start:
    values: Dict[str, Any] = {
        'step': 0,
        'checkpoint': '',
        'time': 'now',
        'command': ['main', '--seed=1'],
        'directory': '/here',
        'config': {},
        'data_set': 'digits',
        'fingerprint': '12' * 32,
        'versions': {'inception_v3': '1.0', 'source': 'ab' * 32, 'revision': 'cd' * 20, 'modified': True, 'numpy': '1'},
        'host': {'name': 'host', 'cores': 2, 'processor': 'p'},
    }
    return Start(**{**values, **changes})


def evaluation(step: int, **changes: Any) -> Evaluation:
    return Evaluation(step, f'model.ckpt-{step}', 'raw', 0.5, 0.75, 1.25, 359, 1.0, 'now')._replace(**changes)


def run_of(config: Config = Config(), **parts: Any) -> RunRecord:  # noqa: B008
    values: Dict[str, Any] = {'starts': [start()], 'evaluations': [], 'checkpoints': [], **parts}
    return RunRecord('runs/1', config, **values)


def compared(old: RunRecord, new: RunRecord) -> Dict[str, List[str]]:
    """The names of the differences, by section, without empty sections."""
    found = record.differences(old, new)
    return {section: [d.name for d in differences] for section, differences in found.items() if differences}


@pytest.mark.parametrize(
    ('changes', 'fingerprint', 'found'),
    [
        ({'learning_rate': 0.5}, '1', {'configuration': ['learning_rate']}),
        ({'model_dir': 'runs/2', 'export_dir': 'exported', 'keep_best': True}, '1', {}),
        # A fingerprint identifies the data set; without one, its path does.
        ({'data_dir': 'elsewhere'}, '1', {}),
        ({'data_dir': 'elsewhere'}, '', {'configuration': ['data_dir']}),
    ],
)
def test_differences__of_settings_that_affect_training(changes: Any, fingerprint: str, found: Any) -> None:
    starts = [start(fingerprint=fingerprint)]
    assert compared(run_of(starts=starts), run_of(Config(**changes), starts=starts)) == found


def test_differences__of_the_last_starts() -> None:
    old = run_of(starts=[start(), start(step=5, checkpoint='model.ckpt-5')])
    assert compared(old, old) == {}
    # The first start does not matter.
    assert compared(old, run_of(starts=[start(fingerprint=''), old.starts[1]])) == {}
    assert compared(old, run_of(starts=old.starts[:1])) == {'surroundings': ['starts']}
    last = start(step=5, fingerprint='', data_set='', versions={'numpy': '2'}, host={'name': 'other'}, command=['x'])
    names = compared(run_of(starts=[start(step=5, versions={'numpy': '1'})]), run_of(starts=[last]))
    assert names == {
        'data': ['data_set', 'fingerprint'],
        'surroundings': ['numpy', 'host name', 'host cores', 'host processor', 'command'],
    }
    weights = [{'path': digest, 'step': 1, 'values': 9, 'digest': digest} for digest in 'ab']
    names = compared(*(run_of(starts=[start(weights=each)]) for each in weights))
    assert names == {'data': ['weights']}


def test_differences__of_results_of_the_same_steps() -> None:
    old = run_of(
        evaluations=[evaluation(1), evaluation(2, top_1=0.1), evaluation(2)],
        checkpoints=[Checkpoint('model.ckpt-1', 1, 'a', ''), Checkpoint('model.ckpt-2', 2, 'b', '')],
    )
    # Evaluations of other weights, of changed settings or of other steps are not compared; of a step, the last one is.
    new = run_of(
        evaluations=[
            evaluation(1, top_1=0.25, weights='average'),
            evaluation(2),
            evaluation(2, top_5=0.25, changed=('height: 299 -> 331',)),
            evaluation(3, top_1=0.25),
        ],
        checkpoints=[Checkpoint('model.ckpt-2', 2, 'b', ''), Checkpoint('model.ckpt-1', 1, None, 'damaged')],
    )
    assert compared(old, new) == {}
    assert record.common(old, new) == (1, 1)
    new = run_of(
        evaluations=[evaluation(1, top_1=0.25, top_5=0.25, cross_entropy=2.5, images=1)],
        checkpoints=[Checkpoint('model.ckpt-2', 2, 'c', '')],
    )
    assert record.differences(old, new)['results'] == [
        Difference('step 1, raw weights, top_1', 0.5, 0.25),
        Difference('step 1, raw weights, top_5', 0.75, 0.25),
        Difference('step 1, raw weights, cross_entropy', 1.25, 2.5),
        Difference('step 1, raw weights, images', 359, 1),
        Difference('checkpoint of step 2', 'b', 'c'),
    ]


def test_text__of_starts_evaluations_and_checkpoints() -> None:
    evaluations = [evaluation(1000), evaluation(1, changed=('a: 1 -> 2', 'b: 3 -> 4'))]
    checkpoints = [Checkpoint('model.ckpt-1', None, None, 'is damaged'), Checkpoint('model.ckpt-2', 2, 'ab', '')]
    starts = [start(checkpoint='model.ckpt-7'), start(data_set='', config={'use_data': 'fake'})]
    config = Config(num_classes=11, seed=3)
    text = run_of(config, starts=starts, evaluations=evaluations, checkpoints=checkpoints).text()
    rows = [' '.join(line.split()) for line in text.splitlines()]
    scores = 'top-1 50.00%, top-5 75.00%, cross-entropy 1.2500, 359 images, raw weights, now'
    for row in (
        *('seed 3', 'num_classes 11', 'started at step 0, now', 'from model.ckpt-7', 'command main --seed=1'),
        *('host host: 2 cores, p', 'data set digits', f'revision {"cd" * 20}', 'data set synthetic images'),
        *('model.ckpt-1 is damaged', 'model.ckpt-2 step 2, digest ab'),
        *(f'step 1,000 {scores}', f'step 1 {scores}; a: 1 -> 2; b: 3 -> 4'),
    ):
        assert row in rows
    text = run_of(Config(num_classes=4), starts=[], evaluations=evaluations).text()
    assert 'top-5' not in text and 'none: the run cannot be repeated' in text
