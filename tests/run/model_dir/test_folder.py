"""Tests of a run's folder."""

import os
from typing import Any

from inception_v3.model_dir import check_writable


def test_check_writable__leaves_no_file(tmp_path: Any) -> None:
    check_writable('model_dir', str(tmp_path))
    assert os.listdir(str(tmp_path)) == []
