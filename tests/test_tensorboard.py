"""Tests of TensorBoard's HTTP API on a run that was killed and resumed: it shows the values of the run."""

import contextlib
import dataclasses
import io
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple
from unittest import mock

import pytest

from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.networks.registry import NETWORKS
from inception_v3.run import history
from inception_v3.run.history import read_evaluations
from inception_v3.train_and_evaluate import Run
from tests.support.runs import ONE_LAYER, forget, make_small_config

pytestmark = pytest.mark.program

# Timeout in seconds for TensorBoard to start and to read a run; it takes about six.
_TIMEOUT = 60


class Watched(NamedTuple):
    """A run at an address of TensorBoard, which lost its last checkpoint in a kill, and resumed with other settings."""

    address: str
    before: Config
    after: Config


@pytest.fixture(scope='module')
def watched(photo_dir: str, tmp_path_factory: Any) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp('run')
    before = make_small_config(
        photo_dir,
        model_dir=str(folder / 'model'),
        num_train_images=5,
        num_eval_images=5,
        num_classes=6,
        # Not a divisor of the five images: the last batch is padded, and no metric may count the padding.
        eval_batch_size=4,
        learning_rate=0.02,
        learning_rate_decay_epochs=1,
        batch_norm_decay=0.1,
        train_steps=4,
        train_steps_per_eval=2,
        save_summary_steps=1,
        image_summaries=2,
        seed=1,
        intra_op_threads=1,
    )
    after = dataclasses.replace(before, learning_rate=0.01, train_steps_per_eval=4, image_summaries=0)
    with tensorboard(str(before.model_dir), str(folder / 'log')) as address:
        with mock.patch.dict(NETWORKS, inception_v3=ONE_LAYER):
            for config in (before, after):
                if config is after:
                    forget(before, 4)
                Run(config, Screen(io.StringIO())).execute()
                # A new process would open new event files.
                tf.summary.FileWriterCache.clear()
        yield Watched(address(), before, after)


@contextlib.contextmanager
def tensorboard(logdir: str, log: str) -> Iterator[Callable[[], str]]:
    """Runs TensorBoard; yields a function that waits for its address and returns it."""
    command = [sys.executable, '-m', 'tensorboard.main', '--logdir', logdir]
    options = ['--host', '127.0.0.1', '--port', '0', '--reload_interval', '1']

    def address() -> str:
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline and process.poll() is None:
            with open(log) as file:
                found = re.search(r'TensorBoard 1\.15\.\d+ at (http://127\.0\.0\.1:\d+)', file.read())
            if found:
                return found[1]
            time.sleep(0.1)
        with open(log) as file:
            raise AssertionError(file.read())

    with open(log, 'w') as file:
        process = subprocess.Popen([*command, *options], stdout=file, stderr=file)
    try:
        yield address
    finally:
        process.kill()
        process.wait()


def get(address: str, path: str, **query: Any) -> bytes:
    """Sends a request as TensorBoard's pages do, and returns the body of the response."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    path = f'{path}?{urllib.parse.urlencode(query)}' if query else path
    with opener.open(f'{address}/{path}', timeout=_TIMEOUT) as response:
        return response.read()


def curve(address: str, run: str, tag: str) -> List[Tuple[int, float]]:
    points = json.loads(get(address, 'data/plugin/scalars/scalars', run=run, tag=tag))
    return [(step, value) for _, step, value in points]


def tags_of(address: str, plugin: str) -> Dict[str, Dict[str, Any]]:
    return json.loads(get(address, f'data/plugin/{plugin}/tags'))


def test_tensorboard__shows_the_evaluations_of_results_jsonl(watched: Watched) -> None:
    recorded = read_evaluations(str(watched.before.model_dir))
    assert [evaluation.step for evaluation in recorded] == [2, 4, 4]
    assert recorded[1].cross_entropy != recorded[2].cross_entropy
    for tag in ('top_1', 'top_5', 'cross_entropy'):
        expected = [(e.step, pytest.approx(getattr(e, tag), rel=1e-6)) for e in (recorded[0], recorded[2])]
        deadline = time.monotonic() + _TIMEOUT
        # TensorBoard may not have read the last values yet.
        while time.monotonic() < deadline and curve(watched.address, 'eval', tag) != expected:
            time.sleep(0.2)
        assert curve(watched.address, 'eval', tag) == expected
    assert tags_of(watched.address, 'scalars')['eval'].keys() == {'top_1', 'top_5', 'cross_entropy'}


def test_tensorboard__shows_every_training_step_once(watched: Watched) -> None:
    address = watched.address
    tags = tags_of(address, 'scalars')['.']
    assert tags.keys() == {'loss', 'learning_rate', 'epoch', 'images_per_second'}
    # Steps 2 and 3 were repeated after the kill, with another learning rate: the later values count.
    rates = [learning_rate(step, watched.before if step < 2 else watched.after) for step in range(4)]
    assert len(set(rates)) == 4
    assert curve(address, '.', 'learning_rate') == [(step, pytest.approx(rate)) for step, rate in enumerate(rates)]
    assert curve(address, '.', 'epoch') == [(step, pytest.approx(step * 8 / 5)) for step in range(4)]
    # The first step of each session has no speed: it also starts the graph.
    assert [step for step, speed in curve(address, '.', 'images_per_second') if speed > 0] == [1, 3]
    losses = dict(curve(address, '.', 'loss'))
    assert losses.keys() == {0, 1, 2, 3}
    for first_step in history.read_first_steps(str(watched.before.model_dir))[:2]:
        assert losses[first_step.step - 1] == pytest.approx(first_step.loss, rel=1e-6)
    assert 'in nats' in tags['loss']['description']
