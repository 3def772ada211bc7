"""Tests of the records of starts, `starts.jsonl` and `config.json`."""

import dataclasses
import io
import json
import os
import platform
import sys
from typing import Any, Dict, Optional, Tuple

import pytest

from data.files import append_line
from inception_v3.config import Config
from inception_v3.run import starts, versions
from inception_v3.run.hooks.watchers import StartRecorder
from inception_v3.run.starts import (
    FirstStep,
    changed_surroundings,
    read_starts,
    starts_before,
    this_start,
    write_first_steps,
)
from tests.support.checkpoints import save_step
from tests.support.evaluations import DIGITS


def test_record__adds_one_line_per_command_and_logs_a_changed_configuration(tmp_path: Any, caplog: Any) -> None:
    config = Config(model_dir=str(tmp_path), train_steps=7)
    first = StartRecorder(config, DIGITS)
    path = tmp_path / 'config.json'
    first.graph_built()
    assert not path.exists()
    first.checkpoint_written()
    save_step(str(tmp_path), 3)
    first.graph_built()
    (start,) = read_starts(str(tmp_path))
    assert (start.step, start.checkpoint) == (0, '')
    assert start.config == {'model_dir': str(tmp_path), 'train_steps': 7}
    assert (start.data_set, start.fingerprint) == ('digits', '0123456789abcdef')
    assert (start.command, start.directory) == (sys.argv, os.getcwd())
    assert start.versions['python'] == platform.python_version()
    assert start.host['cores'] == len(os.sched_getaffinity(0))
    assert 'train_steps: ' not in caplog.text
    # As after a kill during a write.
    with open(str(tmp_path / 'starts.jsonl'), 'a') as file:
        file.write('{"step": 3, "check')
    changed = dataclasses.replace(config, train_steps=9)
    resumed = StartRecorder(changed, None)
    resumed.graph_built()
    again, second = read_starts(str(tmp_path))
    assert again == start
    assert (second.step, second.checkpoint) == (3, 'model.ckpt-3')
    assert (second.config['train_steps'], second.data_set, second.fingerprint) == (9, '', '')
    assert 'train_steps: 7 -> 9' in caplog.text
    # The second start has not led to the checkpoint that it resumed.
    assert starts_before(str(tmp_path / 'model.ckpt-3')) == [start]
    # `config.json` keeps the first configuration until the second start saves a checkpoint.
    assert Config.from_json(path.read_text()) == config
    resumed.checkpoint_written()
    assert Config.from_json(path.read_text()) == changed
    path.unlink()
    resumed.checkpoint_written()
    assert not path.exists()
    path.write_text('{broken')
    StartRecorder(changed, None).graph_built()
    assert f'replacing a damaged file: {path}: ' in caplog.text


def write(folder: Any, *changes: Dict[str, Any]) -> None:
    """Writes a start for each set of changes to the present one."""
    start = this_start(Config(model_dir=str(folder), use_data='fake'), None)
    lines = [{**start._asdict(), **each} for each in changes]
    (folder / 'starts.jsonl').write_text(''.join(f'{json.dumps(line)}\n' for line in lines))


def test_start__in_words_names_the_data_set_and_its_sizes(tmp_path: Any) -> None:
    config = Config(model_dir=str(tmp_path), use_data='fake')
    assert str(this_start(config, DIGITS)) == (
        'digits: scikit-learn; 1,438 training and 359 validation images, fingerprint 0123456789abcdef'
    )
    own = this_start(config, None, {'path': 'w'}, ['a', 'b'])
    assert str(own) == 'unnamed, fingerprint unknown'
    assert (own.weights, own.class_names, this_start(config, None).class_names) == ({'path': 'w'}, ['a', 'b'], None)


