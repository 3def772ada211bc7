"""Messages about failures of remote files, for TensorFlow's error messages. `tests/remote` tests real failures."""

import functools
import os
import pathlib
from typing import Any, List

import pytest

from compat import tf
from data import remote

GS_403 = (
    'Error executing an HTTP request: HTTP response code 403 with body \'{"error": {"code": 403, "message": '
    '"%s does not have storage.objects.%s access to the Google Cloud Storage object."}}\'\n\t when reading gs://b/d/f'
)


def error_of(kind: Any, message: str) -> tf.errors.OpError:
    return kind(None, None, message)


refused = functools.partial(error_of, tf.errors.PermissionDeniedError)
unknown = functools.partial(error_of, tf.errors.UnknownError)
not_found = functools.partial(error_of, tf.errors.NotFoundError)


@pytest.mark.parametrize(('permission', 'verb'), [('list', 'list'), ('get', 'read'), ('create', 'write')])
def test_gs_denial__names_account_and_permission(permission: str, verb: str) -> None:
    error = refused(GS_403 % ('robot@p.iam.gserviceaccount.com', permission))
    text = remote.explain(error, 'gs://other', remote.READ)
    assert text.startswith(f'gs://b/d/f: robot@p.iam.gserviceaccount.com may not {verb} it (HTTP status 403).')
    assert 'serviceAccount:robot@p.iam.gserviceaccount.com:roles/storage.objectAdmin gs://b.' in text
    error = refused(GS_403 % ('someone@example.com', permission))
    assert 'user:someone@example.com:' in remote.explain(error, 'gs://other', remote.READ)
    text = remote.explain(refused(GS_403 % ('Anonymous caller', permission)), 'gs://b', remote.READ)
    key_file = 'the caller, whose key file GOOGLE_APPLICATION_CREDENTIALS names,'
    assert text.startswith(f'gs://b/d/f: {key_file} may not {verb} it')


def test_s3_denial__names_the_key_without_its_secret(monkeypatch: Any) -> None:
    error, place = unknown('AccessDenied: Access Denied\n\t [[node save/SaveV2]]'), 's3://b/m'
    monkeypatch.delenv('AWS_ACCESS_KEY_ID', raising=False)
    assert 's3://b/m: the key of the AWS profile or' in remote.explain(error, place, remote.WRITE)
    monkeypatch.setenv('AWS_ACCESS_KEY_ID', 'AKIAENV')
    monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', '50%hidden')
    text = remote.explain(error, place, remote.WRITE)
    assert 's3://b/m: the access key AKIAENV may not write it' in text and 's3:PutObject on s3://b' in text
    assert 'hidden' not in text


@pytest.mark.parametrize(
    ('error', 'place', 'action', 'text'),
    [
        (
            *(error_of(tf.errors.UnauthenticatedError, 'HTTP response code 401 when reading gs://b/f'), 'gs://b'),
            *(remote.READ, 'may not read it (HTTP status 401)'),
        ),
        (not_found('404'), 'gs://b/d', remote.LIST, 'gs://b/d: the bucket gs://b does not exist.'),
        (unknown('NoSuchBucket: none'), 's3://b/d', remote.WRITE, 's3://b/d: the bucket s3://b does not exist.'),
        (not_found('path gs://b/d/f was not found.'), 'gs://b/d', remote.READ, 'gs://b/d/f: does not exist.'),
        (
            *(unknown("S3 path doesn't contain an object name: s3://b/"), 's3://b', remote.LIST),
            's3://b/: is a bucket. Name a folder in it, such as s3://b/FOLDER.',
        ),
        # Transient failures differ from denials.
        (
            *(error_of(tf.errors.AbortedError, 'Failed: HTTP response code 503 when reading gs://b/f'), 'gs://b'),
            *(remote.READ, 'gs://b/f: cannot be reached after several retries (HTTP status 503).'),
        ),
        (unknown('SlowDown: Reduce your rate'), 's3://b', remote.WRITE, 's3://b: cannot be reached'),
    ],
)
def test_explain__names_account_permission_and_path(
    error: tf.errors.OpError, place: str, action: str, text: str
) -> None:
    assert text in remote.explain(error, place, action)


