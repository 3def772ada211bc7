"""Fixtures of the tests of `run_tpu.sh`."""

import pathlib

import pytest

from tests.run_tpu.world import World


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    """A world in which the script makes TPU VMs, as it does by default."""
    return World(tmp_path)


@pytest.fixture
def nodes(tmp_path: pathlib.Path) -> World:
    """A world in which the script makes TPU nodes."""
    return World(tmp_path, 'node')


@pytest.fixture(params=['vm', 'node'])
def either(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> World:
    """Two worlds: one with TPU VMs, one with TPU nodes."""
    return World(tmp_path, request.param)
