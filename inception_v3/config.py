"""The configuration of a run: one immutable object of plain data, whose values are within their bounds.

Every field of `Config` is a command-line flag of the same name. `flags` makes the flags from the fields, so names,
defaults, help texts and bounds are defined here alone. `rules` checks values against each other. Of this module, only
`Config.source` needs TensorFlow.

The documented defaults are those of the guide, "Advanced Guide to Inception v3 on Cloud TPU" (Google Cloud's
documentation of TPUs, undated; docs/map.md), and of the program that it describes.
"""

import dataclasses
import functools
import json
import math
import unicodedata
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterable, NamedTuple, Optional, Tuple, get_type_hints

from compat.errors import CommandError
from compat.messages import alternatives, meant, shown
from console.json_content import from_json
from inception_v3.networks.registry import NETWORKS
from preprocessing.preprocessings import PREPROCESSINGS

if TYPE_CHECKING:
    from data.sources import Source

TYPE_NAMES = {int: 'a whole number', float: 'a number', bool: 'True or False', str: 'a string'}

# TensorFlow's integers and floats have 32 bits; a Linux path has at most 4,096 bytes.
_LARGEST_INT = 2**31 - 1
SMALLEST_FLOAT, LARGEST_FLOAT = 2.0**-126, 2.0**127
_LONGEST_TEXT = 4096
# Enough for the weights of many thousand classes.
_LONGEST_WEIGHTS = 1 << 20
# More threads slow every machine down, and many more cannot be started.
_MOST_THREADS = 1024
# TensorFlow allocates 24 bytes for each place of a shuffle buffer at once.
_MOST_SHUFFLED = 10_000_000
# The value of `--num_gpus` for all visible GPUs.
ALL_GPUS = -1
_MOST_GPUS = 64
# The prefix of `--tpu` for an emulated TPU.
EMULATED = 'emulated:'

# The label of the images that pad the last batch of an evaluation; all metrics ignore them.
PADDING_LABEL = -1


class Setting(NamedTuple):
    """The metadata of a field besides its name, type and default: group and description in `--help`, and limits.

    A value must exceed `above`; the other bounds are inclusive. Without choices, all values within the bounds are
    allowed. `choices` may be a table that grows later. A string has at most `longest` characters.
    """

    group: str
    help: str
    lower: Optional[float] = None
    upper: Optional[float] = None
    above: Optional[float] = None
    choices: Collection[str] = ()
    longest: int = _LONGEST_TEXT

    @property
    def allowed(self) -> str:
        """The allowed values in words; empty if every value of the type is allowed."""
        if self.choices:
            return alternatives(self.choices)
        bounds = (('above', self.above), ('at least', self.lower), ('at most', self.upper))
        return ' and '.join(f'{words} {_plain(bound)}' for words, bound in bounds if bound is not None)

    def allows(self, value: Any) -> bool:
        """Whether `value`, of the right type, is among the choices and within the bounds."""
        return (
            (not self.choices or value in self.choices)
            and (self.above is None or value > self.above)
            and (self.lower is None or value >= self.lower)
            and (self.upper is None or value <= self.upper)
        )


def setting_of(field: 'dataclasses.Field[Any]') -> Setting:
    """The metadata of a field of `Config`."""
    return field.metadata['setting']


def plain_type(annotation: Any) -> type:
    """The type of a field's values: the content of an `Optional`, else the annotation itself."""
    return next((t for t in getattr(annotation, '__args__', ()) if t is not type(None)), annotation)


def _wrong_values(instance: 'Config') -> Iterable[str]:
    """Messages about fields that have a wrong type or are out of bounds.

    A whole number in a float field is converted to float first, since JSON and people write `1` for `1.0`.
    """
    for field in dataclasses.fields(instance):
        value: Any = getattr(instance, field.name)
        setting = setting_of(field)
        expected = _types()[field.name]
        if value is None and field.default is None:
            continue
        if expected is float and type(value) is int:
            value = float(value) if abs(value) <= LARGEST_FLOAT else math.inf
            object.__setattr__(instance, field.name, value)
        question = ''
        if type(value) is not expected or (isinstance(value, float) and not math.isfinite(value)):
            allowed: Optional[str] = TYPE_NAMES[expected]
        elif not setting.allows(value):
            allowed, question = setting.allowed, meant(str(value), setting.choices)
        else:
            allowed = _technical_limit(value, setting.longest)
        if allowed:
            yield f'--{field.name}={shown(value)}: must be {allowed}.{question}'


