"""What a preflight reports of the graphs that a TPU would run."""

import traceback
from typing import List, Optional

import tensorflow as tf
from absl import app

from data import records
from inception_v3.config import Config
from inception_v3.model_dir.checkpoints import check_fits
from inception_v3.preflight import tpu_graph, tpu_memory
from inception_v3.preflight.report import Report
from inception_v3.tpu.topology import Topology

_MIB = 1 << 20
_GIB = 1 << 30
_NAMED_AT_MOST = 10


def add(
    report: Report,
    config: Config,
    built: Config,
    tpu: Topology,
    split: str,
    files: Optional[int],
    checkpoint: Optional[str],
) -> None:
    """Builds the graph of a run's training or evaluation, and reports on it.

    Args:
      report: where to.
      config: the run's configuration.
      built: the same, with the folders that the graph is built on.
      tpu: the TPU that the run is for.
      split: the split that the graph reads, which says whether it trains.
      files: record files of the split; None if they are not known, or not needed.
      checkpoint: the path of the one that the run goes on from, if there is one.
    """
    is_training = split == records.TRAIN
    section = 'training' if is_training else 'evaluation'
    batch = config.train_batch_size if is_training else config.eval_batch_size
    # In evaluation on several hosts the first reads everything, and makes the batches of all cores.
    feeding = tpu.hosts if is_training else 1
    per_host = batch // feeding
    alone = '' if feeding == tpu.hosts else '; the first host reads all files and feeds the cores of all hosts'
    report.add(section, 'batch', batch, f'{batch:,} images')
    report.add(section, 'batch_per_host', per_host, f'{per_host:,} images{alone}')
    report.add(section, 'batch_per_core', batch // tpu.cores, f'{batch // tpu.cores:,} images')
    _add_steps(config, is_training, batch, report)
    if files is not None:
        _add_files(section, split, config, files, feeding, report)
    try:
        graph = tpu_graph.build(built, tpu, is_training)
    except Exception as error:
        # Whatever keeps a graph from being built is what the report is for.
        line = tpu_graph.line_of(traceback.extract_tb(error.__traceback__))
        report.error(f'the graph of {section} cannot be built: {str(error) or type(error).__name__} (at {line})')
        return
    core = tpu_graph.on_core(graph)
    _add_infeed(section, graph, tpu, feeding, report)
    if is_training:
        _add_collectives(section, graph, core, report)
    _add_flaws(section, 'unsupported_ops', [*tpu_graph.flaws(graph)], f'none of {len(core):,} on a core', report)
    _add_flaws(section, 'dynamic_shapes', [*tpu_graph.dynamic_shapes(core)], 'none on a core', report)
    activations = tpu_memory.activations(core, is_training)
    _add_memory(section, batch, tpu, tpu_memory.variable_bytes(graph), activations, report)
    if checkpoint:
        with graph.as_default():
            try:
                check_fits(checkpoint)
            except app.UsageError as error:
                report.error(str(error))


def _add_steps(config: Config, is_training: bool, batch: int, report: Report) -> None:
    if is_training:
        per_epoch = config.num_train_images / batch
        epochs = config.train_steps / per_epoch
        report.add('training', 'steps', config.train_steps)
        report.add('training', 'steps_per_epoch', per_epoch, f'{per_epoch:,.2f} for {config.num_train_images:,} images')
        report.add('training', 'epochs', epochs, f'{epochs:,.2f}')
        return
    steps = -(-config.eval_images // batch)
    padding = steps * batch - config.eval_images
    report.add('evaluation', 'steps', steps, f'{steps:,} for {config.eval_images:,} images and {padding:,} of padding')


def _add_files(section: str, split: str, config: Config, files: int, hosts: int, report: Report) -> None:
    fewest, most = files // hosts, -(-files // hosts)
    words = f'{most:,}' if fewest == most else f'{fewest:,} or {most:,}'
    report.add(section, 'files_per_host', [fewest, most], f'{words} of {files:,}')
    try:
        records.check_enough_for(hosts, config.data_dir, split, files)
    except app.UsageError as error:
        report.error(str(error))
        return
    if fewest != most:
        report.warn(
            f'--data_dir={config.data_dir}: {files} {split} files are not shared out equally to {hosts} hosts; the '
            'images of hosts with fewer files are seen more often.'
        )


def _add_infeed(section: str, graph: tf.Graph, tpu: Topology, feeding: int, report: Report) -> None:
    pipelines = tpu_graph.input_pipelines(graph)
    report.add(
        section,
        'input_pipelines',
        pipelines,
        '1, on one host' if pipelines == 1 else f'{pipelines:,}, each on a host of its own',
    )
    if pipelines != feeding:
        report.error(f'{section} has {pipelines} input pipelines for the {feeding} hosts that are to feed the cores.')
    fed = tpu_graph.infeeds(graph)
    if len(fed) != 1 or sum(fed.values()) != tpu.cores:
        kinds = '; '.join(f'{", ".join(infeed.tensors)} to {cores} cores' for infeed, cores in fed.items())
        report.error(f'{section} does not feed every core the same: {kinds or "nothing"}.')
        return
    (infeed,) = fed
    words = ', '.join(infeed.tensors)
    if infeed.bytes is None:
        report.error(f'{section} feeds the cores {words}: XLA needs every size.')
        return
    report.add(section, 'infeed_bytes', infeed.bytes, f'{infeed.bytes:,} bytes per step: {words}', 'infeed of a core')
    of_host = infeed.bytes * tpu.cores // feeding
    report.add(section, 'infeed_bytes_per_host', of_host, f'{of_host:,} bytes per step', 'infeed of a host')


def _add_collectives(section: str, graph: tf.Graph, core: List[tf.Operation], report: Report) -> None:
    sums = tpu_graph.collectives(core)
    variables = len(graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES))
    words = f'{sums.gradients:,} per step for {variables:,} trainable variables'
    report.add(section, 'collectives', sums.gradients, words)
    words = f'{sums.batch_norm:,} per step (--batch_norm)'
    report.add(section, 'batch_norm_collectives', sums.batch_norm, words, 'of batch norm')
    if sums.gradients != variables:
        report.error(
            f'{sums.gradients} sums over the cores for {variables} trainable variables: the gradients of some are not '
            'summed, or twice, and the cores would train apart.'
        )


def _add_flaws(section: str, key: str, found: List[tpu_graph.Flaw], words_for_none: str, report: Report) -> None:
    shown = [flaw._asdict() for flaw in found]
    report.add(section, key, shown, f'{len(found):,}, see the findings' if found else words_for_none)
    for flaw in found[:_NAMED_AT_MOST]:
        report.error(f'{section}: {flaw}.')
    if len(found) > _NAMED_AT_MOST:
        report.error(f'{section}: and {len(found) - _NAMED_AT_MOST} more of the same kind.')


def _add_memory(
    section: str,
    batch: int,
    tpu: Topology,
    variables: tpu_memory.VariableBytes,
    activations: tpu_memory.Activations,
    report: Report,
) -> None:
    place = f'{section}_memory_of_a_core'
    report.add(place, 'parameter_count', variables.parameter_count)
    report.add(place, 'parameter_bytes', variables.parameters, _bytes(variables.parameters), 'parameters')
    if section == 'training':
        report.add(place, 'optimizer_bytes', variables.optimizer, _bytes(variables.optimizer), "optimizer's state")
        report.add(place, 'average_bytes', variables.averages, _bytes(variables.averages), 'averages of weights')
    report.add(place, 'other_bytes', variables.others, _bytes(variables.others), 'moving statistics')
    words = f'{_bytes(activations.padded)}; without padding {_bytes(activations.unpadded)}'
    report.add(place, 'activation_bytes', activations.padded, words, 'activations, estimated')
    total = variables.total + activations.padded
    if not tpu.memory:
        report.add(place, 'total_bytes', total, _bytes(total), 'in all')
        return
    report.add(place, 'total_bytes', total, f'{_bytes(total)}, {total / tpu.memory:.0%} of the memory', 'in all')
    report.add(place, 'memory_bytes', tpu.memory, _bytes(tpu.memory), 'memory')
    if total > tpu.memory:
        flag = f'--{"train" if section == "training" else "eval"}_batch_size'
        words = (
            f'{flag}={batch}: {section} takes an estimated {total / _GIB:.1f} of the {tpu.memory // _GIB} GiB of a core'
        )
        cure = f'A smaller {flag}, more cores or --precision=bfloat16 takes less.'
        if variables.total + activations.unpadded > tpu_memory.HOPELESS * tpu.memory:
            report.error(f'{words}, far more than fits. {cure}')
        else:
            report.warn(f'{words}; it fits only if XLA recomputes more than the estimate supposes. {cure}')


def _bytes(size: int) -> str:
    return f'{size:,} bytes' + (f' ({size / _MIB:,.1f} MiB)' if size >= _MIB else '')
