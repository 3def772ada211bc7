"""Files in Google Cloud Storage (`gs://`) and Amazon S3 (`s3://`), with error messages that name the cause.

TensorFlow 1.15 reads and writes both; later versions have gs:// alone, and `console.paths.check_stores` refuses s3://.
TensorFlow retries transient failures: on gs:// ten times in 90 seconds, on s3:// ten times in 25 seconds. But it hides
some errors. On gs:// and s3://, a folder that may not be listed appears not to exist. On s3://, a file that may not be
read appears to be missing or empty. The functions of this module check such results with a second, different request.
"""

import contextlib
import os
import re
from typing import Any, Iterator, List, Optional, Type

from compat import tf
from compat.errors import CommandError, RetryableError
from console import inputs

# The input pipeline's message about a file that it could not read to the end.
ENDED_EARLY = 'could not be read beyond byte'

GS, S3 = 'gs://', 's3://'
LIST, READ, WRITE, DELETE = 'list', 'read', 'write', 'delete'
_S3_ACTIONS = {LIST: 's3:ListBucket', READ: 's3:GetObject', WRITE: 's3:PutObject', DELETE: 's3:DeleteObject'}

_PLACE = re.compile(r'(gs|s3)://[^\s\'",;()\[\]]+')
_GS_STATUS = re.compile(r'HTTP response code (\d+)')
# The account and the permission in the service's answer to a denied request.
_GS_WHO = re.compile(r'([\w.+-]+@[\w.-]+|Anonymous caller) does not have storage\.\w+\.(\w+)')
_GS_VERBS = {'list': LIST, 'get': READ, 'create': WRITE, 'update': WRITE, 'delete': DELETE}
_S3_REFUSED = re.compile(r'AccessDenied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken')
_S3_FAILING = re.compile(r'SlowDown|ServiceUnavailable|InternalError|RequestTimeout|[Uu]nable to connect|Network')
_S3_BUCKET = "S3 path doesn't contain an object name"
# The errors of TensorFlow after its last retry.
_FAILING = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)


class RemoteError(CommandError):
    """Access to a remote file or folder is denied, or it does not exist, or the store cannot be reached."""


class UnreachableError(RemoteError, RetryableError):
    """The store of a remote file or folder cannot be reached; a retry may succeed."""


def is_remote(path: str) -> bool:
    """Whether a path is in Google Cloud Storage or Amazon S3."""
    return path.startswith((GS, S3))


def hides_refusals(path: str) -> bool:
    """Whether TensorFlow shows a denied read at a path as a missing or truncated file."""
    return path.startswith(S3)


def explain(error: tf.errors.OpError, path: str, action: str) -> str:
    """A message about the failure of a remote operation: the path, and the account, permission or missing object.

    The path and the action, `LIST`, `READ`, `WRITE` or `DELETE`, are those of the operation, unless the error names
    others.
    """
    place = _PLACE.search(error.message)
    path = place.group().rstrip('.') if place else path
    first_line = _first_line(error)
    if ENDED_EARLY in first_line:
        return _hidden(path)
    if kind_of(error) is UnreachableError:
        return (
            f'{path}: cannot be reached after several retries ({_status(error.message) or first_line}). Check the '
            'network and the service, and run the same command again: it resumes.'
        )
    if isinstance(error, (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError)):
        return _refused_by_gs(path, action, error.message)
    if path.startswith(S3) and _S3_REFUSED.search(first_line):
        return f'{path}: {_s3_credentials()} may not {action} it ({first_line}). {_s3_advice(path, action)}'
    if _S3_BUCKET in first_line:
        return f'{path}: is a bucket. Name a folder in it, such as {_bucket(path)}/FOLDER.'
    if 'NoSuchBucket' in first_line or (action == LIST and isinstance(error, tf.errors.NotFoundError)):
        return f'{path}: the bucket {_bucket(path)} does not exist.'
    if isinstance(error, tf.errors.NotFoundError):
        return f'{path}: does not exist.'
    return f'{path}: cannot be used: {first_line}'


def kind_of(error: tf.errors.OpError) -> Type[RemoteError]:
    """The type of a remote failure: permanent or transient."""
    is_transient = isinstance(error, _FAILING) or _S3_FAILING.search(_first_line(error))
    return UnreachableError if is_transient else RemoteError


def explain_if_remote(error: tf.errors.OpError, model_dir: str) -> Optional[str]:
    """A message about a remote failure during a run that writes to `model_dir`; None if the failure is local.

    An s3:// error without a path comes from a write: reads fail in other ways.
    """
    of_s3 = model_dir.startswith(S3) and any(s.search(_first_line(error)) for s in (_S3_REFUSED, _S3_FAILING))
    return explain(error, model_dir, WRITE) if of_s3 or _PLACE.search(error.message) else None


