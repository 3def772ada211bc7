"""The study of streaming: its layouts, measurements of reading them, its report and command."""

import json
import pathlib
from typing import Any, Dict, List

import pytest

from compat import tf
from console import paths
from data import records, tfrecord_files
from tests.support.photos import Photo
from tools.benchmarks.measurement import MeasurementError
from tools.studies.streaming import __main__ as streaming
from tools.studies.streaming import measurement, pipelines
from tools.studies.streaming.measurement import FILES, TAR, TFRECORD, DataSet, Reading


@pytest.fixture(scope='module')
def data(photo_dir: str, tmp_path_factory: Any) -> DataSet:
    """Five photographs, in three shards."""
    return pipelines.write(photo_dir, str(tmp_path_factory.mktemp('data')), 1024, 2)


needs_s3 = pytest.mark.skipif(tf.__version__ >= '2', reason='only TensorFlow 1.15 reads s3://')


# The layouts.


# AutoGraph would take seconds and convert nothing.
@tf.autograph.experimental.do_not_convert
def test_layouts__give_the_same_images(data: DataSet, photos: List[Photo]) -> None:
    expected = sorted((photo.label, photo.encoded) for photo in photos)
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = pipelines.pipeline(Reading(FILES, None, 2), data).storage()
        encoded, label = tf.data.make_one_shot_iterator(dataset).get_next()
        assert sorted(session.run((label, encoded)) for _ in photos) == expected
    found = []
    for path in records.find_shards(f'{data.folder}/{TFRECORD}', records.TRAIN):
        for serialized in tfrecord_files.serialized_in(path):
            feature = tf.train.Example.FromString(serialized).features.feature
            found += [*zip(feature['image/class/label'].int64_list.value, feature['image/encoded'].bytes_list.value)]
    assert sorted(found) == expected


def test_write__stores_as_many_images_as_requested(data: DataSet, photo_dir: str, tmp_path: pathlib.Path) -> None:
    assert (len(data.files), data.shards, data.num_classes) == (5, 3, 6)
    fewer = pipelines.write(photo_dir, str(tmp_path), 3, 3)
    assert (len(fewer.files), fewer.shards) == (3, 1)
    assert [label for _, label in fewer.files] == [label for _, label in data.files[:3]]
    for layout, count in ((FILES, 3), (TAR, 1), (TFRECORD, 1)):
        paths = [path for path in (tmp_path / layout).rglob('*') if path.is_file()]
        assert len(paths) == count
        assert fewer.content_bytes[layout] == sum(path.stat().st_size for path in paths)


# Measurements.


@pytest.mark.program
def test_measure__latency_limits_single_files_and_reading_ahead_compensates(data: DataSet) -> None:
    one, four = (measurement.measure(Reading(FILES, 50.0, ahead), data, 0.2) for ahead in (1, 4))
    # Two sequential requests per image: its content, and the end of the file; two per shard below 1 MiB.
    assert one['images_per_second'] <= 1.02 * 1000 / (2 * 50)
    assert 1000 / (2 * 50) < four['images_per_second'] <= 4 * 1000 / (2 * 50) * (1 + 4 / 8)
    assert one['most_at_once'] == 1 and 2 <= four['most_at_once'] <= 4
    assert one['requests'] == pytest.approx(2000, rel=0.15)
    of_shards = measurement.measure(Reading(TAR, 0, 2), data, 0.2)
    assert of_shards['requests'] == pytest.approx(1000 * 2 * 3 / 5, rel=0.3)
    for each in (one, four):
        assert each['images'] % measurement.BATCH_SIZE == 0 and each['cpu_ms'] > 0.3
    assert one['disk_kb'] == four['disk_kb'] == 0 and one['store_cpu_ms'] > 0


def test_perform__of_local_files_has_no_store(data: DataSet) -> None:
    local = pipelines.perform(Reading(TFRECORD, None, 1), data, 0.05, None)
    assert local['images'] % measurement.BATCH_SIZE == 0 and local['images_per_second'] > 0
    assert [local[name] for name in ('store_cpu_ms', 'requests', 'most_at_once')] == [None] * 3


# The tables.

OTHERS = ('disk_kb', 'store_cpu_ms', 'requests', 'most_at_once')


def test_tables__gains_compare_measurements_in_the_same_round() -> None:
    a, b, c = [*streaming.COMPARED.values()][:3]
    values = {a: [100.0, 200.0, 100.0], b: [110.0, 240.0, 100.0], c: [99.0, 240.0]}
    measured: Dict[Reading, List[Any]] = {
        # B takes 2 ms an image instead of 2.5 ms: 25 % more images.
        reading: [
            {'images_per_second': value, 'cpu_ms': 2.0 if reading == b else 2.5, **dict.fromkeys(OTHERS)}
            for value in of_reading
        ]
        for reading, of_reading in values.items()
    }
    compared, with_latency = streaming.tables_of(measured, [0.0, 50.0], [1, 8])
    assert compared.notes == [
        'B over A: images per second +10.0 % (+0.0 … +20.0), per CPU-second +25.0 % (+25.0 … +25.0); '
        'published: +11.2 %',
        'C over A: images per second +9.5 % (-1.0 … +20.0), per CPU-second +0.0 % (+0.0 … +0.0); '
        'published: throughput maintained',
        'C over B: images per second -5.0 % (-10.0 … +0.0), per CPU-second -20.0 % (-20.0 … -20.0); '
        'published: no figure',
    ]
    assert compared.rows[0][:2] == ['A: single files, local', '100 (100–200)']
    assert compared.rows[3][1:] == ['–'] * 5
    assert (a.read_ahead, a.latency_ms, c.latency_ms) == (8, None, 0)
    # C is also a reading of the grid.
    assert [row[:4] for row in with_latency.rows if row[0] == 'tar shards'][1] == (
        ['tar shards', '8', '170 (99–240)', '–']
    )
    readings = streaming.readings_of([0.0, 50.0], [1, 8])
    assert len(readings) == len(set(readings)) == 4 + 2 * 2 * 2


