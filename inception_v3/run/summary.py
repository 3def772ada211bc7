"""Texts about a run for its user: the notes at its start, and the summary at its end."""

import datetime
import os
from typing import Callable, Iterator, List, Optional, Tuple

from compat.messages import in_rows, printable, shown
from data.dataset_info import DIGITS_SHOWN, DatasetInfo, is_background
from inception_v3 import class_weights
from inception_v3.config import Config
from inception_v3.model_dir import BEST_FOLDER
from inception_v3.networks.registry import NETWORKS, has_auxiliary_head
from inception_v3.run import batch_norm_advice
from inception_v3.run.evaluations import Evaluation, shows_top_5
from inception_v3.run.memory import sizes_for
from inception_v3.tpu import accelerator, topology

# If an average has more than the first share of the initial values, a decay is suggested that leaves the second share.
_TOO_MUCH, _LITTLE = 0.1, 0.01


def notes_of(config: Config) -> Iterator[str]:
    """Consequences of a run's settings that its user may not expect: emulation, averages and the auxiliary head.

    Each is one line, because the log escapes newlines; the notice of emulated devices has several.
    """
    if config.is_emulated:
        from inception_v3.tpu.emulation import notice

        yield from notice(topology.emulated(str(config.tpu))).splitlines()
    elif config.num_gpus > 1 and not (config.use_tpu or accelerator.on_gpu(config)):
        yield from accelerator.notice(config).splitlines()
    if config.mode == 'eval':
        return
    yield f'batch normalization: {batch_norm_advice.description(config)}'
    # There is no warning about a decay that was chosen, or in a run that is too short for the documented one.
    is_long = initial_share_of_statistics(batch_norm_advice.decay_for(config.replicas), config.train_steps) < _TOO_MUCH
    if is_long and config.batch_norm_decay == Config.batch_norm_decay and batch_norm_advice.decay_warning(config):
        yield f'warning: {batch_norm_advice.decay_warning(config)}'
    yield from (f'warning: {each}' for each in warnings_of(config))
    if config.seed is not None and accelerator.on_gpu(config):
        yield 'on a GPU, --seed repeats data and initial weights, but not the last bits of every sum'
    smallest = NETWORKS[config.network].auxiliary_head_min_size
    if config.auxiliary_head and smallest and not has_auxiliary_head(config):
        yield f'the auxiliary head is left out: it needs images of at least {smallest} x {smallest} pixels'


def initial_share_of_statistics(decay: float, steps: int) -> float:
    """The share of the initial values in the moving statistics of batch normalization after a number of steps."""
    return decay**steps


def initial_share_of_averages(decay: float, steps: int) -> float:
    """The share of the initial weights in the averages of the weights; see `moving_average.update_averages`.

    The decay of step n is (1 + n) / (10 + n), at most the flag's decay, so that this share is small after a few steps.
    """
    share = 1.0
    for step in range(1, steps + 1):
        share *= min(decay, (1 + step) / (10 + step))
        if share < _LITTLE**2:
            break
    return share


def warnings_of(config: Config) -> Iterator[str]:
    """Sentences about a run's sizes: a batch larger than the data set, and averages that are evaluated too early.

    These averages contain more than a tenth of their initial values at the first evaluation.
    """
    if config.train_batch_size > config.num_train_images:
        yield (
            f'--train_batch_size={config.train_batch_size}: the data set has {config.num_train_images:,} training '
            'images, so that each batch has some of them several times. Give a smaller one.'
        )
    last = config.train_steps
    first = config.train_steps_per_eval if config.mode == 'train_and_eval' else last
    averages: List[Tuple[str, str, Callable[[float, int], float]]] = []
    if not config.init_from:
        # With initial weights, the statistics are those of a trained network.
        name = 'the moving mean and variance of batch normalization'
        averages.append(('batch_norm_decay', name, initial_share_of_statistics))
    if config.moving_average:
        averages.append(('moving_average_decay', 'the averages of the weights', initial_share_of_averages))
    for flag, name, share_after in averages:
        decay = getattr(config, flag)
        for steps, when in ((last, 'at the end'), (first, 'at the first evaluation')):
            share = share_after(decay, steps)
            if share > _TOO_MUCH:
                advice = 'more steps, or --moving_average=False'
                if flag == 'batch_norm_decay':
                    advice = f'--{flag}={_LITTLE ** (1 / steps):g} or less, or more steps'
                yield (
                    f'--{flag}={decay:g}: {when}, after {steps:,} steps, {name} would still hold {share:.0%} of their '
                    f'initial values, so evaluation and export would be wrong. Use {advice}.'
                )
                break


