"""Checks values against each other: a function per subject, with messages that say what to change.

`check` is called when a command line is parsed, and again when its configuration is fitted to the data set. The bounds
of single values are in `config`; values with a form of their own, such as addresses and lists of epochs, are checked
here. Only flags that were given are refused for having no effect; defaults and the values of a preset never are.
"""

import dataclasses
import functools
import os
import re
from typing import AbstractSet, Callable, Iterator, Tuple

from compat.messages import alternatives, shown
from data.braces import FILE_FLAGS, PatternError, expand
from data.tar.layout import DOCUMENTED_LABEL, LABEL_EXTENSION, label_of
from inception_v3 import class_weights
from inception_v3.config import ALL_GPUS, Config, ConfigError
from inception_v3.machines import cluster
from inception_v3.networks.registry import NETWORKS, OPTIONS
from inception_v3.presets import EPOCHS
from inception_v3.tpu import topology
from preprocessing.preprocessings import PREPROCESSINGS

_GLOB_CHARACTERS = '*?['
# The most characters of a name or path in a message: as many as a setting may have.
_LONGEST = 4096
_PROFILE_STEPS = re.compile('([1-9][0-9]{0,9}),([1-9][0-9]{0,9})')
# A trace holds every operation of every step.
_MOST_PROFILED_STEPS = 100
_STEP_EPOCHS = re.compile('[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*')


def check(config: Config, given: AbstractSet[str] = frozenset()) -> None:
    """Raises a ConfigError with a line for each contradiction of values; `given` are the flags that were given."""
    problems = [*contradictions(config, given)]
    if problems:
        raise ConfigError('\n'.join(problems))


def contradictions(config: Config, given: AbstractSet[str] = frozenset()) -> Iterator[str]:
    """Messages about values that contradict each other, a line each; the arguments are those of `check`."""
    for rule in (
        _tpu,
        _replicas,
        _accelerator,
        _machines,
        _network,
        _schedule,
        _folders,
        _records,
        _images,
        _profile_steps,
        _weights,
        _loss,
    ):
        yield from rule(config)
    for rule_of_given in (_without_effect, _of_given):
        yield from rule_of_given(config, given)


def _text(value: object) -> str:
    """A name or path in printable characters."""
    return shown(value, _LONGEST)


def _tpu(config: Config) -> Iterator[str]:
    cores, tpu, master = config.num_shards, f'--tpu={_text(config.tpu)}', f'--master={_text(config.master)}'
    if config.master and not config.master.startswith('grpc://'):
        yield f'{master}: must be an address that begins with grpc://.'
    if config.tpu == topology.LOCAL and config.use_tpu and cores != topology.CORES_PER_HOST:
        yield (
            f'--num_shards={cores}: --tpu=local is the TPU of one machine, which has {topology.CORES_PER_HOST} cores. '
            'Name a slice with --tpu=NAME.'
        )
    if not topology.is_emulated(config.tpu):
        if config.master and config.tpu:
            yield f'{master}: replaces --tpu; leave out {tpu}.'
        return
    try:
        emulated = topology.emulated(str(config.tpu)).cores
    except ValueError as error:
        yield f'{tpu}: {error}.'
        return
    if config.use_tpu and cores != emulated:
        yield f'--num_shards={cores}: {tpu} has {emulated} cores.'
    if config.master:
        yield f'{master}: an emulated TPU, {tpu}, has no address.'


def _replicas(config: Config) -> Iterator[str]:
    number = f'--num_gpus={config.num_gpus}'
    if config.use_tpu and config.num_gpus != Config.num_gpus:
        tpu = f' and --tpu={_text(config.tpu)}' if config.tpu else ''
        yield f'{number}: is for a run without a TPU; here --use_tpu=True{tpu}. Leave out one of the two.'
        return
    if config.num_gpus == 0:
        yield f'{number}: must be at least 1, or {ALL_GPUS} for all that are visible; --accelerator=cpu uses none.'
    if config.num_gpus == ALL_GPUS and config.accelerator == 'cpu':
        yield f'{number}: stands for all visible GPUs; with --accelerator=cpu, give the number of virtual devices.'
    # The number of all GPUs is not known before a run begins.
    for name in ('train_batch_size', 'eval_batch_size') if config.replicas > 0 else ():
        size, replicas = getattr(config, name), config.replicas
        if size % replicas:
            near = max(1, round(size / replicas)) * replicas
            of = f'TPU cores, --num_shards={replicas}' if config.use_tpu else f'replicas, --num_gpus={config.num_gpus}'
            if config.machines > 1:
                of = f'{of} on each of {config.machines} machines'
            yield f'--{name}={size}: must be a multiple of the number of {of}; the nearest is {near}.'


