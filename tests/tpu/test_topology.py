"""Tests of TPU topologies, and of the check that a TPU can reach its folders."""

from typing import List

import pytest

from inception_v3.tpu.topology import CLOUD_TPUS, unreachable_folders


def test_cloud_tpus__have_8_cores_per_host_and_the_memory_of_their_generation() -> None:
    assert CLOUD_TPUS['v2-8'] == ('v2-8', 8, 1, 8 << 30)
    assert CLOUD_TPUS['v3-2048'] == ('v3-2048', 2048, 256, 16 << 30)
    assert {topology.cores_per_host for topology in CLOUD_TPUS.values()} == {8}


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
    ],
)
def test_unreachable_folders__depend_on_the_tpu_and_the_path(
    tpu: str, master: str, data_dir: str, flags: List[str]
) -> None:
    problems = unreachable_folders(tpu, master, data_dir=data_dir, model_dir='runs/1')
    assert [problem.split('=')[0] for problem in problems] == [f'--{flag}' for flag in flags]
    assert not unreachable_folders(tpu, master, data_dir='gs://bucket/data', model_dir=None)
