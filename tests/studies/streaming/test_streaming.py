"""The study of streaming: the object store, the three layouts, the measurements and the report."""

import concurrent.futures
import http.client
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from multiprocessing.connection import Connection
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple
from urllib.parse import quote

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from data import records
from studies.streaming import __main__ as streaming
from studies.streaming import measurement, object_store, report
from studies.streaming.measurement import FILES, TAR, TFRECORD, DataSet, Measurement, MeasurementError, Reading
from studies.streaming.object_store import BUCKET, ObjectStore, Tally
from studies.streaming.report import COMPARED, Results
from tests.support.photos import Photo

LATENCY_MS = 60.0


# The object store.


class Answer(NamedTuple):
    """The answer of a store to a request."""

    status: int
    headers: Dict[str, str]
    content: bytes


def ask(store: ObjectStore, path: str, method: str = 'GET', **headers: str) -> Answer:
    connection = http.client.HTTPConnection(store.address, timeout=20)
    connection.request(method, f'/{path}', headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return Answer(answer.status, dict(answer.getheaders()), content)


CONTENT = np.random.RandomState(0).bytes(300_000)
NAMES = ['a/1', 'a/2', 'a/b/3', 'a/b/4', 'c d&<é', 'empty']


@pytest.fixture(scope='module')
def store(tmp_path_factory: Any) -> Iterator[ObjectStore]:
    folder = tmp_path_factory.mktemp('store')
    (folder / 'outside').write_bytes(b'not served')
    served = folder / 'served'
    for name in NAMES:
        (served / name).parent.mkdir(parents=True, exist_ok=True)
        (served / name).write_bytes(b'' if name == 'empty' else CONTENT + name.encode())
    with ObjectStore(str(served), LATENCY_MS) as store:
        yield store


@pytest.mark.parametrize(
    ('asked', 'expected'),
    [
        ('bytes=0-0', slice(0, 1)),
        ('bytes=1000-250000', slice(1000, 250001)),
        ('bytes=299999-', slice(299999, None)),
        ('bytes=200000-99999999', slice(200000, None)),
    ],
)
def test_a_range_is_these_bytes_of_the_file(store: ObjectStore, asked: str, expected: slice) -> None:
    whole = CONTENT + b'a/1'
    answer = ask(store, f'{BUCKET}/a/1', Range=asked)
    assert answer.status == 206
    assert answer.content == whole[expected]
    first, last = expected.start, expected.start + len(whole[expected]) - 1
    assert answer.headers['Content-Range'] == f'bytes {first}-{last}/{len(whole)}'


def test_whole_files_sizes_and_refusals(store: ObjectStore) -> None:
    special = f'{BUCKET}/{quote("c d&<é")}'
    assert ask(store, special).content == CONTENT + 'c d&<é'.encode()
    head = ask(store, special, 'HEAD')
    assert (head.status, head.content) == (200, b'')
    assert int(head.headers['Content-Length']) == len(CONTENT) + len('c d&<é'.encode())
    assert ask(store, f'{BUCKET}/empty')[::2] == (200, b'')
    assert ask(store, f'{BUCKET}/a/1', Range='bytes=300003-300004').status == 416
    for path in (f'{BUCKET}/a', f'{BUCKET}/none', f'{BUCKET}/../outside', f'{BUCKET}/a/../../outside', 'other/a/1'):
        answer = ask(store, path)
        assert answer.status == 404 and b'not served' not in answer.content, path


def listed(store: ObjectStore, query: str) -> Tuple[List[str], List[str]]:
    """The keys and the prefixes of all pages of a listing, of two entries each."""
    keys: List[str] = []
    prefixes: List[str] = []
    marker = ''
    while True:
        page = ask(store, f'{BUCKET}?max-keys=2&marker={quote(marker)}&{query}').content
        root = xml.etree.ElementTree.fromstring(page)
        keys += [each.text or '' for each in root.iterfind('Contents/Key')]
        prefixes += [each.text or '' for each in root.iterfind('CommonPrefixes/Prefix')]
        if root.findtext('IsTruncated') == 'false':
            return keys, prefixes
        marker = root.findtext('NextMarker') or ''


def test_store__listing_has_each_name_once_over_its_pages(store: ObjectStore) -> None:
    assert listed(store, '') == (sorted(NAMES), [])
    assert listed(store, 'delimiter=/') == (['c d&<é', 'empty'], ['a/'])
    assert listed(store, 'delimiter=/&prefix=a/') == (['a/1', 'a/2'], ['a/b/'])
    assert listed(store, 'prefix=a/b') == (['a/b/3', 'a/b/4'], [])
    assert listed(store, 'prefix=none') == ([], [])


def test_store__delays_requests_independently_and_counts_them(store: ObjectStore) -> None:
    before = object_store.tally(store.address)
    begun = time.monotonic()
    for _ in range(4):
        ask(store, f'{BUCKET}/a/1', Range='bytes=0-99')
    in_turn = time.monotonic() - begun
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        [*pool.map(lambda _: ask(store, f'{BUCKET}/a/2', 'HEAD'), range(16))]
    together = time.monotonic() - begun
    after = object_store.tally(store.address)
    assert in_turn >= 4 * LATENCY_MS / 1000
    assert LATENCY_MS / 1000 <= together < 0.8 * 16 * LATENCY_MS / 1000
    assert (after.gets - before.gets, after.heads - before.heads, after.lists - before.lists) == (4, 16, 0)
    assert after.content_bytes - before.content_bytes == 400
    assert 2 <= after.most_at_once <= 16
    # The peak is reset by each tally.
    assert object_store.tally(store.address).most_at_once == 0


def test_store__ends_when_it_is_closed(tmp_path: pathlib.Path) -> None:
    with ObjectStore(str(tmp_path), 0) as store:
        assert object_store.tally(store.address)[:5] == Tally()[:5]
    with pytest.raises(OSError, match='refused'):
        object_store.tally(store.address)


@pytest.mark.parametrize('argument', ['/no/such/folder', '--latency_ms=-1'])
def test_store__refuses_wrong_arguments(argument: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, 'argv', ['', argument, *([str(tmp_path)] if argument.startswith('--') else [])])
    with pytest.raises(SystemExit) as end:
        object_store.main()
    assert end.value.code == 2


# The layouts.


@pytest.fixture(scope='module')
def data(photo_dir: str, tmp_path_factory: Any) -> DataSet:
    """Five photographs, in three shards."""
    return measurement.write(photo_dir, str(tmp_path_factory.mktemp('data')), 1024, 2)


# AutoGraph would take seconds and convert nothing.
@tf.autograph.experimental.do_not_convert
def images_read(reading: Reading, data: DataSet) -> List[Tuple[int, bytes]]:
    """Labels and encoded images of one pass over the files, read by the pipeline of a reading."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        pipeline = measurement.pipeline(reading, data)
        if isinstance(pipeline, measurement.SingleFiles):
            dataset = pipeline.storage().take(len(data.files))
        else:
            paths = pipeline._format.find_shards(pipeline._config.data_dir, records.TRAIN)
            files = tf.data.Dataset.from_tensor_slices((paths, records.expected_sizes(paths)))
            dataset = files.flat_map(pipeline._read_file).map(lambda record: pipeline.parse(record)[::2])
        encoded, label = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        images = []
        while True:
            try:
                images.append(session.run((label, encoded)))
            except tf.errors.OutOfRangeError:
                return sorted(images)


def _send_images(sender: Connection, reading: Reading, data: DataSet, environment: Dict[str, str]) -> None:
    os.environ.update(environment)
    sender.send(images_read(reading, data))


@pytest.mark.parametrize('layout', [FILES, TAR, TFRECORD])
@pytest.mark.parametrize('is_remote', [False, True])
def test_layouts__give_the_same_images(layout: str, is_remote: bool, data: DataSet, photos: List[Photo]) -> None:
    expected = sorted((photo.label, photo.encoded) for photo in photos)
    if not is_remote:
        assert images_read(Reading(layout, None, 2), data) == expected
        return
    # TensorFlow reads the address of a store once per process.
    with ObjectStore(data.folder, 0) as store:
        receiver, sender = measurement._processes.Pipe(duplex=False)
        arguments = sender, Reading(layout, 0, 2), data, store.environment
        process = measurement._processes.Process(target=_send_images, args=arguments, daemon=True)
        process.start()
        sender.close()
        assert receiver.recv() == expected
        process.join()
        # Each shard was sent once; some single files of the next pass were read ahead.
        sent = object_store.tally(store.address).content_bytes
        assert sent == data.content_bytes[layout] or (layout == FILES and sent > data.content_bytes[layout])


def test_write__stores_as_many_images_as_requested(data: DataSet, photo_dir: str, tmp_path: pathlib.Path) -> None:
    assert (len(data.files), data.shards, data.num_classes) == (5, 3, 6)
    fewer = measurement.write(photo_dir, str(tmp_path), 3, 3)
    assert (len(fewer.files), fewer.shards) == (3, 1)
    assert [label for _, label in fewer.files] == [label for _, label in data.files[:3]]
    for layout, count in ((FILES, 3), (TAR, 1), (TFRECORD, 1)):
        paths = [path for path in (tmp_path / layout).rglob('*') if path.is_file()]
        assert len(paths) == count
        assert fewer.content_bytes[layout] == sum(path.stat().st_size for path in paths)


# Measurements.


def test_measure__latency_limits_single_files_and_reading_ahead_compensates(data: DataSet) -> None:
    local = measurement.measure(Reading(FILES, None, 1), data, 0.2)
    one, four = (measurement.measure(Reading(FILES, 40.0, ahead), data, 0.2) for ahead in (1, 4))
    # Two sequential requests per image: its content, and the end of the file.
    assert one.images_per_second <= 1000 / (2 * 40)
    assert 1000 / (2 * 40) < four.images_per_second <= 4 * 1000 / (2 * 40) * (1 + 4 / 8)
    assert (one.most_at_once, local.most_at_once) == (1, None) and 2 <= (four.most_at_once or 0) <= 4
    assert one.requests == pytest.approx(2000, rel=0.15) and local.requests is None
    assert local.images_per_second > four.images_per_second
    for each in (local, one, four):
        assert each.images % measurement.BATCH_SIZE == 0 and each.cpu_ms > 0.3
    assert one.disk_kb == four.disk_kb == 0 and (one.store_cpu_ms or 0) > 0


def test_measure__failure_is_recorded_and_other_measurements_are_kept(
    data: DataSet, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    broken = data._replace(folder=str(tmp_path / 'broken'))
    shutil.copytree(data.folder, broken.folder)
    shutil.rmtree(os.path.join(broken.folder, TFRECORD))
    found = Results([0.0], [1], {}, {})
    monkeypatch.setattr(found, 'readings', lambda: [Reading(FILES, None, 1), Reading(TFRECORD, None, 1)])
    arguments = streaming._parser().parse_args(['--repeats=2', '--seconds=0.01'])
    steps = [*streaming._measure(found, broken, arguments, lambda line: None)]
    assert len(steps) == 3
    assert [len(each) for each in found.measured.values()] == [2]
    ((reading, problem),) = found.failed.items()
    assert reading.layout == TFRECORD and f'{broken.folder}/tfrecord: no such folder' in problem
    failed = report.tables(found)[-1]
    assert failed.rows == [('TFRecord, local, 1 at a time', problem)]


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_measure__killed_process_gives_its_exit_code(data: DataSet, monkeypatch: Any) -> None:
    monkeypatch.setattr(measurement, '_send', _die)
    with pytest.raises(MeasurementError, match='ended with exit code -9'):
        measurement.measure(Reading(FILES, None, 1), data, 0.01)


# The report.


def results_of(values: Dict[Reading, List[float]]) -> Results:
    measured = {
        reading: [Measurement(8, value, 2.5, 90.0, None if reading.latency_ms is None else 0.5) for value in of_reading]
        for reading, of_reading in values.items()
    }
    return Results([0.0, 50.0], [1, 8], measured, {})


def test_gains__compare_measurements_in_the_same_round() -> None:
    a, b, c = [*COMPARED.values()][:3]
    found = results_of({a: [100.0, 200.0, 100.0], b: [110.0, 240.0, 100.0], c: [99.0, 240.0]})
    assert found.gain('B over A', report.SECOND) == pytest.approx((0.1, 0.0, 0.2))
    assert found.gain('C over A', report.SECOND) == pytest.approx((0.095, -0.01, 0.2))
    assert found.gain('C over B', report.SECOND) == pytest.approx((-0.05, -0.1, 0.0))
    # 2 ms an image instead of 2.5 ms: 25 % more images.
    found.measured[b] = [each._replace(cpu_ms=2.0) for each in found.measured[b]]
    assert found.gain('B over A', report.CPU_SECOND) == pytest.approx((0.25, 0.25, 0.25))
    assert found.gain('C over B', report.CPU_SECOND) == pytest.approx((-0.2, -0.2, -0.2))
    compared, with_latency = report.tables(found)
    assert compared.notes == [
        'B over A: images per second +10.0 % (+0.0 … +20.0), per CPU-second +25.0 % (+25.0 … +25.0); '
        'published: +11.2 %',
        'C over A: images per second +9.5 % (-1.0 … +20.0), per CPU-second +0.0 % (+0.0 … +0.0); '
        'published: throughput maintained',
        'C over B: images per second -5.0 % (-10.0 … +0.0), per CPU-second -20.0 % (-20.0 … -20.0); '
        'published: no figure',
    ]
    assert compared.rows[0][:2] == ('A: single files, local', '100 (100–200)')
    assert compared.rows[3][1:] == ('–',) * 5
    assert (a.read_ahead, a.latency_ms, c.latency_ms) == (8, None, 0)
    # C is also a reading of the grid.
    assert [row[:4] for row in with_latency.rows if row[0] == 'tar shards'][1] == (
        *('tar shards', '8', '170 (99–240)', '–'),
    )


def test_readings__have_no_duplicates() -> None:
    readings = Results([0.0, 50.0], [1, 8], {}, {}).readings()
    assert len(readings) == len(set(readings)) == 4 + 2 * 2 * 2


@pytest.mark.parametrize(
    'argument',
    [
        *('--out=', '--latencies=-1', '--latencies=0,x', '--latencies=', '--read_ahead=0', '--read_ahead=1.5'),
        *('--repeats=0', '--seconds=nan', '--seconds=inf', '--images=0', '--data_dir=/no/such/folder', '--unknown'),
    ],
)
def test_command__refuses_wrong_arguments(argument: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    try:
        assert streaming.main([f'--out={tmp_path}', argument]) == 2
    except SystemExit as end:  # argparse
        assert end.code == 2
    error = capsys.readouterr().err
    assert argument.split('=')[0] in error and 'Traceback' not in error


# Whole runs.


def check_files(out: pathlib.Path, stdout: str, readings: int, repeats: int) -> Dict[str, Any]:
    """Compares a run's report with its JSON file, and returns the content of the JSON file."""
    content: Dict[str, Any] = json.loads((out / streaming.JSON_FILE).read_text(encoding='utf-8'))
    markdown = (out / streaming.MARKDOWN_FILE).read_text(encoding='utf-8')
    assert content['published'] == {'B over A': 0.112, 'C over A': 0.0}
    assert [*content['measured']] == ['B over A', 'C over A', 'C over B']
    assert '+11.2 %' in markdown and '+11.2 %' in stdout
    assert len(content['readings']) == readings
    for reading in content['readings']:
        assert len(reading['measurements']) == repeats and reading['failure'] is None
        median = f'{np.median([each["images_per_second"] for each in reading["measurements"]]):,.0f} ('
        assert median in markdown and median in stdout, reading['name']
    with PIL.Image.open(io.BytesIO((out / streaming.FIGURE_FILE).read_bytes())) as image:
        pixels = np.asarray(image.convert('RGB'))
    # The bars of single files are drawn.
    assert (pixels == [0x00, 0x72, 0xB2]).all(-1).sum() > 500
    return content


def test_command__writes_its_measurements(
    photo_dir: str, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    # Without tar shards: their graph takes seconds to build.
    few = {label: reading for label, reading in COMPARED.items() if reading.layout == FILES}
    monkeypatch.setattr(report, 'COMPARED', few)
    monkeypatch.setattr(Results, 'readings', lambda self: [*few.values()])
    flags = ['--images=5', '--images_per_shard=2', '--repeats=1', '--seconds=0.01', f'--data_dir={photo_dir}']
    assert streaming.main([*flags, f'--out={tmp_path / "out"}']) == 0
    content = check_files(tmp_path / 'out', capsys.readouterr().out, readings=2, repeats=1)
    assert content['made'].startswith('5 images of ') and ', in 3 shards' in content['made']


def run(*arguments: str) -> List[str]:
    return [sys.executable, '-m', 'studies.streaming', '--images=5', '--images_per_shard=2', *arguments]


@pytest.mark.slow
def test_command__measures_all_readings(photo_dir: str, tmp_path: pathlib.Path) -> None:
    flags = [f'--out={tmp_path}', f'--data_dir={photo_dir}', '--seconds=0.1', '--repeats=1']
    done = subprocess.run(
        run(*flags, '--latencies=0,40', '--read_ahead=1,8'), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    content = check_files(tmp_path, done.stdout, readings=12, repeats=1)
    of = {
        (each['layout'], each['latency_ms'], each['read_ahead']): each['measurements'][0]
        for each in content['readings']
    }
    # Two requests per image, and two per shard of up to two images below 1 MiB.
    assert of[FILES, 0, 8]['requests'] == pytest.approx(2000, rel=0.1)
    assert of[TAR, 0, 8]['requests'] == pytest.approx(1000 * 2 * 3 / 5, rel=0.3)
    # Latency limits single files, and reading ahead compensates.
    assert of[FILES, 40, 1]['images_per_second'] <= 12.5 < of[FILES, 40, 8]['images_per_second']
    assert of[TAR, 40, 1]['images_per_second'] > of[FILES, 40, 1]['images_per_second']


@pytest.mark.slow
def test_command__interruption_keeps_the_measurements(photo_dir: str, tmp_path: pathlib.Path) -> None:
    flags = [f'--out={tmp_path}', f'--data_dir={photo_dir}', '--seconds=0.1', '--repeats=1000']
    process = subprocess.Popen(run(*flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / streaming.JSON_FILE).exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130 and 'Traceback' not in error
    content = json.loads((tmp_path / streaming.JSON_FILE).read_text(encoding='utf-8'))
    assert any(reading['measurements'] for reading in content['readings'])
    assert (tmp_path / streaming.FIGURE_FILE).exists() and 'A: single files, local' in out
