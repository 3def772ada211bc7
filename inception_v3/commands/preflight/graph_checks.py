"""Checks the graphs of a run: that they build, feed every core, sum every gradient, run on a TPU and fit its memory."""

import traceback
from typing import List, Mapping, Optional, Sequence, Tuple

from console.tensorflow_versions import tf
from data import order, records
from data.sources import source_of
from inception_v3.commands.estimate import CoreMemory, core_memory
from inception_v3.commands.preflight import graphs
from inception_v3.commands.preflight.report import Report
from inception_v3.config import Config
from inception_v3.input_pipeline import BATCHES_AHEAD
from inception_v3.run.checkpoints import check_fits
from inception_v3.run.memory import sizes_for
from inception_v3.tpu import slices
from inception_v3.tpu.supported import Flaw, line_of
from inception_v3.tpu.topology import Topology
from inception_v3.weights import beginning
from inception_v3.weights.sources import Source

_GIB = 1 << 30
_NAMED_AT_MOST = 10


def check(
    report: Report,
    config: Config,
    built: Config,
    tpu: Topology,
    split: str,
    files: Optional[int],
    checkpoint: Optional[str],
    evaluated: Sequence[int],
    weights: Optional[Source],
) -> None:
    """Builds the graph that reads a split, that of a run's training or evaluation, and reports on it.

    The graph is built with the temporary folders of `built`. The split has so many files, if their number is known; and
    each host evaluates so many images. The run resumes from the checkpoint, or begins from the weights.
    """
    is_training = split == records.TRAIN
    section, batch = ('training', config.train_batch_size) if is_training else ('evaluation', config.eval_batch_size)
    report.add(section, batch=batch, batch_per_host=batch // tpu.hosts, batch_per_core=batch // tpu.cores)
    if is_training:
        per_epoch = config.num_train_images / config.train_batch_size
        report.add(section, steps=config.train_steps, steps_per_epoch=per_epoch, epochs=config.train_steps / per_epoch)
    steps = config.iterations if is_training else add_evaluation_steps(evaluated, batch, report)
    if files is not None:
        check_files(section, split, config, files, tpu.hosts, report)
    try:
        graph = graphs.build(built, tpu, is_training)
    except Exception as error:
        # The report must name any error that keeps a graph from being built.
        line = line_of(traceback.extract_tb(error.__traceback__))
        report.error(f'the graph of {section} cannot be built: {str(error) or type(error).__name__} (at {line})')
        return
    if is_training and weights:
        check_weights(config, graph, weights, report)
    core = graphs.on_core(graph)
    check_infeed(section, tpu, graphs.input_pipelines(graph), graphs.infeeds(graph), steps, report)
    if is_training:
        check_loop(config, tpu, report)
        variables = len(graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES))
        check_collectives(graphs.collectives(core), variables, report)
    add_flaws(section, 'unsupported_ops', [*graphs.flaws(graph, core)], report)
    add_flaws(section, 'dynamic_shapes', [*graphs.dynamic_shapes(core)], report)
    check_memory(section, batch, tpu, core_memory(config, batch // tpu.cores, is_training), report)
    with graph.as_default(), report.noting_errors():
        if checkpoint:
            check_fits(checkpoint)


def check_weights(config: Config, graph: tf.Graph, weights: Source, report: Report) -> None:
    """Checks that the weights to begin from fit the network, and reports what would be left new."""
    network = {v.op.name: v.shape.as_list() for v in graph.get_collection(tf.GraphKeys.MODEL_VARIABLES)}
    names = {variable.op.name for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)}
    with report.noting_errors():
        begun = beginning.plan(network, names - network.keys(), weights, config)
        report.add('weights', beginning.origin_text(begun, weights, config), init_from=weights.path)
        for fate, text in beginning.account(begun).items():
            report.add('weights', text, **{fate.replace(' ', '_'): [row.name for row in begun.of(fate)]})
        for text in beginning.warnings_of(begun, weights, config):
            report.warn(f'{text}.')


def add_evaluation_steps(images: Sequence[int], batch: int, report: Report) -> int:
    """Reports the steps of an evaluation with these images on each host, and returns them."""
    steps, total = slices.steps_for(images, batch), sum(images)
    report.add('evaluation', f'{total:,} images and {steps * batch - total:,} of padding', steps=steps)
    report.add('evaluation', 'the largest share gives the steps', images_per_host=[min(images), max(images)])
    least = -(-total // batch)
    if steps > least:
        report.warn(
            f'evaluation: {steps:,} steps, where {least:,} would do if every host had as many images. To shorten it, '
            f'write the data set to a multiple of {len(images)} validation files of equal size.'
        )
    return steps


def check_loop(config: Config, tpu: Topology, report: Report) -> None:
    """Checks that checkpoints can be as frequent as `save_checkpoints_secs`: none is written inside a loop."""
    if not tpu.peak:
        return
    # A multiplication and an addition, forwards and for the gradients of inputs and of weights.
    operations = 6 * sizes_for(config).products * config.train_batch_size // tpu.cores
    seconds = operations / tpu.peak
    note = f"{operations:.3g} operations at a core's peak; expect a multiple"
    report.add('training', note, least_seconds_per_step=seconds)
    steps = min(config.iterations, config.train_steps)
    if config.mode == 'train_and_eval':
        steps = min(steps, config.train_steps_per_eval)
    at_most = max(1, int(config.save_checkpoints_secs / seconds))
    # With 0, none is written by time.
    if 0 < config.save_checkpoints_secs < steps * seconds:
        report.error(
            f'--iterations={config.iterations}: a loop of {steps:,} steps takes at least {steps * seconds:,.0f} s, and '
            f'no checkpoint is written inside a loop, so --save_checkpoints_secs={config.save_checkpoints_secs} is '
            f'exceeded and a lost node costs all of it. Set --iterations to {min(100, at_most)}, and never above '
            f'{at_most}.'
        )


def check_files(section: str, split: str, config: Config, files: int, hosts: int, report: Report) -> None:
    """Checks that every host has files, or records, and as many as the others."""
    if split == records.TRAIN and config.seed is not None:
        lanes = order.lanes_for(config.train_batch_size, hosts, config.num_train_images)
        report.add(section, f'of {lanes:,}, of the records in {files:,} files', lanes_per_host=lanes // hosts)
        return
    fewest, most = files // hosts, -(-files // hosts)
    report.add(section, f'of {files:,}', files_per_host=[fewest, most])
    flag = source_of(config).flag(split)
    if split != records.TRAIN:
        if not fewest:
            report.warn(
                f'{flag}: {files} {split} files for {hosts} hosts: {hosts - files} hosts have no images to evaluate, '
                'and feed padding.'
            )
        return
    with report.noting_errors():
        records.check_enough_for(hosts, flag, split, files)
        if fewest != most:
            report.warn(
                f'{flag}: {files} {split} files cannot be divided equally among {hosts} hosts; the images of hosts '
                'with fewer files are used more often.'
            )


def check_infeed(
    section: str, tpu: Topology, pipelines: int, fed: Mapping[graphs.Infeed, int], steps: int, report: Report
) -> None:
    """Checks that each host has an input pipeline, and that every core is fed the same tensors."""
    report.add(section, 'each on a host of its own', input_pipelines=pipelines)
    if pipelines != tpu.hosts:
        report.error(f'{section} has {pipelines} input pipelines, but {tpu.hosts} hosts feed the cores.')
    if len(fed) != 1 or sum(fed.values()) != tpu.cores:
        kinds = '; '.join(f'{", ".join(infeed.tensors)} to {cores} cores' for infeed, cores in fed.items())
        report.error(f'{section} does not feed every core the same tensors: {kinds or "nothing"}.')
        return
    ((tensors, size),) = fed
    if size is None:
        report.error(f'{section} feeds the cores {", ".join(tensors)}: XLA needs static shapes.')
        return
    of_host = size * tpu.cores_per_host
    report.add(section, f'each step: {", ".join(tensors)}', infeed_bytes=size)
    report.add(section, infeed_bytes_per_host=of_host)
    if section == 'evaluation':
        report.add(section, infeed_bytes_per_evaluation=steps * of_host)
    # A batch for each core, and those of the pipeline: prefetched ones, and one that is being filled.
    report.add(section, 'at least', batch_bytes_of_host=(tpu.cores_per_host + BATCHES_AHEAD + 1) * size)


def check_collectives(sums: Tuple[int, int], variables: int, report: Report) -> None:
    """Checks that the gradient of each variable is summed over the cores once; `sums` is from `graphs.collectives`."""
    gradients, batch_norm = sums
    report.add('training', f'for {variables:,} trainable variables', collectives=gradients)
    report.add('training', 'for --batch_norm', batch_norm_collectives=batch_norm)
    if gradients != variables:
        report.error(
            f'{gradients} sums over the cores for {variables} trainable variables: some gradients are not summed, or '
            'are summed twice, so the weights of the cores would diverge.'
        )


def add_flaws(section: str, kind: str, found: List[Flaw], report: Report) -> None:
    """Reports operations that a TPU cannot run as errors; the first ten by name."""
    report.add(section, '', **{kind: [flaw._asdict() for flaw in found]})
    for flaw in found[:_NAMED_AT_MOST]:
        report.error(f'{section}: {flaw}.')
    if len(found) > _NAMED_AT_MOST:
        report.error(f'{section}: and {len(found) - _NAMED_AT_MOST} more of the same kind.')


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
            f'{flag}={batch}: {section} takes an estimated {memory.total / _GIB:.1f} of the {tpu.memory // _GIB} GiB '
            f'of a core, {memory.total / tpu.memory:.0%}. To use less memory, decrease {flag}, use more cores, or set '
            '--precision=bfloat16.'
        )
