"""Test of `inception-v3 compare` with runs and report in a remote store."""

import pathlib

import pytest

from inception_v3.config import Config
from tests.remote.store import Store
from tests.support import recorded


@pytest.mark.slow
def test_compare__reads_runs_and_writes_its_report(store: Store, tmp_path: pathlib.Path) -> None:
    folders = []
    for seed in (1, 2):
        local = tmp_path / str(seed)
        recorded.write(str(local), Config(train_steps=300, seed=seed), [recorded.evaluation(300, 0.5 + 0.01 * seed)])
        recorded.write_events(str(local), 'a', 1000.0, [0, 10], [3, 2])
        folders.append(store.upload(str(local), f'run-{seed}'))
    done = store.quick('studies.compare', *folders, f'--out={store.url}/report')
    assert done.returncode == 0, done.stderr
    written = store.objects('report/')
    assert {name for name in written if not name.endswith('/')} == {
        f'report/{name}' for name in ('report.html', 'report.md', 'finals.png', 'curves.png', 'schedule.png')
    }
    # The mean of 51 and 52 %; 10 steps of 1,024 images in 1 second.
    assert '| all runs | 2 of 2 | 51.50 ± 0.71 |' in written['report/report.md'].decode()
    assert '| 10,240.0 ± 0.0 |' in written['report/report.md'].decode()

    refused = store.quick('studies.compare', f'{store.url}/nothing', f'--out={store.url}/report')
    assert (refused.returncode, refused.stdout) == (2, '')
    assert f'{store.url}/nothing: is not the model_dir of a run' in refused.stderr
