"""Fixtures of all tests: a graph for each test, small data sets, and small configurations."""

import functools
import gc
import itertools
import logging
import os
import pathlib
import re
import signal
import time
from typing import Any, Generator, Iterator, List, Optional, Sequence

# Graphs consist of very many objects, among which Python by default searches for garbage after every 700 new ones.
gc.set_threshold(500_000, 20, 20)

from compat import tf  # isort: skip  Loads TensorFlow as programs do, before other modules load it.
import numpy as np
import pytest
import skimage.data
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.client import session
from tensorflow.python.util import deprecation

from compat.log import logger
from data import labels, records
from data.dataset_info import DatasetInfo
from data.sources import Source
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks import inception_v3 as tables
from inception_v3.networks.registry import NETWORKS
from tools.datasets import digits, writing
from tools.datasets.tar_shards import conversion as tar_shards

pytest_plugins = ['tests.support.cpu_time']

# `assert` in these modules reports values, as in tests.
pytest.register_assert_rewrite('tests.support', 'tests.remote')
from tests.support.photos import Photo, encode_jpeg, photo_example
from tests.support.runs import ONE_LAYER, FinishedRun, make_small_config, one_layer_run
from tests.support.shared import once
from tests.support.tiers import MARKERS, OF_TEXT, may_have
from tests.support.tiny_network import TINY

collect_ignore = OF_TEXT if tf.__version__ >= '2' else ()

# Saves time, as in the programs (`set_up_logging`).
deprecation._PRINT_DEPRECATION_WARNINGS = False


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Waits until the main thread of a pytest-xdist worker is free: only the main thread can handle signals."""
    time.sleep(1)


@pytest.fixture(scope='session', autouse=True)
def _default_signals() -> None:
    """Restores the default handling of signals that this process was started to ignore, for the tests' processes.

    An ignored signal stays ignored in new processes; a signal that Python handles has the default handling there.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


@pytest.fixture(scope='session', autouse=True)
def _threads() -> None:
    """Gives each operation two threads: the first session of a process fixes their number.

    Otherwise the last bits of a training would depend on the first test of the process. The threads do not spin while
    they wait: the other worker needs the core.
    """
    config = tf.ConfigProto(intra_op_parallelism_threads=2)
    config.experimental.disable_thread_spinning = True
    tf.Session(config=config).close()


_AUTOGRAPH, _NO_AUTOGRAPH = ag_ctx.Status.UNSPECIFIED, ag_ctx.Status.DISABLED
_new_session, _pipeline_options = session.BaseSession.__init__, InputPipeline._options


def _new_plain_session(own: Any, target: str = '', graph: Any = None, config: Optional[tf.ConfigProto] = None) -> None:
    plain = tf.ConfigProto()
    plain.CopyFrom(config or plain)
    plain.graph_options.rewrite_options.disable_meta_optimizer = True
    _new_session(own, target, graph, plain)


def _plain_pipeline_options(pipeline: InputPipeline) -> tf.data.Options:
    options = _pipeline_options(pipeline)
    options.experimental_optimization.apply_default_optimizations = False
    return options


@pytest.fixture(autouse=True)
def _new_graph() -> Iterator[None]:
    """Gives each test a graph of its own."""
    with tf.Graph().as_default():
        yield


_sample_of_labels = labels.sample


def _sample_of_unchanged_files(source: Source, paths: Sequence[str]) -> List[labels.Labelled]:
    """Returns the sample that a run checks; files that have not changed are read once in a process."""
    if not all(map(os.path.isfile, paths)):
        return _sample_of_labels(source, paths)
    states = map(os.stat, paths)
    return _sample(source, tuple(paths), tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in states))


@functools.lru_cache(maxsize=32)
def _sample(source: Source, paths: Sequence[str], states: Any) -> List[labels.Labelled]:
    return _sample_of_labels(source, paths)


# Seconds that a test of each tier may take.
_TIMEOUTS = {'default': 180, 'program': 600, 'slow': 1800, 'nightly': 1800}


