"""The profile of some training steps: the phase of each piece of work in a trace, its time, and a page."""

import collections
import json
import os
import pathlib
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from console import html, processes
from console.errors import CommandError
from console.json_content import from_json, record
from console.messages import shown
from console.tensorflow_profiler import Event
from data import files

JSON_FILE, PAGE_FILE = 'profile.json', 'profile.html'
_FORMAT = 1
# A device that waits longer than this fraction of the time is bound by its host.
_HOST_BOUND = 0.05

STEP, STORAGE, PREPROCESSING, TRANSFER = 'step', 'storage', 'preprocessing', 'transfer'
HOST_PHASES = (STORAGE, PREPROCESSING, TRANSFER)
# A thread that waits for other threads: a data set that hands on what they have prepared.
_WAIT = 'wait'

# NAME:TYPE; a name of C++ has two colons.
_OPERATION = re.compile(r'(?P<name>[^:]+):(?P<type>\w+)')
_ITERATOR = 'Iterator::'
# Data sets that hand on the elements that other threads prepare, or the data set below them prepares.
_WAITING = re.compile(
    r'Root|Model|Prefetch|PrivateThreadPool|MaxIntraOpParallelism|Options\w*|\w*ParallelInterleave\w*|'
    r'Parallel(Map|Batch)\w*|MapAndBatch\w*|Map'
)
# All below a map is storage, all above it is transfer.
_MAP = re.compile(r'(Parallel)?Map(AndBatch)?(V\d)?')
# Preprocessing divides the groups whose records are drawn together, and below that map forms them.
_GROUPING = re.compile(r'(.*::)?Unbatch(::(Parallel)?Map(V\d)?)*(::Batch(V\d)?)?')
# Operations that send batches to a TPU; an emulated one has queues.
_SENDING = re.compile(r'InfeedEnqueue\w*|QueueEnqueue\w*')

# Gaps shorter than this fraction of the whole are not drawn.
_RESOLUTION = 1 / 2000
_MOST_NAMES = 12
_ABOUT = {
    STEP: ('The whole step', ''),
    STORAGE: (
        'Storage',
        'Files are listed, read and shuffled. A reader that waits for its store counts as working.',
    ),
    PREPROCESSING: (
        'Host preprocessing',
        'Records are parsed, decoded, cropped, resized and distorted, many at a time.',
    ),
    TRANSFER: (
        'Transfer',
        'Batches are assembled and handed to the device. TensorFlow does not trace the copying of images into a batch, '
        'nor the queues of emulated cores.',
    ),
}

Spans = Sequence[Tuple[float, float]]


class ProfileError(CommandError):
    """A profile that is missing, damaged, or of another format."""


class Work(NamedTuple):
    """A piece of work, without what is nested in it: its phase, the type of operation or data set, its (start, end)s.

    `on_host` tells work of a thread of the host from that of a device.
    """

    phase: str
    name: str
    pieces: Spans
    on_host: bool = True

    @property
    def duration(self) -> float:
        """Milliseconds, over all pieces."""
        return _length(self.pieces)


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
        """This profile as a JSON object; `read` reads it."""
        return json.dumps({'format': _FORMAT, **self._asdict()}, indent=2) + '\n'


def write(folder: str, events: Sequence[Event], bounds: Sequence[float], about: Dict[str, Any]) -> Profile:
    """Computes the profile of a trace, and writes its page and its numbers to a folder; see `profile_of`.

    Raises:
      RemoteError: a file cannot be written.
    """
    profile = profile_of(events, bounds, about)
    files.write_whole(os.path.join(folder, PAGE_FILE), _page_of(profile, events, bounds))
    # Last: a profile that can be read is complete.
    files.write_whole(os.path.join(folder, JSON_FILE), profile.to_json())
    return profile


