"""An estimate of the memory that a run needs on this machine, and a check that it fits, before a graph is built."""

import functools
import pathlib
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from compat import tf
from compat.log import logger
from compat.tensorflow import IS_REFERENCE
from inception_v3.config import Config, ConfigError
from inception_v3.input.ordered_records import group_for
from inception_v3.model_fn import network_options
from inception_v3.networks.registry import NETWORKS, Network
from inception_v3.networks.sizes import Sizes, sizes_of
from inception_v3.tpu import accelerator, topology

FLOAT_BYTES = 4
# Values per weight that the optimizer keeps.
SLOTS = {'sgd': 0, 'momentum': 1, 'RMS': 2}
# Measured memory of the optimizer's values and of averages in training on the CPU: twice their size, including the
# tensors that initialize and update them. The gradients of the weights reuse memory of freed activations.
_UPDATED = 2
# Further values per weight in TensorFlow 2.15: measured with 26 and 27 million weights.
_FURTHER = 0 if IS_REFERENCE else 4
# Gradients of activations, as a fraction of the activations, most of which are freed before the largest gradients are
# computed.
_GRADIENTS = 0.15
# Batches of images in memory: one in use, two ahead, one being filled (see `InputPipeline.transfer`).
_BATCHES = 4
# With a seed and `max_bad_records`, groups of images that are tried together: the number in memory.
_GROUPS = 3
# Bytes of a training process before its variables and its first batch: the program, TensorFlow and the graph.
PROGRAM = (690 if IS_REFERENCE else 800) * 10**6
# Bytes for the graph of each further replica or emulated core, with the data of TensorFlow and Python about it:
# measured with up to 8 of them for the digits, whose 950 variables are those of Inception v3. Other graphs are smaller.
_FURTHER_REPLICA = (130 if IS_REFERENCE else 290) * 10**6
_FURTHER_CORE = 440 * 10**6
# The estimate differs from measured peaks by less than this fraction of them (docs/known-behaviour.md).
ERROR = 0.2
_UNITS = ((1 << 40, 'TiB'), (1 << 30, 'GiB'), (1 << 20, 'MiB'))
# A limit of cgroup v1 that means no limit.
_UNLIMITED = 1 << 60
_SYSTEM = pathlib.Path('/')


class StepMemory(NamedTuple):
    """Bytes that a step needs: for the variables, and for each image in a batch."""

    variables: int
    per_image: int

    def of(self, batch_size: int) -> int:
        """The bytes of a step."""
        return self.variables + self.per_image * batch_size


def sizes_for(config: Config) -> Sizes:
    """The sizes of a run's network."""
    # Dropout, which is made for each configuration, changes no size.
    options = {**network_options(config), 'dropout': _identity}
    taken = tuple((name, options[name]) for name in sorted(NETWORKS[config.network].options))
    return _sizes(NETWORKS[config.network], config.height, config.width, config.num_classes, taken)


@functools.lru_cache(maxsize=16)
def _sizes(network: Network, height: int, width: int, num_classes: int, options: Tuple[Tuple[str, Any], ...]) -> Sizes:
    return sizes_of(network, height, width, num_classes, dict(options))


def _identity(net: tf.Tensor, *_: Any) -> tf.Tensor:
    return net


def training_memory(config: Config) -> StepMemory:
    """The memory of a training step on this machine's CPU at its peak, beside `PROGRAM`.

    TensorFlow stores the results of convolutions, ReLU, pooling and concatenation: 93 MB per image for Inception v3 at
    299 pixels, of which XLA recomputes a third. Gradients and the images read ahead are added. With a seed and
    `max_bad_records`, the images that are tried together are counted with the variables. A RevNet that recomputes its
    activations needs more.
    """
    sizes = sizes_for(config)
    # The gradients of the weight decay do not depend on the forward pass, so they may be in memory during it.
    further = _FURTHER + bool(config.weight_decay)
    variables = _variables(config, _UPDATED) + _copies(config) * further * sizes.parameters * FLOAT_BYTES
    variables += (_copies(config) - 1) * (_FURTHER_CORE if config.use_tpu else _FURTHER_REPLICA)
    kept = int((1 + _GRADIENTS) * sizes.kept) * tf.as_dtype(config.precision).size
    if config.seed is not None and config.max_bad_records:
        group = group_for(config.train_batch_size, topology.hosts_of(config), config.num_train_images)
        variables += _GROUPS * group.records * _image(config) * topology.hosts_of(config)
    return StepMemory(variables, kept + 2 * config.num_classes * FLOAT_BYTES + _image(config) * _ahead(config))