def introduction_of(config: Config, data_set: Optional[DatasetInfo]) -> str:
    """The configuration of a run in five or six lines: network, data set, training, device, class weights, folders."""
    parameters = sizes_for(config).parameters
    batch = config.train_batch_size if config.mode != 'eval' else config.eval_batch_size
    epochs = config.train_steps * config.train_batch_size / config.num_train_images
    if config.is_emulated:
        device = f'an emulated TPU with {config.num_shards} cores'
    elif config.use_tpu:
        hosts = '1 host' if topology.hosts_of(config) == 1 else f'{topology.hosts_of(config)} hosts'
        device = f'TPU {config.tpu or config.master}, {config.num_shards} cores, {hosts}'
    else:
        device = accelerator.description(config)
    if config.machines > 1:
        device = f'{device}; worker {config.task_index} of {config.machines} machines'
    size = f'{config.height} x {config.width} pixels, {config.num_classes:,} classes'
    images = f'{config.num_train_images:,} training and {config.num_eval_images:,} validation images'
    data = config.source if config.use_data == 'real' else 'none'
    rows = [
        ('network', f'{config.network}, {parameters:,} parameters, {size}'),
        ('data set', f'{_named(config, data_set)}: {images}'),
        ('run', f'{config.mode}, batches of {batch:,} images, {config.train_steps:,} steps ({_short(epochs)} epochs)'),
        ('device', f'{device}, {config.precision}'),
        *_class_weights(config, data_set),
        ('folders', f'data {data}, results {config.model_dir}, export {config.export_dir or "none"}'),
    ]
    return in_rows(rows)


def _short(epochs: float) -> str:
    """A number of epochs with one decimal; for a trial of few steps, which would be 0.0, with its first digit."""
    return f'{epochs:,.1f}' if epochs >= 0.1 else f'{epochs:.1g}'


def summary_of(
    config: Config,
    data_set: Optional[DatasetInfo],
    evaluation: Optional[Evaluation],
    images_per_second: Optional[float],
    export: Optional[str],
    best: Optional[Evaluation],
    seconds: Optional[float] = None,
    most_accurate: Optional[Evaluation] = None,
) -> str:
    """The summary at the end of a run, a name and a value per line; values of None are left out.

    `evaluation` is the last evaluation, `best` that of the checkpoint in model_dir/best, `export` the new SavedModel's
    folder.
    """
    rows = []
    if evaluation:
        rows.append(('top-1', f'{evaluation.top_1:.2%}'))
        if shows_top_5(config.num_classes):
            rows.append(('top-5', f'{evaluation.top_5:.2%}'))
        expected = f' of {config.eval_images:,}' if evaluation.images != config.eval_images else ''
        words = f'{evaluation.images:,}{expected} images, {evaluation.weights} weights of step {evaluation.step:,}'
        rows.append(('evaluated', words))
    if best:
        folder = os.path.join(str(config.model_dir), BEST_FOLDER)
        rows.append(('best', f'{best.top_1:.2%} top-1 at step {best.step:,}, in {folder}'))
    # With --log_steps, the names of the published log.
    if seconds is not None and config.mode != 'eval':
        rows.append(('Total Train Time', str(datetime.timedelta(seconds=int(seconds)))))
    if most_accurate:
        rows.append(('Max Accuracy', f'{most_accurate.top_1:.2%} at step {most_accurate.step:,}'))
    if images_per_second:
        name = 'training' if seconds is None else 'Avg. Global Rate'
        rows.append((name, f'{images_per_second:,.1f} images/s'))
    rows += [
        ('data set', _named(config, data_set)),
        *_class_weights(config, data_set),
        ('results', str(config.model_dir)),
    ]
    if export:
        rows.append(('SavedModel', export))
    return in_rows(rows)


def _class_weights(config: Config, data_set: Optional[DatasetInfo]) -> List[Tuple[str, str]]:
    if not config.class_weights or config.mode == 'eval':
        return []
    names, weights = data_set.class_names if data_set else [], class_weights.by_label(config)
    # The background has no images.
    labels = range(int(is_background(names[0] if names else '')), len(weights))
    ends = [pick(labels, key=weights.__getitem__) for pick in (min, max)]
    named = dict(enumerate(map(shown, names)))
    words = [f'{weights[label]:.4g} ({named.get(label) or f"class {label}"})' for label in ends]
    return [('class weights', f'{printable(class_weights.given(config))}, {" to ".join(words)}')]


def _named(config: Config, data_set: Optional[DatasetInfo]) -> str:
    if config.use_data == 'fake':
        return 'random images'
    if not data_set:
        return str(config.source)
    return f'{data_set.name}, {data_set.fingerprint[:DIGITS_SHOWN]}' if data_set.fingerprint else data_set.name
