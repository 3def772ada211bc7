"""Tests of the description of a run's batch normalization, and of the documented decay."""

from typing import Any

import pytest

from inception_v3.config import Config
from inception_v3.run.batch_norm_advice import decay_for, decay_warning, description

REPLICAS = {'use_tpu': False, 'accelerator': 'cpu', 'num_gpus': 4}


@pytest.mark.parametrize(
    ('values', 'words'),
    [
        ({}, "local: over each core's own 128 images; the first core's moving statistics are kept"),
        (REPLICAS, "local: over each replica's own 256 images; the first replica's moving statistics are kept"),
        (
            {'batch_norm': 'averaged'},
            "averaged: over each core's own 128 images; moving statistics are means over 8 cores",
        ),
        ({'batch_norm': 'synchronized'}, 'synchronized: over the 1024 images of 8 cores'),
        (
            {**REPLICAS, 'batch_norm': 'synchronized', 'batch_norm_group_size': 2},
            "synchronized: over the 512 images of 2 replicas, 2 groups; the first group's moving statistics are kept",
        ),
        (
            {'use_tpu': False, 'batch_norm': 'averaged'},
            'averaged: over the 1024 images of a batch; there is one replica',
        ),
    ],
)
def test_description__names_the_images_behind_the_moments(values: Any, words: str) -> None:
    assert description(Config(**values)) == words


def test_decay_for__is_0_9997_to_the_power_of_the_cores() -> None:
    assert decay_for(1) == 0.9997 and decay_for(2) == pytest.approx(0.99940009, abs=1e-12)
    # The documented default is for 8 cores.
    assert round(decay_for(8), 4) == Config().batch_norm_decay


@pytest.mark.parametrize(
    ('values', 'is_other'),
    [
        ({}, False),
        # 0.9997 ** 8 is 0.9976025. The distances of these decays from 1 differ from its own by 1.98 % and by 2.4 %.
        ({'batch_norm_decay': 0.99765}, False),
        ({'batch_norm_decay': 0.99766}, True),
        ({'batch_norm_decay': 0.997555}, False),
        ({'batch_norm_decay': 0.997545}, True),
        ({'num_shards': 16}, True),
        ({'use_tpu': False, 'batch_norm_decay': 0.9997}, False),
        ({'network': 'resnet50', 'batch_norm_decay': 0.9}, False),
    ],
)
def test_decay_warning__is_about_decays_for_another_number_of_cores(values: Any, is_other: bool) -> None:
    assert bool(decay_warning(Config(**values))) == is_other


def test_decay_warning__names_the_documented_decay() -> None:
    assert decay_warning(Config(**REPLICAS, batch_norm_decay=0.9)) == (  # type: ignore[arg-type]
        '--batch_norm_decay=0.9 is not alpha ** 4 = 0.9988, the documented decay for this number of replicas, where '
        'alpha = 0.9997 is that of one device'
    )
