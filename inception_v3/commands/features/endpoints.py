"""The layers of a network by name, and their outputs, pooled to a vector per image."""

from typing import Dict, List, Sequence

from console.errors import CommandError
from console.tensorflow_versions import tf
from inception_v3.commands.features import POOL
from inception_v3.weights.patterns import HEAD, Patterns

_POOLS = ('AvgPool', 'MaxPool')
_PRODUCTS = ('Conv2D', 'MatMul')
_MAP, _VECTOR = 4, 2


class LayerError(CommandError):
    """A network has no such layer."""


class Endpoints:
    """The layers of the network in a graph that predicts.

    A layer is a scope of variables, such as `Mixed_6e`, with or without the scope of the network, or a pooling between
    scopes. Its features are the tensors that operations outside of it read, each averaged over the image.

    Args:
      graph: has the network and its variables, and nothing yet that saves or restores them.
    """

    def __init__(self, graph: tf.Graph):
        self._operations = graph.get_operations()
        # Operations that read features are added to the graph.
        self._of_network = {operation.name for operation in self._operations}
        with graph.as_default():
            self._variables = [variable.op.name for variable in tf.global_variables()]
        first = {name.partition('/')[0] for name in self._variables if '/' in name}
        # A network's variables may lie in a scope of its own.
        self._root = f'{first.pop()}/' if len(first) == 1 else ''

    def classifier(self) -> tf.Operation:
        """The last product of the network, whose input is the layer `pool`."""
        head = Patterns(HEAD)
        products = [o for o in self._operations if o.type in _PRODUCTS and head.match(o.name)]
        return products[-1]

    def names(self) -> List[str]:
        """The layers, in the order of the network: the outer scopes, and the poolings between them."""
        scopes = {self._inner(name).partition('/')[0] for name in self._variables}
        names = [POOL]
        for operation in self._operations:
            inner = self._inner(operation.name)
            scope = inner.partition('/')[0]
            is_pool = operation.type in _POOLS and inner == scope
            if (is_pool or scope in scopes) and scope not in names:
                names.append(scope)
        return names

    def features(self, layer: str) -> tf.Tensor:
        """The features of a layer: float32 [batch, features].

        Raises:
          LayerError: there is no such layer; the message lists those that there are.
        """
        found = [self.classifier().inputs[0]] if layer == POOL else self._leaving(layer)
        if not found:
            raise LayerError(
                f'--layer={layer}: the network has no such layer. It has {", ".join(self.names())}; and scopes '
                'inside of these, such as Mixed_5b/Branch_0.'
            )
        return tf.concat([_pooled(tensor) for tensor in found], axis=1)

    def _inner(self, name: str) -> str:
        return name[len(self._root) :] if name.startswith(self._root) else name

    def _leaving(self, layer: str) -> Sequence[tf.Tensor]:
        """The tensors of a scope that operations outside of it read."""
        scope = self._root + self._inner(layer.strip('/'))

        def is_inside(operation: tf.Operation) -> bool:
            return operation.name == scope or operation.name.startswith(f'{scope}/')

        outputs: Dict[str, tf.Tensor] = {}
        for operation in filter(is_inside, self._operations):
            for tensor in operation.outputs:
                readers = [reader for reader in tensor.consumers() if reader.name in self._of_network]
                if _is_activation(tensor) and not all(map(is_inside, readers)):
                    outputs[tensor.name] = tensor
        return [*outputs.values()]


def _is_activation(tensor: tf.Tensor) -> bool:
    """Whether a tensor has values of each image of a batch, whose size is open."""
    return tensor.shape.ndims in (_MAP, _VECTOR) and tensor.shape.as_list()[0] is None and tensor.dtype.is_floating


def _pooled(tensor: tf.Tensor) -> tf.Tensor:
    tensor = tf.cast(tensor, tf.float32)
    return tf.reduce_mean(tensor, [1, 2]) if tensor.shape.ndims == _MAP else tensor