def _reset_log() -> None:
    """Undoes `set_up_logging`: the screen of a command that has ended may write to a closed file.

    The level is set as in commands, so that `caplog` has their messages.
    """
    logger.handlers, logger.propagate = [], True
    if logger.level != logging.INFO:  # Setting it clears the caches of all loggers.
        logger.setLevel(logging.INFO)


def pytest_ignore_collect(collection_path: pathlib.Path, config: Any) -> Optional[bool]:
    """Skips files without a test of the tiers of `-m`: importing all files takes each worker 8 CPU-seconds."""
    words = config.getoption('markexpr').split()
    if not words or words[0] not in MARKERS or not collection_path.match('test_*.py'):
        return None
    return True if not any(may_have(collection_path, word) for word in words if word in MARKERS) else None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuses a file if a test has a marker that the file's text lacks, with an error that pytest-xdist shows."""
    made = yield
    for item in made if isinstance(made, list) else ():
        for marker in MARKERS:
            if item.get_closest_marker(marker) and not may_have(item.path, marker):
                problem = f'{item.nodeid}: `-m {marker}` would not find it: write pytest.mark.{marker}'
                raise pytest.Collector.CollectError(problem)
    return made


def pytest_make_parametrize_id(val: Any, argname: str) -> Optional[str]:
    """Names a long text or the content of a file by its parameter: the default name is the escaped text."""
    return argname if isinstance(val, (bytes, str)) and len(val) > 500 else None


