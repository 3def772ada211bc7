"""Fixture of the tests of `run_tpu.sh`."""

import pathlib

import pytest

from tests.run_tpu.world import World


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)
