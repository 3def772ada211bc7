"""Tests of TPU topologies, and of the check that a TPU can reach its folders."""

from typing import List

import pytest

from inception_v3.config import Config
from inception_v3.tpu.topology import (
    CLOUD_TPUS,
    emulated,
    hosts_of,
    is_emulated,
    software_version,
    unreachable_folders,
)


def test_cloud_tpus__have_8_cores_per_host_and_their_memory() -> None:
    # https://cloud.google.com/tpu/docs/types-zones
    types = 'v2-8 v2-32 v2-128 v2-256 v2-512 v3-8 v3-32 v3-64 v3-128 v3-256 v3-512 v3-1024 v3-2048'
    assert [*CLOUD_TPUS] == types.split()
    for name, topology in CLOUD_TPUS.items():
        core_memory = (8 if name.startswith('v2') else 16) << 30
        cores = int(name[3:])
        assert topology == (name, cores, cores // 8, core_memory)
    # A device for each host and for each core.
    assert CLOUD_TPUS['v3-32'].devices == 36


def test_software_version__of_a_slice_is_that_of_several_machines() -> None:
    versions = [software_version(CLOUD_TPUS[name]) for name in ('v2-8', 'v3-32')]
    assert versions == ['tpu-vm-tf-2.15.1-se', 'tpu-vm-tf-2.15.1-pod-se']


@pytest.mark.parametrize(('cores', 'hosts'), [(8, 1), (32, 4), (2048, 256), (4, 1)])
def test_hosts_of__a_cloud_tpu_has_one_for_8_cores(cores: int, hosts: int) -> None:
    assert not is_emulated('node') and hosts_of(Config(tpu='node', num_shards=cores)) == hosts
    assert hosts_of(Config(tpu='node', num_shards=cores, use_tpu=False)) == 1


@pytest.mark.parametrize(
    ('tpu', 'cores', 'hosts'),
    [('emulated:1', 1, 1), ('emulated:8', 8, 1), ('emulated:6x3', 6, 3), ('emulated:2048x256', 2048, 256)],
)
def test_emulated__gives_cores_and_hosts(tpu: str, cores: int, hosts: int) -> None:
    assert is_emulated(tpu)
    assert emulated(tpu) == (tpu, cores, hosts, None)
    assert emulated(tpu).cores_per_host * hosts == cores
    assert hosts_of(Config(tpu=tpu, num_shards=cores)) == hosts


@pytest.mark.parametrize(
    ('tpu', 'message'),
    [
        ('emulated:', 'must be emulated:CORES'),
        ('emulated:0', 'must be emulated:CORES'),
        ('emulated:8x0', 'must be emulated:CORES'),
        ('emulated:8x2x2', 'must be emulated:CORES'),
        ('emulated:-8', 'must be emulated:CORES'),
        ('emulated:2049', 'must have at most 2,048 cores'),
        ('emulated:8x3', '8 cores cannot be divided equally among 3 hosts'),
    ],
)
def test_emulated__refuses_other_names(tpu: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        emulated(tpu)


@pytest.mark.parametrize(
    ('tpu', 'master', 'data_dir', 'flags'),
    [
        ('node', '', '/data', ['data_dir', 'model_dir']),
        (None, 'grpc://10.0.0.2:8470', 'gs://bucket/data', ['model_dir']),
        (None, 'grpc://127.evil.example:8470', '', ['model_dir']),
        (None, 'grpc://[', '', ['model_dir']),
        (None, '', '', ['model_dir']),
        ('node', '', 's3://bucket/data', ['data_dir', 'model_dir']),
        # The TPU is this machine.
        (None, 'grpc://127.0.0.1:8470', '/data', []),
        (None, 'grpc://localhost:8470', '/data', []),
        (None, 'grpc://[::1]:8470', '/data', []),
        ('emulated:8', '', '/data', []),
        ('local', '', '/data', []),
    ],
)
def test_unreachable_folders__depend_on_the_tpu_and_the_path(
    tpu: str, master: str, data_dir: str, flags: List[str]
) -> None:
    problems = unreachable_folders(tpu, master, data_dir=data_dir, model_dir='runs/1')
    assert [problem.split('=')[0] for problem in problems] == [f'--{flag}' for flag in flags]
    assert not unreachable_folders(tpu, master, data_dir='gs://bucket/data', model_dir=None)
