"""What TPUs there are: their cores, hosts and memory; and the emulated ones, which have as many cores as one likes."""

import re
from typing import Dict, List, NamedTuple, Optional

_GIB = 1 << 30
_EMULATED = 'emulated:'
_CLOUD_CORES_PER_HOST = 8
# As many as the largest TPU has.
_EMULATED_CORES_AT_MOST = 2048
_LOOPBACK = re.compile(r'grpc://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$')


class Topology(NamedTuple):
    """The cores of a TPU, and the hosts that feed them.

    Attributes:
      name: as users write it: v2-8, or emulated:8x2.
      cores: TPU cores, over all hosts.
      hosts: machines, each with as many of the cores.
      memory: bytes of each core's memory; None for an emulated TPU, whose memory is the machine's.
    """

    name: str
    cores: int
    hosts: int
    memory: Optional[int] = None

    @property
    def cores_per_host(self) -> int:
        """Cores that each host feeds."""
        return self.cores // self.hosts

    @property
    def devices(self) -> int:
        """Hosts and cores."""
        return self.hosts + self.cores


def _cloud(generation: str, cores: int, memory: int) -> Topology:
    return Topology(f'{generation}-{cores}', cores, max(1, cores // _CLOUD_CORES_PER_HOST), memory)


# https://cloud.google.com/tpu/docs/types-zones; memory: /system-architecture, 8 GiB per core of v2, 16 of v3.
CLOUD_TPUS: Dict[str, Topology] = {
    topology.name: topology
    for topology in (
        *(_cloud('v2', cores, 8 * _GIB) for cores in (8, 32, 128, 256, 512)),
        *(_cloud('v3', cores, 16 * _GIB) for cores in (8, 32, 64, 128, 256, 512, 1024, 2048)),
    )
}


def is_emulated(tpu: Optional[str]) -> bool:
    """Whether a `--tpu` means an emulated TPU."""
    return bool(tpu) and str(tpu).startswith(_EMULATED)


def emulated(tpu: str) -> Topology:
    """The topology that `emulated:CORES` or `emulated:CORESxHOSTS` describes: the cores are those of all hosts.

    Raises:
      ValueError: it is written otherwise, or the hosts cannot have as many cores each; the message says so.
    """
    match = re.fullmatch(r'(\d+)(?:x(\d+))?', tpu[len(_EMULATED) :])
    cores, hosts = (int(number or 1) for number in match.groups()) if match else (0, 0)
    if not cores or not hosts:
        raise ValueError('must be emulated:CORES or emulated:CORESxHOSTS, such as emulated:8 or emulated:8x2')
    if cores > _EMULATED_CORES_AT_MOST:
        raise ValueError(f'must have at most {_EMULATED_CORES_AT_MOST:,} cores, which is what the largest TPU has')
    if cores % hosts:
        raise ValueError(f'{cores} cores cannot be shared out equally to {hosts} hosts')
    return Topology(tpu, cores, hosts)


def hosts_of(tpu: Optional[str], cores: int) -> int:
    """The hosts of the TPU that `--tpu` names: as written for an emulated one, else one for every 8 cores.

    Args:
      tpu: the name, or None if the TPU is known by its address.
      cores: its number of cores.
    """
    return emulated(str(tpu)).hosts if is_emulated(tpu) else max(1, cores // _CLOUD_CORES_PER_HOST)


def out_of_reach(tpu: Optional[str], master: str, **folders: Optional[str]) -> List[str]:
    """What keeps a TPU from folders that its hosts read and write by themselves, a message each.

    A TPU on this machine, emulated or at a loopback address, sees what this machine sees. For all others Cloud TPU's
    documentation demands gs:// paths: "all input files and the model directory must use a Cloud Storage bucket path".

    Args:
      tpu: as in `--tpu`.
      master: as in `--master`.
      **folders: the folders, by the flags that name them.
    """
    if is_emulated(tpu) or _LOOPBACK.match(master):
        return []
    problems = []
    for flag, folder in folders.items():
        if folder and not folder.startswith('gs://'):
            why = (
                "is no Cloud Storage path, the only kind that a Cloud TPU's hosts are documented to reach"
                if '://' in folder
                else "is on this machine's disk, which a TPU's hosts, that read and write it by themselves, cannot see"
            )
            problems.append(f'--{flag}={folder}: {why}. Name a folder in a bucket, gs://BUCKET/FOLDER.')
    return problems
