"""The profile of some training steps: its numbers, and the file that holds them."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from console.errors import CommandError
from console.json_content import from_json, record
from console.messages import shown
from console.tensorflow_profiler import Event
from data.files import text_of
from inception_v3.run.profiling import phases
from inception_v3.run.profiling.phases import HOST_PHASES, STEP, Work

JSON_FILE, PAGE_FILE = 'profile.json', 'profile.html'
_FORMAT = 1
# A device that waits longer than this fraction of the time is bound by its host.
_HOST_BOUND = 0.05


class ProfileError(CommandError):
    """A profile that is missing, damaged, or of another format."""


class Profile(NamedTuple):
    """The times of profiled steps. All are in milliseconds per step.

    Attributes:
      first: the first profiled step, counted from 1.
      last: the last one.
      step_ms: the time from step to step.
      device_ms: the time in which the device computes.
      wait_ms: the time in which the device is idle, and a batch is waited for.
      host_ms: the time of the host's threads by phase: the sum over threads.
      cpu_ms: the CPU time of the process; 0 if other machines were traced.
      usual_ms: the time from step to step before the profile; None if it began too early to know.
      images: images of a step.
      hosts: machines that feed a step.
      device: the device, in words.
      data: the source of the images, in words.
      time: when the profile was taken, ISO 8601.
      tensorflow: its version.
    """

    first: int
    last: int
    step_ms: float
    device_ms: float
    wait_ms: float
    host_ms: Dict[str, float]
    cpu_ms: float
    usual_ms: Optional[float]
    images: int
    hosts: int
    device: str
    data: str
    time: str
    tensorflow: str

    @property
    def other_ms(self) -> float:
        """The time in which the trace shows neither: Python, hooks, the profiler, and what it does not trace."""
        return max(0.0, self.step_ms - self.device_ms - self.wait_ms)

    @property
    def is_host_bound(self) -> bool:
        """Whether the device waits for the host."""
        return self.wait_ms > _HOST_BOUND * self.step_ms

    @property
    def host_cpu_ms_per_image(self) -> float:
        """The CPU time in which a host prepares an image: the time of its threads, at most all of the process's."""
        threads = sum(self.host_ms.values())
        return (min(threads, self.cpu_ms) if self.cpu_ms else threads) * self.hosts / self.images

    @property
    def shares(self) -> Dict[str, float]:
        """The host's work by phase, as fractions of its time."""
        total = sum(self.host_ms.values())
        return {phase: time / total if total else 0.0 for phase, time in self.host_ms.items()}

    @property
    def verdict(self) -> str:
        """A sentence that says which side waits for the other."""
        bound = 'Host-bound' if self.is_host_bound else 'Device-bound'
        wait, busy, other = (time / self.step_ms for time in (self.wait_ms, self.device_ms, self.other_ms))
        text = f'{bound}: the device waits for batches {wait:.1%} of the time, and computes {busy:.1%} of it'
        return f'{text}; in the other {other:.1%} the trace shows neither.' if other > _HOST_BOUND else f'{text}.'

    @property
    def disturbance(self) -> str:
        """A sentence about the cost of profiling itself."""
        if self.usual_ms is None:
            return (
                'Too few steps ran before the profile to tell whether profiling slowed the steps down: leave at least '
                'three.'
            )
        change = self.step_ms / self.usual_ms - 1
        text = (
            f'A profiled step took {self.step_ms:,.1f} ms, the steps before it {self.usual_ms:,.1f} ms: {change:+.0%}.'
        )
        if abs(change) <= _HOST_BOUND:
            return f'{text} Profiling hardly disturbed the steps.'
        return f'{text} The profiler, or other programs, disturbed the times: trust shares more than milliseconds.'

    def to_json(self) -> str:
        """This profile as a JSON object; `read` reads it."""
        return json.dumps({'format': _FORMAT, **self._asdict()}, indent=2) + '\n'


def profile_of(
    works: Sequence[Work], events: Sequence[Event], bounds: Sequence[float], about: Dict[str, Any]
) -> Profile:
    """Computes the profile of the steps between `bounds`.

    Args:
      works: of `phases.works_of`.
      events: of the trace.
      bounds: the times of the trace, in milliseconds, at which the profiled steps begin and end.
      about: the attributes of `Profile` that are not measured in the trace, and `first` and `last`.
    """
    begin, end, steps = bounds[0], bounds[-1], about['last'] - about['first'] + 1
    on_devices = [work for work in works if work.phase == STEP and not work.on_host]
    # With a device of its own, the host's threads only launch its work.
    steps_work = on_devices or [work for work in works if work.phase == STEP]
    busy = phases.united(piece for work in steps_work for piece in work.pieces)
    waits = phases.without(phases.clipped(phases.waits_of(events), begin, end), busy)
    return Profile(
        step_ms=(end - begin) / steps,
        device_ms=phases.length(busy) / steps,
        wait_ms=phases.length(waits) / steps,
        host_ms={phase: sum(w.duration for w in works if w.phase == phase) / steps for phase in HOST_PHASES},
        **about,
    )


def read(model_dir: str) -> Profile:
    """Reads the profile in a model_dir.

    Raises:
      ProfileError: there is none, it is damaged, or another version of this program wrote it.
      RemoteError: the file cannot be read.
    """
    path = os.path.join(model_dir, JSON_FILE)
    text = text_of(path)
    again = 'Profile some steps of a run with --profile_steps=A,B'
    if not text:
        raise ProfileError(f'{path}: there is no profile. {again}.')
    try:
        content = from_json(text, lambda values: dict(values.items()))
        written_as = content.pop('format', None)
        if written_as != _FORMAT:
            raise ProfileError(
                f'{path}: has format {shown(written_as)}; this version of the program reads format {_FORMAT}. {again}.'
            )
        profile = record(Profile, content)
        _check(profile)
        return profile
    except (TypeError, ValueError) as error:
        raise ProfileError(f'{path}: is damaged: {shown(error)}. {again}.')


def _check(profile: Profile) -> None:
    times: List[Any] = [profile.step_ms, profile.device_ms, profile.wait_ms, profile.cpu_ms]
    times += [profile.host_ms[phase] for phase in HOST_PHASES] if {*profile.host_ms} == {*HOST_PHASES} else [None]
    if profile.usual_ms is not None:
        times.append(profile.usual_ms)
    counts = (profile.first, profile.last, profile.images, profile.hosts)
    if not all(type(time) in (int, float) and 0 <= time < 1e12 for time in times) or not profile.step_ms:
        raise ValueError('a time is not a number of milliseconds')
    if not all(type(count) is int and count > 0 for count in counts) or profile.last < profile.first:
        raise ValueError('a count is not a whole number above 0')
