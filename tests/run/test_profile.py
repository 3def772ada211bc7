"""The phases of a trace, its numbers by hand, and the files of a profile."""

import json
import math
import pathlib
from typing import Any, Dict

import pytest

from compat.errors import CommandError
from inception_v3.run import profile
from inception_v3.run.profile import Event, Profile
from tools.benchmarks.profiles import host_cpu_ms_per_image, read

PIPELINE = 'Iterator::Root::Prefetch::MapAndBatch'
READER = f'{PIPELINE}::Shuffle::ParallelInterleave[3]::FlatMap[0]::TFRecord'
WORKER, READING, MAIN = 'tf_data_private_threadpool/1', 'tf_data_iterator_resource/2', 'tf_Compute/3'
ABOUT: Dict[str, Any] = {
    **{'first': 5, 'last': 6, 'cpu_ms': 6.0, 'usual_ms': 10.0, 'images': 4, 'hosts': 1, 'device': 'a <device>'},
    **{'data': 'digits', 'time': '2026-11-23T12:00:00+00:00', 'tensorflow': '1.15.5'},
}


def event(name: str, start: float, end: float, thread: str = MAIN, device: str = '') -> Event:
    return Event(device, thread, name, start, end)


# Two steps of 10 ms: 0 to 10 and 10 to 20.
EVENTS = [
    event('InceptionV3/Conv2D:Conv2D', 1, 5),
    # Within the operation above, in another thread: at the same time.
    event('InceptionV3/Relu:Relu', 3, 6, 'tf_Compute/4'),
    event('IteratorGetNext:IteratorGetNext', 10, 14),
    event('Iterator::Root', 5, 14, 'tf_data_iterator_get_next/5'),
    event('InceptionV3/Conv2D:Conv2D', 14, 25),
    # The reader of records, within the iterator that passes them on, in the thread that waits for them.
    event(f'{PIPELINE}::Shuffle::ParallelInterleave[3]', 0, 9, READING),
    event(READER, 2, 4, READING),
    event('preprocessing/DecodeJpeg:DecodeJpeg', 4, 7, WORKER),
    event('preprocessing/cond/then/Resize:ResizeBilinear', 7, 8, WORKER),
    # The first of the two events above begins with this one, which contains both, and has no time of its own.
    event('ReadFile:ReadFile', 4, 8, WORKER),
    event('ReadFile:ReadFile', 8, 9.5, WORKER),
    event('input/InfeedQueue/enqueue:InfeedEnqueueTuple', 8, 8.5, 'tf_Compute/6'),
    event('MakeIterator::TFRecordDataset', 0, 20, READING),
    event('SessionRun', 0, 20, 'python'),
]


@pytest.fixture
def profiled(tmp_path: pathlib.Path) -> Profile:
    """The profile of the events, written to tmp_path."""
    return profile.write(str(tmp_path), EVENTS, [0, 10, 20], ABOUT)


@pytest.mark.parametrize(
    ('name', 'phase'),
    [
        ('preprocessing_1/DecodeJpeg:DecodeJpeg', profile.PREPROCESSING),
        (f'{PIPELINE}::Unbatch', profile.PREPROCESSING),
        ('Iterator::Root::Prefetch::BatchV2::Unbatch', profile.PREPROCESSING),
        (f'{PIPELINE}::Unbatch::ParallelMapV2::BatchV2', profile.PREPROCESSING),
        (f'{PIPELINE}::Unbatch::Map::ParallelMap::BatchV2', profile.PREPROCESSING),
        (f'{PIPELINE}::Unbatch::Map::ParallelMap::BatchV2::Shuffle', profile.STORAGE),
        (f'{PIPELINE}::Unbatch::Map::ParallelMap::BatchV2::FlatMap[3]::BatchV2', profile.STORAGE),
        ('Iterator::Root::Prefetch::BatchV2', profile.TRANSFER),
    ],
)
def test_phase__of_an_operation_on_groups_is_that_of_its_kind(name: str, phase: str) -> None:
    assert profile.phase_of(event(name, 0, 1, READING)) == phase


