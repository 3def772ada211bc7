"""Judges the flags that a user gave: those that contradict each other, and those without effect.

Defaults and the values of a preset are never judged: only a flag that was given may be refused or named here.
"""

from typing import TYPE_CHECKING, AbstractSet, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from console.messages import shown
from inception_v3.networks.registry import NETWORKS, OPTIONS
from inception_v3.settings.epochs import EPOCHS
from inception_v3.tpu import topology

if TYPE_CHECKING:
    from inception_v3.config import Config

Given = AbstractSet[str]

_OF_CROPS_AND_COLOURS = (
    *('use_annotated_bbox', 'crop_area_min', 'crop_aspect_ratio_max', 'fast_mode', 'use_fast_color_distort'),
    *('cb_distortion_range', 'cr_distortion_range', 'brightness_distortion_range'),
)
_OF_RECORDS = (
    *('data_format', 'train_files', 'eval_files', 'image_key', 'label_key', 'label_offset', 'num_files_infeed'),
    *('initial_shuffle_buffer_size', 'followup_shuffle_buffer_size'),
    *('prefetch_dataset_buffer_size', 'max_bad_records', 'use_annotated_bbox', 'crop_area_min'),
    'crop_aspect_ratio_max',
)
_OF_EVALUATION = (
    *(
        'train_steps_per_eval',
        'epochs_per_eval',
        'eval_batch_size',
        'eval_total_size',
        'num_eval_images',
        'eval_files',
        'keep_best',
        'display_tensors',
    ),
)
_OF_FOLLOWING = ('min_eval_interval', 'eval_timeout')
_OF_TRAINING = (
    *('train_batch_size', 'num_train_images', 'train_files'),
    *('initial_shuffle_buffer_size', 'followup_shuffle_buffer_size', 'iterations'),
    *('random_flip', 'crop_padding', *_OF_CROPS_AND_COLOURS, 'zero_init_last_scale', 'rebuild_activations'),
    *('batch_norm_decay', 'batch_norm_group_size', 'clear_update_collections', 'optimizer', 'label_smoothing'),
    *('weight_decay', 'moving_average_decay', 'learning_rate', 'schedule', 'learning_rate_decay'),
    *('learning_rate_decay_epochs', 'step_epochs', 'use_learning_rate_warmup', 'cold_epochs', 'warmup_epochs'),
    *('init_from', 'init_except', 'init_averages', 'freeze', 'freeze_batch_norm', 'head_learning_rate'),
    *(
        'train_steps_per_eval',
        'epochs_per_eval',
        'log_steps',
        'save_checkpoints_secs',
        'seed',
        'skip_host_call',
        'save_summary_steps',
    ),
)


class _Idle(NamedTuple):
    """Flags that have no effect under a condition.

    Attributes:
      flags: their names.
      cause: the flag that decides the condition.
      holds: the condition.
      remedy: the setting with which the flags have an effect; empty if there is no simple one.
      is_refused: refuse the flags if the cause was given, too; otherwise they are only named.
    """

    flags: Tuple[str, ...]
    cause: str
    holds: Callable[['Config'], bool]
    remedy: str = ''
    is_refused: bool = True


_IDLE = (
    _Idle(('tpu', 'master', 'tpu_zone', 'gcp_project'), 'use_tpu', lambda c: not c.use_tpu, '--use_tpu=True'),
    _Idle(('tpu_zone', 'gcp_project'), 'tpu', lambda c: not topology.is_remote(c.tpu), 'the name of a Cloud TPU'),
    _Idle(('tpu_zone', 'gcp_project'), 'master', lambda c: c.use_tpu and bool(c.master), '--tpu'),
    _Idle(('num_shards', 'iterations'), 'use_tpu', lambda c: not c.use_tpu, '--use_tpu=True', False),
    # A launcher passes the folder to every run.
    _Idle(('data_dir',), 'use_data', lambda c: c.use_data == 'fake', '--use_data=real', False),
    _Idle(_OF_RECORDS, 'use_data', lambda c: c.use_data == 'fake', '--use_data=real'),
    _Idle(
        _OF_CROPS_AND_COLOURS, 'preprocessing', lambda c: c.preprocessing != 'inception', '--preprocessing=inception'
    ),
    _Idle(('crop_padding',), 'preprocessing', lambda c: c.preprocessing != 'cifar', '--preprocessing=cifar'),
    _Idle(
        ('cb_distortion_range', 'cr_distortion_range'),
        'use_fast_color_distort',
        lambda c: c.preprocessing == 'inception' and not c.use_fast_color_distort,
        '--use_fast_color_distort=True',
    ),
    _Idle(('moving_average_decay',), 'moving_average', lambda c: not c.moving_average, '--moving_average=True'),
    _Idle(('step_epochs',), 'schedule', lambda c: c.schedule != 'step', '--schedule=step'),
    _Idle(('learning_rate_decay_epochs',), 'schedule', lambda c: c.schedule != 'exponential', '--schedule=exponential'),
    _Idle(('learning_rate_decay',), 'schedule', lambda c: c.schedule == 'cosine', '--schedule=exponential or step'),
    _Idle(
        ('cold_epochs',),
        'schedule',
        lambda c: c.use_learning_rate_warmup and c.schedule != 'exponential',
        '--schedule=exponential',
    ),
    _Idle(
        ('cold_epochs', 'warmup_epochs'),
        'use_learning_rate_warmup',
        lambda c: not c.use_learning_rate_warmup,
        '--use_learning_rate_warmup=True',
    ),
    _Idle(
        ('learning_rate_decay_epochs', 'step_epochs'),
        'learning_rate_decay',
        lambda c: c.schedule != 'cosine' and c.learning_rate_decay == 1,
        'a value below 1',
    ),
    _Idle(('init_averages',), 'init_from', lambda c: not c.init_from, 'weights to begin from'),
    _Idle(('freeze_batch_norm',), 'freeze', lambda c: not c.freeze, 'scopes to freeze'),
    # Two commands of one run, a trainer and an evaluator, may be given the same flags.
    _Idle(_OF_EVALUATION, 'mode', lambda c: c.mode == 'train', '--mode=train_and_eval', False),
    _Idle(_OF_TRAINING, 'mode', lambda c: c.mode == 'eval', '--mode=train_and_eval', False),
    _Idle(_OF_FOLLOWING, 'mode', lambda c: c.mode != 'eval', '--mode=eval'),
)

