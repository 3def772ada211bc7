"""The digits as tar shards."""

from typing import Any

import pytest

from tests.data.tar_shards_command import tar_shards


@pytest.fixture(scope='module')
def tar_dir(digits_dir: str, tmp_path_factory: Any) -> str:
    """The digits as tar shards."""
    target = str(tmp_path_factory.mktemp('digits') / 'tar')
    done = tar_shards('write', digits_dir, target)
    assert done.returncode == 0, done.stderr
    return target
