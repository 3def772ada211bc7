"""Builds the graphs that a TPU runs, without a TPU, and checks that they run there and fit its memory.

It also compiles a training step with XLA for this CPU: an operation that fails to compile here also fails on a TPU.
"""

import collections
import contextlib
import dataclasses
import gc
import os
import time
import traceback
from typing import Any, Callable, Counter, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from tensorflow.python.compiler.xla import xla

from compat import tf
from data import order, records
from inception_v3 import distribution
from inception_v3.config import Config
from inception_v3.estimator import arguments_of
from inception_v3.input_pipeline import InputPipeline
from inception_v3.local_estimator import ReplicatedEstimator
from inception_v3.model_dir import check_fits_graph
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.memory import StepMemory, evaluation_memory, training_memory
from inception_v3.tpu import slices
from inception_v3.tpu.emulation import fixed_topology
from inception_v3.tpu.supported import Flaw, line_of, python_flaws, unsupported
from inception_v3.tpu.topology import GIB, Topology
from tools.estimate import CoreMemory, core_memory
from tools.preflight.report import Report

# Attributes that mark operations of the cores' computation, and among these the ones that XLA runs on the host.
_ON_CORE = '_tpu_replicate'
_OUTSIDE = '_xla_outside_compilation'
# A placeholder for the address of the TPU; nothing connects to it.
_ANY_ADDRESS = 'grpc://127.0.0.1:8470'
# With XLA's default optimization, compiling the network at 299 pixels for a CPU takes far too long.
_FAST_COMPILATION = '--xla_backend_optimization_level=0'
# Images of the compiled step. One is too few: a last feature map of one pixel would give batch normalization a variance
# of 0.
COMPILED_BATCH = 2
# The most replicas of a machine in the graph of a run on GPUs: each takes seconds to build, and all are alike.
_REPLICAS_AT_MOST = 2