_WARM_UP = ('warmup_epochs', 'cold_epochs', 'use_learning_rate_warmup')
# Values that make a setting meaningless, by flag: the value, and its consequence.
_MEANINGLESS = {
    'batch_norm_decay': (1.0, 'the moving mean and variance would keep their initial values for ever'),
    'moving_average_decay': (1.0, 'the averages would keep the initial weights for ever'),
    'label_smoothing': (1.0, 'every label would be spread over all classes, and nothing could be learned'),
}


def contradictions_of(given: Given, config: 'Config') -> Iterator[str]:
    """Messages about flags that contradict each other, a line each.

    Args:
      given: the names of the flags that were given.
      config: the configuration that they lead to.
    """
    for rule, name in _idle(given, config):
        if rule.is_refused and rule.cause in given:
            yield f'{_idle_text(rule, name, config)} Leave out one of the two.'
    for steps, epochs in EPOCHS.items():
        if {steps, epochs} <= given and getattr(config, epochs):
            yield (
                f'{_flag(epochs, config)}: replaces --{steps}, which follows from the number of training images; here '
                f'{_flag(steps, config)}. Leave out one of the two.'
            )
    yield from _options_of_another_network(given, config, refused=True)
    for name, (value, consequence) in _MEANINGLESS.items():
        # The decay of averages that are off is named as a flag without effect.
        is_off = name == 'moving_average_decay' and not config.moving_average
        if name in given and getattr(config, name) == value and not is_off:
            yield f'--{name}={value:g}: must be below {value:g}; {consequence}.'
    if {'auxiliary_head', 'height', 'width'} & given > {'auxiliary_head'} and config.auxiliary_head:
        smallest = NETWORKS[config.network].auxiliary_head_min_size
        if smallest > min(config.height, config.width):
            yield (
                f'--auxiliary_head=True: needs images of at least {smallest} x {smallest} pixels; --height='
                f'{config.height} and --width={config.width} are too small. Leave one of the flags out.'
            )
    names_tpu = bool(config.master or config.tpu) and not topology.is_emulated(config.tpu)
    if 'num_shards' in given and config.use_tpu and names_tpu:
        sizes = sorted({each.cores for each in topology.CLOUD_TPUS.values()})
        if config.num_shards not in sizes:
            yield f'--num_shards={config.num_shards}: no Cloud TPU has so many cores; they have {_listed(sizes)}.'


def contradictions_of_data_set(given: Given, config: 'Config') -> Iterator[str]:
    """Messages about flags that contradict the size of the data set, a line each.

    Args:
      given: the names of the flags that were given.
      config: the configuration, with the sizes of the data set.
    """
    if config.mode != 'train' and config.eval_total_size > config.num_eval_images and 'eval_total_size' in given:
        yield (
            f'--eval_total_size={config.eval_total_size}: there are {config.num_eval_images:,} validation images '
            '(--num_eval_images), and each is evaluated once. Give at most as many, or 0 for all.'
        )
    warm_up = [name for name in _WARM_UP if name in given]
    if warm_up and {'train_steps', 'train_epochs'} & given and _warm_up_is_too_long(config):
        yield f'{_flag(warm_up[0], config)}: {_warm_up_text(config)} Shorten the warm-up, or raise --train_steps.'


def without_effect(given: Given, config: 'Config') -> Iterator[str]:
    """Sentences about flags that have no effect, or not the expected one, with the others.

    Args:
      given: the names of the flags that were given.
      config: the configuration, with the sizes of the data set.
    """
    of_cause: Dict[Tuple[str, str], List[str]] = {}
    for rule, name in _idle(given, config):
        of_cause.setdefault((rule.cause, rule.remedy), []).append(_flag(name, config))
    for (cause, remedy), flags in of_cause.items():
        yield f'no effect with {_flag(cause, config)}: {", ".join(flags)}; needs {remedy}'
    yield from _options_of_another_network(given, config, refused=False)
    yield from _of_one_core(given, config)
    if config.mode != 'eval':
        yield from _never_reached(given, config)
    if 'moving_average_decay' in given and config.moving_average and config.moving_average_decay == 0:
        yield '--moving_average_decay=0: the averages equal the weights, as with --moving_average=False'