@functools.lru_cache(maxsize=None)
def _types() -> Dict[str, type]:
    return {name: plain_type(annotation) for name, annotation in get_type_hints(Config).items()}


def _technical_limit(value: Any, longest: int) -> Optional[str]:
    """The limit of TensorFlow or of file systems that a value exceeds, in words; None if it exceeds none."""
    if isinstance(value, int) and value > _LARGEST_INT:
        return f'at most {_LARGEST_INT}'
    if isinstance(value, float) and value and not SMALLEST_FLOAT <= abs(value) <= LARGEST_FLOAT:
        return f'a 32-bit number, {SMALLEST_FLOAT:.2g} to {LARGEST_FLOAT:.2g}'
    if isinstance(value, str) and len(value) > longest:
        return f'a string of at most {longest:,} characters'
    if isinstance(value, str) and any(unicodedata.category(character) in ('Cc', 'Cs') for character in value):
        return 'a UTF-8 string without control characters'
    return None


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f'{bound:g}'


class ConfigError(CommandError, ValueError):
    """A value, or a combination of values, that is not allowed."""


def _setting(group: str, default: Any, help: str, **limits: Any) -> Any:
    return dataclasses.field(default=default, metadata={'setting': Setting(group, help, **limits)})


_cluster = functools.partial(_setting, 'cluster')
_data = functools.partial(_setting, 'data')
_preprocessing = functools.partial(_setting, 'preprocessing')
_network = functools.partial(_setting, 'network')
_optimizer = functools.partial(_setting, 'optimizer')
_schedule = functools.partial(_setting, 'schedule')
_run = functools.partial(_setting, 'run')
_epochs = functools.partial(_run, None, above=0, upper=1_000_000)
_weights = functools.partial(_setting, 'weights')


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run, a flag for each field; `Config()` is the documented default.

    Make variants with `dataclasses.replace(config, field=value)`.

    Raises:
      ConfigError: a value is of the wrong type or outside its bounds. The message has a line per problem.
    """

    tpu: Optional[str] = _cluster(
        None,
        "name of the Cloud TPU, or its machines' addresses, grpc://A:8470,B:8470; local: the TPU of this TPU VM; "
        'emulated:CORES or emulated:CORESxHOSTS emulates a TPU on this machine',
    )
    gcp_project: Optional[str] = _cluster(None, 'Google Cloud project of the TPU; default: that of this machine')
    tpu_zone: Optional[str] = _cluster(None, 'zone of the TPU; default: that of this machine')
    master: str = _cluster('', 'grpc:// address of the TPU worker; replaces --tpu, --tpu_zone and --gcp_project')
    use_tpu: bool = _cluster(True, 'run on a TPU; False: on a GPU or the CPU of this machine')
    accelerator: str = _cluster(
        'auto', 'device without a TPU; auto: a GPU if one is visible, else the CPU', choices=('auto', 'cpu', 'gpu')
    )
    num_gpus: int = _cluster(
        1,
        'GPUs of a run without a TPU, each with a replica of the network; -1: all that are visible; with '
        '--accelerator=cpu, virtual devices of the CPU',
        lower=ALL_GPUS,
        upper=_MOST_GPUS,
    )
    worker_hosts: str = _cluster(
        '',
        'addresses HOST:PORT of the machines that train together without a TPU, the same on all, such as '
        'A:2222,B:2222; default: those in the environment variable TF_CONFIG, else this machine alone',
    )
    task_index: Optional[int] = _cluster(
        None, 'number of this machine among --worker_hosts, from 0; default: as in TF_CONFIG', lower=0
    )
    worker_timeout: int = _cluster(
        60, 'seconds without a sign of life of another machine after which the run ends', lower=2
    )
    num_shards: int = _cluster(8, 'number of TPU cores', lower=1)
    iterations: int = _cluster(100, 'training steps that a TPU runs before it returns to its host', lower=1)
    intra_op_threads: int = _cluster(
        0,
        'CPU threads per operation, which affect the last bits of results; 0: one per core, or with --seed as many as '
        'when the run started',
        lower=0,
        upper=_MOST_THREADS,
    )
    log_device_placement: bool = _cluster(False, 'log the device of each operation')

    use_data: str = _data(
        'real',
        'source of the images: the records in --data_dir (real) or random pixels (fake)',
        choices=('real', 'fake'),
    )
    data_dir: str = _data('', 'folder of the record files train-* and validation-*, or of folders train/ and val/')
    data_format: str = _data(
        'tfrecord',
        'format of the record files: TFRecord, or tar in the WebDataset layout',
        choices=('tfrecord', 'tar'),
    )
    train_files: str = _data(
        '',
        'training files, instead of those in --data_dir: patterns such as train-{000..639}.tar or train*.tfrecord, '
        'separated by commas, relative to --data_dir',
    )
    eval_files: str = _data('', 'validation files; as --train_files')
    image_key: str = _data('image/encoded', 'key of the encoded image in the records (tfrecord)')
    label_key: str = _data(
        'image/class/label',
        'key of the label, a whole number, in the records (tfrecord); or the extension of its file beside the image, '
        'or json:KEY (tar)',
    )
    label_offset: int = _data(
        0,
        'number to add to each label: 1 for labels from 0 in a data set without a background class',
        lower=-_LARGEST_INT,
        upper=_LARGEST_INT,
    )
    num_train_images: int = _data(
        1281167, "training images per epoch; default: as dataset.json says, or as counted, or ImageNet's", lower=1
    )
    num_eval_images: int = _data(50000, 'validation images; default: as --num_train_images', lower=1)
    num_classes: int = _data(
        1001, "classes, including the background; default: from dataset.json in --data_dir, else ImageNet's", lower=2
    )
    train_batch_size: int = _data(1024, 'images per training step, over all cores or GPUs', lower=1)
    eval_batch_size: int = _data(1024, 'images per evaluation step, over all cores or GPUs', lower=1)
    eval_total_size: int = _data(0, 'validation images to evaluate; 0: all', lower=0)
    num_files_infeed: int = _data(8, 'record files that each host reads at once', lower=1, upper=_MOST_THREADS)
    initial_shuffle_buffer_size: int = _data(
        1024, 'shuffle buffer of training files, in files; 0: off', lower=0, upper=_MOST_SHUFFLED
    )
    followup_shuffle_buffer_size: int = _data(
        1000, 'shuffle buffer of training records, in records; 0: off', lower=0, upper=_MOST_SHUFFLED
    )
    prefetch_dataset_buffer_size: int = _data(
        8 << 20, 'read-ahead buffer of each record file, in bytes; 0: none; all together use 256 MiB at most', lower=0
    )
    prefetch_enabled: bool = _data(True, 'prepare the next batches while a step runs')
    num_parallel_calls: int = _data(
        64, 'images that each host preprocesses in parallel; on this machine at most four per core', lower=1
    )
    transpose_enabled: bool = _data(False, 'send images as height, width, channels, batch: faster on a TPU')
    transfer: str = _data(
        'float',
        'pixels sent to the device: finished (float), or one byte per value, which the device flips and distorts in '
        'colour (uint8)',
        choices=('float', 'uint8'),
    )
    max_bad_records: int = _data(0, 'corrupt records to skip, per split, before the run fails', lower=0)

    preprocessing: str = _preprocessing('inception', 'preprocessing of the images', choices=PREPROCESSINGS)
    height: int = _preprocessing(299, 'height of the input images, in pixels', lower=1)
    width: int = _preprocessing(299, 'width of the input images, in pixels', lower=1)
    use_annotated_bbox: bool = _preprocessing(False, 'crop around the bounding boxes of the records (inception)')
    crop_area_min: float = _preprocessing(
        0.05, 'smallest area of a random crop, as a fraction of the image (inception)', above=0, upper=1
    )
    crop_aspect_ratio_max: float = _preprocessing(
        4 / 3, 'largest width / height of a random crop; the smallest is its reciprocal (inception)', lower=1, upper=100
    )
    crop_padding: int = _preprocessing(4, 'black pixels around an image before its crop (cifar)', lower=0, upper=999)
    random_flip: bool = _preprocessing(True, 'flip half of the training images left to right')
    fast_mode: bool = _preprocessing(
        True, 'bilinear resize, no hue or contrast distortion; False: a random resize method and both (inception)'
    )
    use_fast_color_distort: bool = _preprocessing(
        True,
        'distort colour by one shift in YCbCr; False: by brightness and saturation, and without --fast_mode by hue and '
        'contrast (inception)',
    )
    cb_distortion_range: float = _preprocessing(
        0.1, 'largest shift of Cb in the fast colour distortion, for pixels in [0, 1] (inception)', lower=0, upper=1
    )
    cr_distortion_range: float = _preprocessing(
        0.1, 'largest shift of Cr in the fast colour distortion, for pixels in [0, 1] (inception)', lower=0, upper=1
    )
    brightness_distortion_range: float = _preprocessing(
        32 / 255, 'largest shift of brightness in training, for pixels in [0, 1] (inception)', lower=0, upper=1
    )

    network: str = _network('inception_v3', 'the network', choices=NETWORKS)
    depth_multiplier: float = _network(
        1.0, 'factor on the channels of every layer; at least 16 channels remain', above=0, upper=100
    )
    auxiliary_head: bool = _network(
        True,
        'train the auxiliary classifier; always off for inputs below 107 pixels (inception_v3)',
    )
    zero_init_last_scale: bool = _network(
        False, 'start the last batch-norm scale of each residual block at 0 instead of 1 (resnet50)'
    )
    rebuild_activations: bool = _network(
        True, 'recompute activations in the backward pass; False: store them, faster but more memory (revnet)'
    )
    batch_norm_decay: float = _network(
        0.9976, 'decay per step of the moving mean and variance of batch normalization', lower=0, upper=1
    )
    batch_norm: str = _network(
        'local',
        "moments of batch normalization: each core's own (local); each core's own, with moving statistics averaged "
        'over the cores (averaged); those of all cores together (synchronized)',
        choices=('local', 'averaged', 'synchronized'),
    )
    batch_norm_group_size: int = _network(
        0, 'cores per group of synchronized batch normalization; 0: all cores in one group', lower=0
    )
    clear_update_collections: bool = _network(
        True, 'update the moving mean and variance within each layer; False: through the UPDATE_OPS collection'
    )
    precision: str = _network(
        'float32',
        'type of the activations; variables are always float32; float16 is for GPUs, and scales the loss',
        choices=('float32', 'bfloat16', 'float16'),
    )
    layout: str = _network(
        'auto',
        'axes of activations: channels last (NHWC) or second (NCHW, for GPUs); auto: TensorFlow chooses on a GPU',
        choices=('auto', 'NHWC', 'NCHW'),
    )

    optimizer: str = _optimizer(
        'RMS', 'optimizer: gradient descent, momentum or RMSProp', choices=('sgd', 'momentum', 'RMS')
    )
    label_smoothing: float = _optimizer(
        0.1, 'fraction of each label that is spread over all classes in the training loss', lower=0, upper=1
    )
    class_weights: str = _optimizer(
        '',
        'factors on the training loss of the images of each class: balanced, for classes with few images to count as '
        'much as others; or a CSV file with a name or label and a weight per line; default: 1 for all',
        longest=_LONGEST_WEIGHTS,
    )
    weight_decay: float = _optimizer(
        4e-5, 'factor on half the sum of squared convolution weights in the training loss', lower=0, upper=1
    )
    moving_average: bool = _optimizer(True, 'average the weights; evaluate and export the averages')
    moving_average_decay: float = _optimizer(0.995, 'decay per step of the averages of the weights', lower=0, upper=1)

    learning_rate: float = _schedule(0.165, 'learning rate per 256 images in a batch', above=0)
    schedule: str = _schedule(
        'exponential',
        'decay of the learning rate: every --learning_rate_decay_epochs (exponential), at --step_epochs (step), or '
        'along half a cosine to 0 at --train_steps (cosine)',
        choices=('exponential', 'step', 'cosine'),
    )
    learning_rate_decay: float = _schedule(
        0.94, 'factor on the learning rate at each decay (exponential, step)', above=0, upper=1
    )
    learning_rate_decay_epochs: int = _schedule(3, 'epochs between decays (exponential)', lower=1)
    step_epochs: str = _schedule('30,60,80', 'epochs, increasing; the learning rate decays at the start of each (step)')
    use_learning_rate_warmup: bool = _schedule(False, 'start with a low learning rate; meant for large batches')
    cold_epochs: int = _schedule(2, 'first epochs of a warm-up, at a tenth of the rate (exponential)', lower=0)
    warmup_epochs: int = _schedule(7, 'epochs in which the learning rate of a warm-up rises', lower=0)
    cap_warmup: bool = _schedule(
        False,
        'end a warm-up where it meets the curve without it, which the documented formula overshoots (exponential)',
    )

    mode: str = _run('train_and_eval', 'task of the run', choices=('train', 'eval', 'train_and_eval'))
    model_dir: Optional[str] = _run(None, 'folder of the checkpoints and results')
    export_dir: Optional[str] = _run(None, 'folder for a SavedModel of the last checkpoint; default: no export')
    train_steps: int = _run(213000, 'training steps in total', lower=1)
    train_steps_per_eval: int = _run(2000, 'training steps between evaluations (train_and_eval)', lower=1)
    train_epochs: Optional[float] = _epochs('epochs to train in total; replaces --train_steps')
    epochs_per_eval: Optional[float] = _epochs('epochs per evaluation; replaces --train_steps_per_eval')
    min_eval_interval: int = _run(180, 'minimum time between evaluations, in seconds (eval)', lower=0)
    eval_timeout: Optional[int] = _run(None, 'maximum wait for a checkpoint, in seconds (eval); default: none', lower=0)
    save_checkpoints_secs: int = _run(1000, 'seconds between checkpoints; 0: only at the end of a cycle', lower=0)
    keep_best: bool = _run(False, 'keep the checkpoint with the best top-1 in model_dir/best (eval, train_and_eval)')
    skip_damaged_checkpoints: bool = _run(
        False, 'resume from the newest intact checkpoint and list the damaged ones; False: fail if one is damaged'
    )
    allow_other_data_set: bool = _run(
        False,
        'resume on another data set than the run has learned, or evaluate on one with other classes; False: refuse it',
    )
    seed: Optional[int] = _run(
        None, 'seed of all random numbers; the same seed repeats a run bit for bit; default: random', lower=0
    )
    skip_host_call: bool = _run(
        True,
        'write training summaries from the host, with the loss of the first core; False: from the TPU by a host call, '
        'with the mean loss of all cores',
    )
    save_summary_steps: int = _run(100, 'training steps between summaries', lower=1)
    profile_steps: str = _run('', 'A,B: training steps A to B to profile, in model_dir/profile.html and TensorBoard')
    image_summaries: int = _run(
        0, 'images to write for TensorBoard at the start of training and of evaluation', lower=0, upper=99
    )
    log_steps: int = _run(
        0,
        'steps between log lines with Rate and GlobalRate per core, and a line per epoch; 0: one progress line',
        lower=0,
    )
    display_tensors: bool = _run(False, 'print the label, predictions and probabilities of each evaluated image')

    init_from: str = _weights(
        '',
        'weights to begin from at step 0: a checkpoint, the model_dir of a run, a SavedModel or an .npz file; a '
        '--model_dir with a checkpoint resumes from that instead',
    )
    init_except: str = _weights(
        '',
        'names or shell patterns of scopes whose variables begin anew, such as Logits,AuxLogits; default: the '
        'classifiers, if they have another number of classes',
    )
    init_averages: bool = _weights(
        True, 'begin from the averages of the weights, where the source has them; False: from the weights themselves'
    )
    freeze: str = _weights(
        '', 'names or shell patterns of scopes whose variables do not train, such as Conv2d_*,Mixed_5*'
    )
    freeze_batch_norm: bool = _weights(
        True,
        'batch normalization of frozen layers uses and keeps its moving statistics; False: it uses the moments of the '
        'batch, and moves its statistics',
    )
    head_learning_rate: Optional[float] = _weights(
        None, 'learning rate of the classifiers per 256 images in a batch; default: that of all layers', above=0
    )

    def __post_init__(self) -> None:
        problems = [*_wrong_values(self)]
        if problems:
            raise ConfigError('\n'.join(problems))

    @property
    def steps_down(self) -> Tuple[int, ...]:
        """`step_epochs` as numbers."""
        return tuple(int(epoch) for epoch in self.step_epochs.split(','))

    @property
    def profiled_steps(self) -> Tuple[int, int]:
        """`profile_steps` as numbers, first and last; 0 and 0 for none."""
        first, last = (self.profile_steps or '0,0').split(',')
        return int(first), int(last)

    @property
    def evaluated_weights(self) -> str:
        """The weights that evaluation and export use: `average` or `raw`."""
        return 'average' if self.moving_average else 'raw'

    @property
    def is_emulated(self) -> bool:
        """Whether the run's TPU is emulated on this machine."""
        return self.use_tpu and str(self.tpu).startswith(EMULATED)

    @property
    def machines(self) -> int:
        """The number of machines that train together without a TPU."""
        return len(self.worker_hosts.split(','))

    @property
    def is_first(self) -> bool:
        """Whether this machine is the run's first, the only one that writes."""
        return not self.task_index

    @property
    def replicas(self) -> int:
        """Copies of the network that share a batch: one per TPU core, or per GPU of all machines."""
        return self.num_shards if self.use_tpu else self.num_gpus * self.machines

    @property
    def splits(self) -> Tuple[str, ...]:
        """The splits of the data set that the run reads: `train`, `validation` or both."""
        return {'train': ('train',), 'eval': ('validation',), 'train_and_eval': ('train', 'validation')}[self.mode]

    @property
    def source(self) -> 'Source':
        """The files of the run's data set, and the fields of their records; made from the flags only here."""
        # This module needs TensorFlow. --help and errors about flags do not wait for it to load.
        from data.sources import Source
        from data.tf_example import Fields

        fields = Fields(self.image_key, self.label_key, self.label_offset)
        return Source(self.data_dir, self.data_format, self.train_files, self.eval_files, fields)

    @property
    def eval_images(self) -> int:
        """Validation images per evaluation."""
        return self.eval_total_size or self.num_eval_images

    def to_json(self) -> str:
        """This configuration as a JSON object, a line per field; `from_json` reads it."""
        return json.dumps(dataclasses.asdict(self), indent=2) + '\n'

    @classmethod
    def from_json(cls, text: str) -> 'Config':
        """Reads a configuration that `to_json` wrote; missing fields get their defaults.

        Raises:
          ConfigError: not a JSON object, an unknown field, or a value that is not allowed.
        """
        try:
            values = from_json(text, lambda values: values)
        except ValueError as error:
            raise ConfigError(f'The configuration is not JSON: {error}.')
        if not isinstance(values, dict):
            raise ConfigError('The configuration is not a JSON object.')
        if 'step_lines' in values:
            # Earlier versions had --step_lines, with a line for each step.
            values['log_steps'] = int(bool(values.pop('step_lines')))
        if values.pop('draft_decode', False):
            raise ConfigError(
                'The configuration has draft_decode: this version decodes JPEGs at full size, so pixels would '
                'differ. Use version 1.0.0.'
            )
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ConfigError(f'The configuration has unknown fields: {shown(", ".join(unknown))}.')
        return cls(**values)
