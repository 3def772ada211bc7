"""Runs the program with a network of one layer, so that a run takes seconds."""

import sys
from typing import List

from inception_v3 import main
from inception_v3.networks.registry import NETWORKS
from tests.support.runs import ONE_LAYER


def run(argv: List[str]) -> int:
    """Runs a command line, and returns its exit code. It replaces the network for the rest of the process."""
    NETWORKS['inception_v3'] = ONE_LAYER
    return main.main(argv)


if __name__ == '__main__':
    sys.exit(run(sys.argv))