def test_profile__has_the_times_computed_by_hand(profiled: Profile, tmp_path: pathlib.Path) -> None:
    # The device is busy from 1 to 6 and from 14 to 20. It waits for the batch from 6 to 14; before that, the wait
    # overlaps with work. Enqueuing is not work of the device.
    assert (profiled.step_ms, profiled.device_ms, profiled.wait_ms, profiled.other_ms) == (10, 5.5, 4, 0.5)
    assert profiled.host_ms == {'storage': (2 + 1.5) / 2, 'preprocessing': (3 + 1) / 2, 'transfer': 0.25}
    # The threads take 4 ms per step of 4 images, less than the 6 ms of the process.
    assert [host_cpu_ms_per_image(each) for each in (profiled, profiled._replace(cpu_ms=2))] == [1, 0.5]
    assert profiled.shares == {'storage': 1.75 / 4, 'preprocessing': 2 / 4, 'transfer': 0.25 / 4}
    assert profiled._replace(usual_ms=8).disturbance.endswith('10.0 ms, the steps before it 8.0 ms: +25%.')
    # With a separate device, a thread of the host only launches work that the device computes later.
    events = [*EVENTS, event('kernel', 2, 4, 'stream', '/device:GPU:0')]
    found = profile.write(str(tmp_path), events, [0, 10, 20], ABOUT)
    assert (found.device_ms, found.wait_ms) == (1, 9 / 2)


def test_verdict__says_which_side_waits(profiled: Profile) -> None:
    host, device = (profiled._replace(step_ms=100, device_ms=90, wait_ms=wait_ms).verdict for wait_ms in (6, 4))
    assert host == 'Host-bound: the device waits for batches 6.0% of the time, and computes 90.0% of it.'
    assert device == (
        'Device-bound: the device waits for batches 4.0% of the time, and computes 90.0% of it; in the other 6.0% the '
        'trace shows neither.'
    )


def test_page__shows_the_four_views(profiled: Profile, tmp_path: pathlib.Path) -> None:
    text = (tmp_path / 'profile.html').read_text()
    titles = [part.partition('<')[0] for part in text.split('<h2>')[1:]]
    assert titles == ['The whole step', 'Storage', 'Host preprocessing', 'Transfer', 'Reading this page']
    assert profiled.verdict in text and 'a &lt;device&gt;' in text and 'Profile of steps 5 to 6' in text
    # The device's bars, and the border between the steps.
    assert 'class="step" style="left:5.00%;width:25.00%"' in text and 'class="mark" style="left:50.00%"' in text
    # One axis of milliseconds under all strips, and the date as on all pages.
    assert text.count('<i style="left:0.00%">0</i><i style="left:25.00%">5</i><i style="left:50.00%">10</i>') == 4
    assert '2026-11-23 12:00 UTC' in text and '12:00:00' not in text
    # The wait for a batch is a part of transfer: 4 ms of each step.
    assert '4.00 ms per step' in text.partition('<h2>Transfer')[2]
    assert 'http' not in text.partition('<body>')[2]
    assert read(str(tmp_path)) == profiled


@pytest.mark.parametrize(
    'change',
    [
        {'format': 2},
        {'step_ms': 0},
        {'host_ms': {'storage': 1}},
        {'images': 0},
        {'wait_ms': math.nan},
        {'last': 4},
        {'unknown': 4},
    ],
)
def test_read__refuses_what_is_no_profile(profiled: Profile, tmp_path: pathlib.Path, change: Any) -> None:
    path = tmp_path / 'profile.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CommandError, match=r'profile\.json: is damaged: .*Profile some steps of a run'):
        read(str(tmp_path))
    path.unlink()
    with pytest.raises(CommandError, match=r'profile\.json: there is no profile'):
        read(str(tmp_path))