def _accelerator(config: Config) -> Iterator[str]:
    if config.accelerator != 'auto' and config.use_tpu:
        tpu = f' and --tpu={_text(config.tpu)}' if config.tpu else ''
        yield (
            f'--accelerator={config.accelerator}: is the device of a run without a TPU; here --use_tpu=True{tpu}. '
            'Give --use_tpu=False, or leave out --accelerator.'
        )
    if config.precision == 'float16' and config.use_tpu:
        yield '--precision=float16: is for GPUs; a TPU computes in bfloat16. Give --precision=bfloat16.'
    if config.layout == 'NCHW' and (config.use_tpu or config.accelerator == 'cpu'):
        device = 'TPU' if config.use_tpu else 'CPU'
        yield f'--layout=NCHW: is for GPUs; a {device} computes in NHWC. Leave out --layout.'
    if config.layout == 'NCHW' and config.batch_norm == 'synchronized':
        yield '--layout=NCHW: --batch_norm=synchronized computes in NHWC. Leave out one of the two.'


def _machines(config: Config) -> Iterator[str]:
    hosts, index = config.worker_hosts, config.task_index
    if not hosts:
        if index is not None:
            yield f'--task_index={index}: needs --worker_hosts, the addresses of all machines.'
        return
    flag, addresses = f'--worker_hosts={shown(hosts)}', cluster.addresses_in(hosts)
    problem = cluster.problem_with(addresses)
    if problem or len(addresses) < 2:
        yield f'{flag}: {problem or "must be the addresses of at least two machines"}.'
    elif index is None:
        yield f'{flag}: needs --task_index, the number of this machine among them, from 0 to {len(addresses) - 1}.'
    elif index >= len(addresses):
        yield f'--task_index={index}: must be at most {len(addresses) - 1}; {flag} has {len(addresses)} machines.'
    if config.use_tpu:
        yield f'{flag}: is for machines without a TPU; here --use_tpu=True. Leave out --worker_hosts, or TF_CONFIG.'
    if config.mode == 'eval':
        yield (
            f'{flag}: machines evaluate together only in turn with training; here --mode=eval. Leave out '
            '--worker_hosts, or TF_CONFIG, to evaluate on one machine.'
        )
    if not config.skip_host_call:
        yield f'{flag}: needs --skip_host_call=True; the first machine alone writes summaries.'


def _network(config: Config) -> Iterator[str]:
    network, size = NETWORKS[config.network], config.batch_norm_group_size
    for name in ('height', 'width'):
        pixels = getattr(config, name)
        if pixels < network.min_size:
            yield f'--{name}={pixels}: must be at least {network.min_size} with --network={config.network}.'
    # A network without an option accepts the option's default and False, because neither changes the network.
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in sorted({*OPTIONS} & {*defaults} - network.options):
        value = getattr(config, name)
        if value is not False and value != defaults[name]:
            yield (
                f'--{name}={value}: --network={config.network} has no {OPTIONS[name]}. Leave the flag out; '
                f'it is allowed with {_able(name)}.'
            )
    # Evaluation ignores the groups, so it may run on another number of cores.
    if size and config.mode != 'eval' and config.batch_norm != 'synchronized':
        yield f'--batch_norm_group_size={size}: needs --batch_norm=synchronized; here it is {config.batch_norm}.'
    elif size and config.mode != 'eval' and config.replicas > 0 and config.replicas % size:
        yield (
            f'--batch_norm_group_size={size}: must divide the number of {"cores" if config.use_tpu else "replicas"}, '
            f'{config.replicas} ({"--num_shards" if config.use_tpu else "--num_gpus"}).'
        )


def _schedule(config: Config) -> Iterator[str]:
    is_exponential, other = config.schedule == 'exponential', f'--schedule={config.schedule}'
    if is_exponential:
        other = f'--learning_rate_decay_epochs={config.learning_rate_decay_epochs}'
    rises = config.warmup_epochs + (config.learning_rate_decay_epochs - 1 if is_exponential else 0) >= 1
    if config.use_learning_rate_warmup and not rises:
        yield f'--warmup_epochs={config.warmup_epochs}: must be at least 1 with --use_learning_rate_warmup and {other}.'
    if not _STEP_EPOCHS.fullmatch(config.step_epochs) or [*config.steps_down] != sorted({*config.steps_down}):
        yield f'--step_epochs={shown(config.step_epochs)}: must be increasing epochs from 1, such as 30,60,80.'


