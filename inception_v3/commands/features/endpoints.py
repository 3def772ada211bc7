"""The layers of a network by name, and their outputs, pooled to a vector per image."""

from typing import List

from console.errors import CommandError
from console.tensorflow_versions import tf
from inception_v3.commands.features import POOL
from inception_v3.weights.patterns import HEAD, Patterns

_MAP, _VECTOR = 4, 2


class Endpoints:
    """The layers of the network in a graph that predicts.

    A layer is a scope of variables, such as `Mixed_6e`, with or without the scope of the network, or a pooling between
    scopes. Its features are the tensors that operations outside of it read, each averaged over the image.
    """

    def __init__(self, graph: tf.Graph):
        # Operations that read features are added to the graph later.
        self._operations = {operation.name: operation for operation in graph.get_operations()}
        with graph.as_default():
            variables = [variable.op.name for variable in tf.global_variables()]
        first = {name.partition('/')[0] for name in variables if '/' in name}
        # A network's variables may lie in a scope of its own.
        self._root = f'{first.pop()}/' if len(first) == 1 else ''
        self._scopes = {self._inner(name).partition('/')[0] for name in variables}

    def classifier(self) -> tf.Operation:
        """The last product of the network, whose input is the layer `pool`."""
        head = Patterns(HEAD)
        return [o for o in self._operations.values() if o.type in ('Conv2D', 'MatMul') and head.match(o.name)][-1]

    def names(self) -> List[str]:
        """The layers, in the order of the network: the outer scopes, and the poolings between them."""
        names = [POOL]
        for name, operation in self._operations.items():
            inner = self._inner(name)
            scope = inner.partition('/')[0]
            is_pool = operation.type in ('AvgPool', 'MaxPool') and inner == scope
            if (is_pool or scope in self._scopes) and scope not in names:
                names.append(scope)
        return names

    def features(self, layer: str) -> tf.Tensor:
        """The features of a layer: float32 [batch, features]. CommandError lists the layers if there is no such one."""
        scope = self._root + self._inner(layer.strip('/'))
        inside = [name for name in self._operations if name == scope or name.startswith(f'{scope}/')]
        found = [self.classifier().inputs[0]] if layer == POOL else []
        for tensor in (tensor for name in inside if layer != POOL for tensor in self._operations[name].outputs):
            readers = {reader.name for reader in tensor.consumers()} & self._operations.keys()
            # Values of each image of a batch, whose size is open.
            is_activation = tensor.shape.ndims in (_MAP, _VECTOR) and tensor.shape.as_list()[0] is None
            if is_activation and tensor.dtype.is_floating and not readers <= {*inside}:
                found.append(tensor)
        if not found:
            raise CommandError(
                f'--layer={layer}: the network has no such layer. It has {", ".join(self.names())}; and scopes '
                'inside of these, such as Mixed_5b/Branch_0.'
            )
        floats = [tf.cast(tensor, tf.float32) for tensor in found]
        return tf.concat([tf.reduce_mean(t, [1, 2]) if t.shape.ndims == _MAP else t for t in floats], axis=1)

    def _inner(self, name: str) -> str:
        return name[len(self._root) :] if name.startswith(self._root) else name