def evaluation_memory(config: Config) -> StepMemory:
    """The least memory of an evaluation step: weights, images read ahead, and the largest layer's activations.

    Without a TPU, training's variables stay in memory for its next cycle; its gradients do not.
    """
    sizes = sizes_for(config)
    weights = _copies(config) * (sizes.parameters + sizes.statistics) * FLOAT_BYTES
    waiting = _variables(config) if config.mode == 'train_and_eval' and not config.use_tpu else 0
    batches = min(_ahead(config), -(-config.eval_images // config.eval_batch_size))
    largest = sizes.largest * tf.as_dtype(config.precision).size
    per_image = largest + config.num_classes * FLOAT_BYTES + _image(config) * batches
    return StepMemory(waiting + weights, per_image)


def _copies(config: Config) -> int:
    """The copies of the variables in this machine's memory: each replica and each core of an emulated TPU has one."""
    if config.is_emulated:
        return config.num_shards
    return 1 if config.use_tpu else config.num_gpus


def _variables(config: Config, each: int = 1) -> int:
    """Bytes of all copies of the variables in training; those of the optimizer and the averages count `each` times.

    With several replicas, only the first has averages; each emulated core has its own.
    """
    sizes, copies = sizes_for(config), _copies(config)
    averages = int(config.moving_average) * (copies if config.use_tpu else 1)
    parameters = copies * (1 + each * SLOTS[config.optimizer]) + each * averages
    return (parameters * sizes.parameters + copies * sizes.statistics) * FLOAT_BYTES


def check_fits(config: Config, available: Optional[int] = None, eval_flag: str = 'eval_batch_size') -> None:
    """Checks that a run fits into this machine's memory. `preflight` checks a TPU's memory; a GPU's is not checked.

    `available` is in bytes, by default the memory that this process can still use; `eval_flag` is the flag that sets
    `eval_batch_size`.

    Raises:
      ConfigError: the run does not fit; the message names the flags.
    """
    available = available_memory() if available is None else available
    if available is None or (config.use_tpu and not config.is_emulated) or accelerator.on_gpu(config):
        return
    problems: List[str] = []
    needed = 0
    if config.mode != 'eval':
        training = training_memory(config)
        needed = training.of(config.train_batch_size // config.machines)
        problems += _problem(config, training, 'train_batch_size', available, int(available / (1 - ERROR)))
    if config.mode != 'train':
        problems += _problem(config, evaluation_memory(config), eval_flag, available, available)
    if problems:
        raise ConfigError('\n'.join(problems))
    if (1 + ERROR) * needed > available:
        logger.info(
            'warning: training needs an estimated %s of memory; %s are available. If it is killed, decrease '
            '--train_batch_size=%d',
            *(in_words(needed), in_words(available), config.train_batch_size),
        )


def _image(config: Config) -> int:
    return config.height * config.width * 3 * (1 if config.transfer == 'uint8' else FLOAT_BYTES)


def _ahead(config: Config) -> int:
    return _BATCHES if config.prefetch_enabled else 1


def _problem(config: Config, memory: StepMemory, flag: str, available: int, limit: int) -> Iterator[str]:
    task, batch = (
        ('training', config.train_batch_size) if flag == 'train_batch_size' else ('evaluation', config.eval_batch_size)
    )
    if memory.variables > limit:
        width = f', --depth_multiplier={config.depth_multiplier:g}' if config.depth_multiplier != 1 else ''
        yield (
            f"--network={config.network}{width}, --num_classes={config.num_classes}: {task}: the network's variables "
            f'need an estimated {in_words(memory.variables)} of memory; {in_words(available)} are available on this '
            f'machine. {_smaller(config)}.'
        )
    elif memory.of(batch // config.machines) > limit:  # Each of several machines has an equal share of the batch.
        most = (limit - memory.variables) // memory.per_image * config.machines // config.replicas * config.replicas
        remedy = f'At most --{flag}={most} fits' if most else f'Images of this size do not fit, for any --{flag}'
        yield (
            f'--{flag}={batch}, --height={config.height}, --width={config.width}: {task} needs an estimated '
            f'{in_words(memory.of(batch // config.machines))} of memory; {in_words(available)} are available on this '
            f'machine. {remedy}; smaller images need less.'
        )


def _smaller(config: Config) -> str:
    if _copies(config) == 1:
        return 'Use a smaller network'
    flag, kind = ('tpu', 'cores') if config.is_emulated else ('num_gpus', 'replicas')
    return (
        f'Each of the {_copies(config)} {kind} has a copy of them: decrease --{flag}={getattr(config, flag)}, or use a '
        'smaller network'
    )


def in_words(size: int) -> str:
    """A number of bytes in the largest unit that fits."""
    unit, name = next((each for each in _UNITS if size >= each[0]), _UNITS[-1])
    return f'{size / unit:,.1f} {name}'


# The memory that this process can still use: the machine's, or less in a container or cgroup.


def available_memory(root: pathlib.Path = _SYSTEM) -> Optional[int]:
    """Bytes that this process can still use: free memory, memory of cached files and free swap, within its cgroups.

    None if the system does not provide it, as outside of Linux. `root` contains `proc` and `sys`.
    """
    found = {key: int(value.split()[0]) << 10 for key, value in _pairs(root / 'proc/meminfo') if value.split()}
    if 'MemAvailable:' not in found:
        return None
    swap = found.get('SwapFree:', 0)
    return swap + min([found['MemAvailable:'], *_left_in_cgroups(root)])


def _left_in_cgroups(root: pathlib.Path) -> Iterator[int]:
    """Yields the rest of each limit of the process's cgroups and the enclosing ones, without swap."""
    for line in _text(root / 'proc/self/cgroup').splitlines():
        _, controllers, path = line.split(':', 2)
        top, limits, cached = root / 'sys/fs/cgroup', ('memory.max', 'memory.current'), 'inactive_file'
        if controllers:
            # Version 1.
            top, limits = top / 'memory', ('memory.limit_in_bytes', 'memory.usage_in_bytes')
            cached = 'total_inactive_file'
            if 'memory' not in controllers.split(','):
                continue
        # In a container, the path may be the host's, and the limit is at the top.
        folder = top / path.lstrip('/')
        for place in {top, folder, *(each for each in folder.parents if top in each.parents)}:
            limit, used = (_text(place / name).strip() for name in limits)
            if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
                # Cached files count as used, and are dropped when memory is needed.
                yield int(limit) - int(used) + int(dict(_pairs(place / 'memory.stat')).get(cached, 0))


def _pairs(path: pathlib.Path) -> Iterator[Tuple[str, str]]:
    for line in _text(path).splitlines():
        key, _, value = line.partition(' ')
        yield key, value.strip()


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ''
