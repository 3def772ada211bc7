"""Tests of the comparison with torch-fidelity and pytorch-fid, which runs if they are there."""

import os
from typing import Any

import numpy as np
import pytest

from console.errors import DONE, FIX, CommandError
from studies.score_agreement import __main__ as agreement

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, '.venv-scores', 'bin', 'python')


def test_differences__are_relative_above_1(capsys: Any) -> None:
    own = {'pool one': np.array([200.0, 1.0]), 'pytorch-fid pool': np.array([0.5]), 'kid': [1.0, 2.0]}
    others = {
        'pool one': np.array([200.001, 1.0]),
        'pytorch-fid pool': np.array([0.500002]),
        'kid': np.array([1.0, 2.0]),
    }
    found = [*agreement.differences(own, others)]
    assert [(each.stage, each.package) for each in found] == [
        *(('pool one', 'torch-fidelity'), ('pool', 'pytorch-fid'), ('kid', 'torch-fidelity'))
    ]
    np.testing.assert_allclose([each.relative for each in found], [5e-6, 2e-6, 0], rtol=1e-3)
    assert agreement.report(found, {'torch': '1'}) == DONE
    assert 'torch 1' in capsys.readouterr().out
    for wrong in (0.51, np.nan):
        with pytest.raises(CommandError, match=r'^pool: differs from pytorch-fid by '):
            agreement.report([*agreement.differences({**own, 'pytorch-fid pool': wrong}, others)], {})


def test_packages__that_are_missing_are_named(tmp_path: Any, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(agreement, 'random_weights', lambda seed: {})
    monkeypatch.setattr(agreement, 'write_images', lambda *_, **__: None)
    assert agreement.main([f'--out={tmp_path}', '--python=/absent/python']) == FIX
    err = capfd.readouterr().err
    assert (
        '--python=/absent/python: no Python with torch-fidelity and pytorch-fid' in err and 'pip install torch' in err
    )


@pytest.mark.program
@pytest.mark.skipif(not os.path.exists(PYTHON), reason='docs/scores.md has the commands that make .venv-scores')
def test_every_stage__agrees(tmp_path: Any) -> None:
    assert agreement.main([f'--out={tmp_path}', f'--python={PYTHON}', '--images=65']) == DONE
