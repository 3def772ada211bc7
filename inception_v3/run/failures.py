"""Explanations of a run's failures: the cause, the checkpoint that is kept, and the command that resumes."""

import contextlib
import itertools
import os
import re
import resource
import shutil
from typing import Iterator, List, Optional, Sequence

from absl import app

from compat import tf
from compat.errors import CheckpointError, CommandError
from compat.log import logger
from compat.messages import printable
from console.screen import Screen
from data import remote
from data.records import DataError
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.model_dir import check_writable, latest_checkpoint, latest_step, step_of
from inception_v3.run import checkpoints

# The system's messages for ENOSPC, EDQUOT and EFBIG; and for ENOENT, EACCES, EIO and ESTALE, after the file's path.
_DISK_FULL = re.compile(r'No space left on device|Disk quota exceeded|File too large')
_TOO_LARGE = 'File too large'
_UNREADABLE = re.compile(
    r'[^\n]*(No such file or directory|Permission denied|Input/output error|Stale (NFS )?file handle)'
)
# The operation that reports the errors of the input pipeline.
_INPUT_OPERATION = 'IteratorGetNext'
# The most bad records that one message lists.
_LISTED_AT_MOST = 10


class DivergedError(Exception):
    """Training has diverged: the evidence, as the beginning of a sentence, and the step that showed it, from 0.

    `steps_before` is the number of steps done when the loss was last within its limit. A checkpoint of this step may
    itself be the cause: the bad loss is that of its weights, or their loss was never read.
    """

    def __init__(self, what: str, step: int, steps_before: int):
        super().__init__(what)
        self.what = what
        self.step = step
        self.steps_before = steps_before


def what_is_kept(model_dir: str) -> str:
    """A sentence that names the checkpoint from which the same command resumes."""
    try:
        step = latest_step(model_dir)
    except (tf.errors.OpError, app.UsageError):
        return 'The content of --model_dir is kept, and the same command resumes from it.'
    if not step:
        return 'There is no checkpoint yet; the same command starts over.'
    return f'The checkpoint of step {step:,} is kept, and the same command resumes from it.'


@contextlib.contextmanager
def remote_failures_explained(config: Config, screen: Screen) -> Iterator[None]:
    """Raises a RemoteError that names the cause of a remote file's failure, and the kept checkpoint."""
    model_dir = str(config.model_dir)
    try:
        yield
    except (tf.errors.OpError, remote.RemoteError) as error:
        if isinstance(error, remote.RemoteError):
            kind, text = type(error), str(error)
        else:
            kind, text = remote.kind_of(error), remote.explain_if_remote(error, model_dir) or ''
        if not text:
            raise
        screen.clear()
        raise kind(f'{text} {what_is_kept(model_dir)}')


@contextlib.contextmanager
def disk_failures_explained(config: Config, screen: Screen) -> Iterator[None]:
    """Raises a CommandError about a full disk or a vanished folder, and removes half-written files.

    The caller must have locked model_dir.
    """
    model_dir = str(config.model_dir)
    try:
        yield
    except (tf.errors.OpError, OSError, ValueError, CheckpointError) as error:
        if isinstance(error, app.UsageError):
            text = _explain_vanished(model_dir)
        else:
            text = explain_disk(error, model_dir, config.export_dir)
        if not text:
            raise
        screen.clear()
        if config.mode != 'eval':
            checkpoints.remove_leftovers(model_dir, 'this run')
        raise CommandError(f'{text} {what_is_kept(model_dir)}' if os.path.isdir(model_dir) else text)


def _explain_vanished(model_dir: str) -> Optional[str]:
    if remote.is_remote(model_dir) or os.path.isdir(model_dir):
        return None
    return (
        f'--model_dir={model_dir}: the folder has vanished since the run began. Restore it, or mount its disk '
        'again; the same command resumes from its checkpoints.'
    )


def explain_disk(error: Exception, model_dir: str, export_dir: Optional[str]) -> Optional[str]:
    """The cause of a failure and its flag, if the cause is a local disk; otherwise None."""
    vanished = _explain_vanished(model_dir)
    if vanished:
        return vanished
    message = str(error.message if isinstance(error, tf.errors.OpError) else error)
    full = _DISK_FULL.search(message)
    if full:
        flag, folder = ('export_dir', export_dir) if export_dir and export_dir in message else ('model_dir', model_dir)
        cause = f'cannot be written to: {full.group().lower()}; '
        if full.group() == _TOO_LARGE:
            # More disk space does not help.
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            if limit == resource.RLIM_INFINITY:
                cause += "the file is larger than the disk's file system allows. Use another disk."
            else:
                cause += f'this process may write files of at most {limit:,} bytes. Raise it: ulimit -f unlimited.'
        else:
            cause += f'{shutil.disk_usage(folder).free / 1e6:,.1f} MB are free. Free some space.'
        return f'--{flag}={folder}: {cause}'
    unreadable = _UNREADABLE.search(message) if _INPUT_OPERATION in message else None
    return f'A record file cannot be read: {printable(unreadable.group())}. Restore it.' if unreadable else None


