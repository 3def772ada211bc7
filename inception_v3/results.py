"""What a run leaves in its model_dir besides checkpoints: configuration, versions, and every evaluation."""

import datetime
import json
import os
import platform
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, get_type_hints

import numpy as np
import tensorflow as tf

import inception_v3
from data import remote
from data.dataset_info import DatasetInfo
from inception_v3.config import Config, ConfigError, differences
from inception_v3.progress import logger

CONFIG_FILE = 'config.json'
VERSIONS_FILE = 'versions.json'
RESULTS_FILE = 'results.jsonl'

# As many digits of a fingerprint tell a user's data sets apart.
_DIGITS_SHOWN = 12

# The fields of a configuration that decide what an evaluation of a checkpoint gives.
_DECIDING = (
    *('use_data', 'data_dir', 'data_format', 'num_classes', 'num_eval_images', 'eval_total_size', 'max_bad_records'),
    *('preprocessing', 'height', 'width', 'depth_multiplier', 'precision', 'transfer', 'moving_average'),
)


class Evaluation(NamedTuple):
    """One evaluation: one line of `results.jsonl`.

    Attributes:
      step: the checkpoint's global step.
      checkpoint: the checkpoint's name in model_dir.
      weights: 'average' or 'raw'.
      top_1: fraction of the images whose label is the likeliest class.
      top_5: fraction of the images whose label is among the five likeliest.
      cross_entropy: mean over the images, in nats, without label smoothing.
      images: number of images, each evaluated once.
      seconds: duration, the building of the graph included.
      time: when it ended: UTC, ISO 8601.
      changed: the settings that decide an evaluation and differ from those of the training, `name: old -> new`.
      data_set: the name of the data set, as `dataset.json` has it; empty if there is none.
      fingerprint: of the data set, as `dataset.json` has it; empty if there is none.
    """

    step: int
    checkpoint: str
    weights: str
    top_1: float
    top_5: float
    cross_entropy: float
    images: int
    seconds: float
    time: str
    changed: Tuple[str, ...] = ()
    data_set: str = ''
    fingerprint: str = ''


def now() -> str:
    """The time as UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')


def check_writable(flag: str, folder: str) -> None:
    """Makes a folder, and writes, reads and removes a file in it: before hours are spent on what is to go there.

    Args:
      flag: the flag that names the folder.
      folder: its path.

    Raises:
      ConfigError: it cannot be written to, or what is written there cannot be read or removed again.
      UnreachableError: it cannot be reached.
    """
    probe = os.path.join(folder, f'.probe-{os.getpid()}')
    try:
        if remote.is_remote(folder):
            # A listing says which it is when the bucket is missing or refused; making a folder does not.
            remote.names_in(folder)
        with remote.explained(folder, remote.WRITE):
            tf.io.gfile.makedirs(folder)
            with tf.io.gfile.GFile(probe, 'w') as file:
                file.write(probe)
        if remote.read(probe) != probe.encode():
            raise ConfigError(f'--{flag}={folder}: what is written there is not what is read again.')
        with remote.explained(probe, remote.DELETE):
            tf.io.gfile.remove(probe)
    except remote.UnreachableError as error:
        raise remote.UnreachableError(f'--{flag}={folder}: {error}')
    except remote.RemoteError as error:
        raise ConfigError(f'--{flag}={folder}: cannot be used to write to. {error}')
    except tf.errors.OpError as error:
        raise ConfigError(f'--{flag}={folder}: cannot be written to: {error.message}')


class RecordConfigurationHook(tf.estimator.SessionRunHook):
    """Writes the configuration and the versions into model_dir when training begins.

    A folder that another configuration has written to is taken, and the differences are logged: going on with more
    steps is meant so. What does not get as far as training leaves the old ones.

    Args:
      config: of the run.
      data_set: what its data set says of itself.
    """

    def __init__(self, config: Config, data_set: Optional[DatasetInfo]):
        self._config = config
        self._data_set = data_set

    def begin(self) -> None:
        """Writes both files."""
        model_dir = str(self._config.model_dir)
        path = os.path.join(model_dir, CONFIG_FILE)
        if remote.exists(path):
            _log_differences(path, self._config)
        _write(path, self._config.to_json())
        data_set = {'name': self._data_set.name, 'fingerprint': self._data_set.fingerprint} if self._data_set else None
        text = json.dumps({**versions(), 'data_set': data_set}, indent=2) + '\n'
        _write(os.path.join(model_dir, VERSIONS_FILE), text)


def changed_since_training(config: Config) -> Tuple[str, ...]:
    """The settings that decide an evaluation and differ from those in model_dir's `config.json`, if it can be read."""
    path = os.path.join(str(config.model_dir), CONFIG_FILE)
    if not remote.exists(path):
        return ()
    try:
        trained = Config.from_json(_text(path))
    except ConfigError:
        return ()
    return tuple(change for change in differences(trained, config) if change.split(':')[0] in _DECIDING)