def _place(folder: str) -> str:
    """The canonical path of a folder: links and relative paths are resolved if it is local."""
    if not folder:
        return ''
    return os.path.normpath(folder) if '://' in folder else os.path.realpath(folder)


def _folders(config: Config) -> Iterator[str]:
    model_dir, export_dir = config.model_dir or '', config.export_dir or ''
    own, data, export = map(_place, (model_dir, config.data_dir, export_dir))
    if {*model_dir} & {*_GLOB_CHARACTERS}:
        yield f'--model_dir={_text(model_dir)}: must not contain any of the characters * ? [.'
    if own and own == data:
        yield f'--model_dir={_text(model_dir)}: must not be --data_dir; keep checkpoints apart from the records.'
    for flag, folder in (('model_dir', own), ('data_dir', data)):
        if export and export == folder:
            yield (
                f'--export_dir={_text(export_dir)}: must not be --{flag}; give SavedModels a folder of their own, such '
                'as a subfolder.'
            )
    if config.max_bad_records and not model_dir:
        yield f'--max_bad_records={config.max_bad_records}: needs --model_dir, where skipped records are listed.'


def _records(config: Config) -> Iterator[str]:
    if config.use_annotated_bbox and config.data_format == 'tar':
        yield '--use_annotated_bbox=True: --data_format=tar has no bounding boxes.'
    for flag in FILE_FLAGS.values():
        try:
            expand(getattr(config, flag) or '-', flag)
        except PatternError as error:
            yield str(error)
    is_tar, label = config.data_format == 'tar', config.label_key
    # Whether the key names a file or a JSON key beside the image; other keys stand for the documented label.
    is_of_tar = label_of(label) != DOCUMENTED_LABEL or label == LABEL_EXTENSION
    for flag, key, default, fits in (
        ('image_key', config.image_key, Config.image_key, not is_tar),
        ('label_key', label, Config.label_key, not is_tar or is_of_tar),
    ):
        if not key:
            yield f'--{flag}=: must be a key of the records, such as {default}.'
        elif key != default and not fits:
            yield (
                f'--{flag}={_text(key)}: is for TFRecord files; the files of a tar shard are KEY.jpg and KEY.cls. '
                '--label_key=txt names KEY.txt as the label, --label_key=json:NAME a whole number in KEY.json.'
            )
    if config.image_key and config.image_key == label:
        yield f'--label_key={_text(label)}: must not be --image_key.'


def _images(config: Config) -> Iterator[str]:
    needed = PREPROCESSINGS[config.preprocessing].bytes_need
    if config.transfer == 'uint8' and needed and not getattr(config, needed):
        yield (
            f'--transfer=uint8: needs --{needed}=True. Without it, resizing gives values below black and above white, '
            'which bytes cannot hold.'
        )
    if config.image_summaries and config.use_data == 'fake':
        yield f'--image_summaries={config.image_summaries}: needs --use_data=real; fake images are noise.'


def _profile_steps(config: Config) -> Iterator[str]:
    if not config.profile_steps:
        return
    per_eval, fits = config.train_steps_per_eval, False
    if _PROFILE_STEPS.fullmatch(config.profile_steps) and config.mode != 'eval':
        first, last = config.profiled_steps
        spans_evaluation = config.mode == 'train_and_eval' and (first - 1) // per_eval != (last - 1) // per_eval
        is_short = first <= last < first + _MOST_PROFILED_STEPS
        fits = is_short and last <= config.train_steps and not spans_evaluation
    if not fits:
        yield (
            f'--profile_steps={shown(config.profile_steps)}: must be the first and the last step, counted from 1, such '
            f'as 101,110: at most {_MOST_PROFILED_STEPS} training steps up to --train_steps={config.train_steps}, '
            f'without an evaluation between them (--train_steps_per_eval={per_eval}, --mode={config.mode}).'
        )


def _weights(config: Config) -> Iterator[str]:
    if config.init_except and not config.init_from:
        yield f'--init_except={_text(config.init_except)}: needs --init_from, the weights to begin from.'
    is_own = bool(config.init_from) and _place(config.init_from) == _place(config.model_dir or '')
    if is_own and config.mode != 'eval':
        yield (
            f'--init_from={_text(config.init_from)}: must not be --model_dir, which the run resumes from anyway. '
            'Leave the flag out, or name a new --model_dir.'
        )
    for name in ('init_except', 'freeze'):
        value = getattr(config, name)
        if value and not all(part.strip(' /') for part in value.split(',')):
            yield f'--{name}={_text(value)}: must be names of scopes, separated by commas, such as Logits,AuxLogits.'


