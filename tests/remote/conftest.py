"""Google Cloud Storage and Amazon S3 on this machine, as the tests use them: one interface for both."""

import itertools
import os
import pathlib
import ssl
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Union

import pytest
import trustme

from tests.remote import fake_gcs, moto_s3
from tests.remote.fake_gcs import FakeGcs
from tests.remote.faults import Faults
from tests.remote.moto_s3 import MotoS3
from tests.remote.private_network import NotAllowedError, PrivateNetwork

# Whoever runs the tests has credentials of their own, which are nothing to them.
_NOT_OURS = ('AWS_', 'S3_', 'GCS_', 'GOOGLE_', 'CLOUDSDK_', 'TF_')
_BUCKETS = (f'bucket-{number}' for number in itertools.count(1))


class Store:
    """A bucket of a remote file system, and the commands that can reach it.

    Args:
      scheme: 'gs' or 's3'.
      server: what serves it.
      enter: the command line before a command's own.
      environment: the credentials, and the address.

    Attributes:
      bucket: its name; empty at first.
      url: its address, `gs://BUCKET` or `s3://BUCKET`.
      who: the identity that it knows.
      faults: the refusals to give, and the log.
    """

    def __init__(self, scheme: str, server: Union[FakeGcs, MotoS3], enter: List[str], environment: Dict[str, str]):
        self._server, self._enter = server, enter
        own = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        self._environment = {**own, **environment}
        self.scheme = scheme
        self.who = fake_gcs.ACCOUNT if scheme == 'gs' else moto_s3.ACCESS_KEY_ID
        self.bucket = next(_BUCKETS)
        self.url = f'{scheme}://{self.bucket}'
        server.create_bucket(self.bucket)
        self.faults: Faults = server.faults
        self.faults.clear()

    def upload(self, folder: str, name: str) -> str:
        """Copies the files of a folder, and returns its address."""
        for path in pathlib.Path(folder).iterdir():
            self._server.put(self.bucket, f'{name}/{path.name}', path.read_bytes())
        return f'{self.url}/{name}'

    def put(self, name: str, content: bytes) -> None:
        """Makes or replaces an object."""
        self._server.put(self.bucket, name, content)

    def objects(self, prefix: str = '') -> Dict[str, bytes]:
        """The names and contents of the objects with a prefix."""
        found = self._server.objects(self.bucket).items()
        return {name: content for name, content in found if name.startswith(prefix)}

    def download(self, prefix: str, folder: pathlib.Path) -> None:
        """Copies the objects with a prefix into a folder, by the rest of their names."""
        for name, content in self.objects(prefix).items():
            path = folder / name[len(prefix) :].lstrip('/')
            if not name.endswith('/'):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def python(self, *arguments: str, timeout: int = 600) -> 'subprocess.CompletedProcess[str]':
        """Runs Python where the store can be reached."""
        return subprocess.run(
            [*self._enter, sys.executable, '-W', 'ignore', *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def main(self, *flags: str, timeout: int = 600) -> 'subprocess.CompletedProcess[str]':
        """Runs the program, with a network of one layer: stores do not care."""
        return self.python('-m', 'tests.one_layer_program', *flags, timeout=timeout)


@pytest.fixture(scope='session')
def _gcs(tmp_path_factory: Any) -> Iterator[Any]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*fake_gcs.HOSTS).configure_cert(context)
    try:
        network = PrivateNetwork(fake_gcs.HOSTS, authority.cert_pem.bytes(), tmp_path_factory.mktemp('network'))
    except NotAllowedError as error:
        pytest.skip(f'no private network for gs://: {error}')
    server = FakeGcs(network.listener, context)
    yield network, server
    server.close()
    network.close()


@pytest.fixture(scope='session')
def _moto() -> Iterator[MotoS3]:
    server = MotoS3()
    yield server
    server.close()


@pytest.fixture
def gs(_gcs: Any) -> Store:
    """A new bucket of Google Cloud Storage, and nothing ordered or logged."""
    network, server = _gcs
    return Store('gs', server, network.inside([]), {'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'x', 'NO_GCE_CHECK': 'true'})


@pytest.fixture
def s3(_moto: MotoS3) -> Store:
    """A new bucket of Amazon S3, and nothing ordered or logged."""
    environment = {
        'S3_ENDPOINT': _moto.address,
        'S3_USE_HTTPS': '0',
        'AWS_REGION': moto_s3.REGION,
        'AWS_ACCESS_KEY_ID': moto_s3.ACCESS_KEY_ID,
        'AWS_SECRET_ACCESS_KEY': moto_s3.SECRET_ACCESS_KEY,
    }
    return Store('s3', _moto, [], environment)


@pytest.fixture(params=['gs', 's3'])
def store(request: Any) -> Store:
    """Either of them."""
    return request.getfixturevalue(request.param)