# The command.


def test_command__without_a_store_names_the_python_that_has_one(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(paths, '_tensorflow', lambda: ('2.21.0', ['', 'file', 'gs']))
    assert streaming.main([f'--out={tmp_path}']) == 2
    message = capsys.readouterr().err
    assert 'Python 3.7' in message and 'aws' not in message and not [*tmp_path.iterdir()]


@needs_s3
@pytest.mark.parametrize(
    'argument',
    [
        *('--out=', '--latencies=-1', '--read_ahead=1.5', '--repeats=0', '--seconds=nan', '--data_dir=/no/such/folder'),
        *('--images_per_shard=8,32', '--shards=0'),
    ],
)
def test_command__refuses_wrong_arguments(argument: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    try:
        assert streaming.main([f'--out={tmp_path}', argument]) == 2
    except SystemExit as end:  # argparse
        assert end.code == 2
    assert argument.split('=')[0] in capsys.readouterr().err


@needs_s3
def test_command__writes_its_measurements_if_one_fails(tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any) -> None:
    def measure(reading: Reading, data: DataSet, seconds: float) -> Dict[str, Any]:
        if reading.layout == TFRECORD:
            raise MeasurementError('no such folder')
        return {'images_per_second': 1234.0, 'cpu_ms': 2.0, **dict.fromkeys(OTHERS)}

    data = DataSet('folder', (('0.jpg', 1),) * 5, 2, 3, {FILES: 50000})
    monkeypatch.setattr(pipelines, 'write', lambda *arguments: data)
    monkeypatch.setattr(streaming, 'measure', measure)
    assert streaming.main(['--data_dir=mine', '--repeats=2', '--latencies=0', f'--out={tmp_path}']) == 1
    shown, content = capsys.readouterr().out, json.loads((tmp_path / 'streaming.json').read_text(encoding='utf-8'))
    assert content['made'].startswith('5 images of 10 kB on average, in 3 shards')
    readings = {reading['name']: (len(reading['measurements']), reading['failure']) for reading in content['readings']}
    assert readings['TFRecord, local, 8 at a time'] == (0, 'no such folder')
    assert readings['tar shards, local, 8 at a time'] == (2, None)
    for text in (shown, (tmp_path / 'streaming.md').read_text(encoding='utf-8')):
        assert '+11.2 %' in text and '1,234 (' in text and 'no such folder' in text


@needs_s3
def test_shards__are_measured_in_every_combination(tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any) -> None:
    def write(source: str, folder: str, images: int, images_per_shard: int) -> DataSet:
        files = (('0.jpg', 1),) * min(images, 5)
        return DataSet(folder, files, 2, -(-images // images_per_shard), {TAR: 500000 * images})

    def measure(reading: Reading, data: DataSet, seconds: float) -> Dict[str, float]:
        if (data.shards, reading.read_ahead) == (2, 8):
            raise MeasurementError('hung')
        rounds.append(reading)
        of_size = 1000 * len(data.files) + 100 * data.shards + 10 * reading.read_ahead
        # The second round is faster by 2.
        return {'images_per_second': of_size + 2 * (len(rounds) > 6), 'requests': 7}

    rounds: List[Reading] = []
    monkeypatch.setattr(pipelines, 'write', write)
    monkeypatch.setattr(streaming, 'measure', measure)
    flags = ['--data_dir=mine', f'--out={tmp_path}', '--shards=1,2', '--latencies=50', '--read_ahead=1,8']
    assert streaming.main([*flags, '--images_per_shard=1,2', '--repeats=2']) == 1
    markdown = (tmp_path / 'shards.md').read_text(encoding='utf-8')
    header = '| images in a shard | MB | shards | 1 worker | 8 workers | requests / 1,000 images |'
    *_, table, failures = markdown.split('## ')
    assert table.splitlines()[0] == 'Images/s at 50 ms a request' and table.splitlines()[2] == header
    assert table.splitlines()[4:8] == [
        '| 1 | 0.5 | 1 | 1,111 (1,110–1,112) | 1,181 (1,180–1,182) | 7 (7–7) |',
        '| 1 | 0.5 | 2 | 2,211 (2,210–2,212) | – | 7 (7–7) |',
        '| 2 | 1.0 | 1 | 2,111 (2,110–2,112) | 2,181 (2,180–2,182) | 7 (7–7) |',
        '| 2 | 1.0 | 2 | 4,211 (4,210–4,212) | – | 7 (7–7) |',
    ]
    assert '| 2 shards of 1 image, tar shards, remote, 50 ms a request, 8 at a time | hung |' in failures
    rows = json.loads((tmp_path / 'shards.json').read_text(encoding='utf-8'))['readings']
    assert [(row['images_per_shard'], row['shards'], row['read_ahead'], row['failure']) for row in rows][2:4] == [
        (1, 2, 1, None),
        (1, 2, 8, 'hung'),
    ]
    capsys.readouterr()
    assert streaming.main([*flags, '--images_per_shard=3']) == 2
    assert '--shards=2 of --images_per_shard=3: need 6 images; mine has 5' in capsys.readouterr().err
