"""Fixtures of tests with fakes of Google Cloud Storage and Amazon S3."""

import fcntl
import os
import ssl
import tempfile
from typing import Any, Iterator

import pytest
import trustme

from tests.remote import fake_gcs, moto_s3
from tests.remote.fake_gcs import FakeGcs
from tests.remote.moto_s3 import MotoS3
from tests.remote.private_network import NotAllowedError, PrivateNetwork
from tests.remote.resident import Resident
from tests.remote.store import SCHEMES, Store, visible


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
    environment = visible({'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'x', 'NO_GCE_CHECK': 'true'})
    resident = Resident(network.inside([]), environment)
    yield 'gs', server, network.inside([]), environment, resident
    resident.close()
    server.close()
    network.close()


@pytest.fixture(scope='session')
def _moto() -> Iterator[Any]:
    server = MotoS3()
    environment = visible(
        {
            'S3_ENDPOINT': server.address,
            'S3_USE_HTTPS': '0',
            'AWS_REGION': moto_s3.REGION,
            'AWS_ACCESS_KEY_ID': moto_s3.ACCESS_KEY_ID,
            'AWS_SECRET_ACCESS_KEY': moto_s3.SECRET_ACCESS_KEY,
        }
    )
    resident = Resident([], environment)
    yield 's3', server, [], environment, resident
    resident.close()
    server.close()


@pytest.fixture
def gs(_gcs: Any) -> Store:
    """A new bucket in the fake Google Cloud Storage, without faults and with an empty log."""
    return Store(*_gcs)


@pytest.fixture
def s3(_moto: Any) -> Iterator[Store]:
    """A new bucket in the fake Amazon S3, without faults and with an empty log, for one test at a time."""
    # TensorFlow 1.15 mixes up files that two processes write at the same time; see `console.outputs`.
    with open(f'{tempfile.gettempdir()}/s3-of-{os.getuid()}.lock', 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Store(*_moto)


@pytest.fixture(params=SCHEMES)
def store(request: Any) -> Store:
    """A new bucket; each test runs once per kind of store."""
    return request.getfixturevalue(request.param)
