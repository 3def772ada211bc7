"""Tests of a worker's part in a run that needs no other process."""

import dataclasses
import socket
from typing import Any

import pytest

from inception_v3.config import Config
from inception_v3.machines import channel, cluster
from inception_v3.run.hooks.stopping import Termination
from inception_v3.run.workers import Workers
from tests.support.ports import free_addresses


def test_joined__leaves_telling_an_early_error_to_the_opener(small_config: Config, tmp_path: Any) -> None:
    addresses = free_addresses(2)
    hosts = {'worker_hosts': ','.join(addresses), 'task_index': 0, 'model_dir': str(tmp_path)}
    config: Any = dataclasses.replace(small_config, **hosts)
    opened = channel.of(cluster.Place(tuple(addresses), 0, 30), lambda ending: None)
    with socket.socket() as other:
        other.bind(('', cluster.host_and_port(addresses[0])[1]))
        other.listen()
        workers = Workers(config, Termination(lambda error: None), opened)
        with pytest.raises(channel.PortInUseError), workers.joined(None):
            pass
    assert not opened._has_left
    opened.leave(at_once=True)
