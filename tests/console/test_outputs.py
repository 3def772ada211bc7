"""Tests that outputs replace only regular files, whichever command writes them, and that one module writes them all."""

import os
import pathlib
import socket
import stat
import sys
from typing import Any, Callable, Tuple

import pytest

from console import outputs
from console.errors import FIX, CommandError
from data import files, json_lines
from inception_v3.commands.evaluate_report import __main__ as evaluate_report
from inception_v3.commands.export import __main__ as export
from inception_v3.commands.features import __main__ as features
from inception_v3.commands.plan import __main__ as plan
from inception_v3.commands.predict import __main__ as predict
from inception_v3.networks.registry import NETWORKS
from preprocessing import show
from studies import compare, data_size, fine_tuning
from studies.batch_norm import __main__ as batch_norm
from studies.revnet_memory import __main__ as revnet_memory
from studies.streaming import __main__ as streaming
from tests.support import commands
from tests.support.runs import FinishedRun
from tests.support.tiny_network import TINY

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _device(path: pathlib.Path) -> None:
    path.symlink_to('/dev/full')


def _pipe(path: pathlib.Path) -> None:
    os.mkfifo(str(path))


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as new:
        # The path of a socket has at most 107 bytes.
        before = os.getcwd()
        os.chdir(str(path.parent))
        new.bind(path.name)
        os.chdir(before)


def _loop(path: pathlib.Path) -> None:
    path.symlink_to(path.name)


SPECIAL: Tuple[Tuple[Callable[[pathlib.Path], None], str], ...] = (
    (_device, 'cannot be written: it is a device, a pipe or a socket; only files'),
    (_pipe, 'cannot be written: it is a device, a pipe or a socket; only files'),
    (_socket, 'cannot be written: it is a device, a pipe or a socket; only files'),
    (pathlib.Path.mkdir, 'cannot be written: it is a folder; only files'),
    (_loop, 'cannot be written: Too many levels of symbolic links'),
)


def state(path: pathlib.Path) -> Tuple[int, int]:
    """The kind and the inode of what a path itself names."""
    found = os.lstat(str(path))
    return stat.S_IFMT(found.st_mode), found.st_ino


@pytest.mark.parametrize(('make', 'reason'), SPECIAL, ids=[reason for _, reason in SPECIAL])
def test_special_files__are_refused_and_stay(make: Any, reason: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'out'
    make(path)
    link = tmp_path / 'link'
    link.symlink_to('out')
    before = state(path), state(link)
    for each in (path, link):
        writes: Tuple[Tuple[Any, ...], ...] = (
            (files.write_whole, str(each), 'new'),
            (json_lines.append_line, str(each), {}),
            (outputs.move, str(tmp_path / 'absent'), str(each)),
        )
        for write, *arguments in writes:
            with pytest.raises(CommandError, match=reason):
                write(*arguments)
    assert (state(path), state(link)) == before and sorted(os.listdir(str(tmp_path))) == ['link', 'out']


def test_links_to_files__stay_and_their_targets_are_replaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'folder').mkdir()
    target, link, dangling = tmp_path / 'folder' / 'target', tmp_path / 'link', tmp_path / 'dangling'
    target.write_text('old')
    link.symlink_to('folder/target')
    dangling.symlink_to('folder/new')
    files.write_whole(str(link), 'new')
    files.write_whole(str(dangling), 'also new')
    assert link.is_symlink() and target.read_text() == 'new' and not target.is_symlink()
    assert (tmp_path / 'folder' / 'new').read_text() == 'also new'
    assert sorted(os.listdir(str(tmp_path / 'folder'))) == ['new', 'target']


def test_failed_output__leaves_the_old_file_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'page.html'
    path.write_text('old')
    with pytest.raises(KeyboardInterrupt), outputs.unfinished_file(str(path)) as unfinished:
        pathlib.Path(unfinished).write_text('half')
        raise KeyboardInterrupt
    assert path.read_text() == 'old' and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize('target', ['/dev/full', 'mine'])
def test_unfinished_output__is_not_written_through_a_link(target: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'mine').write_text('mine')
    (tmp_path / 'page.html.unfinished').symlink_to(target)
    with pytest.raises(CommandError, match=r'is a link|it is a device'):
        files.write_whole(str(tmp_path / 'page.html'), 'page')
    assert (tmp_path / 'mine').read_text() == 'mine' and not (tmp_path / 'page.html').exists()


def test_every_command__refuses_a_pipe_as_its_output(
    finished_run: FinishedRun, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(NETWORKS, 'inception_v3', TINY)
    model_dir = str(finished_run.config.model_dir)
    image = tmp_path / 'image.png'
    image.write_bytes(b'')
    all_commands: Tuple[Tuple[Any, ...], ...] = (
        (predict.main, '--html', 'page.html', image, f'--model={model_dir}'),
        (features.main, '--out', 'features.npz', image, f'--model={model_dir}'),
        (evaluate_report.main, '--out', 'pipe', model_dir),
        (export.main, '--out', 'pipe', model_dir, '--format=npz'),
        (lambda: plan.main(sys.argv), '--out', 'pipe', '--preset=digits'),
        (show.main, '--out', 'pipe', image),
        (compare.main, '--out', 'pipe', model_dir),
        (fine_tuning.main, '--out', 'pipe'),
        (data_size.main, '--out', 'pipe'),
        (batch_norm.main, '--out', 'pipe'),
        (revnet_memory.main, '--out', 'pipe'),
        (streaming.main, '--out', 'pipe'),
    )
    for main, flag, name, *others in all_commands:
        pipe = tmp_path / name
        if not pipe.exists():
            _pipe(pipe)
        before = state(pipe)
        done = commands.run(main, *others, f'{flag}={pipe}')
        assert done.returncode == FIX and str(pipe) in done.stderr, (main.__module__, done)
        assert state(pipe) == before
