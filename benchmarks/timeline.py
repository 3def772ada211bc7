"""How a host and a device share a run's time: who waits for whom, and for how long."""

import math
from typing import Dict, List, NamedTuple

# Steps that are drawn.
_STEPS = 6
STEP = 'step'
HOST = 'host'


class Bar(NamedTuple):
    """Something that is done from `start` to `end`, in milliseconds."""

    start: float
    end: float
    kind: str
    label: str = ''


class Timeline(NamedTuple):
    """What the host and the device do, each one thing after the other."""

    host: List[Bar]
    device: List[Bar]

    @property
    def end(self) -> float:
        """When all is done, in milliseconds."""
        return max(bar.end for bar in [*self.host, *self.device])


class Balance(NamedTuple):
    """A host and the devices that it feeds.

    A host's cores are taken to share the work of a batch perfectly, and to do nothing else.

    Attributes:
      step_ms: time of a training step on the device, in milliseconds.
      host_images: images that one host prepares for a step.
      cpu_ms_per_image: CPU time to prepare one, in milliseconds of one core.
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
        """Time in which the host prepares its part of a batch, in milliseconds."""
        return self.host_images * self.cpu_ms_per_image / self.cores

    @property
    def is_host_bound(self) -> bool:
        """Whether the device waits for the host."""
        return self.host_ms > self.step_ms

    @property
    def period_ms(self) -> float:
        """Time from step to step, in milliseconds: that of the slower, as they work at the same time."""
        return max(self.host_ms, self.step_ms)

    @property
    def device_idle(self) -> float:
        """The fraction of its time that the device waits."""
        return 1 - self.step_ms / self.period_ms

    @property
    def host_idle(self) -> float:
        """The fraction of their time that the host's cores wait."""
        return 1 - self.host_ms / self.period_ms

    @property
    def balancing_cores(self) -> int:
        """The least number of cores with which the device does not wait."""
        return max(1, math.ceil(self.host_images * self.cpu_ms_per_image / self.step_ms))

    @property
    def images_per_second(self) -> float:
        """Throughput of the whole run."""
        return 1000 * self.hosts * self.host_images / self.period_ms

    def timeline(self, shares: Dict[str, float]) -> Timeline:
        """The first steps. A host that has the next batch ready waits until the device takes it.

        Args:
          shares: what the host does for a batch, in this order, each a fraction of its time; they sum up to 1.
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
