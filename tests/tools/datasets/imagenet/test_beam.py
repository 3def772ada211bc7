"""Beam's own log."""

import logging
from typing import Any

from compat.log import logger
from tools.datasets.imagenet import beam


def test_quieten__hides_warnings_of_beam_and_of_no_logger_alone(monkeypatch: Any, caplog: Any) -> None:
    for each in (logging.getLogger(), logging.getLogger('apache_beam')):
        monkeypatch.setattr(each, 'level', each.level)
    logger.setLevel(logging.INFO)
    beam._quieten()
    logging.getLogger('apache_beam.io').warning('no credentials')
    # As apache_beam.io.gcp does for a client that is not installed.
    logging.warning('apitools not found')
    logger.info('finished')
    assert [record.message for record in caplog.records] == ['finished']
