"""Fixed draws for all tests of preprocessing."""

import pytest

from compat import tf


@pytest.fixture(autouse=True)
def _fixed_draws(_new_graph: None) -> None:
    tf.set_random_seed(7)
