"""The results of a run: every evaluation, in its model_dir, and the summary on the screen."""

import contextlib
import datetime
import json
import os
import platform
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar, get_type_hints

import numpy as np
import tensorflow as tf

import inception_v3
from data import remote
from data.dataset_info import DatasetInfo
from inception_v3 import source
from inception_v3.config import Config, ConfigError, differences
from inception_v3.progress import duration, logger

CONFIG_FILE = 'config.json'
RESULTS_FILE = 'results.jsonl'
BEST_FOLDER = 'best'

# As many digits of a fingerprint tell a user's data sets apart.
_DIGITS_SHOWN = 12

# The fields of a configuration that decide what an evaluation of a checkpoint gives.
_DECIDING = (
    *('use_data', 'data_dir', 'data_format', 'num_classes', 'num_eval_images', 'eval_total_size', 'max_bad_records'),
    *('preprocessing', 'height', 'width', 'network', 'depth_multiplier', 'precision', 'transfer', 'moving_average'),
)


_Record = TypeVar('_Record')


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


def recorded_config(model_dir: str) -> Optional[Config]:
    """The configuration in a run's `config.json`; None if there is none, or none that can be read."""
    path = os.path.join(model_dir, CONFIG_FILE)
    if not remote.exists(path):
        return None
    try:
        return Config.from_json(text_of(path))
    except ConfigError:
        return None


def changed_since_training(config: Config, checkpoint: str) -> Tuple[str, ...]:
    """The settings that decide an evaluation and differ from those in the `config.json` beside a checkpoint.

    None, if that cannot be read.
    """
    trained = recorded_config(os.path.dirname(checkpoint))
    if not trained:
        return ()
    return tuple(change for change in differences(trained, config) if change.split(':')[0] in _DECIDING)


def write_whole(path: str, text: str) -> None:
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
        **source.version(),
        'tensorflow': tf.__version__,
        'numpy': np.__version__,
        'python': platform.python_version(),
        'platform': platform.platform(),
        'command': sys.argv,
    }


def append(model_dir: str, evaluation: Evaluation) -> None:
    """Adds a line to `results.jsonl`."""
    append_line(os.path.join(model_dir, RESULTS_FILE), evaluation._asdict())


def append_line(path: str, values: Dict[str, Any]) -> None:
    """Adds a JSON object as a line to a file, which may be new."""
    line = json.dumps(values) + '\n'
    before = text_of(path)
    # A process that was killed while it wrote leaves half a line.
    if before and not before.endswith('\n'):
        line = '\n' + line
    # A remote file is written whole: to append, TensorFlow reads it again, and on s3:// takes a refusal for its end.
    mode, text = ('w', before + line) if remote.is_remote(path) else ('a', line)
    with remote.explained(path, remote.WRITE), tf.io.gfile.GFile(path, mode) as file:
        file.write(text)


def read(model_dir: str) -> List[Evaluation]:
    """The evaluations in `results.jsonl`, in the order in which they were made; other lines are passed over."""
    return evaluations_in(os.path.join(model_dir, RESULTS_FILE))


def read_unchanged(model_dir: str) -> List[Evaluation]:
    """The evaluations with the training's own settings, in the order of the steps; of a step, the one made last."""
    of_step = {evaluation.step: evaluation for evaluation in read(model_dir) if not evaluation.changed}
    return [of_step[step] for step in sorted(of_step)]


def evaluations_in(path: str) -> List[Evaluation]:
    """The evaluations in a file, a line each; other lines are passed over."""
    return read_lines(path, _evaluation_of)


def _evaluation_of(values: Any) -> Evaluation:
    evaluation = Evaluation(**{**values, 'changed': tuple(values.get('changed', ()))})
    types = get_type_hints(Evaluation)
    for name, value in evaluation._asdict().items():
        if not _is_of_type(value, types[name]):
            raise TypeError(f'{name} is {value!r}')
    return evaluation


def _is_of_type(value: Any, expected: Any) -> bool:
    if expected not in (int, float, str):
        return isinstance(value, tuple) and all(type(each) is str for each in value)
    # To JSON, a whole number may be a float.
    return type(value) is expected or (expected is float and type(value) is int)


def read_lines(path: str, record_of: Callable[[Any], _Record]) -> List[_Record]:
    """What a file holds, a JSON object a line; what is cut short, or of another kind, is passed over, and logged.

    Args:
      path: of the file; what is not there holds nothing.
      record_of: makes of an object what it stands for; raises AttributeError, TypeError or ValueError if it cannot.
    """
    found = []
    lines = [line for line in text_of(path).split('\n') if line]
    for line in lines:
        with contextlib.suppress(AttributeError, TypeError, ValueError, RecursionError):
            found.append(record_of(json.loads(line)))
    if len(found) < len(lines):
        logger.info('%s: %d of %d lines are spoilt, and passed over', path, len(lines) - len(found), len(lines))
    return found


def text_of(path: str) -> str:
    """The content of a file; nothing if it is not there."""
    return (remote.read(path) or b'').decode(errors='replace')


def summary(
    config: Config,
    data_set: Optional[DatasetInfo],
    evaluation: Optional[Evaluation],
    images_per_second: Optional[float],
    export: Optional[str],
    best: Optional[Evaluation],
    seconds: Optional[float] = None,
    most_accurate: Optional[Evaluation] = None,
) -> str:
    """What a run ends with on the screen: a value a line.

    Args:
      config: of the run.
      data_set: what its data set says of itself.
      evaluation: the last.
      images_per_second: of training.
      export: the folder of the SavedModel.
      best: the evaluation of the checkpoint that is kept as the best.
      seconds: that the command took.
      most_accurate: the evaluation with the best top-1.
    """
    rows = []
    if evaluation:
        rows += [
            ('top-1', f'{evaluation.top_1:.2%}'),
            ('top-5', f'{evaluation.top_5:.2%}'),
            ('evaluated', f'{evaluation.images:,} images, {evaluation.weights} weights of step {evaluation.step:,}'),
        ]
    if best:
        folder = os.path.join(str(config.model_dir), BEST_FOLDER)
        rows.append(('best', f'{best.top_1:.2%} top-1 at step {best.step:,}, in {folder}'))
    if most_accurate:
        rows.append(('Max Accuracy', f'{most_accurate.top_1:.2%} at step {most_accurate.step:,}'))
    if seconds is not None:
        rows.append(('total time', duration(seconds)))
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
