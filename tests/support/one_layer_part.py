"""Does jobs of the comparison of TensorFlow's versions with a network of one layer, so that a run takes seconds."""

import sys

from inception_v3.networks.registry import NETWORKS
from studies.versions import part
from tests.support.runs import ONE_LAYER

if __name__ == '__main__':
    NETWORKS['inception_v3'] = ONE_LAYER
    sys.exit(part.main(sys.argv))