@contextlib.contextmanager
def bad_records_explained(
    config: Config, splits: Sequence[str], screen: Screen, has_flag: bool = True
) -> Iterator[None]:
    """Raises a DataError that names the record at which the input pipeline failed.

    The failed operation does not say which record it read, so the files of the splits are searched for it. `has_flag`
    is False for a command without `--max_bad_records`, which skips as many records as its run.
    """
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        screen.clear()
        text = _bad_records(error.message, config, splits, screen, has_flag)
        screen.clear()
        if not text:
            raise
        raise DataError(f'{text} The checkpoints are kept.')


def _bad_records(message: str, config: Config, splits: Sequence[str], screen: Screen, has_flag: bool) -> str:
    from data import order, tf_example
    from inception_v3.input import usable_records
    from inception_v3.input.bad_records import checker_of

    is_of_input = any(text in message for text in (_INPUT_OPERATION, tf_example.UNPARSABLE))
    if config.use_data == 'fake' or not is_of_input or remote.ENDED_EARLY in message:
        return ''
    fewer = re.search(rf'\[([^\]]+)\] \[{order.FEWER_RECORDS}\]', message)
    if fewer:
        return (
            f'{fewer.group(1)}: {order.FEWER_RECORDS}: it has changed, or is truncated. Check the data set with '
            'inception-v3 audit, and remove .records.json beside it, which the next run writes anew.'
        )
    logger.info('a record cannot be used; searching for it')
    found: List[str] = []
    for split in splits:
        paths = config.source.find(split)
        with contextlib.closing(checker_of(config, split)) as checker:
            found += map(str, itertools.islice(checker.search(paths, screen.update), _LISTED_AT_MOST + 1 - len(found)))
    if not found:
        return ''
    reason = f'--max_bad_records={config.max_bad_records}: more bad records than allowed:'
    advice = 'Repair the data, or raise --max_bad_records; a damaged TFRecord file cannot be skipped.'
    if not has_flag:
        reason = f'more bad records than the run allowed, --max_bad_records={config.max_bad_records}:'
        advice = 'Repair the data, or name other images with --data_dir.'
    if usable_records.NONE_USABLE in message:
        reason = f'--seed={config.seed}: bad records follow each other, and none near them can replace them:'
        advice = 'Repair the data, or train without --seed.'
    more = ['and more.'] if len(found) > _LISTED_AT_MOST else []
    return '\n'.join([reason, *found[:_LISTED_AT_MOST], *more, advice])


def check_reachable(config: Config) -> None:
    """Reads a record file of each split, and writes to model_dir; raises CommandError if it cannot."""
    if config.use_data == 'real':
        for split in config.splits:
            remote.check_readable(config.source.find(split)[0])
    check_writable('model_dir', str(config.model_dir))


@contextlib.contextmanager
def divergence_explained(config: Config) -> Iterator[None]:
    """Raises a CommandError, which names the checkpoint that is kept, if training in the body diverges."""
    began_at = latest_step(str(config.model_dir))
    try:
        yield
    except DivergedError as error:
        raise diverged(error, config, began_at)


def diverged(error: DivergedError, config: Config, began_at: Optional[int] = None) -> CommandError:
    """The error that ends a diverged run. Sets the newest checkpoint aside if it may be the cause.

    A run's only checkpoint is kept. A TPU shows only the loss of a loop's last step; therefore, on a TPU, the
    checkpoint that this command began with, at step `began_at`, is also kept.
    """
    model_dir, step, removed = str(config.model_dir), error.steps_before, ''
    newest = latest_checkpoint(model_dir)
    may_be_the_cause = newest and step_of(newest) == step and not (config.use_tpu and step == began_at)
    if may_be_the_cause and checkpoints.step_before(model_dir, step) is not None:
        checkpoints.set_aside(model_dir, step)
        folder = os.path.join(model_dir, checkpoints.PASSED_OVER)
        removed = f'The checkpoint of step {step:,}, which led to it, was moved into {folder}. '
    return CommandError(
        f'{error.what} in step {error.step:,}, at a learning rate of {learning_rate(error.step, config):.4g}. '
        f'{removed}The checkpoint of step {latest_step(model_dir):,} is kept. A lower --learning_rate, or '
        '--use_learning_rate_warmup, keeps the loss finite.'
    )