def _idle(given: Given, config: 'Config') -> Iterator[Tuple[_Idle, str]]:
    """The flags without effect that were given, with their rules."""
    for rule in _IDLE:
        if rule.holds(config):
            yield from (
                (rule, name) for name in rule.flags if name in given and getattr(config, name) not in ('', None)
            )


def _idle_text(rule: _Idle, name: str, config: 'Config') -> str:
    return f'{_flag(name, config)}: has no effect with {_flag(rule.cause, config)}; it needs {rule.remedy}.'


def _options_of_another_network(given: Given, config: 'Config', refused: bool) -> Iterator[str]:
    """`Config` itself refuses the options that would change a network that has them; these are at their default."""
    for name in sorted({*OPTIONS} & given - NETWORKS[config.network].options):
        value = getattr(config, name)
        able = ' or '.join(network for network in NETWORKS if name in NETWORKS[network].options)
        text = f'--{name}={value}: has no effect with --network={config.network}, which has no {OPTIONS[name]}'
        if refused and value is not False and 'network' in given:
            yield f'{text}; it needs {able}. Leave the flag out.'
        elif not refused:
            yield text


def _of_one_core(given: Given, config: 'Config') -> Iterator[str]:
    """Batch normalization over the cores, on one core or in groups of one."""
    if 'batch_norm' in given and config.batch_norm != 'local' and config.replicas == 1:
        yield f'--batch_norm={config.batch_norm}: there is one core, whose own moments are used'
    elif 'batch_norm_group_size' in given and config.batch_norm_group_size == 1:
        yield '--batch_norm_group_size=1: each core uses its own moments, as with --batch_norm=local'


def _never_reached(given: Given, config: 'Config') -> Iterator[str]:
    """Settings of training that take effect only after its end, or less often than they say."""
    epochs = config.train_steps * config.train_batch_size / config.num_train_images
    run = f'the run has {config.train_steps:,} steps ({epochs:,.1f} epochs)'
    late = [epoch for epoch in config.steps_down if epoch >= epochs]
    if late and config.schedule == 'step' and {'step_epochs', 'schedule'} & given:
        yield f'--step_epochs={config.step_epochs}: {run}, so epoch {_listed(late)} is never reached'
    decays_late = config.schedule == 'exponential' and config.learning_rate_decay_epochs >= epochs
    if decays_late and 'learning_rate_decay_epochs' in given:
        yield f'--learning_rate_decay_epochs={config.learning_rate_decay_epochs}: {run}: the rate never decays'
    if _warm_up_is_too_long(config) and {*_WARM_UP, 'train_steps', 'train_epochs', 'train_batch_size'} & given:
        yield _warm_up_text(config)
    if 'train_batch_size' in given and config.train_batch_size > config.num_train_images:
        yield (
            f'--train_batch_size={config.train_batch_size}: the data set has {config.num_train_images:,} training '
            'images, so that a batch has images several times'
        )
    yield from _steps_apart(given, config)


def _steps_apart(given: Given, config: 'Config') -> Iterator[str]:
    """Events of training that come less often than their flags say."""
    events = {'save_summary_steps': 'a summary is written'}
    if config.log_steps:
        events['log_steps'] = 'a line is logged'
    if config.mode == 'train_and_eval':
        events['train_steps_per_eval'] = 'the run is evaluated'
    if config.use_tpu:
        events['iterations'] = 'the TPU returns to its host'
    for name, event in events.items():
        steps = getattr(config, name)
        if steps > config.train_steps and name in given:
            yield f'--{name}={steps}: {event} at most once, because --train_steps={config.train_steps}'
        if config.use_tpu and steps < config.iterations and {name, 'iterations'} & given:
            yield f'--{name}={steps}: a loop on the TPU has --iterations={config.iterations} steps'


def _warm_up_epochs(config: 'Config') -> int:
    return config.warmup_epochs + (config.cold_epochs if config.schedule == 'exponential' else 0)


def _warm_up_is_too_long(config: 'Config') -> bool:
    epochs = config.train_steps * config.train_batch_size / config.num_train_images
    return config.mode != 'eval' and config.use_learning_rate_warmup and _warm_up_epochs(config) >= epochs


def _warm_up_text(config: 'Config') -> str:
    epochs = config.train_steps * config.train_batch_size / config.num_train_images
    return (
        f'the warm-up takes {_warm_up_epochs(config)} epochs, and the run with --train_steps={config.train_steps} '
        f'ends after {epochs:,.1f}.'
    )


def _flag(name: str, config: 'Config') -> str:
    return f'--{name}={shown(getattr(config, name))}'


def _listed(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f'{", ".join(most)} or {last}' if most else last
