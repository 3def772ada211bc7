"""An estimate of the memory that a run needs on this machine, and a check that it fits, before a graph is built."""

import dataclasses
import functools
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence

from console.log import logger
from console.tensorflow_versions import tf
from data import records, remote
from data.sources import source_of
from inception_v3.config import Config, ConfigError
from inception_v3.input.ordered_records import group_for
from inception_v3.model_fn import network_options
from inception_v3.networks.registry import NETWORKS, Sizes, sizes_of
from inception_v3.run.memory.machine import available_memory
from inception_v3.tpu import accelerator, topology

_FLOAT = 4
# Copies of the weights: the weights themselves, and the optimizer's state; their gradients come in addition.
_COPIES = {'sgd': 1, 'momentum': 2, 'RMS': 3}
# Batches of images in memory: one in use, two ahead, one being filled (see `InputPipeline.transfer`).
_BATCHES = 4
# Groups of images in memory that are tried together, with a seed and `max_bad_records`.
_GROUPS = 3
# Share of the activations that are certainly in memory at the same time.
_HELD = 0.85
# Bytes of a place in TensorFlow's shuffle buffers, which are allocated at once.
_PLACE = 24
# Suggested values leave this share of the memory free, because the needs are the least possible.
_SPARE = 0.5
# The largest measured ratio of a training step's peak to its estimate (docs/known-behaviour.md).
_PEAK = 1.6
_UNITS = ((1 << 40, 'TiB'), (1 << 30, 'GiB'), (1 << 20, 'MiB'))


class Need(NamedTuple):
    """Bytes that a step needs: those of the variables, and those of each image in a batch."""

    variables: int
    per_image: int

    def of(self, batch_size: int) -> int:
        """Bytes of a step of `batch_size` images."""
        return self.variables + self.per_image * batch_size


@functools.lru_cache(maxsize=4)
def sizes_for(config: Config) -> Sizes:
    """The sizes of a run's network."""
    return sizes_of(config.network, config.height, config.width, config.num_classes, network_options(config))


def training_need(config: Config) -> Need:
    """The memory of a training step, at least: weights, optimizer, averages, activations kept and images read ahead.

    With a seed and `max_bad_records`, the images that are tried together are counted with the variables.

    Scratch space and the initialization of variables are not counted, so that what is refused does not fit. Measured
    peaks are 1.1 to 1.6 times this, and more for a RevNet that recomputes its activations.
    """
    sizes = sizes_for(config)
    copies = _COPIES[config.optimizer] + int(config.moving_average) + 1
    variables = (copies * sizes.parameters + sizes.statistics) * _FLOAT
    kept = int(_HELD * sizes.kept) * tf.as_dtype(config.precision).size
    if config.seed is not None and config.max_bad_records:
        group = group_for(config.train_batch_size, topology.hosts_of(config), config.num_train_images)
        variables += _GROUPS * group.records * _image(config) * topology.hosts_of(config)
    return Need(variables, kept + 2 * config.num_classes * _FLOAT + _image(config) * _ahead(config))


