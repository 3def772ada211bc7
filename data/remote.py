"""Files in Google Cloud Storage and Amazon S3, `gs://` and `s3://`: what they refuse, and why, in a user's words.

TensorFlow reads and writes both, and repeats what fails for a while: gs:// ten times in 90 seconds, s3:// ten times in
25 seconds. But it does not tell all that it is told. Its gs:// takes a folder that may not be listed for one
that does not exist; its s3:// does that, and takes a file that may not be read for one that does not exist, or for an
empty one. What is here asks a second time, in another way, before it believes in an absence.
"""

import configparser
import contextlib
import json
import os
import re
from typing import Iterator, List, Optional, Type

import tensorflow as tf

from console.errors import CommandError, RetryableError

# What the input pipeline says of a file whose end is missing.
ENDED_EARLY = 'could not be read beyond byte'

GS, S3 = 'gs://', 's3://'
LIST, READ, WRITE, DELETE = 'list', 'read', 'write', 'delete'

# What allows it to an access key.
_S3_ACTIONS = {LIST: 's3:ListBucket', READ: 's3:GetObject', WRITE: 's3:PutObject', DELETE: 's3:DeleteObject'}

_PLACE = re.compile(r'(gs|s3)://[^\s\'",;()\[\]]+')
_GS_STATUS = re.compile(r'HTTP response code (\d+)')
# What the service says of a refusal.
_GS_WHO = re.compile(r'([\w.+-]+@[\w.-]+|Anonymous caller) does not have storage\.\w+\.(\w+)')
_GS_VERBS = {'list': LIST, 'get': READ, 'create': WRITE, 'update': WRITE, 'delete': DELETE}
_S3_REFUSED = re.compile(r'AccessDenied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken')
_S3_FAILING = re.compile(r'SlowDown|ServiceUnavailable|InternalError|RequestTimeout|[Uu]nable to connect|Network')
_S3_BUCKET = "S3 path doesn't contain an object name"
# What has been repeated in vain.
_FAILING = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)


class RemoteError(CommandError):
    """A remote file or folder that is refused, or does not exist, or cannot be reached."""


class UnreachableError(RemoteError, RetryableError):
    """A remote file or folder that cannot be reached: what asks again later may succeed."""


def is_remote(path: str) -> bool:
    """Whether a path leads to Google Cloud Storage or Amazon S3."""
    return path.startswith((GS, S3))


def hides_refusals(path: str) -> bool:
    """Whether what cannot be read there looks as if it were not there, or ended early."""
    return path.startswith(S3)


def explain(error: tf.errors.OpError, path: str, action: str) -> str:
    """What the failure of a remote file means: who was refused what, what does not exist, or what did not answer.

    Args:
      error: TensorFlow's.
      path: where it was, unless the error itself says it.
      action: what was tried, `LIST`, `READ`, `WRITE` or `DELETE`, unless the error itself says it.
    """
    place = _PLACE.search(error.message)
    path = place.group().rstrip('.') if place else path
    first_line = _first_line(error)
    if ENDED_EARLY in first_line:
        return _hidden(path)
    if kind_of(error) is UnreachableError:
        return (
            f'{path}: cannot be reached, again and again ({_status(error.message) or first_line}). It may have to do '
            'with the service or with the network; the same command goes on when they are back.'
        )
    if isinstance(error, (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError)):
        return _refused_by_gs(path, action, error.message)
    if path.startswith(S3) and _S3_REFUSED.search(first_line):
        return _refused_by_s3(path, action, first_line)
    if _S3_BUCKET in first_line:
        return f'{path}: is a bucket. Name a folder in it, such as {_bucket(path)}/FOLDER.'
    if 'NoSuchBucket' in first_line or (action == LIST and isinstance(error, tf.errors.NotFoundError)):
        return f'{path}: the bucket {_bucket(path)} does not exist.'
    if isinstance(error, tf.errors.NotFoundError):
        return f'{path}: does not exist.'
    return f'{path}: cannot be used: {first_line}'


def kind_of(error: tf.errors.OpError) -> Type[RemoteError]:
    """Whether the failure of a remote file is a refusal, or may pass."""
    may_pass = isinstance(error, _FAILING) or _S3_FAILING.search(_first_line(error))
    return UnreachableError if may_pass else RemoteError


def explain_if_remote(error: tf.errors.OpError, model_dir: str) -> Optional[str]:
    """What a failure in the course of a run means; None if it has nothing to do with a remote file.

    Args:
      error: any of TensorFlow's. If it is of s3://, and does not say where, it was in writing: reading fails otherwise.
      model_dir: where the run writes.
    """
    of_s3 = model_dir.startswith(S3) and any(s.search(_first_line(error)) for s in (_S3_REFUSED, _S3_FAILING))
    return explain(error, model_dir, WRITE) if of_s3 or _PLACE.search(error.message) else None


