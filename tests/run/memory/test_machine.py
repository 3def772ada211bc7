"""Tests of the memory that a process can still use, with files like those of Linux."""

import pathlib
from typing import Dict

import pytest

from inception_v3.run.memory.machine import available_memory

MEMORY = 'MemTotal:       8000000 kB\nMemFree:         100 kB\nMemAvailable:    6000 kB\nSwapFree:        500 kB\n'
V2, V1 = 'sys/fs/cgroup', 'sys/fs/cgroup/memory'
KIB = 1024


@pytest.mark.parametrize(
    ('files', 'expected'),
    [
        ({}, 6500 * KIB),
        # Version 2: a limit of the process's own group, of the group around it, and of a container.
        ({'proc/self/cgroup': '0::/a/b\n', f'{V2}/a/b/memory.max': '3000', f'{V2}/a/b/memory.current': '1000'}, 2000),
        ({'proc/self/cgroup': '0::/a/b\n', f'{V2}/a/memory.max': '4000', f'{V2}/a/memory.current': '1000'}, 3000),
        ({'proc/self/cgroup': '0::/../..\n', f'{V2}/memory.max': '5000', f'{V2}/memory.current': '1000'}, 4000),
        # Cached files do not count as used.
        (
            {
                'proc/self/cgroup': '0::/\n',
                f'{V2}/memory.max': '5000',
                f'{V2}/memory.current': '4500',
                f'{V2}/memory.stat': 'anon 500\ninactive_file 1700\n',
            },
            2200,
        ),
        ({'proc/self/cgroup': '0::/\n', f'{V2}/memory.max': 'max', f'{V2}/memory.current': '1000'}, 6500 * KIB),
        # Version 1, whose other controllers have other folders.
        (
            {
                'proc/self/cgroup': '5:cpu,cpuacct:/x\n4:memory:/job\n',
                f'{V1}/job/memory.limit_in_bytes': '7000',
                f'{V1}/job/memory.usage_in_bytes': '2000',
                f'{V1}/job/memory.stat': 'inactive_file 1\ntotal_inactive_file 30\n',
            },
            5030,
        ),
        (
            {
                'proc/self/cgroup': '4:memory:/\n',
                f'{V1}/memory.limit_in_bytes': '9223372036854771712',
                f'{V1}/memory.usage_in_bytes': '2000',
            },
            6500 * KIB,
        ),
    ],
)
def test_available_memory__is_the_least_of_machine_and_cgroups(
    files: Dict[str, str], expected: int, tmp_path: pathlib.Path
) -> None:
    for name, text in {'proc/meminfo': MEMORY, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # Swap can be used within a limit of memory, too.
    swap = 0 if expected == 6500 * KIB else 500 * KIB
    assert available_memory(tmp_path) == expected + swap


def test_available_memory__of_this_machine_is_less_than_it_has(tmp_path: pathlib.Path) -> None:
    assert available_memory(tmp_path) is None, 'unknown without Linux'
    with open('/proc/meminfo') as file:
        total = int(file.readline().split()[1]) * KIB
    assert 100 * KIB * KIB < (available_memory() or 0) < 2 * total
