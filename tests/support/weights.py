"""Weights of narrow networks, with different values for every variable."""

import functools
import io
import tracemalloc
from typing import Any, Callable, Dict, Sequence, Tuple

import h5py
import numpy as np

from tools.weights import architecture, keras_files
from tools.weights.architecture import Architecture, variables_of
from tools.weights.foreign import OURS, Weights

# Layers have 16 to 44 channels.
NARROW = 0.1
CLASSES = 5


def value_of(name: str, shape: Sequence[int]) -> np.ndarray:
    """A value of a variable, float64, seeded by its name; kernels have the spread of He et al."""
    random = np.random.RandomState(sum(name.encode()))
    if name.endswith('weights'):
        return random.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape)
    return random.uniform(0.5, 1.5, shape) if name.endswith(('variance', 'gamma')) else random.normal(0, 0.1, shape)


def values_of(network: Architecture, classes: int) -> Dict[str, np.ndarray]:
    """A value for each variable of a network."""
    layers = [layer._replace(shape=(*layer.shape[:3], layer.shape[3] or classes)) for layer in network.layers]
    shapes = [variables_of(layer, network.has_scales) for layer in layers]
    return {name: value_of(name, shape).astype(np.float32) for own in shapes for name, shape in own.items()}


@functools.lru_cache()
def narrow() -> Weights:
    """Inception v3 with few channels."""
    network = architecture.inception(NARROW)
    return Weights('a run', OURS, network, values_of(network, CLASSES), 'inception', depth_multiplier=NARROW)


@functools.lru_cache()
def _keras_file(classes: int) -> bytes:
    network = narrow().architecture
    return keras_files.write(network.of(auxiliary_head=False), values_of(network, classes))


def keras_file(change: Callable[[h5py.File], None] = lambda file: None, classes: int = CLASSES) -> bytes:
    """A Keras file of the narrow network, after a change."""
    content = io.BytesIO(_keras_file(classes))
    with h5py.File(content, 'r+') as file:
        change(file)
    return content.getvalue()


def peak_of(call: Callable[[], Any]) -> Tuple[int, Any]:
    """The bytes that a call allocates at its peak, and its result."""
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()
