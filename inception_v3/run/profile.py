"""The profile of some training steps: the phase of each piece of work in a trace, its time, and a page."""

import collections
import json
import math
import os
import pathlib
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from data import files

JSON_FILE, PAGE_FILE = 'profile.json', 'profile.html'
FORMAT = 1
# A device that waits for longer than this fraction of the time is limited by its host.
_HOST_BOUND = 0.05
STEP, STORAGE, PREPROCESSING, TRANSFER = 'step', 'storage', 'preprocessing', 'transfer'
HOST_PHASES = (STORAGE, PREPROCESSING, TRANSFER)
# A thread that waits for other threads: a data set that passes on the elements that they have prepared.
_WAIT = 'wait'
# Work on a separate device.
_DEVICE = 'device'

# NAME:TYPE; C++ names have two colons.
_OPERATION = re.compile(r'(?P<name>[^:]+):(?P<type>\w+)')
_ITERATOR = 'Iterator::'
# Data sets that pass on the elements that other threads, or the data sets below them, prepare.
_WAITING = re.compile(
    r'Root|Model|Prefetch|PrivateThreadPool|MaxIntraOpParallelism|Options\w*|\w*ParallelInterleave\w*|'
    r'Parallel(Map|Batch)\w*|MapAndBatch\w*|Map'
)
# Everything below a map is storage; everything above it is transfer.
_MAP = re.compile(r'(Parallel)?Map(AndBatch)?(V\d)?')
# Preprocessing splits the groups whose records are drawn together; below that map, it forms them.
_GROUPING = re.compile(r'(.*::)?Unbatch(::(Parallel)?Map(V\d)?)*(::Batch(V\d)?)?')
# Operations that send batches to a TPU; an emulated TPU has queues.
_SENDING = re.compile(r'InfeedEnqueue\w*|QueueEnqueue\w*')

# Gaps shorter than this fraction of the whole are not drawn.
_RESOLUTION = 1 / 2000

Span = Tuple[float, float]


class Event(NamedTuple):
    """A piece of work on a thread of the host, or on a stream of a device; `device` is empty for the host.

    The name is `NAME:TYPE` of an operation, or `Iterator::…` of a data set; the times are milliseconds of the trace.
    """

    device: str
    thread: str
    name: str
    start: float
    end: float


class Profile(NamedTuple):
    """The times of profiled steps. All are in milliseconds per step.

    Attributes:
      first: the first profiled step, counted from 1.
      last: the last profiled step.
      step_ms: the time from step to step.
      device_ms: the time in which the device computes.
      wait_ms: the time in which the device is idle and waits for a batch.
      host_ms: the time of the host's threads by phase: the sum over threads.
      cpu_ms: the CPU time of the process; 0 if other machines were traced.
      usual_ms: the time from step to step before the profile; None if it began too early to know.
      images: images per step.
      hosts: machines that feed a step.
      device: the device, in words.
      data: the source of the images, in words.
      time: when the profile was taken, ISO 8601.
      tensorflow: TensorFlow's version.
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
        """The time without traced work or waiting: Python, hooks, the profiler, and untraced work."""
        return max(0.0, self.step_ms - self.device_ms - self.wait_ms)

    @property
    def shares(self) -> Dict[str, float]:
        """The host's work by phase, as fractions of its time."""
        total = sum(self.host_ms.values())
        return {phase: time / total if total else 0.0 for phase, time in self.host_ms.items()}

    @property
    def verdict(self) -> str:
        """A sentence that says which side waits for the other."""
        wait, busy, other = (time / self.step_ms for time in (self.wait_ms, self.device_ms, self.other_ms))
        bound = 'Host-bound' if wait > _HOST_BOUND else 'Device-bound'
        text = f'{bound}: the device waits for batches {wait:.1%} of the time, and computes {busy:.1%} of it'
        return f'{text}; in the other {other:.1%} the trace shows neither.' if other > _HOST_BOUND else f'{text}.'

    @property
    def disturbance(self) -> str:
        """A sentence about the cost of profiling itself."""
        if self.usual_ms is None:
            return 'At least three steps must run before the profile to tell whether profiling slowed the steps down.'
        return (
            f'A profiled step took {self.step_ms:,.1f} ms, the steps before it {self.usual_ms:,.1f} ms: '
            f'{self.step_ms / self.usual_ms - 1:+.0%}.'
        )

    def to_json(self) -> str:
        """This profile as a JSON object; `tools.benchmarks.profiles` reads it."""
        return json.dumps({'format': FORMAT, **self._asdict()}, indent=2) + '\n'