def _loss(config: Config) -> Iterator[str]:
    given = class_weights.given(config)
    if given == class_weights.BALANCED and config.use_data == 'fake':
        yield f'--class_weights={given}: needs the numbers of images of a data set; here --use_data=fake.'
    # A number is a mistake, not a file.
    if given.replace('.', '').isdecimal():
        yield f'--class_weights={_text(given)}: must be balanced, or a CSV file with a weight for each class.'


# Flags that take effect only with some values of another flag: that flag, the condition, and the remedy.
_RECORDS = (
    'data_format',
    'train_files',
    'eval_files',
    'image_key',
    'label_key',
    'label_offset',
    'num_files_infeed',
    'initial_shuffle_buffer_size',
    'followup_shuffle_buffer_size',
    'prefetch_dataset_buffer_size',
    'max_bad_records',
    'use_annotated_bbox',
    'crop_area_min',
    'crop_aspect_ratio_max',
)
_Need = Tuple[Tuple[str, ...], str, Callable[[Config], bool], str]
_NEEDS: Tuple[_Need, ...] = (
    (('tpu', 'master', 'tpu_zone', 'gcp_project'), 'use_tpu', lambda c: c.use_tpu, '--use_tpu=True'),
    (('tpu_zone', 'gcp_project'), 'tpu', lambda c: topology.is_remote(c.tpu), 'the name of a Cloud TPU'),
    (('tpu_zone', 'gcp_project'), 'master', lambda c: not (c.use_tpu and c.master), '--tpu'),
    (_RECORDS, 'use_data', lambda c: c.use_data == 'real', '--use_data=real'),
    (
        ('cb_distortion_range', 'cr_distortion_range'),
        'use_fast_color_distort',
        lambda c: c.use_fast_color_distort or not _takes(c.preprocessing, 'use_fast_color_distort'),
        '--use_fast_color_distort=True',
    ),
    (('moving_average_decay',), 'moving_average', lambda c: c.moving_average, '--moving_average=True'),
    (('step_epochs',), 'schedule', lambda c: c.schedule == 'step', '--schedule=step'),
    (('learning_rate_decay_epochs',), 'schedule', lambda c: c.schedule == 'exponential', '--schedule=exponential'),
    (('learning_rate_decay',), 'schedule', lambda c: c.schedule != 'cosine', '--schedule=exponential or step'),
    (
        ('cold_epochs', 'cap_warmup'),
        'schedule',
        lambda c: c.schedule == 'exponential' or not c.use_learning_rate_warmup,
        '--schedule=exponential',
    ),
    (
        ('cold_epochs', 'warmup_epochs', 'cap_warmup'),
        'use_learning_rate_warmup',
        lambda c: c.use_learning_rate_warmup,
        '--use_learning_rate_warmup=True',
    ),
    (
        ('learning_rate_decay_epochs', 'step_epochs'),
        'learning_rate_decay',
        lambda c: c.schedule == 'cosine' or c.learning_rate_decay < 1,
        'a value below 1',
    ),
    (('init_averages',), 'init_from', lambda c: bool(c.init_from), 'weights to begin from'),
    (('freeze_batch_norm',), 'freeze', lambda c: bool(c.freeze), 'scopes to freeze'),
    (('class_weights',), 'mode', lambda c: c.mode != 'eval', '--mode=train or train_and_eval'),
    (('keep_best',), 'mode', lambda c: c.mode != 'train', '--mode=train_and_eval or eval'),
    (('min_eval_interval', 'eval_timeout'), 'mode', lambda c: c.mode == 'eval', '--mode=eval'),
)
# Values that make a setting meaningless, by flag: the value, and its consequence.
_MEANINGLESS = {
    'batch_norm_decay': (1.0, 'the moving mean and variance would keep their initial values for ever'),
    'moving_average_decay': (1.0, 'the averages would keep the initial weights for ever'),
    'label_smoothing': (1.0, 'every label would be spread over all classes, and nothing could be learned'),
}
_WARM_UP = ('warmup_epochs', 'cold_epochs', 'use_learning_rate_warmup')


