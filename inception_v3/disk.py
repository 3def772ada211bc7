"""What fails on this machine's disks in the course of a run, in a user's words."""

import os
import re
import shutil
from typing import Optional

import tensorflow as tf

from console.errors import CommandError
from data import remote

# Of ENOSPC, EDQUOT and EFBIG.
_FULL = re.compile(r'No space left on device|Disk quota exceeded|File too large')


class DiskError(CommandError):
    """A disk that is full, or a folder that has vanished."""


def explain(error: Exception, model_dir: str, export_dir: Optional[str]) -> Optional[str]:
    """What a failure means if it has to do with a disk of this machine; None if it does not.

    Args:
      error: any.
      model_dir: the run's folder, which was there when it began.
      export_dir: where it exports to, if it does.
    """
    if not remote.is_remote(model_dir) and not os.path.isdir(model_dir):
        return (
            f'--model_dir={model_dir}: is gone, since this run began. Bring it back, or mount again what it is on; '
            'the same command goes on from the checkpoints in it.'
        )
    message = str(error.message if isinstance(error, tf.errors.OpError) else error)
    full = _FULL.search(message)
    if not full:
        return None
    flag, folder = ('export_dir', export_dir) if export_dir and export_dir in message else ('model_dir', model_dir)
    free = shutil.disk_usage(folder).free
    return f'--{flag}={folder}: cannot be written to: {full.group().lower()}; {free / 1e6:,.1f} MB are free. Make room.'