def check(
    report: Report,
    config: Config,
    built: Config,
    tpu: Topology,
    split: str,
    files: Optional[int],
    checkpoint: Optional[str],
    evaluated: Sequence[int],
) -> None:
    """Builds the graph that reads a split, of training or evaluation, and reports on it.

    The graph is built with the temporary folders of `built`. `files` is the number of files of the split, if it is
    known, and `evaluated` has the images that each host evaluates. The run may resume from a checkpoint.
    """
    is_training = split == records.TRAIN
    section, batch = ('training', config.train_batch_size) if is_training else ('evaluation', config.eval_batch_size)
    of = ('host', 'core') if config.use_tpu else ('machine', 'gpu')
    batches = {f'batch_per_{name}': batch // count for name, count in zip(of, (tpu.hosts, tpu.cores))}
    report.add(section, '', batch=batch, **batches)
    if is_training:
        per_epoch = config.num_train_images / config.train_batch_size
        report.add(section, steps=config.train_steps, steps_per_epoch=per_epoch, epochs=config.train_steps / per_epoch)
    else:
        add_evaluation_steps(evaluated, batch, report)
    if files is not None:
        check_shares(section, split, config, files, tpu.hosts, report)
    try:
        graph = build(built, tpu, is_training)
    except Exception as error:
        # The report must name any error that keeps a graph from being built.
        line = line_of(traceback.extract_tb(error.__traceback__))
        report.error(f'the graph of {section} cannot be built: {str(error) or type(error).__name__} (at {line})')
        return
    if config.use_tpu:
        _report_core(report, config, tpu, section, graph)
        check_memory(section, batch, tpu, core_memory(config, batch // tpu.cores, is_training), report)
    else:
        _report_replicas(report, config, section, graph)
    with graph.as_default(), report.noting_errors():
        if checkpoint:
            check_fits_graph(checkpoint)


def _report_core(report: Report, config: Config, tpu: Topology, section: str, graph: tf.Graph) -> None:
    """Reports on the graph of a TPU."""
    core = on_core(graph)
    pipelines = sum(operation.type == 'IteratorV2' for operation in graph.get_operations())
    report.add(section, 'each on a host of its own', input_pipelines=pipelines)
    for tensors, size in infeeds(graph):
        report.add(section, f'each step: {", ".join(tensors)}', infeed_bytes=size)
        report.add(section, infeed_bytes_per_host=size * tpu.cores_per_host)
    if section == 'training':
        variables = len(graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES))
        gradients, batch_norm = collectives(core)
        report.add('training', f'for {variables:,} trainable variables', collectives=gradients)
        report.add('training', 'for --batch_norm', batch_norm_collectives=batch_norm)
    found = [*flaws(graph, core)]
    report.add(section, '', unsupported_ops=[flaw._asdict() for flaw in found])
    report.errors += [f'{section}: {flaw}.' for flaw in found]


def _report_replicas(report: Report, config: Config, section: str, graph: tf.Graph) -> None:
    """Reports on the graph of one machine's replicas."""
    built = _with_few_replicas(config)
    note = f'built with {built.num_gpus} of the {config.num_gpus} replicas of a machine, which are alike'
    report.add(section, note if built != config else '', operations=len(graph.get_operations()))
    is_training = section == 'training'
    memory = replica_memory(config, is_training)
    images = (config.train_batch_size if is_training else config.eval_batch_size) // config.replicas
    place = f'{section}_memory_of_a_gpu'
    report.add(place, "a replica's; with what updates them" if is_training else '', variable_bytes=memory.variables)
    report.add(place, f'of {images:,} images', activation_bytes=memory.per_image * images)
    report.add(place, 'estimated, as measured on CPUs', total_bytes=memory.of(images))


def replica_memory(config: Config, is_training: bool) -> StepMemory:
    """The estimated memory of a step on the device of one replica, in a run without a TPU.

    The estimate is that for a CPU; it was not measured on a GPU.
    """
    each = {name: getattr(config, name) // config.replicas for name in ('train_batch_size', 'eval_batch_size')}
    alone = dataclasses.replace(
        config, num_gpus=1, worker_hosts='', task_index=None, batch_norm_group_size=0, max_bad_records=0, **each
    )
    return training_memory(alone) if is_training else evaluation_memory(alone)


def _with_few_replicas(config: Config) -> Config:
    """The configuration of a run on GPUs with at most two replicas on each machine, of the same size."""
    few = min(config.num_gpus, _REPLICAS_AT_MOST)
    batches = {name: getattr(config, name) // config.num_gpus * few for name in ('train_batch_size', 'eval_batch_size')}
    group = config.batch_norm_group_size if few == config.num_gpus else min(config.batch_norm_group_size, few)
    return dataclasses.replace(config, num_gpus=few, batch_norm_group_size=group, **batches)


def add_evaluation_steps(images: Sequence[int], batch: int, report: Report) -> None:
    """Reports the steps of an evaluation with these images on each host."""
    steps, total = slices.steps_for(images, batch), sum(images)
    report.add('evaluation', f'{total:,} images and {steps * batch - total:,} of padding', steps=steps)
    report.add('evaluation', 'the largest share gives the steps', images_per_host=[min(images), max(images)])
    least = -(-total // batch)
    if steps > least:
        report.warn(
            f'evaluation: {steps:,} steps, where {least:,} would do if every host had as many images. To shorten it, '
            f'write the data set to a multiple of {len(images)} validation files of equal size.'
        )


def check_shares(section: str, split: str, config: Config, files: int, hosts: int, report: Report) -> None:
    """Checks that every host has files, or records, and as many as the others."""
    if split == records.TRAIN and config.seed is not None:
        lanes = order.lanes_for(config.train_batch_size, hosts, config.num_train_images)
        report.add(section, f'of {lanes:,}, of the records in {files:,} files', lanes_per_host=lanes // hosts)
        return
    fewest, most = files // hosts, -(-files // hosts)
    report.add(section, f'of {files:,}', files_per_host=[fewest, most])
    flag = config.source.flag(split)
    if split != records.TRAIN:
        return
    with report.noting_errors():
        records.check_enough_for(hosts, flag, split, files)
        if fewest != most:
            report.warn(
                f'{flag}: {files} {split} files cannot be divided equally among {hosts} hosts; the images of hosts '
                'with fewer files are used more often.'
            )


def check_memory(section: str, batch: int, tpu: Topology, memory: CoreMemory, report: Report) -> None:
    """Checks that a step's variables and activations fit the memory of a core."""
    place = f'{section}_memory_of_a_core'
    report.add(place, parameter_count=memory.parameter_count, parameter_bytes=memory.parameters)
    if section == 'training':
        report.add(place, optimizer_bytes=memory.optimizer, average_bytes=memory.averages)
    report.add(place, 'moving statistics', other_bytes=memory.others)
    report.add(place, f'estimated; {memory.unpadded:,} without padding', activation_bytes=memory.activations)
    if not tpu.memory:
        report.add(place, total_bytes=memory.total)
        return
    report.add(place, f'{memory.total / tpu.memory:.0%} of the memory', total_bytes=memory.total)
    report.add(place, memory_bytes=tpu.memory)
    if memory.total > tpu.memory:
        flag = f'--{"train" if section == "training" else "eval"}_batch_size'
        report.error(
            f'{flag}={batch}: {section} takes an estimated {memory.total / GIB:.1f} of the {tpu.memory // GIB} GiB '
            f'of a core, {memory.total / tpu.memory:.0%}. To use less memory, decrease {flag}, use more cores, or set '
            '--precision=bfloat16.'
        )


class _BuiltError(Exception):
    """Raised when a graph is complete, to stop TPUEstimator before it starts a session."""


class _Stop(tf.estimator.SessionRunHook):
    def begin(self) -> None:
        self.graph = tf.get_default_graph()
        raise _BuiltError


def build(config: Config, topology: Topology, is_training: bool) -> tf.Graph:
    """Builds the graph of training or of evaluation, as a run on a TPU of this topology does, or on GPUs.

    For an emulated TPU, it is the graph of TPUEstimator before its cores are emulated. For GPUs, it is that of one
    machine, for devices of the CPU, and with at most two replicas. Data files are listed, not read.
    """
    stop = _Stop()
    with _without_collection(), contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(_BuiltError))
        if config.use_tpu:
            arguments = arguments_of(config, _ANY_ADDRESS)
            stack.enter_context(fixed_topology(topology))
            estimator = tf.estimator.tpu.TPUEstimator(**arguments)
            slices.evaluate_on_all_hosts(estimator)
            input_fn = _input_fn(InputPipeline(is_training, config))
        else:
            config = dataclasses.replace(_with_few_replicas(config), accelerator='cpu')
            strategy = distribution.strategy_of(config)
            estimator = ReplicatedEstimator(strategy, **arguments_of(config, ''))
            input_fn = InputPipeline(is_training, config)
        if is_training:
            estimator.train(input_fn, hooks=[stop], max_steps=1)
        else:
            estimator.evaluate(input_fn, hooks=[stop], steps=1)
    return stop.graph


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pauses Python's garbage collection, which would repeatedly search the growing graph and find nothing."""
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


def infeeds(graph: tf.Graph) -> Counter[Tuple[Tuple[str, ...], int]]:
    """Counts the cores by the tensors that each receives in a step, such as 'float32 [128, 299, 299, 3]', and bytes."""
    found: Counter[Tuple[Tuple[str, ...], int]] = collections.Counter()
    for operation in graph.get_operations():
        if operation.type == 'InfeedEnqueueTuple':
            inputs = [*operation.inputs]
            # `_input_fn` refuses batches of unknown shape.
            size = sum(t.shape.num_elements() * t.dtype.size for t in inputs)
            found[tuple(f'{t.dtype.name} {t.shape.as_list()}' for t in inputs), size] += 1
    return found


def collectives(core: Iterable[tf.Operation]) -> Tuple[int, int]:
    """Counts the sums over the cores in a step: of gradients, and of batch normalization."""
    names = [operation.name for operation in core if operation.type == 'CrossReplicaSum']
    batch_norm = sum('/BatchNorm' in name for name in names)
    return len(names) - batch_norm, batch_norm


def flaws(graph: tf.Graph, core: Sequence[tf.Operation]) -> Iterator[Flaw]:
    """Yields the operations that a TPU's cores or hosts cannot run, including those in the functions of pipelines."""
    yield from unsupported(core)
    yield from python_flaws(graph, besides=core)


def compile_fast() -> None:
    """Makes XLA compile without optimization. Call it before the process's first compilation."""
    os.environ['XLA_FLAGS'] = f'{_FAST_COMPILATION} {os.environ.get("XLA_FLAGS", "")}'


def run_compiled(config: Config) -> Tuple[float, float]:
    """Compiles the training step of one core, without sums over the cores, and runs it on random images.

    Returns its loss, and the seconds for compiling and running.

    Raises:
      tf.errors.OpError: XLA cannot compile the step; the message names the operations.
    """
    config = dataclasses.replace(
        config,
        use_tpu=False,
        tpu=None,
        master='',
        train_batch_size=COMPILED_BATCH,
        batch_norm_group_size=0,
        # The host call does not run on a core.
        skip_host_call=True,
    )
    start = time.monotonic()
    draw = np.random.RandomState(0)
    shape = [COMPILED_BATCH, config.height, config.width, 3]
    images = draw.uniform(-1, 1, [*shape[1:], COMPILED_BATCH] if config.transpose_enabled else shape)
    labels = draw.randint(config.num_classes, size=COMPILED_BATCH)

    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        spec = inception_model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, {'config': config})
        with tf.control_dependencies([spec.train_op]):
            return tf.identity(spec.loss)

    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope(tf.get_variable_scope(), use_resource=True):
            tf.train.create_global_step()
        dtype = tf.as_dtype(config.precision)
        (loss,) = xla.compile(step, [tf.constant(images, dtype), tf.constant(labels, tf.int32)])
        session.run(tf.global_variables_initializer())
        value = float(session.run(loss))
    return value, time.monotonic() - start
