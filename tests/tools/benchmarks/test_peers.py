"""The comparison with other libraries: its accounting, its tasks, its table, and a library in its own environment."""

import json
import re
import subprocess
import sys
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from tools.benchmarks import photographs
from tools.benchmarks.measurement import MeasurementError
from tools.benchmarks.peers import __main__ as peers
from tools.benchmarks.peers import meter
from tools.benchmarks.peers.__main__ import KINDS, LIBRARIES
from tools.benchmarks.peers.meter import Task

TASK = Task('', '', [75, 75], [0.2, 0.5], [0.75, 4 / 3], [0.1, 0.2, 0.3], True, 4, 8, 2)
# A script of a library.
FAKE = f"""
import sys
sys.path.insert(0, {str(peers.ROOT)!r})
import numpy as np
from tools.benchmarks.peers import meter

def prepare(path):
    assert path.endswith('.jpg')
    return np.full([2, 2, 3], 255, np.uint8)

def pipeline(task):
    assert task.area[1] == 1 and task.size == [75, 75]
    return task.batches(lambda path: task.finish(prepare(path)))

meter.answer(pipeline)
"""
BURN = 'import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: pass\n'
# Half of the time is used by a child process that has ended.
CHILD = f'{BURN}import subprocess, sys; subprocess.run([sys.executable, "-c", {BURN!r}]); print(flush=True); input()'


