"""The three layouts of the study of streaming, and measurements of reading them."""

import functools
import os
import pathlib
import signal
from multiprocessing.connection import Connection
from typing import Any, Dict, List, Tuple

import pytest

from console.tensorflow_versions import tf
from data import records
from studies.streaming import measurement, object_store
from studies.streaming.measurement import FILES, TAR, TFRECORD, DataSet, MeasurementError, Reading
from studies.streaming.object_store import ObjectStore
from tests.support.photos import Photo


@pytest.fixture(scope='module')
def data(photo_dir: str, tmp_path_factory: Any) -> DataSet:
    """Five photographs, in three shards."""
    return measurement.write(photo_dir, str(tmp_path_factory.mktemp('data')), 1024, 2)


# AutoGraph would take seconds and convert nothing.
@tf.autograph.experimental.do_not_convert
def images_read(reading: Reading, data: DataSet) -> List[Tuple[int, bytes]]:
    """Labels and encoded images of one pass over the files, read by the pipeline of a reading."""
    with tf.Graph().as_default(), tf.Session() as session:
        pipeline = measurement.pipeline(reading, data)
        if isinstance(pipeline, measurement.SingleFiles):
            dataset = pipeline.storage().take(len(data.files))
        else:
            paths = pipeline._format.find_shards(pipeline._config.data_dir, records.TRAIN)
            files = tf.data.Dataset.from_tensor_slices((paths, pipeline._format.sizes_for_reader(paths)))
            dataset = files.flat_map(functools.partial(pipeline._read_file, 1)).map(
                lambda record: pipeline._record_preprocessing.parse(record)[::2]
            )
        encoded, label = tf.data.make_one_shot_iterator(dataset).get_next()
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
def test_layouts__give_the_same_images(layout: str, data: DataSet, photos: List[Photo]) -> None:
    expected = sorted((photo.label, photo.encoded) for photo in photos)
    assert images_read(Reading(layout, None, 2), data) == expected


@pytest.mark.program
@pytest.mark.parametrize('layout', [FILES, TAR, TFRECORD])
def test_layouts__give_the_same_images_from_a_store(layout: str, data: DataSet, photos: List[Photo]) -> None:
    expected = sorted((photo.label, photo.encoded) for photo in photos)
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


@pytest.mark.program
def test_measure__latency_limits_single_files_and_reading_ahead_compensates(data: DataSet) -> None:
    local = measurement.measure(Reading(FILES, None, 1), data, 0.2)
    one, four = (measurement.measure(Reading(FILES, 100.0, ahead), data, 0.2) for ahead in (1, 4))
    # Two sequential requests per image: its content, and the end of the file.
    assert one.images_per_second <= 1.02 * 1000 / (2 * 100)
    assert 1000 / (2 * 100) < four.images_per_second <= 4 * 1000 / (2 * 100) * (1 + 4 / 8)
    assert (one.most_at_once, local.most_at_once) == (1, None) and 2 <= (four.most_at_once or 0) <= 4
    assert one.requests == pytest.approx(2000, rel=0.15) and local.requests is None
    assert local.images_per_second > four.images_per_second
    for each in (local, one, four):
        assert each.images % measurement.BATCH_SIZE == 0 and each.cpu_ms > 0.3
    assert one.disk_kb == four.disk_kb == 0 and (one.store_cpu_ms or 0) > 0


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.program
def test_measure__killed_process_gives_its_exit_code(data: DataSet, monkeypatch: Any) -> None:
    monkeypatch.setattr(measurement, '_send', _die)
    with pytest.raises(MeasurementError, match='ended with exit code -9'):
        measurement.measure(Reading(FILES, None, 1), data, 0.01)
