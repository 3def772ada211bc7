"""The options and the least image sizes of the networks, which the rules about flags need without their graphs."""

from typing import Dict, FrozenSet, NamedTuple

# The options that some networks take, and the part of the network that each one sets.
OPTIONS: Dict[str, str] = {
    'auxiliary_head': 'auxiliary classifier',
    'depth_multiplier': 'adjustable number of channels',
    'dropout': 'dropout',
    'rebuild_activations': 'reversible blocks',
    'zero_init_last_scale': 'batch-norm scale at the end of a residual block',
}


class Limits(NamedTuple):
    """The names in `OPTIONS` that a network takes, and the least height and width of its images, in pixels.

    The last number is the least with the auxiliary head; 0 if there is none.
    """

    options: FrozenSet[str]
    min_size: int
    auxiliary_head_min_size: int = 0


_RESNET = frozenset({'depth_multiplier', 'zero_init_last_scale'})
_REVNET = frozenset({'depth_multiplier', 'rebuild_activations'})

LIMITS: Dict[str, Limits] = {
    # The valid 3 x 3 convolutions with stride 2 in Mixed_7a need 75 pixels to leave one position. The auxiliary head
    # pools Mixed_6e with a 5 x 5 window; at 107 pixels that map is 5 x 5.
    'inception_v3': Limits(frozenset({'auxiliary_head', 'depth_multiplier', 'dropout'}), 75, 107),
    'inception_2015': Limits(frozenset({'depth_multiplier', 'dropout'}), 75),
    # Five halvings leave one position of 32 pixels.
    'resnet50': Limits(_RESNET, 32),
    # Two halvings.
    'revnet38': Limits(_REVNET, 4),
    'revnet110': Limits(_REVNET, 4),
    # Five halvings.
    'revnet56': Limits(_REVNET, 32),
    'revnet104': Limits(_REVNET, 32),
}