def _log_differences(path: str, config: Config) -> None:
    try:
        changed = differences(Config.from_json(_text(path)), config)
    except ConfigError as error:
        logger.info('%s is replaced; it could not be read: %s', path, error)
        return
    if changed:
        logger.info('the configuration differs from that in %s: %s', path, '; '.join(changed))


def _write(path: str, text: str) -> None:
    """Writes a file whole or not at all."""
    unfinished = f'{path}.unfinished'
    with remote.explained(path, remote.WRITE):
        with tf.io.gfile.GFile(unfinished, 'w') as file:
            file.write(text)
        tf.io.gfile.rename(unfinished, path, overwrite=True)


def versions() -> Dict[str, Any]:
    """The versions of what a result depends on."""
    return {
        'inception_v3': inception_v3.__version__,
        'tensorflow': tf.__version__,
        'numpy': np.__version__,
        'python': platform.python_version(),
        'platform': platform.platform(),
        'command': sys.argv,
    }


def append(model_dir: str, evaluation: Evaluation) -> None:
    """Adds a line to `results.jsonl`."""
    path = os.path.join(model_dir, RESULTS_FILE)
    line = json.dumps(evaluation._asdict()) + '\n'
    before = _text(path)
    # A process that was killed while it wrote leaves half a line.
    if before and not before.endswith('\n'):
        line = '\n' + line
    # A remote file is written whole: to append, TensorFlow reads it again, and on s3:// takes a refusal for its end.
    mode, text = ('w', before + line) if remote.is_remote(path) else ('a', line)
    with remote.explained(path, remote.WRITE), tf.io.gfile.GFile(path, mode) as file:
        file.write(text)


def read(model_dir: str) -> List[Evaluation]:
    """The evaluations in `results.jsonl`, as they were made; what is none is passed over, and the log says so."""
    path = os.path.join(model_dir, RESULTS_FILE)
    evaluations = []
    types = get_type_hints(Evaluation)
    lines = [line for line in _text(path).split('\n') if line]
    for line in lines:
        try:
            values = json.loads(line)
            evaluation = Evaluation(**{**values, 'changed': tuple(values.get('changed', ()))})
        except (AttributeError, TypeError, ValueError, RecursionError):
            continue
        if all(_is_of_type(value, types[name]) for name, value in evaluation._asdict().items()):
            evaluations.append(evaluation)
    if len(evaluations) < len(lines):
        logger.info(
            '%s: %d of %d lines are no evaluations; passed over', path, len(lines) - len(evaluations), len(lines)
        )
    return evaluations


def _is_of_type(value: Any, expected: Any) -> bool:
    if expected not in (int, float, str):
        return isinstance(value, tuple) and all(type(each) is str for each in value)
    # To JSON, a whole number may be a float.
    return type(value) is expected or (expected is float and type(value) is int)


def _text(path: str) -> str:
    """The content of a file; nothing if it is not there."""
    return (remote.read(path) or b'').decode(errors='replace')


def summary(
    config: Config,
    data_set: Optional[DatasetInfo],
    evaluation: Optional[Evaluation],
    images_per_second: Optional[float],
    export: Optional[str],
) -> str:
    """What a run ends with on the screen: a value a line."""
    rows = []
    if evaluation:
        rows += [
            ('top-1', f'{evaluation.top_1:.2%}'),
            ('top-5', f'{evaluation.top_5:.2%}'),
            ('evaluated', f'{evaluation.images:,} images, {evaluation.weights} weights of step {evaluation.step:,}'),
        ]
    if images_per_second:
        rows.append(('training', f'{images_per_second:,.1f} images/s'))
    rows += [('data set', _named(config, data_set)), ('results', str(config.model_dir))]
    if export:
        rows.append(('SavedModel', export))
    width = max(len(name) for name, _ in rows)
    return '\n'.join(f'{name:<{width}}  {value}' for name, value in rows)


def _named(config: Config, data_set: Optional[DatasetInfo]) -> str:
    """Which data set a run has used, in a few words."""
    if config.use_data == 'fake':
        return 'made up'
    if not data_set:
        return config.data_dir
    return f'{data_set.name}, {data_set.fingerprint[:_DIGITS_SHOWN]}' if data_set.fingerprint else data_set.name
