"""Exports a checkpoint as a SavedModel that classifies encoded images."""

import functools
import hashlib
import os
import secrets

from compat import tf
from compat.log import logger
from compat.names import make_servable_by_both
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from inception_v3.model_fn import EXPORT_SIGNATURE
from inception_v3.run.export import card, origin
from inception_v3.run.trained_data import TrainedData
from preprocessing.viewing import resize_as_viewed

# A description for the model card.
INPUT_FILES = (
    f'its signature `{EXPORT_SIGNATURE}` takes JPEG, PNG and one-frame GIF files; it turns JPEG files by their EXIF '
    'orientation, lays images on white where they are transparent, and prepares them'
)
_PARALLEL_IMAGES = 16


def _receive_image_bytes(config: Config) -> tf.estimator.export.TensorServingInputReceiver:
    """Receives a batch of encoded images, and prepares each as `predict` does."""
    infeed = Infeed(config)

    def prepare(encoded: tf.Tensor) -> tf.Tensor:
        return infeed.as_evaluated(resize_as_viewed(encoded, infeed.preprocessing))

    image_bytes = tf.placeholder(tf.string, [None], EXPORT_SIGNATURE)
    images = tf.map_fn(prepare, image_bytes, tf.float32, parallel_iterations=_PARALLEL_IMAGES)
    return tf.estimator.export.TensorServingInputReceiver(images, {EXPORT_SIGNATURE: image_bytes})


def export_saved_model(
    estimator: tf.estimator.tpu.TPUEstimator, config: Config, checkpoint: str, learned: TrainedData
) -> str:
    """Exports a checkpoint with the weights that are evaluated: their averages with `moving_average`.

    The estimator has the names of the classes that the checkpoint has learned.

    A SavedModel carries its origin, the names of its classes and a model card, in `assets.extra`. If `export_dir`
    already has a SavedModel of the same checkpoint and settings, no other is made.

    The signature `image_bytes` accepts `image_bytes`, a batch of JPEG, PNG or one-frame GIF files (string [batch]), as
    viewers show them. It returns `classes` (int64 [batch]), `probabilities` (float32 [batch, num_classes]) and, if the
    data set names its classes, `class_names` (string [batch], UTF-8), the names of `classes`.

    Returns the path of the SavedModel, a folder in `export_dir` named by a time stamp.
    """
    own = origin.origin_of(config, checkpoint, learned.class_names)
    existing = origin.exported(str(config.export_dir), own)
    if existing:
        logger.info('%s is a SavedModel of this checkpoint already', existing)
        return existing
    receive = functools.partial(_receive_image_bytes, config)
    # A name for this export only: two commands may export the same run at the same time.
    unfinished = os.path.join(str(config.export_dir), f'{_unfinished_name(config)}-{secrets.token_hex(4)}')
    try:
        path = estimator.export_saved_model(unfinished, receive, checkpoint_path=checkpoint).decode()
        make_servable_by_both(path)
        origin.write(path, own)
        contents = [f'a SavedModel; {INPUT_FILES}']
        verified = 'not verified (inception-v3 export)'
        card.write(os.path.join(path, origin.EXTRA), 'SavedModel', contents, config, own, verified, learned)
        # Another export may have ended in the same second.
        second = int(os.path.basename(path))
        while tf.io.gfile.exists(os.path.join(str(config.export_dir), str(second))):
            second += 1
        finished = os.path.join(str(config.export_dir), str(second))
        tf.io.gfile.rename(path, finished)
    finally:
        if tf.io.gfile.isdir(unfinished):
            tf.io.gfile.rmtree(unfinished)
    return finished


def remove_unfinished_exports(config: Config) -> None:
    """Removes the files of exports of this run that were killed."""
    export_dir, name = str(config.export_dir), _unfinished_name(config)
    for each in tf.io.gfile.listdir(export_dir) if tf.io.gfile.isdir(export_dir) else []:
        if each.startswith(name):
            tf.io.gfile.rmtree(os.path.join(export_dir, each))


def _unfinished_name(config: Config) -> str:
    """The prefix of a run's unfinished exports; other runs may share `export_dir`."""
    run = hashlib.sha256(origin.absolute(str(config.model_dir)).encode()).hexdigest()[:12]
    return f'.unfinished-{run}'
