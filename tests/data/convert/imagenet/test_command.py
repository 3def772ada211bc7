"""The command inception-v3 imagenet."""

import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any, List

import pytest

from data import records
from data.convert.imagenet import __main__ as imagenet
from data.convert.imagenet import beam
from tests.data.convert.imagenet.archives import Archives
from tests.data.convert.imagenet.results import SHARDS, SPLITS, convert, convert_here, files_of, run_imagenet, stored
from tests.support.commands import run

CORES = len(os.sched_getaffinity(0))


@pytest.mark.program
def test_the_command_converts_the_archives_on_beam(archives: Archives, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / 'out' / 'records'
    done = run_imagenet(data_dir, *archives.arguments(), '--train_shards=3', '--validation_shards=2', '--processes=2')
    assert (done.returncode, done.stdout) == (0, '')
    assert done.stderr.endswith(f'24 training and 8 validation images of 4 classes in {data_dir}\n')
    # Besides progress, only the command's own messages: no warnings of other packages, no tracebacks.
    messages = [line for line in done.stderr.splitlines() if ' converting images: ' not in line]
    assert len(messages) == 4, done.stderr
    for split, images in zip(SPLITS, (24, 8)):
        assert len(records.find_shards(str(data_dir), split)) == SHARDS[split]
        assert len(stored(data_dir, split)) == images
    # The files are the same as without Beam.
    convert(archives, tmp_path / 'here')
    assert files_of(data_dir) == files_of(tmp_path / 'here')
    again = run_imagenet(data_dir, *archives.arguments(), '--train_shards=3', '--validation_shards=2')
    assert (again.returncode, again.stderr) == (0, f'{data_dir}: already finished\n')


@pytest.mark.parametrize(
    ('given', 'runner', 'options'),
    [
        (['--processes=3'], 'DirectRunner', ['--direct_running_mode=multi_processing', '--direct_num_workers=3']),
        (
            ['--', '--job_name=x'],
            'DirectRunner',
            ['--job_name=x', '--direct_running_mode=multi_processing', f'--direct_num_workers={CORES}'],
        ),
        (
            ['--runner=PortableRunner', '--', '--job_endpoint=host:1', '--for_the_cluster=x'],
            'PortableRunner',
            ['--job_endpoint=host:1', '--for_the_cluster=x'],
        ),
    ],
)
def test_command__passes_options_to_beam(
    given: List[str], runner: str, options: List[str], archives: Archives, monkeypatch: Any
) -> None:
    runs: List[Any] = []

    def run_beam(name: str, of_beam: List[str], *work: Any) -> None:
        runs.append((name, of_beam))
        convert_here(*work)

    monkeypatch.setattr(beam, 'run', run_beam)
    data_dir = archives.folder / 'out'
    arguments = [*archives.arguments(), '--train_shards=3', '--validation_shards=2', str(data_dir), *given]
    done = run(imagenet.main, *arguments)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    assert runs == [(runner, options)]
    assert done.stderr.endswith(f'24 training and 8 validation images of 4 classes in {data_dir}\n')
    assert not (data_dir / 'conversion').exists()
    again = run(imagenet.main, *arguments)
    assert (again.returncode, again.stderr) == (0, f'{data_dir}: already finished\n') and len(runs) == 1


@pytest.mark.slow
def test_command__other_runner(archives: Archives, tmp_path: pathlib.Path) -> None:
    port_file = tmp_path / 'port'
    server = subprocess.Popen(
        [sys.executable, '-m', 'apache_beam.runners.portability.local_job_service_main', f'--port_file={port_file}'],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not port_file.exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        options = [f'--job_endpoint=localhost:{port_file.read_text()}', '--environment_type=LOOPBACK']
        arguments = [*archives.arguments(), '--train_shards=3', '--validation_shards=2', '--runner=PortableRunner']
        done = run_imagenet(tmp_path / 'out', *arguments, '--', *options)
    finally:
        server.terminate()
        server.wait()
    assert done.returncode == 0, done.stderr
    convert(archives, tmp_path / 'here')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'here')


@pytest.mark.parametrize(
    ('option', 'expected'),
    [
        (['--train_shards=0'], '--train_shards'),
        (['--runner=PortableRunner', '--processes=2'], '--processes=2'),
        (['--runner=Nonsense'], 'Unexpected pipeline runner: Nonsense'),
        (['--', '--nonsense=1'], 'Beam has no option --nonsense.'),
        (['--', '--direct_num_workers=x'], 'argument --direct_num_workers'),
    ],
)
def test_values_out_of_range_are_refused(
    archives: Archives, option: List[str], expected: str, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(sys, 'argv', ['imagenet', *archives.arguments(), str(archives.folder / 'out'), *option])
    with pytest.raises(SystemExit) as stopped:
        sys.exit(imagenet.main())
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err
    assert not (archives.folder / 'out').exists()


def test_command__names_a_missing_package(archives: Archives, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, 'argv', ['imagenet', *archives.arguments(), str(archives.folder / 'out')])
    for name in [name for name in sys.modules if name.partition('.')[0] == 'apache_beam'] or ['apache_beam']:
        monkeypatch.setitem(sys.modules, name, None)
    assert imagenet.main() == 2
    message = r"error: apache_beam is not installed: pip install 'inception-v3-tpu\[data\]'.\n"
    assert re.fullmatch(message, capsys.readouterr().err)