@contextlib.contextmanager
def explained(path: str, action: str) -> Iterator[None]:
    """Turns the failure of a remote file into a message; that of a local one stays what it is.

    Raises:
      RemoteError: instead of the failure.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not is_remote(path):
            raise
        raise kind_of(error)(explain(error, path, action))


def names_in(folder: str) -> Optional[List[str]]:
    """The names in a folder, in order; None if there is no such folder.

    Raises:
      RemoteError: it may not be listed, or its bucket does not exist.
      tf.errors.OpError: the same of a local one.
    """
    with explained(folder, LIST):
        try:
            return sorted(tf.io.gfile.listdir(folder))
        except tf.errors.NotFoundError:
            if not is_remote(folder):
                return None
            # This fails where listdir cannot tell a refusal from an absence, and finds what is in a bucket that may
            # not be described.
            return sorted(os.path.basename(path) for path in tf.io.gfile.glob(os.path.join(folder, '*'))) or None


def exists(path: str) -> bool:
    """Whether a file is there.

    Raises:
      RemoteError: that cannot be told.
      tf.errors.OpError: the same of a local one.
    """
    with explained(path, READ):
        if tf.io.gfile.exists(path):
            return True
    if hides_refusals(path) and os.path.basename(path) in (names_in(os.path.dirname(path)) or ()):
        raise RemoteError(_hidden(path))
    return False


def size(path: str) -> int:
    """The bytes of a file.

    Raises:
      RemoteError: it cannot be read, or does not exist.
      tf.errors.OpError: the same of a local one.
    """
    with explained(path, READ):
        try:
            return int(tf.io.gfile.stat(path).length)
        except tf.errors.NotFoundError:
            exists(path)
            raise


def check_readable(path: str) -> None:
    """Reads the first byte of a file, if it has one.

    Raises:
      RemoteError: it cannot be read.
      tf.errors.OpError: the same of a local one.
    """
    expected = size(path)
    with explained(path, READ), tf.io.gfile.GFile(path, 'rb') as file:
        if expected and not file.read(1):
            raise RemoteError(_hidden(path))


def read(path: str) -> Optional[bytes]:
    """The content of a file; None if it is not there.

    Raises:
      RemoteError: it cannot be read.
      tf.errors.OpError: the same of a local one.
    """
    if not exists(path):
        return None
    check_readable(path)
    with explained(path, READ), tf.io.gfile.GFile(path, 'rb') as file:
        return file.read()


def _first_line(error: tf.errors.OpError) -> str:
    """What went wrong; the others say where."""
    return error.message.partition('\n')[0]


def _status(message: str) -> str:
    status = _GS_STATUS.search(message)
    return f'HTTP status {status.group(1)}' if status else ''


def _bucket(path: str) -> str:
    return '/'.join(path.split('/')[:3])


def _refused_by_gs(path: str, action: str, message: str) -> str:
    said = _GS_WHO.search(message)
    account = said.group(1) if said and '@' in said.group(1) else None
    action = _GS_VERBS.get(said.group(2), action) if said else action
    who = account or f'the caller ({_gs_credentials()})'
    kind = 'user' if account and not account.endswith('.gserviceaccount.com') else 'serviceAccount'
    return (
        f'{path}: {who} may not {action} it ({_status(message) or "permission denied"}). Grant that account '
        'roles/storage.objectAdmin on the bucket (objectViewer is enough for --data_dir): gsutil iam ch '
        f'{kind}:{account or "ACCOUNT"}:roles/storage.objectAdmin {_bucket(path)}. A Cloud TPU reads and writes as a '
        'service account of its own, which needs the role, too.'
    )


def _gs_credentials() -> str:
    """Where TensorFlow takes its credentials from, and whose they are."""
    if os.environ.get('GOOGLE_AUTH_TOKEN_FOR_TESTING'):
        return 'the token in GOOGLE_AUTH_TOKEN_FOR_TESTING'
    gcloud = os.path.join(os.environ.get('CLOUDSDK_CONFIG', os.path.expanduser('~/.config/gcloud')), '')
    for path in (os.environ.get('GOOGLE_APPLICATION_CREDENTIALS'), f'{gcloud}application_default_credentials.json'):
        if path and os.path.isfile(path):
            with contextlib.suppress(OSError, ValueError, AttributeError), open(path) as file:
                whose = json.load(file).get('client_email', 'a user account')
                return f'{whose}, from {path}'
            return f'credentials in {path}, which cannot be read'
    return "the machine's own service account, or nobody: GOOGLE_APPLICATION_CREDENTIALS names no file"


def _refused_by_s3(path: str, action: str, reason: str) -> str:
    return f'{path}: {_s3_credentials()} may not {action} it ({reason}). {_s3_advice(path, action)}'


def _hidden(path: str) -> str:
    return (
        f'{path}: is there, and cannot be read: {_s3_credentials()} may not read it, or S3 does not answer, which '
        f'TensorFlow does not tell apart. {_s3_advice(path, READ)}'
    )


def _s3_advice(path: str, action: str) -> str:
    return f'Allow that key {_S3_ACTIONS[action]} on {_bucket(path)}, or give another in AWS_ACCESS_KEY_ID.'


def _s3_credentials() -> str:
    """The identity of the access key, without its secret."""
    if os.environ.get('AWS_ACCESS_KEY_ID'):
        return f'the access key {os.environ["AWS_ACCESS_KEY_ID"]} (AWS_ACCESS_KEY_ID)'
    path = os.environ.get('AWS_SHARED_CREDENTIALS_FILE', os.path.expanduser('~/.aws/credentials'))
    profile = os.environ.get('AWS_DEFAULT_PROFILE', 'default')
    profiles = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        profiles.read(path)
        key = profiles.get(profile, 'aws_access_key_id')
        return f'the access key {key} (profile {profile} of {path})'
    return "the machine's own role, or nobody (AWS_ACCESS_KEY_ID is not set)"
