"""The phase of each piece of work in a trace, and the time that each phase takes."""

import collections
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from console.tensorflow_profiler import Event

STEP, STORAGE, PREPROCESSING, TRANSFER = 'step', 'storage', 'preprocessing', 'transfer'
HOST_PHASES = (STORAGE, PREPROCESSING, TRANSFER)
# A thread that waits for other threads: a data set that hands on what they have prepared.
_WAIT = 'wait'

# NAME:TYPE; a name of C++ has two colons.
_OPERATION = re.compile(r'(?P<name>[^:]+):(?P<type>\w+)')
_INDEX = re.compile(r'\[\d+\]')
_NUMBER = re.compile(r'_\d+$')
_ITERATOR = 'Iterator::'
# The threads of tf.data.
_DATA_THREAD = 'tf_data'
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
_ASKING = 'IteratorGetNext'


class Work(NamedTuple):
    """A piece of work in a phase, without what is nested in it.

    Attributes:
      phase: STEP or one of HOST_PHASES.
      lane: the thread or the device.
      name: the type of the operation, or the class of the data set.
      pieces: the (start, end) of its parts, in milliseconds.
      on_host: whether a thread of the host did it.
    """

    phase: str
    lane: str
    name: str
    pieces: Tuple[Tuple[float, float], ...]
    on_host: bool = True

    @property
    def duration(self) -> float:
        """Milliseconds, over all pieces."""
        return length(self.pieces)


Spans = Sequence[Tuple[float, float]]


def works_of(events: Iterable[Event], begin: float, end: float) -> List[Work]:
    """The work between two times, in milliseconds, in order of its end within each lane."""
    lanes: Dict[Tuple[str, str], List[Event]] = collections.defaultdict(list)
    for event in events:
        if event.end > begin and event.start < end and _phase_of(event):
            lanes[event.device, event.thread].append(event)
    return [work for key in sorted(lanes) for work in _works_of_lane(lanes[key], begin, end)]


def waits_of(events: Iterable[Event]) -> List[Tuple[float, float]]:
    """The times in which something waits for a batch of the pipeline: the calls of its last data set, sorted."""
    return united((event.start, event.end) for event in events if _is_call_for_batch(event))


def united(spans: Iterable[Tuple[float, float]], gap: float = 0.0) -> List[Tuple[float, float]]:
    """The union of spans, sorted; gaps of up to `gap` are closed."""
    found: List[Tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def length(spans: Spans) -> float:
    """The sum of the lengths of spans."""
    return sum(end - start for start, end in spans)


def without(spans: Spans, others: Spans) -> List[Tuple[float, float]]:
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


def clipped(spans: Iterable[Tuple[float, float]], begin: float, end: float) -> List[Tuple[float, float]]:
    """The parts of spans between two times."""
    return [(max(a, begin), min(b, end)) for a, b in spans if b > begin and a < end]


def _phase_of(event: Event) -> Optional[str]:
    """The phase of an event, `_WAIT` for waiting, or None for an event that contains others and is no work itself."""
    if event.device:
        return STEP
    if event.name.startswith(_ITERATOR):
        return _phase_of_data_set(event.name)
    operation = _OPERATION.fullmatch(event.name)
    if not operation:
        return None
    if operation['type'] == _ASKING:
        return _WAIT
    # The pipeline names the scopes of its functions, which run on threads of any name.
    # TensorFlow numbers a scope that a graph opens again.
    scopes = [_NUMBER.sub('', scope) for scope in operation['name'].split('/')]
    for phase in (PREPROCESSING, TRANSFER):
        if phase in scopes:
            return phase
    if _SENDING.fullmatch(operation['type']) and 'outfeed' not in operation['name'].lower():
        return TRANSFER
    return STORAGE if event.thread.startswith(_DATA_THREAD) else STEP


def _phase_of_data_set(name: str) -> str:
    *above, own = _data_sets(name)
    if _WAITING.fullmatch(own):
        return _WAIT
    if _GROUPING.fullmatch('::'.join([*above, own])):
        return PREPROCESSING
    return STORAGE if any(_MAP.fullmatch(data_set) for data_set in above) else TRANSFER


def _data_sets(name: str) -> List[str]:
    return _INDEX.sub('', name[len(_ITERATOR) :]).split('::')


def _is_call_for_batch(event: Event) -> bool:
    return not event.device and event.name.startswith(_ITERATOR) and len(_data_sets(event.name)) == 1


def _works_of_lane(events: List[Event], begin: float, end: float) -> List[Work]:
    """The work of one lane: to each event belongs the time in which no event that it contains is running."""
    events.sort(key=lambda event: (event.start, -event.end))
    works: List[Work] = []
    opened: List[Tuple[Event, List[Tuple[float, float]]]] = []

    def close() -> None:
        event, nested = opened.pop()
        phase = _phase_of(event)
        pieces = without(clipped([(event.start, event.end)], begin, end), united(nested))
        if phase and phase != _WAIT and pieces:
            lane = event.thread if not event.device else f'{event.device} {event.thread}'
            works.append(Work(phase, lane, _short_name(event), tuple(pieces), not event.device))

    for event in events:
        while opened and opened[-1][0].end <= event.start:
            close()
        if opened:
            opened[-1][1].append((event.start, event.end))
        opened.append((event, []))
    while opened:
        close()
    return works


def _short_name(event: Event) -> str:
    if event.name.startswith(_ITERATOR):
        return _data_sets(event.name)[-1]
    operation = _OPERATION.fullmatch(event.name)
    return operation['type'] if operation else event.name
