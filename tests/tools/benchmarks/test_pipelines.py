"""The naive pipeline does the work of the program's: the same evaluation, the same distributions in training."""

import dataclasses
import functools
import itertools
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import PIL.Image
import pytest
import scipy.stats

from compat import tf
from data import records
from inception_v3.config import Config
from tests.support.photos import Photo, encode_jpeg, photo_example
from tests.support.tiers import further
from tools.benchmarks import pipelines
from tools.benchmarks.measurement import DECODING, PARSING, PREPROCESSING, STORAGE, TRANSFER, Run
from tools.benchmarks.pipelines import build
from tools.datasets import writing

_DRAWS = 120
Distorted = Callable[[bool, Dict[str, Any]], np.ndarray]
# Crops of nearly the whole image, so that differences in colour come from the distortion alone.
_NARROW = {'crop_area_min': 0.9, 'crop_aspect_ratio_max': 1.6}


@pytest.fixture
def config(photo_dir: str) -> Config:
    return Config(
        use_tpu=False, data_dir=photo_dir, num_classes=6, num_parallel_calls=2, height=96, width=128, eval_batch_size=5
    )


def first(run: Run, seed: Any = None) -> Any:
    """The first element of a run's pipeline."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(seed)
        return session.run(tf.data.make_one_shot_iterator(build(run)).get_next())


@pytest.mark.parametrize(
    ('preprocessing', 'precision', 'tolerance'),
    [('inception', 'float32', 0.02), further('inception', 'bfloat16', 0.03), ('vgg', 'float32', 2.5)],
)
def test_evaluation__is_the_same(config: Config, preprocessing: str, precision: str, tolerance: float) -> None:
    changed = dataclasses.replace(config, preprocessing=preprocessing, precision=precision)
    naive, ours = (first(Run(is_naive, False, TRANSFER, changed, 5)) for is_naive in (True, False))
    assert naive[1].tolist() == ours[1].tolist() and len(set(ours[1])) == 5
    assert naive[0].dtype == ours[0].dtype
    # 2.5 levels of 255: the two may decode with different methods.
    np.testing.assert_allclose(naive[0].astype(np.float32), ours[0].astype(np.float32), atol=tolerance)


def test_perform__counts_the_images_of_a_batch_without_its_padding(
    config: Config, photos: List[Photo], monkeypatch: Any
) -> None:
    def measured(batches: Iterator[Any], batch_size: int, images: int, images_in: Callable[[Any], int]) -> Any:
        of_epoch, rest = divmod(len(photos), batch_size)
        assert rest and [images_in(each) for each in itertools.islice(batches, of_epoch + 1)] == [7] * of_epoch + [rest]
        return {'cpu_ms': 1.0, 'images_per_second': 2.0, 'images': 3}

    monkeypatch.setattr(pipelines.meter, 'measure', measured)
    found = pipelines.perform(Run(False, False, TRANSFER, dataclasses.replace(config, eval_batch_size=7), 7))
    assert 50 < found.peak_mb < 20000


@pytest.mark.parametrize('is_naive', [True, False])
def test_phases__are_parts_of_the_whole(config: Config, is_naive: bool, photos: List[Photo]) -> None:
    images, labels = first(Run(is_naive, False, TRANSFER, config, 5))
    record = first(Run(is_naive, False, STORAGE, config, 5))
    example = tf.train.Example.FromString(record if is_naive else record.serialized)
    # The last of every five records is yielded.
    assert example.features.feature['image/class/label'].int64_list.value[0] == labels[-1]
    image, label = first(Run(is_naive, False, PREPROCESSING, config, 5))
    assert label == labels[-1]
    np.testing.assert_array_equal(image, images[-1])


def test_phases__have_the_options_of_the_whole(config: Config) -> None:
    part, whole = (
        build(Run(is_naive=False, is_training=True, until=until, config=config, images=5)).options()
        for until in (PREPROCESSING, TRANSFER)
    )
    assert part == whole and part.experimental_deterministic is False


def test_decoding__is_of_whole_images(config: Config, photos: List[Photo]) -> None:
    encoded, label = first(Run(is_naive=True, is_training=False, until=PARSING, config=config, images=5))
    assert encoded == photos[label - 1].encoded
    pixels, label = first(Run(is_naive=True, is_training=False, until=DECODING, config=config, images=5))
    original = photos[label - 1].pixels
    assert pixels.shape == original.shape and pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - original).mean() < 5


@pytest.fixture(scope='module')
def distorted(photos: List[Photo], tmp_path_factory: Any) -> Distorted:
    """Statistics of many distortions of one small photograph, which differ only in their random draws."""
    small = np.asarray(PIL.Image.fromarray(photos[0].pixels).resize((150, 100)))
    data_dir = str(tmp_path_factory.mktemp('one'))
    example = photo_example(Photo(small, encode_jpeg(small), 1, photos[0].boxes))
    # Many times, so that the file is not opened for every image.
    writing.write_shards(data_dir, records.TRAIN, [lambda: example] * _DRAWS, 1)
    # One image at a time: with the graph's seed, each run draws the same.
    one = {'initial_shuffle_buffer_size': 1, 'followup_shuffle_buffer_size': 1, 'num_parallel_calls': 1}
    sizes = {'train_batch_size': _DRAWS, 'height': 75, 'width': 75}

    @functools.lru_cache(None)
    def found(is_naive: bool, changes: Tuple[Any, ...]) -> np.ndarray:
        config = Config(**{'use_tpu': False, 'data_dir': data_dir, **one, **sizes, **dict(changes)})
        images, _ = first(Run(is_naive, True, TRANSFER, config, 1), seed=1)
        return statistics(images)

    return lambda is_naive, changes: found(is_naive, tuple(changes.items()))


def statistics(images: np.ndarray) -> np.ndarray:
    red, green, blue = images.mean((1, 2)).T
    halves = images[:, :, :37].mean((1, 2, 3)) - images[:, :, -37:].mean((1, 2, 3))
    return np.stack(
        [
            *(red, green, blue, red - green, red - blue),
            images.std((1, 2, 3)),
            (images[..., 0] - images[..., 1]).std((1, 2)),
            (images.max(-1) - images.min(-1)).mean((1, 2)),
            halves,
            np.abs(halves),
            images[:, :37].mean((1, 2, 3)) - images[:, -37:].mean((1, 2, 3)),
            np.abs(np.diff(images, axis=1)).mean((1, 2, 3)),
        ]
    )


def least_p(one: np.ndarray, other: np.ndarray) -> float:
    """The least p-value over the statistics, by the Kolmogorov-Smirnov test for equal distributions."""
    return min(scipy.stats.ks_2samp(a, b).pvalue for a, b in zip(one, other))


# The warning is about the seed that the test wants. The subject is the naive pipeline: `tests/preprocessing` has the
# distributions of the program's own on all versions of TensorFlow.
@pytest.mark.program
@pytest.mark.filterwarnings('ignore:Seed 1 from outer graph')
@pytest.mark.parametrize(
    'changes',
    [
        {},
        _NARROW,
        {**_NARROW, 'use_fast_color_distort': False},
        {**_NARROW, 'use_fast_color_distort': False, 'fast_mode': False},
        {'preprocessing': 'vgg'},
        {**_NARROW, 'random_flip': False},
    ],
    ids=str,
)
def test_training__draws_from_the_same_distributions(distorted: Distorted, changes: Dict[str, Any]) -> None:
    # Twelve statistics: by chance one seed in ten thousand falls below the bound.
    assert least_p(distorted(True, changes), distorted(False, changes)) > 1e-5


@pytest.mark.program
@pytest.mark.filterwarnings('ignore:Seed 1 from outer graph')
@pytest.mark.parametrize(
    ('changes', 'others'),
    [
        ({**_NARROW, 'use_fast_color_distort': False}, _NARROW),
        (_NARROW, {}),
        ({**_NARROW, 'random_flip': False}, _NARROW),
    ],
    ids=str,
)
def test_training__other_distributions_differ(
    distorted: Distorted, changes: Dict[str, Any], others: Dict[str, Any]
) -> None:
    assert least_p(distorted(True, changes), distorted(False, others)) < 1e-7
