"""The program itself, with one layer in place of its network: a run of it takes seconds, most of them its start."""

from data import before_tensorflow  # noqa: F401, I001  first: before TensorFlow is loaded

import sys

from inception_v3 import main, model_fn
from tests.conftest import one_layer_network

if __name__ == '__main__':
    model_fn.inception_v3 = one_layer_network  # type: ignore[assignment]
    sys.exit(main.main(sys.argv))
