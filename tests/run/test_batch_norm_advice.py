"""Tests of the words about a run's batch normalization; `tests/tools/plan/test_plan.py` tests the warning."""

from inception_v3.config import Config
from inception_v3.run.batch_norm_advice import description


def test_description__names_the_images_behind_the_moments() -> None:
    grouped = Config(batch_norm='synchronized', batch_norm_group_size=2)
    expected = {'own 128 images; the first core': Config(), 'the 256 images of 2 cores, 4 groups': grouped}
    assert all(part in description(config) for part, config in expected.items())
