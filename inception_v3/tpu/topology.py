"""Topologies of Cloud TPUs and of emulated TPUs: cores, hosts and memory."""

import re
from typing import Dict, List, NamedTuple, Optional

from inception_v3.config import EMULATED, Config

# The value of `--tpu` for this machine's own TPU, on a TPU VM.
LOCAL = 'local'

GIB = 1 << 30
# The cores of a host. The guide says that a device has 8 cores and is connected to a host. It also says that a v2-256
# communicates with 16 hosts, but 256 cores belong to 32 hosts.
CORES_PER_HOST = 8
# The number of cores of the largest TPU.
_EMULATED_CORES_AT_MOST = 2048
_LOOPBACK = re.compile(r'grpc://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$')


class Topology(NamedTuple):
    """The cores of a TPU, on all hosts together, and the hosts that feed them. Names are such as v2-8 or emulated:8x2.

    `memory` is each core's, in bytes; None for an emulated TPU.
    """

    name: str
    cores: int
    hosts: int
    memory: Optional[int] = None

    @property
    def cores_per_host(self) -> int:
        """The number of cores on each host."""
        return self.cores // self.hosts

    @property
    def devices(self) -> int:
        """The number of hosts and cores together."""
        return self.hosts + self.cores


# Memory of a core: https://cloud.google.com/tpu/docs/system-architecture.
_MEMORY = {'v2': 8 * GIB, 'v3': 16 * GIB}
# Types: https://cloud.google.com/tpu/docs/regions-zones, read on 2026-11-23. A machine has 4 chips.
CLOUD_TPUS: Dict[str, Topology] = {
    f'{generation}-{cores}': Topology(f'{generation}-{cores}', cores, cores // CORES_PER_HOST, _MEMORY[generation])
    for generation, sizes in (('v2', (8, 32, 128, 256, 512)), ('v3', (8, 32, 64, 128, 256, 512, 1024, 2048)))
    for cores in sizes
}


def software_version(tpu: Topology) -> str:
    """The software version with which a TPU VM, or the machines of a slice, are created for this program.

    It is the last version with TensorFlow 2.15, with the stream executor: https://cloud.google.com/tpu/docs/runtimes.
    """
    return f'tpu-vm-tf-2.15.1-{"se" if tpu.hosts == 1 else "pod-se"}'


def is_emulated(tpu: Optional[str]) -> bool:
    """Whether a value of `--tpu` names an emulated TPU."""
    return bool(tpu) and str(tpu).startswith(EMULATED)


def is_remote(tpu: Optional[str]) -> bool:
    """Whether a value of `--tpu` names a TPU of other machines; `local` and emulated TPUs are on this machine."""
    return tpu != LOCAL and not is_emulated(tpu)


def emulated(tpu: str) -> Topology:
    """The topology named `emulated:CORES` or `emulated:CORESxHOSTS`, with CORES on all hosts together.

    Raises:
      ValueError: the name has another form, or the cores cannot be divided equally among the hosts. The message is for
        the user.
    """
    match = re.fullmatch(r'(\d+)(?:x(\d+))?', tpu[len(EMULATED) :])
    cores, hosts = (int(number or 1) for number in match.groups()) if match else (0, 0)
    if not cores or not hosts:
        raise ValueError('must be emulated:CORES or emulated:CORESxHOSTS, such as emulated:8 or emulated:8x2')
    if cores > _EMULATED_CORES_AT_MOST:
        raise ValueError(f'must have at most {_EMULATED_CORES_AT_MOST:,} cores, as the largest TPU')
    if cores % hosts:
        raise ValueError(f'{cores} cores cannot be divided equally among {hosts} hosts')
    return Topology(tpu, cores, hosts)


def hosts_of(config: Config) -> int:
    """The number of machines whose input pipelines feed a run: as emulated, or one for every 8 cores of a TPU.

    Without a TPU, it is the number of the run's machines.
    """
    if not config.use_tpu:
        return config.machines
    return emulated(str(config.tpu)).hosts if config.is_emulated else max(1, config.num_shards // CORES_PER_HOST)


def unreachable_folders(tpu: Optional[str], master: str, **folders: Optional[str]) -> List[str]:
    """Messages about folders, by their flags, that the hosts of the TPU of `--tpu` or `--master` cannot reach.

    A TPU on this machine, emulated, local or at a loopback address, reaches the same folders as this machine. For
    other TPUs, Cloud TPU's documentation demands gs:// paths: "all input files and the model directory must use a Cloud
    Storage bucket path".
    """
    if not is_remote(tpu) or _LOOPBACK.match(master):
        return []
    return [
        f"--{flag}={folder}: a Cloud TPU's hosts can only reach gs:// paths. Use a folder in a bucket, gs://BUCKET/FOLDER."
        for flag, folder in folders.items()
        if folder and not folder.startswith('gs://')
    ]
