"""The networks that `--network` names. To add one, write it in a module, and add it here.

This module needs no TensorFlow, because the choices of the flag and the rules about network flags follow from it.
"""

from typing import Any, Callable, Dict, FrozenSet, NamedTuple

from compat.deferred import deferred

# Options that only some networks have, and the part of the network that each one sets.
OPTIONS: Dict[str, str] = {
    'auxiliary_head': 'auxiliary classifier',
    'depth_multiplier': 'adjustable number of channels',
    'dropout': 'dropout',
    'rebuild_activations': 'reversible blocks',
    'zero_init_last_scale': 'batch-norm scale at the end of a residual block',
}


class Network(NamedTuple):
    """A network.

    Attributes:
      build: takes images [batch, height, width, 3], float32, bfloat16 or float16; the number of classes, background
        included; whether this is training (`norm` itself decides about moments); by name a convolution `conv`, like
        `layers.conv2d`; a normalization `norm`, like `batch_norm.BatchNorm`; any of `options`, such as
        `depth_multiplier`, a factor on the channels of every layer, which has at least 16; and `layout`, the order of
        the axes of images and activations, for which `conv` and `norm` are made. Returns logits [batch, num_classes] of
        the images' dtype, and the logits of an auxiliary head or None.
      options: the names in `OPTIONS` that the network has.
      size: height and width of the images in its paper, in pixels.
      min_size: the least height and width of its images.
      auxiliary_head_min_size: the least height and width with the auxiliary head; 0 if there is none.
    """

    build: Callable[..., Any]
    options: FrozenSet[str]
    size: int
    min_size: int
    auxiliary_head_min_size: int = 0


_REVNET = frozenset({'depth_multiplier', 'rebuild_activations'})
NETWORKS: Dict[str, Network] = {
    # The valid 3 x 3 convolutions with stride 2 in Mixed_7a need 75 pixels to leave one position. The auxiliary head
    # pools Mixed_6e with a 5 x 5 window; at 107 pixels that map is 5 x 5.
    'inception_v3': Network(
        deferred('inception_v3.networks.inception_v3:inception_v3'),
        options=frozenset({'auxiliary_head', 'depth_multiplier', 'dropout'}),
        size=299,
        min_size=75,
        auxiliary_head_min_size=107,
    ),
    'inception_2015': Network(
        deferred('inception_v3.networks.inception_2015:inception_2015'),
        options=frozenset({'depth_multiplier', 'dropout'}),
        size=299,
        min_size=75,
    ),
    # Five halvings leave one position of 32 pixels.
    'resnet50': Network(
        deferred('inception_v3.networks.resnet:resnet50'),
        options=frozenset({'depth_multiplier', 'zero_init_last_scale'}),
        size=224,
        min_size=32,
    ),
    # Two halvings.
    'revnet38': Network(deferred('inception_v3.networks.revnet:revnet38'), _REVNET, size=32, min_size=4),
    'revnet110': Network(deferred('inception_v3.networks.revnet:revnet110'), _REVNET, size=32, min_size=4),
    # Five halvings.
    'revnet56': Network(deferred('inception_v3.networks.revnet:revnet56'), _REVNET, size=224, min_size=32),
    'revnet104': Network(deferred('inception_v3.networks.revnet:revnet104'), _REVNET, size=224, min_size=32),
}


def has_auxiliary_head(config: Any) -> bool:
    """Whether a network has its auxiliary head: the flag enables it, and the images are large enough."""
    smallest = NETWORKS[config.network].auxiliary_head_min_size
    return config.auxiliary_head and 0 < smallest <= min(config.height, config.width)
