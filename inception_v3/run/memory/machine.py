"""The memory that this process can still use: of the machine, or less in a container or cgroup."""

import pathlib
from typing import Iterator, Optional, Tuple

# A limit of cgroup v1 that means none.
_UNLIMITED = 1 << 60
_ROOT = pathlib.Path('/')


def available_memory(root: pathlib.Path = _ROOT) -> Optional[int]:
    """Bytes that this process can still use: free memory, memory of cached files and free swap, within its cgroups.

    None if the system does not tell, as outside of Linux. `root` holds `proc` and `sys`.
    """
    found = {key: int(value.split()[0]) << 10 for key, value in _pairs(root / 'proc/meminfo') if value.split()}
    if 'MemAvailable:' not in found:
        return None
    swap = found.get('SwapFree:', 0)
    return swap + min([found['MemAvailable:'], *_left_in_cgroups(root)])


def _left_in_cgroups(root: pathlib.Path) -> Iterator[int]:
    """Yields what is left of each limit of the process's cgroups, and of those around them, without swap."""
    for line in _text(root / 'proc/self/cgroup').splitlines():
        _, controllers, path = line.split(':', 2)
        top, limits, cached = root / 'sys/fs/cgroup', ('memory.max', 'memory.current'), 'inactive_file'
        if controllers:
            # Version 1.
            top, limits = top / 'memory', ('memory.limit_in_bytes', 'memory.usage_in_bytes')
            cached = 'total_inactive_file'
            if 'memory' not in controllers.split(','):
                continue
        # In a container, the path may be that of the host, and the limit is at the top.
        folder = top / path.lstrip('/')
        for place in {top, folder, *(each for each in folder.parents if top in each.parents)}:
            limit, used = (_text(place / name).strip() for name in limits)
            if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
                # Cached files count as used, and are dropped when memory is needed.
                yield int(limit) - int(used) + int(dict(_pairs(place / 'memory.stat')).get(cached, 0))


def _pairs(path: pathlib.Path) -> Iterator[Tuple[str, str]]:
    for line in _text(path).splitlines():
        key, _, value = line.partition(' ')
        yield key, value.strip()


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ''