class Gfile:
    """TensorFlow's functions for a store that hides denials: it shows files (s3://) or folders (gs://) as missing."""

    def __init__(self, names: List[str], denial: Any = None):
        self._names, self._denial = names, denial

    def listdir(self, folder: str) -> List[str]:
        if self._denial:
            raise not_found('')
        return self._names

    def glob(self, pattern: str) -> List[str]:
        if self._denial is True:
            raise refused('HTTP response code 403')
        return [pattern.replace('*', name) for name in self._names]

    def exists(self, path: str) -> bool:
        return False

    def stat(self, path: str) -> Any:
        raise not_found('')


def test_names_in__finds_a_denied_listing_and_sorts(monkeypatch: Any) -> None:
    def names(denial: Any) -> Any:
        monkeypatch.setattr(tf.io, 'gfile', Gfile(['b', 'a'], denial))
        return remote.names_in('gs://b/d')

    assert names(None) == ['a', 'b']
    # Only the bucket's description is denied.
    assert names('description') == ['a', 'b']
    with pytest.raises(remote.RemoteError, match='may not list it'):
        names(True)


def test_missing_file_that_is_listed__counts_as_denied(monkeypatch: Any) -> None:
    monkeypatch.setattr(tf.io, 'gfile', Gfile(['there']))
    functions: Any = (remote.exists, remote.size, remote.read, remote.check_readable)
    for function in functions:
        with pytest.raises(remote.RemoteError, match='s3://b/d/there: exists, but cannot be read'):
            function('s3://b/d/there')
    assert not remote.exists('s3://b/d/other') and not remote.exists('gs://b/d/there')
    with pytest.raises(remote.RemoteError, match='s3://b/d/other: does not exist'):
        remote.size('s3://b/d/other')


def test_local_failures__are_not_explained(tmp_path: Any) -> None:
    for model_dir in ('gs://b/model', 's3://b/model', 'runs/model'):
        for kind, message in (
            (tf.errors.NotFoundError, '/tmp/x; No such file or directory'),
            (tf.errors.InvalidArgumentError, 'Incompatible shapes'),
            (tf.errors.UnavailableError, 'Socket closed'),
        ):
            assert remote.explain_if_remote(error_of(kind, message), model_dir) is None
    somewhere = 'Error executing an HTTP request: HTTP response code 403\n\t when reading gs://b/d/f\n\t [[{{node x}}]]'
    assert 'gs://b/d/f: ' in str(remote.explain_if_remote(refused(somewhere), 'runs/model'))
    assert 's3://b/model: ' in str(remote.explain_if_remote(unknown('AccessDenied: no'), 's3://b/model'))
    with pytest.raises(tf.errors.NotFoundError), remote.explained(str(tmp_path / 'nothing'), remote.READ):
        tf.io.gfile.stat(str(tmp_path / 'nothing'))


def test_local_files__are_read_by_the_functions_for_stores(tmp_path: Any) -> None:
    path = tmp_path / 'file'
    assert remote.names_in(str(tmp_path / 'nothing')) is None
    assert remote.read(str(path)) is None and not remote.exists(str(path))
    path.write_bytes(b'')
    remote.check_readable(str(path))
    path.write_bytes(b'content')
    remote.check_readable(str(path))
    # The names of a local folder may be any bytes.
    pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b'/g\xff')).touch()
    assert remote.names_in(str(tmp_path)) == ['file', 'g\udcff']
    assert (remote.read(str(path)), remote.size(str(path))) == (b'content', 7)
    with pytest.raises(tf.errors.NotFoundError):
        remote.check_readable(str(tmp_path / 'nothing'))