def write(folder: str, events: Sequence[Event], bounds: Sequence[float], about: Dict[str, Any]) -> Profile:
    """Computes the profile of the steps between `bounds`, and writes its page and its numbers to a folder.

    The bounds are the times of the trace, in milliseconds, at which the profiled steps begin and end. `about` has the
    attributes of `Profile` that are not measured in the trace.
    """
    begin, end, steps = bounds[0], bounds[-1], about['last'] - about['first'] + 1
    spans = spans_of(events, begin, end)
    # During calls of its last data set, the pipeline is waited for.
    waits = [
        (max(event.start, begin), min(event.end, end))
        for event in events
        if not event.device and event.name.startswith(_ITERATOR) and len(_data_sets(event.name)) == 1
        if event.end > begin and event.start < end
    ]
    busy = _length(_united(spans[STEP]))
    profile = Profile(
        step_ms=(end - begin) / steps,
        device_ms=busy / steps,
        wait_ms=(_length(_united([*waits, *spans[STEP]])) - busy) / steps,
        host_ms={phase: _length(spans[phase]) / steps for phase in HOST_PHASES},
        **about,
    )
    files.write_whole(os.path.join(folder, PAGE_FILE), _page(profile, {**spans, 'waits': waits}, bounds))
    # This file comes last: if it exists, the profile is complete.
    files.write_whole(os.path.join(folder, JSON_FILE), profile.to_json())
    return profile


def spans_of(events: Iterable[Event], begin: float, end: float) -> Dict[str, List[Span]]:
    """The times of work between two times, by phase. An event counts only while no event that it contains runs."""
    lanes: Dict[Tuple[str, str], List[Tuple[float, float, str]]] = collections.defaultdict(list)
    for event in events:
        phase = phase_of(event)
        if event.end > begin and event.start < end and phase:
            lanes[event.device, event.thread].append((event.start, event.end, _DEVICE if event.device else phase))
    found: Dict[str, List[Span]] = {phase: [] for phase in (STEP, *HOST_PHASES, _DEVICE, _WAIT)}
    for lane in lanes.values():
        lane.sort(key=lambda piece: (piece[0], -piece[1]))
        # The ends and phases of the events that are running, and the time up to which the innermost one is counted.
        running: List[Tuple[float, str]] = []
        now = begin
        # The last event ends all others.
        for start, stop, phase in [*lane, (math.inf, math.inf, _WAIT)]:
            while running:
                until = min(running[-1][0], start, end)
                if until > now:
                    found[running[-1][1]].append((now, until))
                    now = until
                if running[-1][0] > start:
                    break
                running.pop()
            now = max(begin, start)
            running.append((stop, phase))
    # With a separate device, the host's threads only launch its work.
    of_device, _ = found.pop(_DEVICE), found.pop(_WAIT)
    return {**found, STEP: of_device or found[STEP]}


def phase_of(event: Event) -> str:
    """The phase of an event; `_WAIT` for waiting, empty for an event that only contains others."""
    operation = _OPERATION.fullmatch(event.name)
    if event.device:
        return STEP
    if event.name.startswith(_ITERATOR):
        *above, own = _data_sets(event.name)
        if _WAITING.fullmatch(own):
            return _WAIT
        if _GROUPING.fullmatch('::'.join([*above, own])):
            return PREPROCESSING
        return STORAGE if any(_MAP.fullmatch(data_set) for data_set in above) else TRANSFER
    if not operation:
        return ''
    name, kind = operation['name'], operation['type']
    if kind == 'IteratorGetNext':
        return _WAIT
    # The pipeline's functions run on threads of any name, but have named scopes. TensorFlow appends a number to a scope
    # that a graph opens again.
    scopes = [re.sub(r'_\d+$', '', scope) for scope in name.split('/')]
    for phase in (PREPROCESSING, TRANSFER):
        if phase in scopes:
            return phase
    if _SENDING.fullmatch(kind) and 'outfeed' not in name.lower():
        return TRANSFER
    return STORAGE if event.thread.startswith('tf_data') else STEP


def _data_sets(name: str) -> List[str]:
    return re.sub(r'\[\d+\]', '', name[len(_ITERATOR) :]).split('::')


def _united(spans: Iterable[Span], gap: float = 0.0) -> List[Span]:
    """The union of spans, sorted; gaps of up to `gap` are closed."""
    found: List[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _ticks(length: float) -> List[float]:
    """At most five round numbers of milliseconds from 0 on, up to 93 % of a length, so that no label is cut off."""
    power = 10.0 ** math.floor(math.log10(length))
    step = next(each for each in (power / 5, power / 2, power, 2 * power) if length / each <= 5)
    return [round(n * step, 9) for n in range(math.ceil(length / step)) if n * step <= 0.93 * length]


def _page(profile: Profile, spans: Dict[str, List[Span]], bounds: Sequence[float]) -> str:
    from console import html, processes

    begin, length = bounds[0], bounds[-1] - bounds[0]

    def row(kind: str) -> Dict[str, Any]:
        """A row of bars in percent of the width; nearby spans are drawn as one."""
        drawn = _united(spans[kind], _RESOLUTION * length)
        bars = [(100 * (a - begin) / length, max(0.05, 100 * (b - a) / length)) for a, b in drawn]
        return {'share': _length(_united(spans[kind])) / length, 'bars': bars}

    return html.template(pathlib.Path(__file__).with_name('profile.html').read_text()).render(
        command=processes.command_line('train'),
        profile=profile,
        rows={kind: row(kind) for kind in spans},
        # One axis for all strips.
        ticks=[(100 * at / length, f'{at:,g}') for at in _ticks(length)],
        marks=[100 * (bound - begin) / length for bound in bounds[1:-1]],
    )
