"""The timeline of host and device in a run: the time that each of them waits for the other."""

import math
from typing import Dict, List, NamedTuple

# Number of steps in a timeline.
_STEPS = 6
STEP = 'step'
HOST = 'host'


class Bar(NamedTuple):
    """A piece of work from `start` to `end`, in milliseconds."""

    start: float
    end: float
    kind: str
    label: str = ''


class Timeline(NamedTuple):
    """The work of the host and of the device, each in sequence."""

    host: List[Bar]
    device: List[Bar]

    @property
    def end(self) -> float:
        """The end of the last piece of work, in milliseconds."""
        return max(bar.end for bar in [*self.host, *self.device])


class Balance(NamedTuple):
    """The speeds of a host and of the devices that it feeds.

    A host's cores are assumed to share the work of a batch evenly, and to do nothing else.

    Attributes:
      step_ms: time of a training step on the device, in milliseconds.
      host_images: images that one host prepares for a step.
      cpu_ms_per_image: CPU time to prepare an image, in milliseconds of one core.
      cores: cores of the host.
      hosts: hosts of the run.
    """

    step_ms: float
    host_images: int
    cpu_ms_per_image: float
    cores: int
    hosts: int

    @property
    def host_ms(self) -> float:
        """Time in which the host prepares its share of a batch, in milliseconds."""
        return self.host_images * self.cpu_ms_per_image / self.cores

    @property
    def is_host_bound(self) -> bool:
        """Whether the device waits for the host."""
        return self.host_ms > self.step_ms

    @property
    def period_ms(self) -> float:
        """Time from step to step, in milliseconds: that of the slower side, because both work at the same time."""
        return max(self.host_ms, self.step_ms)

    @property
    def device_idle(self) -> float:
        """The fraction of the time in which the device waits."""
        return 1 - self.step_ms / self.period_ms

    @property
    def host_idle(self) -> float:
        """The fraction of the time in which the host's cores wait."""
        return 1 - self.host_ms / self.period_ms

    @property
    def balancing_cores(self) -> int:
        """The minimum number of cores with which the device does not wait."""
        return max(1, math.ceil(self.host_images * self.cpu_ms_per_image / self.step_ms))

    @property
    def images_per_second(self) -> float:
        """Throughput of the whole run."""
        return 1000 * self.hosts * self.host_images / self.period_ms

    def timeline(self, shares: Dict[str, float]) -> Timeline:
        """The first steps. A host that has prepared the next batch waits until the device takes it.

        Args:
          shares: the host's work on a batch, in order, as fractions of its time; the sum is 1.
        """
        host: List[Bar] = []
        device: List[Bar] = []
        for step in range(1, _STEPS + 1):
            begin = max(host[-1].end, device[-1].start) if host else 0.0
            for kind, share in shares.items():
                host.append(Bar(begin, begin + share * self.host_ms, kind))
                begin = host[-1].end
            widest = max(range(-len(shares), 0), key=lambda place: host[place].end - host[place].start)
            host[widest] = host[widest]._replace(label=str(step))
            start = max(host[-1].end, device[-1].end if device else 0.0)
            device.append(Bar(start, start + self.step_ms, STEP, str(step)))
        return Timeline(host, device)
