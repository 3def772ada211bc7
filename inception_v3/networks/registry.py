"""The networks that `--network` names: an entry each."""

import functools
from typing import Callable, Dict, NamedTuple, Optional, Tuple

import tensorflow as tf

from inception_v3.networks.inception_v3 import inception_v3
from inception_v3.networks.resnet import resnet50
from inception_v3.networks.revnet import REVNET_38, REVNET_56, REVNET_104, REVNET_110, revnet


class Network(NamedTuple):
    """A network, and what has to be known of it before it is built.

    Attributes:
      build: called as `inception_v3` is, with the images, the number of classes and whether this is training, and by
        name with all that a network can be told: `conv`, `norm`, `dropout`, `depth_multiplier`, `auxiliary_head`,
        `zero_init_last_scale`, `rebuild_activations`. Returns the logits, and an auxiliary head's or None.
      min_size: least height and width of its images, in pixels.
      auxiliary_head_min_size: the same of its auxiliary head; 0 if it has none.
    """

    build: Callable[..., Tuple[tf.Tensor, Optional[tf.Tensor]]]
    min_size: int
    auxiliary_head_min_size: int = 0


NETWORKS: Dict[str, Network] = {
    # Mixed_7a's valid 3 x 3 convolutions with stride 2 leave one position from 75 pixels on. The auxiliary head pools
    # Mixed_6e with a 5 x 5 window; that map is 5 x 5 from 107 pixels on.
    'inception_v3': Network(inception_v3, min_size=75, auxiliary_head_min_size=107),
    # Its five halvings leave one position of 32 pixels.
    'resnet50': Network(resnet50, min_size=32),
    # Two halvings.
    'revnet38': Network(functools.partial(revnet, REVNET_38), min_size=4),
    'revnet110': Network(functools.partial(revnet, REVNET_110), min_size=4),
    # Five again.
    'revnet56': Network(functools.partial(revnet, REVNET_56), min_size=32),
    'revnet104': Network(functools.partial(revnet, REVNET_104), min_size=32),
}
