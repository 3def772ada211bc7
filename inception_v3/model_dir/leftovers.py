"""What a run leaves half done when it is killed: the next one in its folder removes it."""

import os
import re

import tensorflow as tf

from console.log import logger
from data import remote
from inception_v3.model_dir import checkpoints

# What TensorFlow and this program write before they rename it, or only to see whether they can.
_UNFINISHED = re.compile(
    r'.+\.unfinished|\.probe-\d+|'
    rf'(checkpoint|graph\.pbtxt|trainer\.json|saving\.unfinished|{re.escape(checkpoints.PREFIX)}-\d+\.meta)\.tmp[0-9a-f]+'
)
_UNFINISHED_CHECKPOINT = re.compile(rf'{re.escape(checkpoints.PREFIX)}-\d+_temp_[0-9a-f]+/?')


def remove_leftovers(model_dir: str) -> None:
    """Removes what a killed run has left in its folder; only the run that has the folder to itself may.

    Of the checkpoints that the folder's list does not name, those are left that were not being written or removed.
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
        logger.info('removed what a run that was killed has left in %s: %s', model_dir, ', '.join(removed))
