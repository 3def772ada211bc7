"""Writing minimal checkpoints, and reading the variables of checkpoints."""

import os
from typing import Any, Dict

import numpy as np

from compat import tf
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.run.hooks.saving import CheckpointHook


def save_step(model_dir: str, step: int, **more: float) -> None:
    """Writes a checkpoint whose only variables are the global step, and more by name."""
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.train.create_global_step().assign(step))
        for name, value in more.items():
            session.run(tf.get_variable(name, initializer=value).initializer)
        path = os.path.join(model_dir, 'model.ckpt')
        tf.train.Saver().save(session, path, step, write_meta_graph=False)


def list_checkpoints(model_dir: str, *steps: int) -> None:
    """Writes the list of a folder's checkpoints, oldest first."""
    lines = [f'all_model_checkpoint_paths: "model.ckpt-{step}"' for step in steps]
    with open(os.path.join(model_dir, 'checkpoint'), 'w') as file:
        file.write('\n'.join([f'model_checkpoint_path: "model.ckpt-{steps[-1]}"', *lines]) + '\n')


def trained(config: Config, input_fn: Any, steps: int) -> Dict[str, np.ndarray]:
    """The variables after some steps, by name, saved like those of a run."""
    model_dir = str(config.model_dir)
    os.makedirs(model_dir)
    saving = CheckpointHook(model_dir, 0, config.iterations if config.use_tpu else 1)
    make_estimator(config).train(input_fn, hooks=[saving], max_steps=steps)
    return saved_variables(model_dir)


def saved_variables(path: str) -> Dict[str, np.ndarray]:
    """The variables of a checkpoint, or of the newest one in a folder, by name."""
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
