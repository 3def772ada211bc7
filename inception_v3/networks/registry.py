"""The networks that `--network` names."""

import functools
from typing import Any, Callable, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from console.tensorflow_versions import tf
from inception_v3.networks.inception_v3 import MIXED_8_OF_2015, inception_v3
from inception_v3.networks.limits import LIMITS
from inception_v3.networks.resnet import resnet50
from inception_v3.networks.revnet import REVNET_38, REVNET_56, REVNET_104, REVNET_110, revnet


class Network(NamedTuple):
    """A network, and its `Limits`.

    Attributes:
      build: takes images [batch, height, width, 3], float32, bfloat16 or float16; the number of classes, background
        included; whether this is training (`norm` itself decides about moments); by name a convolution `conv`, like
        `layers.conv2d`; a normalization `norm`, like `batch_norm.BatchNorm`; any of `options`, such as
        `depth_multiplier`, a factor on the channels of every layer, of which at least 16 remain; and `layout`, the
        order of the axes of images and activations, for which `conv` and `norm` are made. Returns logits [batch,
        num_classes] of the images' dtype, and those of an auxiliary head or None.
    """

    build: Callable[..., Tuple[tf.Tensor, Optional[tf.Tensor]]]
    options: FrozenSet[str]
    min_size: int
    auxiliary_head_min_size: int = 0


_BUILDERS: Dict[str, Callable[..., Any]] = {
    'inception_v3': inception_v3,
    # The graph of the scores of generated images: `inception-v3 fid` reads its weights.
    'inception_2015': functools.partial(inception_v3, auxiliary_head=False, mixed_8=MIXED_8_OF_2015),
    'resnet50': resnet50,
    'revnet38': functools.partial(revnet, REVNET_38),
    'revnet110': functools.partial(revnet, REVNET_110),
    'revnet56': functools.partial(revnet, REVNET_56),
    'revnet104': functools.partial(revnet, REVNET_104),
}
NETWORKS: Dict[str, Network] = {name: Network(build, *LIMITS[name]) for name, build in _BUILDERS.items()}


def has_auxiliary_head(config: Any) -> bool:
    """Whether a network has its auxiliary head: the flag enables it, and the images are large enough."""
    smallest = NETWORKS[config.network].auxiliary_head_min_size
    return config.auxiliary_head and 0 < smallest <= min(config.height, config.width)


class Sizes(NamedTuple):
    """The numbers of values in a network, from the shapes of its layers.

    Attributes:
      parameters: trainable parameters.
      statistics: moving means and variances of batch normalization.
      kept: values per image that stay in memory from the forward to the backward pass of a training step, at least.
      largest: values per image in the inputs and outputs of the largest layer.
      products: multiplications per image in the convolutions of the forward pass.
    """

    parameters: int
    statistics: int
    kept: int
    largest: int
    products: int


# Operations whose outputs the backward pass reads, besides convolutions. A ReLU replaces its input: a normalized value
# or a sum.
_KEPT = frozenset(['AvgPool', 'ConcatV2', 'MaxPool', 'Pad', 'PadV2', 'Relu'])


def sizes_of(name: str, height: int, width: int, num_classes: int, options: Mapping[str, Any]) -> Sizes:
    """The sizes of a network with the options that `build` is called with, in a fraction of a second."""
    parameters = statistics = kept = largest = products = 0

    def conv(
        inputs: tf.Tensor, depth: int, kernel: Tuple[int, int], stride: int = 1, padding: str = 'SAME', **_: Any
    ) -> tf.Tensor:
        nonlocal parameters, kept, largest, products
        batch, height, width, channels = inputs.shape.as_list()
        parameters += kernel[0] * kernel[1] * channels * depth
        if padding == 'VALID':
            height, width = height - kernel[0] + 1, width - kernel[1] + 1
        outputs = tf.zeros([batch, -(-height // stride), -(-width // stride), depth])
        kept += outputs.shape.num_elements()
        products += kernel[0] * kernel[1] * channels * outputs.shape.num_elements()
        largest = max(largest, inputs.shape.num_elements() + outputs.shape.num_elements())
        return outputs

    def norm(inputs: tf.Tensor, scale_initializer: Any = None, *_: Any, **__: Any) -> tf.Tensor:
        nonlocal parameters, statistics
        parameters += int(inputs.shape[-1]) * (1 if scale_initializer is None else 2)
        statistics += int(inputs.shape[-1]) * 2
        return inputs

    # Reversible blocks would need their variables, which are not created here.
    without_blocks = {**options, 'rebuild_activations': False} if 'rebuild_activations' in options else options
    with tf.Graph().as_default() as graph:
        images = tf.zeros([1, height, width, 3])
        NETWORKS[name].build(images, num_classes, True, conv=conv, norm=norm, **without_blocks)
        parameters += sum(int(v.shape.num_elements()) for v in tf.trainable_variables())
        # Constants of paddings and shapes are small.
        kept += sum(o.outputs[0].shape.num_elements() for o in graph.get_operations() if o.type in _KEPT)
    kept = largest if options.get('rebuild_activations') else kept
    return Sizes(parameters, statistics, kept, largest, products)