def pytest_collection_finish() -> None:
    """Exempts modules and collected tests, which live until the end, from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: List[Any]) -> None:
    """Puts the tests that start many processes first: a fork takes a few ms at first, and 20 ms from a gigabyte on.

    Limits the time of each test and its fixtures, generously for a busy machine, so that a test that hangs fails.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(('tests/run_tpu/', 'tests/test_run_setup.py')))
    for item in items:
        tier = next((tier for tier in ('nightly', 'slow', 'program') if item.get_closest_marker(tier)), 'default')
        item.add_marker(pytest.mark.timeout(_TIMEOUTS[tier]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Resets the log before the fixtures of wider scopes, which run commands.

    In the default tier's tests and their fixtures, and in further cases of these tests, graphs are not rewritten:
    rewriting a small graph takes longer than running it. AutoGraph converts nothing: converting a function takes longer
    than calling it; see `autograph`. Labels of unchanged files are sampled once. Other tiers do it all as programs do.
    """
    _reset_log()
    marker = item.get_closest_marker
    is_plain = marker('further') or not any(map(marker, MARKERS))
    pipeline: Any = InputPipeline
    ag_ctx.stacks.control_status = [ag_ctx.ControlStatusCtx(_NO_AUTOGRAPH if is_plain else _AUTOGRAPH)]
    session.BaseSession.__init__ = _new_plain_session if is_plain else _new_session
    pipeline._options = _plain_pipeline_options if is_plain else _pipeline_options
    labels.sample = _sample_of_unchanged_files if is_plain else _sample_of_labels


@pytest.fixture
def autograph() -> Iterator[None]:
    """Lets AutoGraph convert functions as in programs, for a test whose result could depend on it."""
    with ag_ctx.ControlStatusCtx(_AUTOGRAPH):
        yield


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    """Resets the log once more, after the fixtures of wider scopes and before the test."""
    _reset_log()


_folder_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: Any, tmp_path_factory: Any) -> pathlib.Path:
    """A new folder like that of pytest's own fixture, but made without listing the folders of all earlier tests.

    Its name is no longer than pytest's, for messages that shorten long paths.
    """
    name = re.sub(r'\W', '_', request.node.name)[:26]
    return tmp_path_factory.mktemp(f'{name}-{next(_folder_numbers)}', numbered=False)


@pytest.fixture(scope='session')
def digits_dir(tmp_path_factory: Any) -> str:
    """The digits data set."""
    return once(tmp_path_factory, 'digits', digits.build)


@pytest.fixture(scope='session')
def few_digits_dir(tmp_path_factory: Any) -> str:
    """A data set of two digits with 40 training images in 8 files, and 73 validation images in 4."""
    return once(tmp_path_factory, 'few-digits', lambda folder: digits.build(folder, (3, 7), 20))


@pytest.fixture(scope='session')
def tar_dir(few_digits_dir: str, tmp_path_factory: Any) -> str:
    """The two digits as tar shards."""
    return once(tmp_path_factory, 'digits-tar', lambda folder: tar_shards.convert(few_digits_dir, folder, 0, print))


@pytest.fixture(scope='session')
def photos() -> List[Photo]:
    """Photographs from scikit-image in several shapes, with the labels 1, 2, 3 … and 0, 1 or 2 boxes each."""
    images = [
        skimage.data.chelsea(),  # 300 x 451
        skimage.data.astronaut(),  # 512 x 512
        skimage.data.coffee(),  # 400 x 600
        skimage.data.rocket()[:, 60:300],  # 427 x 240
        skimage.data.chelsea()[20:, ::-1],  # 280 x 451
    ]
    boxes = np.array([[0.1, 0.2, 0.6, 0.7], [0.3, 0.0, 1.0, 0.5]], np.float32)
    return [
        Photo(np.ascontiguousarray(image), encode_jpeg(image), index + 1, boxes[: index % 3])
        for index, image in enumerate(images)
    ]


@pytest.fixture(scope='session')
def thumbnails(photos: List[Photo]) -> List[Photo]:
    """The photographs at a quarter of their height and width, for tests that do not depend on their content."""
    return [photo._replace(encoded=encode_jpeg(photo.pixels[::4, ::4])) for photo in photos]


@pytest.fixture(scope='session')
def photo_dir(photos: List[Photo], tmp_path_factory: Any) -> str:
    """A data set of the photographs: two training files and two validation files with the same images."""

    def make(data_dir: str) -> None:
        for split in (records.TRAIN, records.VALIDATION):
            writing.write_shards(data_dir, split, [functools.partial(photo_example, photo) for photo in photos], 2)
        DatasetInfo('photos', 'scikit-image', len(photos), len(photos), 6, list('_12345')).write(data_dir)

    return once(tmp_path_factory, 'photos', make)


@pytest.fixture
def small_config(digits_dir: str) -> Config:
    """A small configuration of the program, on the digits."""
    return make_small_config(digits_dir)


@pytest.fixture(scope='session')
def finished_run(digits_dir: str, tmp_path_factory: Any) -> FinishedRun:
    """A finished and exported run of one layer on the digits, for reading only.

    It has three cycles, which end at steps 2, 4 and 5.
    """
    config = make_small_config(
        digits_dir,
        learning_rate=0.3,
        batch_norm_decay=0.1,
        moving_average_decay=0.5,
        train_steps=5,
        train_steps_per_eval=2,
        skip_host_call=False,
        save_summary_steps=2,
        seed=1,
        intra_op_threads=1,
    )
    return one_layer_run(tmp_path_factory, 'finished-run', config)


@pytest.fixture
def one_layer(monkeypatch: Any) -> None:
    """Replaces the network by one layer and the logits, in tests of the program around it."""
    monkeypatch.setitem(NETWORKS, 'inception_v3', ONE_LAYER)


@pytest.fixture
def tiny(monkeypatch: Any) -> None:
    """Replaces the network by a single convolution with an auxiliary head and dropout."""
    monkeypatch.setitem(NETWORKS, 'inception_v3', TINY)


@pytest.fixture
def few_blocks(monkeypatch: Any) -> None:
    """Keeps only the first block of each size of Inception v3: a quarter of its convolutions."""
    # A new entry, because the sizes of an entry's network are cached.
    network = NETWORKS['inception_v3']
    monkeypatch.setitem(NETWORKS, 'inception_v3', network._replace(build=functools.partial(network.build)))
    mixed = tables._Builder.mixed
    monkeypatch.setattr(tables._Builder, 'mixed', lambda builder, net, blocks: mixed(builder, net, blocks[:1]))