def test_changed_surroundings__are_those_of_the_last_start(tmp_path: Any) -> None:
    config = Config(model_dir=str(tmp_path), seed=0)
    save_step(str(tmp_path), 1234)
    checkpoint = str(tmp_path / 'model.ckpt-1234')
    assert changed_surroundings(config, checkpoint) is None
    now = versions.current()
    old = {'versions': {**now, 'tensorflow': '1', 'numpy': '2', 'python': '3'}}
    write(tmp_path, {**old, 'step': 0}, {'step': 5})
    assert changed_surroundings(config, checkpoint) is None
    # An earlier version recorded neither the processor nor all versions.
    write(tmp_path, {'step': 5, 'versions': {**now, 'numpy': None}, 'host': {}}, {**old, 'step': 1234})
    assert changed_surroundings(config, checkpoint) is None
    write(tmp_path, {'step': 5}, {**old, 'step': 6, 'host': {'processor': 'old'}})
    processor = this_start(config, None).host['processor']
    assert changed_surroundings(config, checkpoint) == (
        '--seed=0: the run has trained in other surroundings up to step 1,234: '
        f'tensorflow: 1 -> {now["tensorflow"]}; numpy: 2 -> {now["numpy"]}; processor: old -> {processor}. No run in '
        'one of them repeats its bits; to repeat it, restore them'
    )
    assert changed_surroundings(dataclasses.replace(config, seed=None), checkpoint) is None


def test_first_steps__are_written_in_lines_for_readers(tmp_path: Any) -> None:
    write_first_steps(str(tmp_path), [FirstStep(1, 0.5, 'abc')])
    text = '[\n  {\n    "step": 1,\n    "loss": 0.5,\n    "digest": "abc"\n  }\n]\n'
    assert (tmp_path / 'first_steps.json').read_text() == text


def test_read_starts__skips_one_whose_description_has_other_classes(tmp_path: Any) -> None:
    good, bad = (dataclasses.asdict(dataclasses.replace(DIGITS, num_classes=number)) for number in (11, 12))
    write(tmp_path, {'step': 1, 'description': good}, {'step': 2, 'description': bad})
    assert [(start.step, start.info) for start in read_starts(str(tmp_path))] == [(1, DIGITS)]


@pytest.mark.parametrize(
    ('cpuinfo', 'processor'),
    [
        ('processor\t: 0\nmodel name\t: One CPU @ 2 GHz \n\nprocessor\t: 1\nmodel name\t: Other\n', 'One CPU @ 2 GHz'),
        ('processor\t: 0\nBogoMIPS\t: 50.00\n', platform.machine()),
    ],
)
def test_processor__is_the_first_that_the_system_names(cpuinfo: str, processor: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(starts, 'open', lambda path: io.StringIO(cpuinfo), raising=False)
    assert starts._processor() == processor


def test_starts_before__are_those_that_led_to_a_checkpoint(tmp_path: Any) -> None:
    for step in (0, 100, 150, 200, 300):
        save_step(str(tmp_path), step)
    origin = {'path': '/w', 'digest': 'd'}

    def led_to(checkpoint: int, *starts: Tuple[int, str, Optional[Dict[str, str]]]) -> Any:
        (tmp_path / 'starts.jsonl').write_text('')
        for step, name, weights in starts:
            fields: Any = {'step': step, 'checkpoint': f'model.ckpt-{step}' if name[0].islower() else ''}
            start = this_start(Config(model_dir=str(tmp_path)), None, weights)._replace(**fields, data_set=name)
            append_line(str(tmp_path / 'starts.jsonl'), start._asdict())
        return [(each.data_set, each.weights) for each in starts_before(str(tmp_path / f'model.ckpt-{checkpoint}'))]

    # Starts that resume a checkpoint have names in lower case. Nothing of b was saved, or a checkpoint was skipped.
    assert led_to(200, (0, 'A', None), (100, 'b', None), (100, 'c', None)) == [('A', None), ('c', None)]
    assert led_to(300, (0, 'A', None), (200, 'b', None), (100, 'c', None)) == [('A', None), ('c', None)]
    assert led_to(100, (0, 'A', None), (100, 'b', None)) == [('A', None)]
    # A new run in the same folder, and a run that resumes before its first step, with the weights from which it began.
    assert led_to(200, (0, 'A', origin), (100, 'b', None), (0, 'C', None)) == [('C', None)]
    assert led_to(200, (0, 'A', origin), (0, 'B', None)) == [('B', None)]
    resumed = [(0, 'A', origin), (0, 'b', None), (0, 'c', None), (150, 'd', None)]
    assert led_to(200, *resumed) == [('c', origin), ('d', None)]
    assert led_to(0, *resumed) == [('A', origin)]
    # Two new runs, of which the second begins from other weights.
    other = {'path': '/v', 'digest': 'e'}
    assert led_to(200, (0, 'A', origin), (0, 'B', other), (0, 'c', None)) == [('c', other)]