@contextlib.contextmanager
def explained(path: str, action: str) -> Iterator[None]:
    """Replaces TensorFlow's errors about a remote file by a RemoteError. Errors about local files are not changed."""
    try:
        yield
    except tf.errors.OpError as error:
        if not is_remote(path):
            raise
        raise kind_of(error)(explain(error, path, action))


def names_in(folder: str) -> Optional[List[str]]:
    """The names in a folder, in order; None if there is no such folder. Raises the errors of `size`."""
    if not is_remote(folder) and os.path.isdir(folder) and os.access(folder, os.R_OK):
        # TensorFlow's listing fails on names that are not UTF-8.
        return sorted(os.listdir(folder))
    with explained(folder, LIST):
        try:
            return sorted(tf.io.gfile.listdir(folder))
        except tf.errors.NotFoundError:
            if not is_remote(folder):
                return None
            # listdir raises this error for a denied listing, too; glob raises the right one, or lists the folder.
            return sorted(os.path.basename(path) for path in tf.io.gfile.glob(os.path.join(folder, '*'))) or None


def exists(path: str) -> bool:
    """Whether a file exists. Raises the errors of `size`."""
    with explained(path, READ):
        if tf.io.gfile.exists(path):
            return True
    if hides_refusals(path) and os.path.basename(path) in (names_in(os.path.dirname(path)) or ()):
        raise RemoteError(_hidden(path))
    return False


def size(path: str) -> int:
    """The size of a file in bytes; raises RemoteError, or `tf.errors.OpError` for a local file."""
    with explained(path, READ):
        try:
            return int(tf.io.gfile.stat(path).length)
        except tf.errors.NotFoundError:
            exists(path)
            raise


def check_readable(path: str) -> None:
    """Checks that a file can be read: reads its first byte, if it has one. Raises the errors of `size`."""
    expected = size(path)
    with opened(path) as file:
        if expected and not file.read(1):
            raise RemoteError(_hidden(path))


@contextlib.contextmanager
def opened(path: str, at_most: Optional[int] = None) -> Iterator[Any]:
    """Opens a remote or local file to read its bytes. Raises the errors of `size`.

    Also raises RemoteError, before it could block, if the file is not regular, or has more bytes than `at_most`.
    """
    check_kind(path, at_most)
    with explained(path, READ), tf.io.gfile.GFile(path, 'rb') as file:
        yield file


def check_kind(path: str, at_most: Optional[int] = None) -> None:
    """Raises RemoteError if a path is not a regular file, or has more bytes than `at_most`; a missing file passes."""
    fault = ''
    if is_remote(path):
        if at_most is not None and exists(path):
            fault = inputs.too_large(size(path), at_most)
    else:
        # TensorFlow's own error names a missing file.
        with contextlib.suppress(OSError, ValueError):
            fault = inputs.fault_of(path, at_most)
    if fault:
        raise RemoteError(f'{path}: {fault}. Move it away, or name another file.')


def read(path: str, at_most: int = inputs.TEXT_BYTES) -> Optional[bytes]:
    """The content of a file; None if it does not exist. Raises the errors of `opened`."""
    if not exists(path):
        return None
    check_readable(path)
    with opened(path, at_most) as file:
        return file.read()


def _first_line(error: tf.errors.OpError) -> str:
    """The first line of an error, the cause. The other lines are the location in the graph."""
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
    who = account or 'the caller, whose key file GOOGLE_APPLICATION_CREDENTIALS names,'
    kind = 'user' if account and not account.endswith('.gserviceaccount.com') else 'serviceAccount'
    return (
        f'{path}: {who} may not {action} it ({_status(message) or "permission denied"}). Grant that account '
        'roles/storage.objectAdmin on the bucket (objectViewer is enough for --data_dir): gsutil iam ch '
        f'{kind}:{account or "ACCOUNT"}:roles/storage.objectAdmin {_bucket(path)}. A Cloud TPU has its own '
        'service account, which needs the role, too.'
    )


def _hidden(path: str) -> str:
    return (
        f'{path}: exists, but cannot be read: either {_s3_credentials()} may not read it, or S3 does not answer. '
        f'TensorFlow does not distinguish the two. {_s3_advice(path, READ)}'
    )


def _s3_advice(path: str, action: str) -> str:
    return f'Allow that key {_S3_ACTIONS[action]} on {_bucket(path)}, or set another key in AWS_ACCESS_KEY_ID.'


def _s3_credentials() -> str:
    key = os.environ.get('AWS_ACCESS_KEY_ID')
    return f'the access key {key}' if key else "the key of the AWS profile or of the machine's role"
