"""The networks that `--network` names."""

import functools
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Set, Tuple

from compat import tf
from inception_v3.networks import reversible
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


# Height, width and channels of a tensor, without its batch.
Shape = Tuple[int, int, int]


class Sizes(NamedTuple):
    """The numbers of values in a network, from the shapes of its layers.

    Attributes:
      parameters: trainable parameters.
      statistics: moving means and variances of batch normalization.
      kept: values per image that TensorFlow stores from the forward to the backward pass of a training step.
      kept_by_xla: the shapes of those that XLA stores. It recomputes the results of ReLU and of concatenations, but for
        inputs of max pooling, so that it stores about half.
      largest: values per image in the inputs and outputs of the largest layer.
    """

    parameters: int
    statistics: int
    kept: int
    kept_by_xla: Tuple[Shape, ...]
    largest: int


# Operations whose outputs the backward pass reads, besides what is normalized. A ReLU replaces its input: a normalized
# value or a sum.
_WINDOWED = frozenset(['AvgPool', 'MaxPool', 'Pad', 'PadV2'])
_KEPT = _WINDOWED | {'ConcatV2', 'Relu'}


def sizes_of(name: str, height: int, width: int, num_classes: int, options: Mapping[str, Any]) -> Sizes:
    """The sizes of a network with the options that `build` is called with, in a fraction of a second."""
    parameters = statistics = largest = 0
    # What the gradient of a normalization reads: results of convolutions and sums.
    normalized: List[tf.Tensor] = []
    rebuilt: Set[tf.Operation] = set()

    def conv(
        inputs: tf.Tensor, depth: int, kernel: Tuple[int, int], stride: int = 1, padding: str = 'SAME', **_: Any
    ) -> tf.Tensor:
        nonlocal parameters, largest
        batch, height, width, channels = inputs.shape.as_list()
        parameters += kernel[0] * kernel[1] * channels * depth
        if padding == 'VALID':
            height, width = height - kernel[0] + 1, width - kernel[1] + 1
        outputs = tf.zeros([batch, -(-height // stride), -(-width // stride), depth])
        largest = max(largest, inputs.shape.num_elements() + outputs.shape.num_elements())
        return outputs

    def norm(inputs: tf.Tensor, scale_initializer: Any = None, *_: Any, **__: Any) -> tf.Tensor:
        nonlocal parameters, statistics
        parameters += int(inputs.shape[-1]) * (1 if scale_initializer is None else 2)
        statistics += int(inputs.shape[-1]) * 2
        normalized.append(inputs)
        return inputs

    def chain(blocks: Any, x1: tf.Tensor, x2: tf.Tensor, rebuild_activations: bool) -> Tuple[tf.Tensor, tf.Tensor]:
        # Reversible blocks would need their variables, which are not created here.
        before = len(graph.get_operations())
        outputs = reversible.chain(blocks, x1, x2, rebuild_activations=False)
        if rebuild_activations and blocks:
            rebuilt.update(o for o in graph.get_operations()[before:] if o not in [each.op for each in outputs])
            normalized.extend(outputs)
        return outputs

    further = {'chain': chain} if 'rebuild_activations' in options else {}
    with tf.Graph().as_default() as graph:
        images = tf.zeros([1, height, width, 3])
        NETWORKS[name].build(images, num_classes, True, conv=conv, norm=norm, **options, **further)
        parameters += sum(int(v.shape.num_elements()) for v in tf.trainable_variables())
        kept = {o.outputs[0] for o in graph.get_operations() if o.type in _KEPT}.union(normalized)
        by_xla = {o.outputs[0] for o in graph.get_operations() if o.type in _WINDOWED}.union(normalized)
        by_xla |= {o.inputs[0] for o in graph.get_operations() if o.type == 'MaxPool'}
        # Constants of paddings and shapes are small.
        kept, by_xla = ({t for t in each if t.op not in rebuilt and t.shape.rank == 4} for each in (kept, by_xla))
        values = sum(t.shape.num_elements() for t in kept)
        shapes = tuple(sorted((h, w, depth) for _, h, w, depth in (t.shape.as_list() for t in by_xla)))
    return Sizes(parameters, statistics, values, shapes, largest)
