"""Fixtures of tests with fakes of Google Cloud Storage and Amazon S3."""

import ssl
from typing import Any, Iterator

import pytest
import trustme

from tests.remote import fake_gcs, moto_s3
from tests.remote.fake_gcs import FakeGcs
from tests.remote.moto_s3 import MotoS3
from tests.remote.private_network import NotAllowedError, PrivateNetwork
from tests.remote.store import Store


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
    """A new bucket in the fake Google Cloud Storage, without faults and with an empty log."""
    network, server = _gcs
    return Store('gs', server, network.inside([]), {'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'x', 'NO_GCE_CHECK': 'true'})


@pytest.fixture
def s3(_moto: MotoS3) -> Store:
    """A new bucket in the fake Amazon S3, without faults and with an empty log."""
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
    """A new bucket; each test runs once per kind of store."""
    return request.getfixturevalue(request.param)
