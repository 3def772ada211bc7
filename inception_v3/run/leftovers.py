"""Removes the unfinished files of a run that was killed."""

import os
import re

from console.log import logger
from console.tensorflow_versions import tf
from data import remote
from inception_v3.run import checkpoints

# Temporary names that TensorFlow and this program give to files until these are complete, and names of probe files.
_UNFINISHED = re.compile(
    r'.+\.unfinished|\.probe-\d+|'
    rf'(checkpoint|graph\.pbtxt|trainer\.json|saving\.unfinished|{re.escape(checkpoints.PREFIX)}-\d+\.meta)\.tmp[0-9a-f]+'
)
_UNFINISHED_CHECKPOINT = re.compile(rf'{re.escape(checkpoints.PREFIX)}-\d+_temp_[0-9a-f]+/?')


def remove_leftovers(model_dir: str) -> None:
    """Removes the unfinished files in a folder, among them checkpoints that were being written or removed.

    The caller must hold the folder's lock. Complete checkpoints that are not in the list stay.
    """
    removed = checkpoints.remove_unfinished(model_dir)
    for name in remote.names_in(model_dir) or []:
        path = os.path.join(model_dir, name)
        if _UNFINISHED_CHECKPOINT.fullmatch(name):
            tf.io.gfile.rmtree(path)
        elif _UNFINISHED.fullmatch(name):
            tf.io.gfile.remove(path)
        else:
            continue
        removed.append(name)
    if removed:
        logger.info('removed unfinished files of a killed run from %s: %s', model_dir, ', '.join(removed))