def test_cpu_seconds__include_child_processes() -> None:
    before = meter.cpu_seconds()
    with subprocess.Popen([sys.executable, '-c', CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()
        assert 0.48 < meter.cpu_seconds() - before < 1.5
        child.stdin.close()


def test_measure__counts_images_after_the_warm_up() -> None:
    read = iter([np.full([4, 2], number) for number in range(20)])
    assert meter.measure(read, 4, 18)['images'] == 20
    # Two batches of warm-up, and five that are measured.
    assert next(read)[0, 0] == 7


def test_window__has_area_and_aspect_within_their_ranges() -> None:
    windows = [TASK.window(300, 400) for _ in range(500)]
    for top, left, height, width in windows:
        assert 0 <= top <= 300 - height and 0 <= left <= 400 - width
        assert 0.19 < height * width / (300 * 400) < 0.51 and 0.74 < width / height < 1.35
    assert len({*windows}) > 400
    # No crop of a fifth of this image has such an aspect.
    assert TASK.window(10, 1000) == (0, 0, 10, 1000)


@pytest.mark.parametrize('floats', [True, False])
def test_finish__flips_and_shifts_colours(floats: bool, monkeypatch: Any) -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
    plain = TASK._replace(colour=None, floats=floats)
    expected = image / 127.5 - 1 if floats else image
    found = [plain.finish(image) for _ in range(50)]
    flipped = [not np.allclose(each, expected, atol=1e-6) for each in found]
    assert 5 < sum(flipped) < 45 and {each.dtype for each in found} == {np.dtype(np.float32 if floats else np.uint8)}
    assert all(np.allclose(each, expected[:, ::-1], atol=1e-6) for each, flip in zip(found, flipped) if flip)
    # Every draw at its largest: y + 1.402 cr, y - 0.344136 cb - 0.714136 cr, y + 1.772 cb.
    monkeypatch.setattr(meter.random, 'uniform', lambda least, largest: largest)
    monkeypatch.setattr(meter.random, 'random', lambda: 1.0)
    shifted = np.clip(image / 255 + [0.5206, -0.183068, 0.4544], 0, 1)
    found = TASK._replace(floats=floats).finish(image)
    np.testing.assert_allclose(found, 2 * shifted - 1 if floats else 255 * shifted, atol=1e-6 if floats else 0.51)


@pytest.fixture
def few_photographs(tmp_path: Any, monkeypatch: Any) -> None:
    data_dir = str(tmp_path / 'photographs')
    photographs.make(data_dir, train=16, validation=4, shards=4)
    monkeypatch.setattr(photographs, 'DATA_DIR', data_dir)


SIZES = ['--images=8', '--train_batch_size=4', '--num_shards=1', '--height=75', '--width=75', '--repeats=1']


def test_command__measures_a_library_and_names_what_is_missing(
    few_photographs: None, tmp_path: Any, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / 'fake.py').write_text(FAKE)
    (tmp_path / 'failing.py').write_text('1 // 0')

    def python_of(name: str) -> str:
        if name == 'dali':
            raise MeasurementError('needs uv: pip install uv')
        return sys.executable

    monkeypatch.setattr(peers, 'python_of', python_of)
    scripts = {f'tools.benchmarks.peers.{name}': 'fake.py' for name in ('pillow', 'simplejpeg')}
    scripts['tools.benchmarks.peers.spdl'] = 'failing.py'
    monkeypatch.setattr(peers.processes, 'module', lambda name: ['python', str(tmp_path / scripts[name])])
    assert peers.main(['peers', '--peers=spdl,dali,pillow,simplejpeg', *SIZES, '--json']) == 1
    out = json.loads(capsys.readouterr().out)
    assert out['problems']['dali'] == 'not measured: needs uv: pip install uv'
    assert out['problems']['spdl'].startswith('failed: ZeroDivisionError')
    # In the order of the table, not of the flag: ratios are to the first peer.
    assert [(row['name'], row['work']) for row in out['rows']] == [
        (name, kind) for kind in KINDS for name in ('simplejpeg', 'pillow')
    ]
    assert all(row['cpu_ms']['median'] > 0 and row['images_per_second']['median'] > 0 for row in out['rows'])
    assert re.fullmatch(r'numpy [\d.]+, pillow [\d.]+', out['versions']['pillow'])
    assert len([*(tmp_path / 'photographs-files').glob('*/*.jpg')]) == 16


def test_show__has_medians_and_ratios_in_rounds(capsys: Any) -> None:
    def of(*cpu_ms: float) -> List[List[Dict[str, Any]]]:
        return [[{'cpu_ms': value * n, 'images_per_second': 1000 / value} for n in (1, 2, 3, 4)] for value in cpu_ms]

    measured = {'ours_1.15': of(2, 4), 'dali': of(3, 8)}
    peers.show(measured, {'grain': 'not measured: reason'}, False, 128)
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r'\d{4}-\d\d-\d\d; batches of 128 ', lines[0])
    assert [re.split('  +', line) for line in lines if line.startswith('dali  ')] == [
        ['dali', kind, cpu_ms, '229 (125–333)', '1.75 (1.50–2.00)']
        for kind, cpu_ms in zip(
            ('floats, with colour', 'bytes, with colour', 'floats, without colour', 'bytes, without colour'),
            ('5.50 (3.00–8.00)', '11.00 (6.00–16.00)', '16.50 (9.00–24.00)', '22.00 (12.00–32.00)'),
        )
    ]
    assert 'ours_1.15: TensorFlow 1.15' in lines and lines[-1] == 'grain: not measured: reason'


def test_python_of__says_why_there_is_none(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(peers, 'ROOT', tmp_path)
    monkeypatch.setenv('PATH', '')
    with pytest.raises(MeasurementError, match='needs uv'):
        peers.python_of('dali')
    other = 'ours_2.15' if tf.__version__.startswith('1') else 'ours_1.15'
    with pytest.raises(MeasurementError, match=r'not installed: ./run --tf=.\.15 true'):
        peers.python_of(other)
    uv = tmp_path / '.tools' / 'bin' / 'uv'
    uv.parent.mkdir(parents=True)
    uv.write_text('#!/bin/sh\necho "cannot\n  build" >&2\necho /there/python\n[ "$1" = python ]\n')
    uv.chmod(0o755)
    with pytest.raises(MeasurementError, match=r'^not installed: cannot build$'):
        peers.python_of('dali')
    uv.write_text(uv.read_text().replace('[ "$1" = python ]', ''))
    assert peers.python_of('dali') == '/there/python'


@pytest.mark.parametrize('flag', ['--peers=tensorflow', '--preset=digits', '--optimizer=sgd', '--data_dir=x'])
def test_command__refuses_flags_that_change_the_comparison(flag: str, capsys: Any) -> None:
    assert peers.main(['peers', flag]) == 2
    assert flag.partition('=')[0] in capsys.readouterr().err


def test_scripts__state_exact_versions_and_need_nothing_else_of_this_program() -> None:
    assert {path.stem for path in peers.FOLDER.glob('*.py')} == {*LIBRARIES, '__init__', '__main__', 'meter'}
    for name in LIBRARIES:
        (packages,) = re.findall(r'^# dependencies = (\[.*\])$', (peers.FOLDER / f'{name}.py').read_text(), re.M)
        assert all(re.fullmatch(r'[\w-]+==[\d.]+', package) for package in json.loads(packages))
    code = 'import sys; sys.modules.update(dict.fromkeys(["absl", "console", "inception_v3", "numpy", "tensorflow"]))\n'
    code += ''.join(f'import tools.benchmarks.peers.{name}\n' for name in LIBRARIES)
    subprocess.run([sys.executable, '-c', code], cwd=peers.ROOT, check=True)


@pytest.mark.program
def test_command__measures_pillow_in_its_environment(few_photographs: None, capsys: Any) -> None:
    assert peers.main(['peers', '--peers=pillow', *SIZES, '--json']) == 0
    out = json.loads(capsys.readouterr().out)
    assert len(out['rows']) == 4 and not out['problems']
    assert all(row['cpu_ms']['median'] > 0.1 for row in out['rows'])
