"""The numbers of values in a network, from the shapes of its layers."""

from typing import Any, List, Mapping, NamedTuple, Set, Tuple

from compat import tf
from inception_v3.networks import reversible
from inception_v3.networks.registry import Network

# Height, width and channels of a tensor, without its batch.
Shape = Tuple[int, int, int]


class Sizes(NamedTuple):
    """The numbers of values in a network, from the shapes of its layers.

    Attributes:
      parameters: trainable parameters.
      statistics: moving means and variances of batch normalization.
      kept: values per image that TensorFlow stores from the forward to the backward pass of a training step.
      kept_by_xla: the shapes of the tensors that XLA stores. It recomputes the results of ReLU and of concatenations,
        except inputs of max pooling, so it stores about half as much.
      largest: values per image in the inputs and outputs of the largest layer.
    """

    parameters: int
    statistics: int
    kept: int
    kept_by_xla: Tuple[Shape, ...]
    largest: int


# Operations whose outputs the backward pass reads, besides the inputs of normalizations. A ReLU replaces its input: a
# normalized value or a sum.
_WINDOWED = frozenset(['AvgPool', 'MaxPool', 'Pad', 'PadV2'])
_KEPT = _WINDOWED | {'ConcatV2', 'Relu'}


def sizes_of(network: Network, height: int, width: int, num_classes: int, options: Mapping[str, Any]) -> Sizes:
    """The sizes of a network with the options that `build` is called with, in a fraction of a second."""
    parameters = statistics = largest = 0
    # The tensors that the gradient of a normalization reads: results of convolutions and sums.
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
        network.build(images, num_classes, True, conv=conv, norm=norm, **options, **further)
        parameters += sum(int(v.shape.num_elements()) for v in tf.trainable_variables())
        kept = {o.outputs[0] for o in graph.get_operations() if o.type in _KEPT}.union(normalized)
        by_xla = {o.outputs[0] for o in graph.get_operations() if o.type in _WINDOWED}.union(normalized)
        by_xla |= {o.inputs[0] for o in graph.get_operations() if o.type == 'MaxPool'}
        # Constants of paddings and shapes are small.
        kept, by_xla = ({t for t in each if t.op not in rebuilt and t.shape.rank == 4} for each in (kept, by_xla))
        values = sum(t.shape.num_elements() for t in kept)
        shapes = tuple(sorted((h, w, depth) for _, h, w, depth in (t.shape.as_list() for t in by_xla)))
    return Sizes(parameters, statistics, values, shapes, largest)