def profile_of(events: Sequence[Event], bounds: Sequence[float], about: Dict[str, Any]) -> Profile:
    """Computes the profile of the steps between `bounds`.

    Args:
      events: of the trace.
      bounds: the times of the trace, in milliseconds, at which the profiled steps begin and end.
      about: the attributes of `Profile` that are not measured in the trace, and `first` and `last`.
    """
    begin, end, steps = bounds[0], bounds[-1], about['last'] - about['first'] + 1
    works = works_of(events, begin, end)
    busy = _united(piece for work in _of_device(works) for piece in work.pieces)
    waits = _without(_clipped(_waits_of(events), begin, end), busy)
    return Profile(
        step_ms=(end - begin) / steps,
        device_ms=_length(busy) / steps,
        wait_ms=_length(waits) / steps,
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
    text = files.text_of(path)
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
        times = [profile.step_ms, profile.device_ms, profile.wait_ms, profile.cpu_ms, profile.usual_ms or 0]
        if not all(0 <= time < 1e12 for time in [*times, *profile.host_ms.values()]) or not profile.step_ms:
            raise ValueError('a time is not a number of milliseconds')
        if {*profile.host_ms} != {*HOST_PHASES} or not 0 < profile.first <= profile.last:
            raise ValueError('phases or steps are missing')
        if profile.images < 1 or profile.hosts < 1:
            raise ValueError('a count is not a whole number above 0')
    except (TypeError, ValueError) as error:
        raise ProfileError(f'{path}: is damaged: {shown(error)}. {again}.')
    return profile


def works_of(events: Iterable[Event], begin: float, end: float) -> List[Work]:
    """The work between two times: to each event belongs the time in which no event that it contains is running."""
    lanes: Dict[Tuple[str, str], List[Event]] = collections.defaultdict(list)
    for event in events:
        if event.end > begin and event.start < end and _kind_of(event):
            lanes[event.device, event.thread].append(event)
    works: List[Work] = []
    for lane in lanes.values():
        lane.sort(key=lambda event: (event.start, -event.end))
        opened: List[Tuple[Event, List[Tuple[float, float]]]] = []
        # The last event closes all others.
        for event in [*lane, Event('', '', '', float('inf'), float('inf'))]:
            while opened and opened[-1][0].end <= event.start:
                closed, nested = opened.pop()
                phase, name = _kind_of(closed) or (_WAIT, '')
                pieces = _without(_clipped([(closed.start, closed.end)], begin, end), _united(nested))
                if phase != _WAIT and pieces:
                    works.append(Work(phase, name, pieces, not closed.device))
            if opened:
                opened[-1][1].append((event.start, event.end))
            opened.append((event, []))
    return works


def _of_device(works: Sequence[Work]) -> List[Work]:
    """The work of the steps. With a device of its own, the host's threads only launch its work."""
    return [work for work in works if not work.on_host] or [work for work in works if work.phase == STEP]


def _waits_of(events: Iterable[Event]) -> Spans:
    """The times in which something waits for a batch of the pipeline: the calls of its last data set."""
    return _united(
        (event.start, event.end)
        for event in events
        if not event.device and event.name.startswith(_ITERATOR) and len(_data_sets(event.name)) == 1
    )


def _kind_of(event: Event) -> Optional[Tuple[str, str]]:
    """The phase of an event, `_WAIT` for waiting, and its name; None for an event that only contains others."""
    operation = _OPERATION.fullmatch(event.name)
    if event.device:
        return STEP, operation['type'] if operation else event.name
    if event.name.startswith(_ITERATOR):
        *above, own = _data_sets(event.name)
        if _WAITING.fullmatch(own):
            return _WAIT, own
        if _GROUPING.fullmatch('::'.join([*above, own])):
            return PREPROCESSING, own
        return STORAGE if any(_MAP.fullmatch(data_set) for data_set in above) else TRANSFER, own
    if not operation:
        return None
    name, kind = operation['name'], operation['type']
    if kind == 'IteratorGetNext':
        return _WAIT, kind
    # The pipeline names the scopes of its functions, which run on threads of any name.
    # TensorFlow numbers a scope that a graph opens again.
    scopes = [re.sub(r'_\d+$', '', scope) for scope in name.split('/')]
    for phase in (PREPROCESSING, TRANSFER):
        if phase in scopes:
            return phase, kind
    if _SENDING.fullmatch(kind) and 'outfeed' not in name.lower():
        return TRANSFER, kind
    return STORAGE if event.thread.startswith('tf_data') else STEP, kind


def _data_sets(name: str) -> List[str]:
    return re.sub(r'\[\d+\]', '', name[len(_ITERATOR) :]).split('::')


def _united(spans: Iterable[Tuple[float, float]], gap: float = 0.0) -> Spans:
    """The union of spans, sorted; gaps of up to `gap` are closed."""
    found: List[Tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)


def _without(spans: Spans, others: Spans) -> Spans:
    """The parts of `spans` that are in none of `others`; both are sorted and without overlaps."""
    left = []
    for start, end in spans:
        for other_start, other_end in others:
            if other_end <= start:
                continue
            if other_start >= end:
                break
            if other_start > start:
                left.append((start, other_start))
            start = other_end
        if start < end:
            left.append((start, end))
    return left


def _clipped(spans: Spans, begin: float, end: float) -> Spans:
    return [(max(a, begin), min(b, end)) for a, b in spans if b > begin and a < end]


def _page_of(profile: Profile, events: Sequence[Event], bounds: Sequence[float]) -> str:
    begin, length, steps = bounds[0], bounds[-1] - bounds[0], profile.last - profile.first + 1

    def row(name: str, kind: str, spans: Iterable[Tuple[float, float]]) -> Dict[str, Any]:
        """A row of bars in percent of the width; nearby spans are drawn as one."""
        spans = _united(spans)
        drawn = _united(spans, _RESOLUTION * length)
        bars = [(100 * (a - begin) / length, max(0.05, 100 * (b - a) / length)) for a, b in drawn]
        return {'name': name, 'kind': kind, 'share': _length(spans) / length, 'bars': bars}

    works = works_of(events, begin, bounds[-1])
    by_phase = {phase: [work for work in works if work.phase == phase] for phase in HOST_PHASES}
    by_phase[STEP] = _of_device(works)
    phases = {
        phase: row('device' if phase == STEP else phase, phase, (piece for work in found for piece in work.pieces))
        for phase, found in by_phase.items()
    }
    waits = row('waits for a batch', 'waits', _clipped(_waits_of(events), begin, bounds[-1]))
    rows = {
        STEP: [phases[STEP], waits, *(phases[phase] for phase in HOST_PHASES)],
        STORAGE: [phases[STORAGE]],
        PREPROCESSING: [phases[PREPROCESSING]],
        TRANSFER: [phases[TRANSFER], waits],
    }
    return html.template(pathlib.Path(__file__).with_name('page.html').read_text()).render(
        command=processes.command_line('train'),
        profile=profile,
        first=f'step {profile.first}' if steps == 1 else f'steps {profile.first} to {profile.last}',
        shares=[
            ('the device computes', profile.device_ms / profile.step_ms, 'good'),
            ('the device waits for a batch', profile.wait_ms / profile.step_ms, 'bad'),
            ('neither: Python, hooks, the profiler, what is not traced', profile.other_ms / profile.step_ms, 'faint'),
        ],
        marks=[100 * (bound - begin) / length for bound in bounds[1:-1]],
        milliseconds=length,
        views=[
            {
                'phase': phase,
                'title': title,
                'about': about,
                'rows': rows[phase],
                'ms': profile.host_ms.get(phase),
                'share': profile.shares.get(phase),
                'names': _names(by_phase[phase], steps),
            }
            for phase, (title, about) in _ABOUT.items()
        ],
    )


def _names(works: Sequence[Work], steps: int) -> List[Tuple[str, float, float, float]]:
    """(name, milliseconds per step, share, calls per step) of the work that takes longest."""
    times: Dict[str, List[float]] = collections.defaultdict(list)
    for work in works:
        times[work.name].append(work.duration)
    total = sum(work.duration for work in works) or 1.0
    longest = sorted(times, key=lambda name: -sum(times[name]))[:_MOST_NAMES]
    return [(name, sum(times[name]) / steps, sum(times[name]) / total, len(times[name]) / steps) for name in longest]
