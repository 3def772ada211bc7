"""Writing minimal checkpoints, and reading the variables of checkpoints."""

import os
from typing import Dict

import numpy as np

from console.tensorflow_versions import tf


def save_step(model_dir: str, step: int, **more: float) -> None:
    """Writes a checkpoint whose only variables are the global step, and more by name."""
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.train.create_global_step().assign(step))
        for name, value in more.items():
            session.run(tf.get_variable(name, initializer=value).initializer)
        path = os.path.join(model_dir, 'model.ckpt')
        tf.train.Saver().save(session, path, step, write_meta_graph=False)


def saved_variables(path: str) -> Dict[str, np.ndarray]:
    """The variables of a checkpoint, or of the newest one in a folder, by name."""
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
