"""Builds the graphs that a TPU runs, with TPUEstimator and without a TPU, and inspects them."""

import collections
import contextlib
import gc
from typing import Any, Callable, Counter, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.estimator import arguments_of
from inception_v3.input_pipeline import InputPipeline
from inception_v3.tpu import slices
from inception_v3.tpu.emulation import fixed_topology
from inception_v3.tpu.supported import Flaw, python_flaws, unsupported
from inception_v3.tpu.topology import Topology

# Attributes that mark every operation in the cores' computation, and those of them that XLA runs on the host.
_ON_CORE = '_tpu_replicate'
_OUTSIDE = '_xla_outside_compilation'
# A placeholder for the address of the TPU; nothing connects to it.
_ANY_ADDRESS = 'grpc://127.0.0.1:8470'


class Infeed(NamedTuple):
    """The tensors that one core receives in a step, such as 'float32 [128, 299, 299, 3]', and their bytes."""

    tensors: Tuple[str, ...]
    bytes: int


class _BuiltError(Exception):
    """Raised when a graph is complete, to stop TPUEstimator before it starts a session."""


class _Stop(tf.estimator.SessionRunHook):
    def begin(self) -> None:
        self.graph = tf.get_default_graph()
        raise _BuiltError


def build(config: Config, topology: Topology, is_training: bool) -> tf.Graph:
    """Builds the graph of training or of evaluation, as a run on a TPU of this topology does.

    For an emulated TPU, it is the graph of TPUEstimator before its cores are emulated. Data files are listed, not read.
    """
    stop = _Stop()
    # With `writes`, TPUEstimator would write the graph for TensorBoard: hundreds of megabytes for a large slice.
    arguments = arguments_of(config, _ANY_ADDRESS, writes=False)
    with fixed_topology(topology), _without_collection(), contextlib.suppress(_BuiltError):
        estimator = tf.estimator.tpu.TPUEstimator(**arguments)
        slices.evaluate_on_all_hosts(estimator)
        input_fn = _input_fn(InputPipeline(is_training, config))
        if is_training:
            estimator.train(input_fn, hooks=[stop], max_steps=1)
        else:
            estimator.evaluate(input_fn, hooks=[stop], steps=1)
    return stop.graph


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pauses Python's collection of garbage, which searches a growing graph again and again, and finds nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _input_fn(pipeline: InputPipeline) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
    """The pipelines of the first and of the last host; the hosts between them share the first host's.

    Only the index of the host differs between pipelines, and each takes a quarter of a second to build. A batch of
    unknown shape raises an error that is clearer than TPUEstimator's.
    """
    of_first: List[tf.data.Dataset] = []

    def input_fn(params: Dict[str, Any]) -> tf.data.Dataset:
        _, host, hosts, _ = params['context'].current_input_fn_deployment()
        if 0 < host < hosts - 1:
            return of_first[0]
        dataset = pipeline(params)
        for shape in tf.nest.flatten(tf.data.get_output_shapes(dataset)):
            if not shape.is_fully_defined():
                raise ValueError(f'the input pipeline yields batches of shape {shape}; XLA needs static shapes')
        of_first.append(dataset)
        return dataset

    return input_fn


def on_core(graph: tf.Graph) -> List[tf.Operation]:
    """Returns the operations that run on each core."""
    return [o for o in graph.get_operations() if _has(o, _ON_CORE) and not _has(o, _OUTSIDE)]


def _has(operation: tf.Operation, attribute: str) -> bool:
    try:
        operation.get_attr(attribute)
    except ValueError:
        return False
    return True


def infeeds(graph: tf.Graph) -> Counter[Infeed]:
    """Counts the cores that receive each kind of infeed in a step."""
    found: Counter[Infeed] = collections.Counter()
    for operation in graph.get_operations():
        if operation.type == 'InfeedEnqueueTuple':
            inputs = [*operation.inputs]
            # `_input_fn` refuses batches of unknown shape.
            size = sum(t.shape.num_elements() * t.dtype.size for t in inputs)
            found[Infeed(tuple(f'{t.dtype.name} {t.shape.as_list()}' for t in inputs), size)] += 1
    return found


def input_pipelines(graph: tf.Graph) -> int:
    """Counts the input pipelines; each runs on a host of its own."""
    return sum(operation.type == 'IteratorV2' for operation in graph.get_operations())


def collectives(core: Iterable[tf.Operation]) -> Tuple[int, int]:
    """Counts the sums over the cores in a step: of gradients, and of batch normalization."""
    names = [operation.name for operation in core if operation.type == 'CrossReplicaSum']
    batch_norm = sum('/BatchNorm' in name for name in names)
    return len(names) - batch_norm, batch_norm


def flaws(graph: tf.Graph, core: Sequence[tf.Operation]) -> Iterator[Flaw]:
    """Yields the operations that a TPU's cores or hosts cannot run, including those in the functions of pipelines."""
    yield from unsupported(core)
    yield from python_flaws(graph, besides=core)
