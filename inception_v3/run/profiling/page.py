"""The page of a profile: the whole step, storage, preprocessing and transfer."""

import collections
import os
import pathlib
from typing import Any, Dict, List, Sequence, Tuple

from console import html, processes
from data import files
from inception_v3.run.profiling import phases
from inception_v3.run.profiling.phases import HOST_PHASES, PREPROCESSING, STEP, STORAGE, TRANSFER, Spans, Work
from inception_v3.run.profiling.profile import JSON_FILE, PAGE_FILE, Profile

_PAGE = html.template(pathlib.Path(__file__).with_name('page.html').read_text())
_TITLES = {STORAGE: 'Storage', PREPROCESSING: 'Host preprocessing', TRANSFER: 'Transfer'}
_ABOUT = {
    STORAGE: 'Files are listed, read and shuffled. A reader that waits for its store counts as working.',
    PREPROCESSING: 'Records are parsed, decoded, cropped, resized and distorted, many at a time.',
    TRANSFER: (
        'Batches are assembled and handed to the device. TensorFlow copies each image to its place in the batch '
        'without a record in the trace, so that this copying is missing here, and so are the queues of emulated cores.'
    ),
}
# Gaps shorter than this fraction of the whole are not drawn.
_RESOLUTION = 1 / 2000
_MOST_LANES, _MOST_NAMES = 32, 12
_WAITING = 'waits'


def write(folder: str, profile: Profile, works: Sequence[Work], waits: Spans, bounds: Sequence[float]) -> str:
    """Writes the page and the numbers of a profile to a folder, and returns the path of the page.

    Raises:
      RemoteError: a file cannot be written.
    """
    path = os.path.join(folder, PAGE_FILE)
    files.write_whole(path, html_of(profile, works, waits, bounds))
    # Last: a profile that can be read is complete.
    files.write_whole(os.path.join(folder, JSON_FILE), profile.to_json())
    return path


def html_of(profile: Profile, works: Sequence[Work], waits: Spans, bounds: Sequence[float]) -> str:
    """Renders the page.

    Args:
      profile: the numbers.
      works: of `phases.works_of`.
      waits: of `phases.waits_of`.
      bounds: as for `profile.profile_of`.
    """
    begin, end = bounds[0], bounds[-1]
    drawing = _Drawing(begin, end)
    by_phase = {phase: [work for work in works if work.phase == phase] for phase in (STEP, *HOST_PHASES)}
    whole = [
        drawing.row('device', STEP, (piece for work in _of_device(by_phase[STEP]) for piece in work.pieces)),
        drawing.row('waits for a batch', _WAITING, phases.clipped(waits, begin, end)),
        *(drawing.row(phase, phase, (p for work in by_phase[phase] for p in work.pieces)) for phase in HOST_PHASES),
    ]
    steps = profile.last - profile.first + 1
    return _PAGE.render(
        command=processes.command_line('train'),
        profile=profile,
        first=f'step {profile.first}' if steps == 1 else f'steps {profile.first} to {profile.last}',
        shares=[
            ('the device computes', profile.device_ms / profile.step_ms, 'good'),
            ('the device waits for a batch', profile.wait_ms / profile.step_ms, 'bad'),
            ('neither: Python, hooks, the profiler, what is not traced', profile.other_ms / profile.step_ms, 'faint'),
        ],
        whole=whole,
        marks=[drawing.percent(bound) for bound in bounds[1:-1]],
        milliseconds=end - begin,
        views=[
            {
                'title': _TITLES[phase],
                'phase': phase,
                'about': _ABOUT[phase],
                'ms': profile.host_ms[phase],
                'share': profile.shares[phase],
                'lanes': _lanes(drawing, by_phase[phase]),
                'more_lanes': max(0, len({work.lane for work in by_phase[phase]}) - _MOST_LANES),
                'names': _names(by_phase[phase], steps),
                'waits': whole[1:2] if phase == TRANSFER else [],
            }
            for phase in HOST_PHASES
        ],
        device_names=_names(_of_device(by_phase[STEP]), steps),
    )


def _of_device(works: Sequence[Work]) -> List[Work]:
    return [work for work in works if not work.on_host] or [*works]


class _Drawing:
    """Positions of bars, in percent of the width."""

    def __init__(self, begin: float, end: float):
        self._begin, self._length = begin, end - begin

    def percent(self, time: float) -> float:
        return 100 * (time - self._begin) / self._length

    def row(self, name: str, kind: str, spans: Any) -> Dict[str, Any]:
        """A row of bars; nearby spans are drawn as one, and the share is that of the spans themselves."""
        spans = phases.united(spans)
        drawn = phases.united(spans, _RESOLUTION * self._length)
        bars = [(self.percent(start), max(0.05, 100 * (end - start) / self._length)) for start, end in drawn]
        return {'name': name, 'kind': kind, 'share': phases.length(spans) / self._length, 'bars': bars}


def _lanes(drawing: _Drawing, works: Sequence[Work]) -> List[Dict[str, Any]]:
    lanes: Dict[str, List[Work]] = collections.defaultdict(list)
    for work in works:
        lanes[work.lane].append(work)
    longest = sorted(lanes.values(), key=lambda lane: -sum(work.duration for work in lane))[:_MOST_LANES]
    return [
        drawing.row(f'{number}', lane[0].phase, [piece for work in lane for piece in work.pieces])
        for number, lane in enumerate(longest, 1)
    ]


def _names(works: Sequence[Work], steps: int) -> List[Tuple[str, float, float, float]]:
    """(name, milliseconds per step, share, calls per step) of the work that takes longest."""
    times: Dict[str, float] = collections.defaultdict(float)
    calls: Dict[str, int] = collections.Counter()
    for work in works:
        times[work.name] += work.duration
        calls[work.name] += 1
    total = sum(times.values()) or 1.0
    longest = sorted(times, key=lambda name: -times[name])[:_MOST_NAMES]
    return [(name, times[name] / steps, times[name] / total, calls[name] / steps) for name in longest]
