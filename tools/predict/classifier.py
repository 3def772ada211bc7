"""Classifiers of encoded images: the network of a checkpoint, or a SavedModel, with the preprocessing of evaluation."""

import dataclasses
import os
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import numpy as np

from compat import tf
from compat.log import logger
from console.screen import failure
from data import remote
from data.dataset_info import is_background
from inception_v3.config import ConfigError
from inception_v3.input.infeed import Infeed
from inception_v3.model_dir import CONFIG_FILE, LIST_FILE
from inception_v3.model_fn import EXPORT_SIGNATURE, inception_model_fn
from inception_v3.run.export import origin
from inception_v3.run.export.origin import Origin
from inception_v3.run.memory import check_fits
from inception_v3.run.trained_data import trained_data_of
from preprocessing.viewing import resize_as_viewed
from tools import trained_model
from tools.image_batches import bytes_per_image, run_decoding
from tools.trained_model import TrainedModel


class Classifier(NamedTuple):
    """A classifier of encoded images: JPEG, PNG, and GIF of one frame. Any thread may call `prepare`.

    Attributes:
      origin: its run, step and accuracy; None if they are unknown.
      class_names: the name of each class; empty if a class has none.
      prepare: (file, pixels) → the input of `classify`. The pixels, uint8 [height, width, 3] as viewers show them, are
        None if they are not decoded yet. Raises UnreadableError.
      classify: a batch of prepared images → the class probabilities of each image, float32 [num_classes].
      close: releases TensorFlow's resources.
      note: says that its class names may differ from those of its data set; empty if they do not.
      has_images_as_viewed: whether it turns JPEG files by their EXIF orientation, and lays transparent images on
        white. SavedModels of earlier versions do not.
    """

    name: str
    origin: Optional[Origin]
    class_names: Sequence[str]
    bytes_per_image: int
    prepare: Callable[[bytes, Optional[np.ndarray]], Any]
    classify: Callable[[Sequence[Any]], List[np.ndarray]]
    close: Callable[[], None] = lambda: None
    note: str = ''
    has_images_as_viewed: bool = True

    @property
    def has_class_0(self) -> bool:
        """Whether label 0 is a class for users, and not the background. Without any name, it may be a class."""
        return not is_background(self.class_names[0]) or not any(self.class_names)

    def __str__(self) -> str:
        return f'{self.name}: {self.origin or "run, step and accuracy are unknown"}{self.note and f"; {self.note}"}'


def of_checkpoint(model: TrainedModel) -> Classifier:
    """The network of a checkpoint, in float32, with the weights that its run evaluates."""
    config = model.config
    # One image must fit, whatever sizes the run's configuration claims.
    check_fits(dataclasses.replace(config, mode='eval', eval_batch_size=1, use_tpu=False), eval_flag='batch_size')
    learned = trained_data_of(config, model.checkpoint)
    if not learned.class_names:
        logger.info('classes are shown by number: no dataset.json in %s', config.data_dir or 'no data_dir')
    with tf.Graph().as_default() as graph:
        encoded_file = tf.placeholder(tf.string, [])
        infeed = Infeed(config)
        image_of_file = infeed.as_evaluated(resize_as_viewed(encoded_file, infeed.preprocessing))
        decoded = tf.placeholder(tf.uint8, [None, None, 3])
        image_of_pixels = infeed.as_evaluated(infeed.preprocessing.resize_decoded(decoded))
        images = tf.placeholder(tf.float32, [None, config.height, config.width, 3])
        spec = inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
        session = tf.Session(graph=graph)
        model.restore(session)

    def prepare(encoded: bytes, pixels: Optional[np.ndarray]) -> np.ndarray:
        if pixels is not None:
            return session.run(image_of_pixels, {decoded: pixels})
        return run_decoding(session, image_of_file, encoded_file, encoded)

    return Classifier(
        name=model.checkpoint,
        origin=origin.origin_of(config, model.checkpoint),
        class_names=[*learned.class_names, *[''] * (config.num_classes - len(learned.class_names))],
        bytes_per_image=bytes_per_image(graph),
        prepare=prepare,
        classify=lambda batch: [*session.run(spec.predictions['probabilities'], {images: np.stack(batch)})],
        close=session.close,
        note=learned.note,
    )


def of_saved_model(path: str) -> Classifier:
    """A SavedModel in a folder, exported by this program; it contains its preprocessing."""
    own = origin.read(path)
    for folder, _, file_names in os.walk(path):
        for file_name in file_names:
            remote.check_kind(os.path.join(folder, file_name))
    logger.info('a SavedModel is a program, which can read and write files: use those of people you trust alone')
    with tf.Graph().as_default() as graph:
        session = tf.Session(graph=graph)
        try:
            signatures = tf.saved_model.load(session, [tf.saved_model.SERVING], path).signature_def
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            raise ConfigError(f'--model={path}: the SavedModel cannot be read: {failure(error)}')
    if EXPORT_SIGNATURE not in signatures:
        raise ConfigError(
            f'--model={path}: has no signature {EXPORT_SIGNATURE}; was it exported by this program? Its '
            f'signatures: {", ".join(sorted(signatures)) or "none"}.'
        )
    files, outputs = signatures[EXPORT_SIGNATURE].inputs[EXPORT_SIGNATURE].name, signatures[EXPORT_SIGNATURE].outputs
    num_classes = outputs['probabilities'].tensor_shape.dim[1].size
    class_names = [''] * num_classes
    if 'class_names' in outputs:
        # `class_names` looks up the names of `classes`; fed with every class, it returns every name.
        names = session.run(outputs['class_names'].name, {outputs['classes'].name: np.arange(num_classes)})
        class_names = [name.decode('utf-8', 'surrogateescape') for name in names]

    return Classifier(
        name=f'SavedModel {path}',
        origin=own,
        class_names=class_names,
        bytes_per_image=bytes_per_image(graph),
        prepare=lambda encoded, pixels: encoded,
        classify=lambda batch: [*session.run(outputs['probabilities'].name, {files: [*batch]})],
        close=session.close,
        has_images_as_viewed=bool(own and own.has_images_as_viewed),
    )


def load(path: str) -> Classifier:
    """Loads the classifier of a SavedModel, an export_dir (its newest SavedModel) or a model_dir.

    Raises:
      ConfigError: the folder is none of these, or its SavedModel cannot be used.
      CheckpointError: the model_dir has no checkpoint, or one that cannot be used.
      DataError: the description of the run's data set cannot be read.
    """
    if tf.saved_model.loader.maybe_saved_model_directory(path):
        return of_saved_model(path)
    # TensorFlow's listing of a local folder fails on file names that are not UTF-8.
    names = remote.names_in(path) if remote.is_remote(path) else os.listdir(path) if os.path.isdir(path) else None
    if names is None:
        raise ConfigError(f'--model={path}: no such folder.')
    if {LIST_FILE, CONFIG_FILE} & {*names}:
        return of_checkpoint(trained_model.find(path))
    newest = next(iter(origin.saved_models(path)), None)
    if not newest:
        raise ConfigError(
            f'--model={path}: is neither the model_dir of a run, nor a SavedModel, nor an export_dir with SavedModels '
            'in folders named by a time stamp.'
        )
    return of_saved_model(newest)
