"""The command of the study of streaming."""

import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any, Dict, List

import numpy as np
import PIL.Image
import pytest

from studies.streaming import __main__ as streaming
from studies.streaming import measurement, report
from studies.streaming.measurement import FILES, TAR, TFRECORD, DataSet, Reading
from studies.streaming.report import COMPARED, Results
from tests.support.processes import wait_for


@pytest.fixture(scope='module')
def data(photo_dir: str, tmp_path_factory: Any) -> DataSet:
    """Five photographs, in three shards."""
    return measurement.write(photo_dir, str(tmp_path_factory.mktemp('data')), 1024, 2)


@pytest.mark.parametrize(
    'argument',
    [
        *('--out=', '--latencies=-1', '--latencies=0,x', '--latencies=', '--read_ahead=0', '--read_ahead=1.5'),
        *('--repeats=0', '--seconds=nan', '--seconds=inf', '--images=0', '--data_dir=/no/such/folder', '--unknown'),
    ],
)
def test_command__refuses_wrong_arguments(argument: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    try:
        assert streaming.main([f'--out={tmp_path}', argument]) == 2
    except SystemExit as end:  # argparse
        assert end.code == 2
    error = capsys.readouterr().err
    assert argument.split('=')[0] in error and 'Traceback' not in error


@pytest.mark.program
def test_command__failure_is_recorded_and_other_measurements_are_kept(
    data: DataSet, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    broken = data._replace(folder=str(tmp_path / 'broken'))
    shutil.copytree(data.folder, broken.folder)
    shutil.rmtree(os.path.join(broken.folder, TFRECORD))
    found = Results([0.0], [1], {}, {})
    monkeypatch.setattr(found, 'readings', lambda: [Reading(FILES, None, 1), Reading(TFRECORD, None, 1)])
    arguments = streaming._parser().parse_args(['--repeats=2', '--seconds=0.01'])
    steps = [*streaming._measure(found, broken, arguments, lambda line: None)]
    assert len(steps) == 3
    assert [len(each) for each in found.measured.values()] == [2]
    ((reading, problem),) = found.failed.items()
    assert reading.layout == TFRECORD and f'{broken.folder}/tfrecord: no such folder' in problem
    failed = report.tables(found)[-1]
    assert failed.rows == [('TFRecord, local, 1 at a time', problem)]


def check_files(out: pathlib.Path, stdout: str, readings: int, repeats: int) -> Dict[str, Any]:
    """Compares a run's report with its JSON file, and returns the content of the JSON file."""
    content: Dict[str, Any] = json.loads((out / streaming.JSON_FILE).read_text(encoding='utf-8'))
    markdown = (out / streaming.MARKDOWN_FILE).read_text(encoding='utf-8')
    assert content['published']['B over A'] == '+11.2 %'
    assert [*content['published']] == [*content['measured']] == ['B over A', 'C over A', 'C over B']
    assert '+11.2 %' in markdown and '+11.2 %' in stdout
    assert len(content['readings']) == readings
    for reading in content['readings']:
        assert len(reading['measurements']) == repeats and reading['failure'] is None
        median = f'{np.median([each["images_per_second"] for each in reading["measurements"]]):,.0f} ('
        assert median in markdown and median in stdout, reading['name']
    with PIL.Image.open(io.BytesIO((out / streaming.FIGURE_FILE).read_bytes())) as image:
        pixels = np.asarray(image.convert('RGB'))
    # The bars of single files are drawn.
    assert (pixels == [0x00, 0x72, 0xB2]).all(-1).sum() > 500
    return content


@pytest.mark.program
def test_command__writes_its_measurements(
    photo_dir: str, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    # Without tar shards: their graph takes seconds to build.
    few = {label: reading for label, reading in COMPARED.items() if reading.layout == FILES}
    monkeypatch.setattr(report, 'COMPARED', few)
    monkeypatch.setattr(Results, 'readings', lambda self: [*few.values()])
    flags = ['--images=5', '--images_per_shard=2', '--repeats=1', '--seconds=0.01', f'--data_dir={photo_dir}']
    assert streaming.main([*flags, f'--out={tmp_path / "out"}']) == 0
    content = check_files(tmp_path / 'out', capsys.readouterr().out, readings=2, repeats=1)
    assert content['made'].startswith('5 images of ') and ', in 3 shards' in content['made']


def run(*arguments: str) -> List[str]:
    return [sys.executable, '-m', 'studies.streaming', '--images=5', '--images_per_shard=2', *arguments]


@pytest.mark.program
def test_command__measures_all_readings(photo_dir: str, tmp_path: pathlib.Path) -> None:
    flags = [f'--out={tmp_path}', f'--data_dir={photo_dir}', '--seconds=0.1', '--repeats=1']
    done = subprocess.run(
        run(*flags, '--latencies=0,100', '--read_ahead=1,8'), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    content = check_files(tmp_path, done.stdout, readings=12, repeats=1)
    of = {
        (each['layout'], each['latency_ms'], each['read_ahead']): each['measurements'][0]
        for each in content['readings']
    }
    # Two requests per image, and two per shard of up to two images below 1 MiB.
    assert of[FILES, 0, 8]['requests'] == pytest.approx(2000, rel=0.1)
    assert of[TAR, 0, 8]['requests'] == pytest.approx(1000 * 2 * 3 / 5, rel=0.3)
    # Latency limits single files, and reading ahead compensates.
    assert of[FILES, 100, 1]['images_per_second'] <= 5 < of[FILES, 100, 8]['images_per_second']
    assert of[TAR, 100, 1]['images_per_second'] > of[FILES, 100, 1]['images_per_second']


@pytest.mark.program
def test_command__interruption_keeps_the_measurements(photo_dir: str, tmp_path: pathlib.Path) -> None:
    flags = [f'--out={tmp_path}', f'--data_dir={photo_dir}', '--seconds=0.1', '--repeats=1000']
    process = subprocess.Popen(run(*flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for((tmp_path / streaming.JSON_FILE).exists)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 130 and 'Traceback' not in error
    content = json.loads((tmp_path / streaming.JSON_FILE).read_text(encoding='utf-8'))
    assert any(reading['measurements'] for reading in content['readings'])
    assert (tmp_path / streaming.FIGURE_FILE).exists() and 'A: single files, local' in out