def has_effect(name: str, config: Config) -> bool:
    """Whether the other values of a configuration let a flag have an effect."""
    return all(holds(config) for names, _, holds, _ in _needs() if name in names)


def _needs() -> Iterator[_Need]:
    yield from _NEEDS
    for name in dict.fromkeys(name for kind in PREPROCESSINGS.values() for name in sorted(kind.settings)):
        kinds = ' or '.join(kind for kind in PREPROCESSINGS if _takes(kind, name))
        yield (name,), 'preprocessing', functools.partial(_is_taken, name), f'--preprocessing={kinds}'


def _takes(preprocessing: str, setting: str) -> bool:
    return setting in PREPROCESSINGS[preprocessing].settings


def _is_taken(setting: str, config: Config) -> bool:
    return _takes(config.preprocessing, setting)


def _without_effect(config: Config, given: AbstractSet[str]) -> Iterator[str]:
    for names, cause, holds, remedy in _needs():
        if cause in given and not holds(config):
            for name in names:
                if name in given and getattr(config, name) not in ('', None):
                    yield (
                        f'{_flag(name, config)}: has no effect with {_flag(cause, config)}; it needs {remedy}. Leave '
                        'out one of the two.'
                    )
    if 'network' in given:
        for name in sorted({*OPTIONS} & given - NETWORKS[config.network].options):
            # False changes no network; `_network` refuses other values than the default.
            if getattr(config, name) is not False:
                yield (
                    f'{_flag(name, config)}: has no effect with --network={config.network}, which has no '
                    f'{OPTIONS[name]}; it needs {_able(name)}. Leave the flag out.'
                )


def _of_given(config: Config, given: AbstractSet[str]) -> Iterator[str]:
    for steps, epochs in EPOCHS.items():
        if {steps, epochs} <= given and getattr(config, epochs):
            yield (
                f'{_flag(epochs, config)}: replaces --{steps}, which follows from the number of training images; here '
                f'{_flag(steps, config)}. Leave out one of the two.'
            )
    for name, (value, consequence) in _MEANINGLESS.items():
        is_off = name == 'moving_average_decay' and not config.moving_average
        if name in given and getattr(config, name) == value and not is_off:
            yield f'--{name}={value:g}: must be below {value:g}; {consequence}.'
    smallest = NETWORKS[config.network].auxiliary_head_min_size
    are_given = 'auxiliary_head' in given and {'height', 'width'} & given
    if are_given and config.auxiliary_head and smallest > min(config.height, config.width):
        yield (
            f'--auxiliary_head=True: needs images of at least {smallest} x {smallest} pixels; --height='
            f'{config.height} and --width={config.width} are too small. Leave one of the flags out.'
        )
    sizes = sorted({each.cores for each in topology.CLOUD_TPUS.values()})
    names_tpu = config.use_tpu and bool(config.master or config.tpu) and not config.is_emulated
    if 'num_shards' in given and names_tpu and config.num_shards not in sizes:
        yield f'--num_shards={config.num_shards}: no Cloud TPU has so many cores; they have {alternatives(sizes)}.'


def problems_with_data_set(config: Config, given: AbstractSet[str]) -> Iterator[str]:
    """Messages about flags that contradict the sizes of the data set in the configuration."""
    if config.mode != 'train' and config.eval_total_size > config.num_eval_images and 'eval_total_size' in given:
        yield (
            f'--eval_total_size={config.eval_total_size}: there are {config.num_eval_images:,} validation images '
            '(--num_eval_images), and each is evaluated once. Give at most as many, or 0 for all.'
        )
    warm_up = [name for name in _WARM_UP if name in given]
    epochs = config.train_steps * config.train_batch_size / config.num_train_images
    warm_up_epochs = config.warmup_epochs + (config.cold_epochs if config.schedule == 'exponential' else 0)
    is_too_long = config.mode != 'eval' and config.use_learning_rate_warmup and warm_up_epochs >= epochs
    if warm_up and {'train_steps', 'train_epochs'} & given and is_too_long:
        yield (
            f'{_flag(warm_up[0], config)}: the warm-up takes {warm_up_epochs} epochs, and the run with --train_steps='
            f'{config.train_steps} ends after {epochs:,.1f}. Shorten the warm-up, or raise --train_steps.'
        )


def _able(option: str) -> str:
    return ' or '.join(name for name, network in NETWORKS.items() if option in network.options)


def _flag(name: str, config: Config) -> str:
    return f'--{name}={shown(getattr(config, name))}'
