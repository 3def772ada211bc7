"""The configuration of a run: one immutable, validated object, and the presets that make variants.

Every field of `Config` is a command-line flag of the same name; `inception_v3.flags` makes the flags
from the fields, so a name, a default, a unit and a bound stand here and nowhere else.
"""

import dataclasses
import functools
import json
import math
import os
import re
import unicodedata
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple, get_type_hints

from console.errors import CommandError
from console.messages import shown
from inception_v3.networks.registry import NETWORKS
from inception_v3.tpu import topology

# TensorFlow's sizes are of 32 bits, as its floating-point numbers are; and a path has at most 4,096 bytes.
_LARGEST_INT = 2**31 - 1
_SMALLEST_FLOAT, _LARGEST_FLOAT = 2.0**-126, 2.0**127
_LONGEST_TEXT = 4096
_STEP_EPOCH = re.compile('[1-9][0-9]{0,5}')


class ConfigError(CommandError, ValueError):
    """A value, or a combination of values, that a run cannot have."""


class Setting(NamedTuple):
    """What is known of a field besides its name, type and default."""

    group: str
    help: str
    lower: Optional[float] = None
    upper: Optional[float] = None
    above: Optional[float] = None
    choices: Tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The allowed values in words; empty if every value of the type is allowed."""
        if self.choices:
            return ' or '.join([', '.join(self.choices[:-1]), self.choices[-1]])
        bounds = []
        if self.above is not None:
            bounds.append(f'above {_plain(self.above)}')
        if self.lower is not None:
            bounds.append(f'at least {_plain(self.lower)}')
        if self.upper is not None:
            bounds.append(f'at most {_plain(self.upper)}')
        return ' and '.join(bounds)

    def allows(self, value: Any) -> bool:
        """Whether `value`, of the right type, is among the choices and within the bounds."""
        if self.choices and value not in self.choices:
            return False
        return (
            (self.above is None or value > self.above)
            and (self.lower is None or value >= self.lower)
            and (self.upper is None or value <= self.upper)
        )


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f'{bound:g}'


def _setting(group: str, default: Any, help: str, **limits: Any) -> Any:
    return dataclasses.field(default=default, metadata={'setting': Setting(group, help, **limits)})


_cluster = functools.partial(_setting, 'cluster')
_data = functools.partial(_setting, 'data')
_preprocessing = functools.partial(_setting, 'preprocessing')
_network = functools.partial(_setting, 'network')
_optimizer = functools.partial(_setting, 'optimizer')
_schedule = functools.partial(_setting, 'schedule')
_run = functools.partial(_setting, 'run')


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a run depends on. `Config()` is the documented default.

    Make variants with `dataclasses.replace(config, field=value)`.

    Raises:
      ConfigError: a value is of the wrong type or outside its bounds, or values contradict each other.
    """

    tpu: Optional[str] = _cluster(
        None, 'name of the Cloud TPU node, or emulated:CORES or emulated:CORESxHOSTS for one emulated on this machine'
    )
    gcp_project: Optional[str] = _cluster(None, "the TPU node's Google Cloud project")
    tpu_zone: Optional[str] = _cluster(None, "the TPU node's zone")
    master: str = _cluster('', 'grpc:// address of the TPU worker, in place of a name in --tpu')
    use_tpu: bool = _cluster(True, 'run on a TPU; False: on the CPU of this machine')
    num_shards: int = _cluster(8, 'TPU cores', lower=1)
    iterations: int = _cluster(100, 'training steps per loop on the TPU, between visits of the host', lower=1)
    intra_op_threads: int = _cluster(
        0,
        'threads of an operation on the CPU, on which the last bits of its result depend; 0: as many as cores, and '
        'with --seed as many as when the run began',
        lower=0,
    )
    log_device_placement: bool = _cluster(False, 'log the device on which each operation is placed')

    use_data: str = _data(
        'real', 'what to read: the records in --data_dir, or made-up images', choices=('real', 'fake')
    )
    data_dir: str = _data('', 'folder of the records, train-* and validation-*')
    data_format: str = _data(
        'tfrecord',
        'files of the records: TFRecord files, or tar files as webdataset has them, each read into memory whole',
        choices=('tfrecord', 'tar'),
    )
    num_train_images: int = _data(
        1281167, "training images in an epoch; default: as dataset.json in --data_dir says, else ImageNet's", lower=1
    )
    num_eval_images: int = _data(
        50000, "validation images; default: as dataset.json in --data_dir says, else ImageNet's", lower=1
    )
    num_classes: int = _data(
        1001, "classes, background included; default: as dataset.json in --data_dir says, else ImageNet's", lower=2
    )
    train_batch_size: int = _data(1024, 'images per training step, over all cores', lower=1)
    eval_batch_size: int = _data(1024, 'images per evaluation step, over all cores', lower=1)
    eval_total_size: int = _data(0, 'validation images to evaluate; 0: all of them', lower=0)
    num_files_infeed: int = _data(8, 'record files that a host reads at a time', lower=1)
    initial_shuffle_buffer_size: int = _data(1024, 'files in the buffer that shuffles the training files', lower=1)
    followup_shuffle_buffer_size: int = _data(1000, 'records in the buffer that shuffles the training records', lower=1)
    prefetch_dataset_buffer_size: int = _data(
        8 << 20, 'bytes that each record file is read ahead; all together: 256 MiB at most', lower=1
    )
    prefetch_enabled: bool = _data(True, 'prepare the next batches while a step runs')
    num_parallel_calls: int = _data(
        64, 'images at most that a host preprocesses at a time; this machine: no more than it has cores', lower=1
    )
    transpose_enabled: bool = _data(False, 'send images as height, width, channels, batch, which a TPU takes faster')
    transfer: str = _data(
        'float',
        'what is sent to the device for an image: all of its finished pixels (float); or a byte each, and the flip and '
        'the colours that are to be done to it there (uint8)',
        choices=('float', 'uint8'),
    )
    max_bad_records: int = _data(0, 'records per split that may be skipped because they cannot be used', lower=0)

    preprocessing: str = _preprocessing('inception', 'preprocessing of the images', choices=('inception', 'vgg'))
    height: int = _preprocessing(299, 'height of the images that the network sees, in pixels', lower=1)
    width: int = _preprocessing(299, 'width of the images that the network sees, in pixels', lower=1)
    use_annotated_bbox: bool = _preprocessing(False, "crop around the records' bounding boxes (inception)")
    crop_area_min: float = _preprocessing(
        0.05, 'smallest random crop, as a fraction of the image (inception)', above=0, upper=1
    )
    crop_aspect_ratio_max: float = _preprocessing(
        4 / 3, 'widest random crop, width over height; the narrowest is its inverse (inception)', lower=1, upper=100
    )
    random_flip: bool = _preprocessing(True, 'mirror every other training image')
    fast_mode: bool = _preprocessing(
        True, 'resize bilinearly and leave hue and contrast alone; False: a random method, and all four (inception)'
    )
    use_fast_color_distort: bool = _preprocessing(
        True, 'distort colour as one shift in YCbCr; False: by brightness and saturation and more (inception)'
    )
    cb_distortion_range: float = _preprocessing(
        0.1, 'largest shift of Cb by the fast colour distortion, of a range of 1 (inception)', lower=0, upper=1
    )
    cr_distortion_range: float = _preprocessing(
        0.1, 'largest shift of Cr by the fast colour distortion, of a range of 1 (inception)', lower=0, upper=1
    )
    brightness_distortion_range: float = _preprocessing(
        32 / 255,
        'largest shift of brightness by either colour distortion, of a range of 1 (inception)',
        lower=0,
        upper=1,
    )

    network: str = _network('inception_v3', 'the network', choices=tuple(NETWORKS))
    depth_multiplier: float = _network(
        1.0, 'factor on the channels of every layer (at least 16 remain)', above=0, upper=100
    )
    auxiliary_head: bool = _network(
        True,
        'train the auxiliary classifier too; inputs below '
        f'{NETWORKS["inception_v3"].auxiliary_head_min_size} pixels leave it out (inception_v3)',
    )
    zero_init_last_scale: bool = _network(
        False, 'begin with residual blocks that change nothing: 0 as the scale after their last convolution (resnet50)'
    )
    rebuild_activations: bool = _network(
        True, 'rebuild activations for the backward pass; False: keep them, which takes memory and saves time (revnet)'
    )
    batch_norm_decay: float = _network(
        0.9976, 'decay per step of the moving mean and variance of batch normalization', lower=0, upper=1
    )
    batch_norm: str = _network(
        'local',
        "moments that batch normalization uses and keeps: each core's own (local); its own, with the mean over the "
        'cores of their moving statistics (averaged); those over all cores (synchronized)',
        choices=('local', 'averaged', 'synchronized'),
    )
    batch_norm_group_size: int = _network(
        0, 'cores that synchronize their batch normalization with each other; 0: all of them', lower=0
    )
    clear_update_collections: bool = _network(
        True, 'update the moving mean and variance as each layer runs; False: through the UPDATE_OPS collection'
    )
    precision: str = _network(
        'float32', 'type of the activations; variables are always float32', choices=('float32', 'bfloat16')
    )

    optimizer: str = _optimizer(
        'RMS', 'optimizer: gradient descent, momentum or RMSProp', choices=('sgd', 'momentum', 'RMS')
    )
    label_smoothing: float = _optimizer(
        0.1, 'share of each label that is spread over all classes in the training loss', lower=0, upper=1
    )
    weight_decay: float = _optimizer(
        4e-5, "factor on half the sum of squares of the convolutions' weights in the training loss", lower=0, upper=1
    )
    moving_average: bool = _optimizer(True, 'average the weights, and evaluate and export the averages')
    moving_average_decay: float = _optimizer(0.995, 'decay per step of the averages of the weights', lower=0, upper=1)

    learning_rate: float = _schedule(0.165, 'learning rate per 256 images in a batch', above=0)
    schedule: str = _schedule(
        'exponential',
        'course of the learning rate: a decay every few epochs (exponential); a decay at --step_epochs (step); half a '
        'cosine down to 0 at --train_steps (cosine)',
        choices=('exponential', 'step', 'cosine'),
    )
    learning_rate_decay: float = _schedule(
        0.94, 'factor on the learning rate at each decay (exponential, step)', above=0, upper=1
    )
    learning_rate_decay_epochs: int = _schedule(3, 'epochs between decays (exponential)', lower=1)
    step_epochs: str = _schedule('30,60,80', 'epochs at whose beginning the rate decays, rising (step)')
    use_learning_rate_warmup: bool = _schedule(False, 'start low: for large batches')
    cold_epochs: int = _schedule(2, 'epochs at a tenth of the rate, at the start of a warm-up (exponential)', lower=0)
    warmup_epochs: int = _schedule(7, 'epochs in which a warm-up rises', lower=0)

    mode: str = _run('train_and_eval', 'what to do', choices=('train', 'eval', 'train_and_eval'))
    model_dir: Optional[str] = _run(None, 'folder of the checkpoints and results')
    export_dir: Optional[str] = _run(None, 'folder for a new SavedModel of the last checkpoint; default: no export')
    train_steps: int = _run(213000, 'training steps in all', lower=1)
    train_steps_per_eval: int = _run(2000, 'training steps between evaluations (train_and_eval)', lower=1)
    min_eval_interval: int = _run(180, 'seconds at least between evaluations (eval)', lower=0)
    eval_timeout: Optional[int] = _run(
        None, 'seconds to wait for a new checkpoint before giving up (eval); default: for ever', lower=0
    )
    save_checkpoints_secs: int = _run(1000, 'seconds between checkpoints', lower=1)
    keep_best: bool = _run(False, 'keep the checkpoint with the best top-1 in model_dir/best (eval, train_and_eval)')
    skip_damaged_checkpoints: bool = _run(
        False, 'go on from the newest checkpoint that is whole, and name those that are damaged; False: refuse'
    )
    seed: Optional[int] = _run(
        None,
        'number from which all that is random follows, so that a run can be repeated to the bit; default: another each '
        'time',
        lower=0,
        upper=2**31 - 1,
    )
    skip_host_call: bool = _run(
        True,
        "let the host write the training summaries when it visits the TPU, with the first core's loss; False: the TPU "
        'sends loss, learning rate and epoch to be written in every such step, with the mean loss over all cores',
    )
    save_summary_steps: int = _run(100, 'steps between training summaries', lower=1)
    image_summaries: int = _run(
        0,
        'images of training, before and after distortion, and of evaluation, that are written for TensorBoard at the '
        'start of each',
        lower=0,
        upper=99,
    )
    step_lines: bool = _run(
        False,
        'log a line at each visit of the host to training (each step, on a TPU each --iterations) with Rate and '
        'GlobalRate, one for each epoch, and in the end Max Accuracy; False: one line that is renewed',
    )
    display_tensors: bool = _run(False, "print each evaluated image's label, predictions and probabilities")

    def __post_init__(self) -> None:
        problems = [*self._wrong_values()]
        if not problems:
            problems = [*self._contradictions()]
        if problems:
            raise ConfigError('\n'.join(problems))

    def _wrong_values(self) -> Iterable[str]:
        types = get_type_hints(Config)
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            setting = setting_of(field)
            expected = plain_type(types[field.name])
            if value is None and field.default is None:
                continue
            if expected is float and type(value) is int:
                # A whole number where a float belongs, as JSON and people write it.
                value = float(value) if abs(value) <= _LARGEST_FLOAT else math.inf
                object.__setattr__(self, field.name, value)
            flag = f'--{field.name}={shown(value)}'
            if type(value) is not expected or (isinstance(value, float) and not math.isfinite(value)):
                yield f'{flag}: must be {TYPE_NAMES[expected]}.'
            elif not setting.allows(value):
                yield f'{flag}: must be {setting.allowed}.'
            elif _beyond(value):
                yield f'{flag}: must be {_beyond(value)}.'

    def _cluster_contradictions(self) -> Iterable[str]:
        if self.master and not self.master.startswith('grpc://'):
            yield f'--master={self.master}: must be an address that begins with grpc://.'
        if topology.is_emulated(self.tpu):
            try:
                cores = topology.emulated(str(self.tpu)).cores
            except ValueError as error:
                yield f'--tpu={self.tpu}: {error}.'
                return
            if self.use_tpu and self.num_shards != cores:
                yield f'--num_shards={self.num_shards}: --tpu={self.tpu} has {cores} cores.'
            if self.master:
                yield f'--master={self.master}: an emulated TPU, --tpu={self.tpu}, has no address.'
        if self.master and self.tpu and not topology.is_emulated(self.tpu):
            yield f'--master={self.master}: is in place of a name; leave out --tpu={self.tpu}.'
        # An evaluation does without, on whatever it runs.
        if self.batch_norm_group_size and self.mode != 'eval':
            size, replicas = self.batch_norm_group_size, self.replicas
            if self.batch_norm != 'synchronized':
                yield f'--batch_norm_group_size={size}: needs --batch_norm=synchronized; here it is {self.batch_norm}.'
            elif replicas % size:
                yield (
                    f'--batch_norm_group_size={size}: must divide the number of cores, {replicas} '
                    f'({"--num_shards" if self.use_tpu else "--use_tpu=False has one"}).'
                )

    def _contradictions(self) -> Iterable[str]:
        if self.use_tpu:
            for name in ('train_batch_size', 'eval_batch_size'):
                size = getattr(self, name)
                if size % self.num_shards:
                    near = max(1, round(size / self.num_shards)) * self.num_shards
                    yield (
                        f'--{name}={size}: must be a multiple of the number of TPU cores, '
                        f'--num_shards={self.num_shards}; the nearest is {near}.'
                    )
        yield from self._cluster_contradictions()
        yield from self._schedule_contradictions()
        smallest = NETWORKS[self.network].min_size
        for name in ('height', 'width'):
            if getattr(self, name) < smallest:
                yield f'--{name}={getattr(self, name)}: must be at least {smallest} with --network={self.network}.'
        if self.transfer == 'uint8' and self.preprocessing == 'inception' and not self.fast_mode:
            yield (
                '--transfer=uint8: needs --fast_mode=True. Bytes cannot hold what bicubic resizing makes beyond black '
                'and white, and on the device a batch has one order of colour operations.'
            )
        if self.model_dir and set(self.model_dir) & set('*?['):
            yield f'--model_dir={self.model_dir}: must not have any of the characters * ? [ in its name.'
        if self.model_dir and self.data_dir and os.path.normpath(self.model_dir) == os.path.normpath(self.data_dir):
            yield f'--model_dir={self.model_dir}: must not be --data_dir; checkpoints would lie among the records.'
        if self.use_annotated_bbox and self.data_format == 'tar':
            yield '--use_annotated_bbox=True: --data_format=tar has no bounding boxes.'
        if self.image_summaries and self.use_data == 'fake':
            yield f'--image_summaries={self.image_summaries}: needs --use_data=real; made-up images are noise.'
        if self.max_bad_records and not self.model_dir:
            yield f'--max_bad_records={self.max_bad_records}: needs a --model_dir, where skipped records are named.'
        if self.max_bad_records and self.seed is not None and self.mode != 'eval':
            yield (
                f'--max_bad_records={self.max_bad_records}: not with --seed, which counts every record. '
                'python -m data.audit names those that cannot be used: leave them out of the data set.'
            )

    def _schedule_contradictions(self) -> Iterable[str]:
        if self.use_learning_rate_warmup:
            if self.schedule == 'exponential' and self.warmup_epochs + self.learning_rate_decay_epochs < 2:
                yield (
                    f'--warmup_epochs={self.warmup_epochs}: must be at least 1 with --use_learning_rate_warmup and '
                    f'--learning_rate_decay_epochs={self.learning_rate_decay_epochs}.'
                )
            if self.schedule != 'exponential' and self.warmup_epochs < 1:
                yield (
                    f'--warmup_epochs={self.warmup_epochs}: must be at least 1 with --use_learning_rate_warmup and '
                    f'--schedule={self.schedule}.'
                )
        listed = self.step_epochs.split(',')
        if not all(_STEP_EPOCH.fullmatch(epoch) for epoch in listed) or [*self.steps_down] != sorted(
            set(self.steps_down)
        ):
            yield f'--step_epochs={shown(self.step_epochs)}: must be whole epochs from 1 on, rising, such as 30,60,80.'

    @property
    def steps_down(self) -> Tuple[int, ...]:
        """The epochs that `step_epochs` lists."""
        return tuple(int(epoch) for epoch in self.step_epochs.split(',') if _STEP_EPOCH.fullmatch(epoch))

    @property
    def evaluated_weights(self) -> str:
        """The weights that evaluation and export use: `average` or `raw`."""
        return 'average' if self.moving_average else 'raw'

    @property
    def is_emulated(self) -> bool:
        """Whether the run's TPU is emulated on this machine."""
        return self.use_tpu and topology.is_emulated(self.tpu)

    @property
    def replicas(self) -> int:
        """Copies of the network that share out a batch: a TPU's cores, or 1 on a CPU."""
        return self.num_shards if self.use_tpu else 1

    @property
    def hosts(self) -> int:
        """Machines whose input pipelines feed the run."""
        return topology.hosts_of(self.tpu, self.num_shards) if self.use_tpu else 1

    @property
    def has_auxiliary_head(self) -> bool:
        """Whether the network is built with its auxiliary head: asked for, and its input is large enough."""
        smallest = NETWORKS[self.network].auxiliary_head_min_size
        return self.auxiliary_head and 0 < smallest <= min(self.height, self.width)

    @property
    def eval_images(self) -> int:
        """Validation images that an evaluation is to see."""
        return self.eval_total_size or self.num_eval_images

    def to_json(self) -> str:
        """This configuration as a JSON object, a line per field; `from_json` reads it back."""
        return json.dumps(dataclasses.asdict(self), indent=2) + '\n'

    @classmethod
    def from_json(cls, text: str) -> 'Config':
        """The configuration that `to_json` wrote; fields that it lacks take their default.

        Raises:
          ConfigError: not a JSON object, a field that does not exist, or a value that is not allowed.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f'The configuration is not JSON: {error}.')
        if not isinstance(values, dict):
            raise ConfigError('The configuration is not a JSON object.')
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ConfigError(f'The configuration has fields that do not exist: {shown(", ".join(unknown))}.')
        return cls(**values)


TYPE_NAMES = {int: 'a whole number', float: 'a number', bool: 'True or False', str: 'a text'}


def _beyond(value: Any) -> Optional[str]:
    """What is allowed, if a value of the right type is beyond what TensorFlow and file systems hold."""
    if isinstance(value, int) and value > _LARGEST_INT:
        return f'at most {_LARGEST_INT}'
    if isinstance(value, float) and value and not _SMALLEST_FLOAT <= abs(value) <= _LARGEST_FLOAT:
        return f'a number of 32 bits, {_SMALLEST_FLOAT:.2g} to {_LARGEST_FLOAT:.2g}'
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f'a text of at most {_LONGEST_TEXT:,} characters'
    if isinstance(value, str) and any(unicodedata.category(character) in ('Cc', 'Cs') for character in value):
        return 'a text in UTF-8, without control characters'
    return None


def setting_of(field: 'dataclasses.Field[Any]') -> Setting:
    """The group, help and bounds of a field of `Config`."""
    return field.metadata['setting']


def plain_type(annotation: Any) -> type:
    """The type of a field's values: that of an `Optional`'s content, else the annotation itself."""
    return next((t for t in getattr(annotation, '__args__', ()) if t is not type(None)), annotation)


def differences(old: Config, new: Config) -> List[str]:
    """The fields in which two configurations differ, as `name: old -> new`."""
    return [
        f'{field.name}: {getattr(old, field.name)} -> {getattr(new, field.name)}'
        for field in dataclasses.fields(Config)
        if getattr(old, field.name) != getattr(new, field.name)
    ]