def evaluation_need(config: Config) -> Need:
    """The memory of a step of evaluation, at least: weights, images read ahead, and the largest layer's activations.

    Without a TPU, training's variables stay in memory for its next cycle; its gradients do not.
    """
    sizes = sizes_for(config)
    waits = config.mode == 'train_and_eval' and not config.use_tpu
    waiting = training_need(config).variables - sizes.parameters * _FLOAT if waits else 0
    batches = min(_ahead(config), -(-config.eval_images // config.eval_batch_size))
    largest = sizes.largest * tf.as_dtype(config.precision).size
    per_image = largest + config.num_classes * _FLOAT + _image(config) * batches
    return Need(waiting + (sizes.parameters + sizes.statistics) * _FLOAT, per_image)


def check_fits(config: Config, available: Optional[int] = None, eval_flag: str = 'eval_batch_size') -> None:
    """Checks that a run fits into this machine's memory. A TPU or GPU has its own; `preflight` checks that of a TPU.

    Args:
      config: of the run.
      available: bytes of memory; None for those that this process can still use.
      eval_flag: the flag that sets `eval_batch_size`.

    Raises:
      ConfigError: it does not fit; the message names the flags, and values that fit.
    """
    available = available_memory() if available is None else available
    if available is None or (config.use_tpu and not config.is_emulated) or accelerator.on_gpu(config):
        return
    problems: List[str] = []
    if config.mode != 'eval':
        problems += _buffer_problems(config, available)
        problems += _problem(config, training_need, 'train_batch_size', 'train_batch_size', 'training', available)
    if config.mode != 'train':
        problems += _problem(config, evaluation_need, 'eval_batch_size', eval_flag, 'evaluation', available)
    if problems:
        raise ConfigError('\n'.join(problems))
    need = training_need(config).of(config.train_batch_size) if config.mode != 'eval' else 0
    if _PEAK * need > available:
        logger.info(
            'warning: training needs at least %s of memory, and may need %g times as much; %s are available. If it is '
            'killed, decrease --train_batch_size=%d',
            *(_shown(need), _PEAK, _shown(available), config.train_batch_size),
        )


def bytes_per_image(graph: tf.Graph) -> int:
    """The bytes per image in the largest inputs and outputs of one operation in a graph whose batch size is open."""

    def size(tensor: tf.Tensor) -> int:
        batch, *others = tensor.shape.as_list() if tensor.shape.ndims else [0]
        return 0 if batch is not None or None in others else tf.TensorShape(others).num_elements() * tensor.dtype.size

    return max(sum(size(t) for t in {*o.inputs, *o.outputs}) for o in graph.get_operations())


def check_batch(flag: str, batch_size: int, per_image: int) -> None:
    """Checks that a batch fits into this machine's memory.

    Raises:
      ConfigError: it does not; the message names `flag` and the largest batch that fits.
    """
    available = available_memory()
    if available is not None and batch_size * per_image > available:
        raise ConfigError(
            f'--{flag}={batch_size}: needs an estimated {_shown(batch_size * per_image)} of memory; '
            f'{_shown(available)} are available. At most {max(1, available // per_image)} fit.'
        )


def _image(config: Config) -> int:
    return config.height * config.width * 3 * (1 if config.transfer == 'uint8' else _FLOAT)


def _ahead(config: Config) -> int:
    return _BATCHES if config.prefetch_enabled else 1


def _buffer_problems(config: Config, available: int) -> Iterator[str]:
    """Messages about shuffle buffers that do not fit. With a seed, the order of the files needs no buffer."""
    if config.use_data == 'fake':
        return
    record = 0
    if not remote.is_remote(source_of(config).place(records.TRAIN)):
        record = sum(records.sizes_of(source_of(config).find(records.TRAIN))) // config.num_train_images
    seeded = config.seed is not None
    # The windows of a seed hold at most all records.
    held = config.num_train_images if seeded else config.followup_shuffle_buffer_size
    for flag, in_record, most in (
        ('initial_shuffle_buffer_size', 0, 0),
        ('followup_shuffle_buffer_size', record, held),
    ):
        size = getattr(config, flag)
        place = 0 if seeded and not in_record else _PLACE
        need = size * place + min(size, most) * in_record
        if need > available:
            yield (
                f'--{flag}={size}: the buffer needs an estimated {_shown(need)} of memory; {_shown(available)} are '
                f'available. At most {int(available / (place + in_record))} fit.'
            )


def _problem(
    config: Config, need_of: Callable[[Config], Need], name: str, flag: str, task: str, available: int
) -> Iterator[str]:
    """A message about a step that does not fit."""
    batch, need = getattr(config, name), need_of(config)
    if need.of(batch) <= available:
        return
    if need.variables > available:
        given = f'--num_classes={config.num_classes}'
        if 'depth_multiplier' in NETWORKS[config.network].options:
            given = f'--depth_multiplier={config.depth_multiplier:g}, {given}'
        what, amount = f"{task}: the network's variables need", need.variables
        advice = [*_smaller_network(config, need_of, batch, available)]
    else:
        given = f'--{flag}={batch}, --height={config.height}, --width={config.width}'
        what, amount = f'{task} needs', need.of(batch)
        advice = [
            *_smaller_batch(config, need, flag, available),
            *_smaller_images(config, need_of, batch, available),
        ]
    yield (
        f'{given}: {what} an estimated {_shown(amount)} of memory; {_shown(available)} are available on this machine. '
        + (f'What fits: {", or ".join(advice)}.' if advice else f'No {flag} fits; use a smaller network or images.')
    )


def _smaller_batch(config: Config, need: Need, flag: str, available: int) -> Iterator[str]:
    fitting = int(available * _SPARE - need.variables) // need.per_image // config.replicas * config.replicas
    if fitting > 0:
        yield f'--{flag}={fitting}'


def _smaller_images(config: Config, need_of: Callable[[Config], Need], batch: int, available: int) -> Iterator[str]:
    """The largest images that fit: the longer side alone is shorter, or both in the same proportion."""
    smallest = NETWORKS[config.network].min_size
    sides = {'height': config.height, 'width': config.width}
    longer = max(sides, key=lambda side: sides[side])
    for names in ([longer], [*sides]) if max(sides.values()) > 2 * min(sides.values()) else ([*sides],):

        def scaled(factor: float, names: Sequence[str] = names) -> Config:
            return dataclasses.replace(config, **{name: max(smallest, int(sides[name] * factor)) for name in names})

        fitting = _fitting(scaled, 1 / len(names), need_of, batch, available)
        if fitting:
            yield ' '.join(f'--{name}={getattr(fitting, name)}' for name in names)
            return


def _smaller_network(config: Config, need_of: Callable[[Config], Need], batch: int, available: int) -> Iterator[str]:
    """The widest network, or the largest number of classes, that fits."""
    names = ['num_classes']
    if 'depth_multiplier' in NETWORKS[config.network].options:
        names.insert(0, 'depth_multiplier')
    for name in names:
        value = getattr(config, name)

        def scaled(factor: float, name: str = name, value: float = value) -> Config:
            fitting = value * factor
            return dataclasses.replace(config, **{name: max(2, int(fitting)) if name == 'num_classes' else fitting})

        # Most variables are between two layers, and grow with the square of their channels.
        fitting = _fitting(scaled, 0.5 if name == 'depth_multiplier' else 1, need_of, batch, available)
        if fitting:
            found = getattr(fitting, name)
            yield f'--{name}={found:.2g}' if isinstance(found, float) else f'--{name}={found}'


def _fitting(
    scaled: Callable[[float], Config],
    exponent: float,
    need_of: Callable[[Config], Need],
    batch: int,
    available: int,
) -> Optional[Config]:
    """A smaller configuration that fits; None if none of some guesses does.

    Args:
      scaled: makes the configuration for a factor.
      exponent: the factor changes with this power of the memory.
      need_of: the memory of a configuration.
      batch: images in a batch.
      available: bytes of memory.
    """
    available = int(available * _SPARE)
    excess = need_of(scaled(1.0)).of(batch) / available
    for margin in (0.95, 0.8, 0.5, 0.1):
        fitting = scaled(margin * excess**-exponent)
        if need_of(fitting).of(batch) <= available:
            return fitting
    return None


def _shown(size: int) -> str:
    unit, name = next((each for each in _UNITS if size >= each[0]), _UNITS[-1])
    return f'{size / unit:,.1f} {name}'
