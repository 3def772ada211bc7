"""Presets: named sets of values, each the documented default except for the fields listed here."""

import math
from typing import Any, Dict, FrozenSet, Mapping

from inception_v3.config import Config

DEFAULT_PRESET = 'imagenet'

# For --help and the documentation; the values are in PRESETS.
DESCRIPTIONS: Dict[str, str] = {
    'imagenet': 'Inception v3 on ImageNet, the documented default: 170 epochs in batches of 1,024 on a v2-8 or v3-8.',
    'imagenet_large_batch': ('The same 170 epochs in batches of 4,096 on 32 cores, with a learning-rate warm-up.'),
    'imagenet_batch_8192': 'The same in batches of 8,192 on 64 cores.',
    'imagenet_batch_16384': 'The same in batches of 16,384 on 128 cores.',
    'imagenet_v2_128': 'The same in batches of 4,096 on the 128 cores of a v2-128, 32 images a core.',
    'imagenet_v2_512': 'The same in batches of 16,384 on the 512 cores of a v2-512, 32 images a core.',
    'resnet50_imagenet': (
        'ResNet-50 on ImageNet: 90 epochs in batches of 1,024 on a v2-8 or v3-8, with the learning rate of Goyal et al.'
    ),
    'cifar10_stream': (
        'ResNet-50 on CIFAR-10 streamed from tar files, made by inception-v3 cifar10: 10 epochs of 1,280,000 images '
        'in batches of 4,096 on a v3-32.'
    ),
    'revnet38_cifar': (
        'RevNet-38 on CIFAR-10, made by inception-v3 cifar10: the 80,000 steps of 100 images of Gomez et al., on the '
        'CPU, or with --accelerator=gpu on a GPU.'
    ),
    'revnet110_cifar': 'RevNet-110 on CIFAR-10, otherwise as revnet38_cifar.',
    'revnet56_imagenet': (
        'RevNet-56 on ImageNet: the 600,000 steps of 256 images of Gomez et al., about 120 epochs, on a v2-8 or v3-8.'
    ),
    'revnet104_imagenet': 'RevNet-104 on ImageNet, otherwise as revnet56_imagenet.',
    'digits': (
        "A small Inception v3 on the CPU: scikit-learn's 1,797 handwritten digits, which the run itself writes to "
        'runs/digits_data. Takes minutes on two cores.'
    ),
    'own_images': (
        'Inception v3 on the CPU for a data set of inception-v3 from-folder. The size of the network and of the '
        'images, the batches, the steps and the decays follow from the number of images, unless flags set them.'
    ),
    'finetune': (
        'Trains on from the weights that --init_from names, on the CPU: 1,000 steps of 32 images, the classifier at '
        'ten times the learning rate of the other layers. --freeze leaves layers as they are.'
    ),
}


def _imagenet_in_batches_of(images: int, per_core: int = 128, **changes: Any) -> Dict[str, Any]:
    """ImageNet, trained on as many images as the default's 213,000 steps of 1,024."""
    cores = images // per_core
    return {
        'num_shards': cores,
        # The documented decay of one sequential update, to the power of the number of cores; the default is for 8
        # cores.
        'batch_norm_decay': round(0.9997**cores, 4),
        'train_batch_size': images,
        'use_learning_rate_warmup': True,
        'train_steps': 213000 * 1024 // images,
        **changes,
    }


# Gomez et al., "The Reversible Residual Network" (arxiv.org/abs/1707.04585), section 4, with the values that the paper
# leaves out from the authors' program (github.com/renmengye/revnet-public, resnet/configs) and from the TensorFlow
# program (tensorflow/contrib/eager/python/examples/revnet) of the document "Code with Eager Execution, Run with Graphs"
# (TensorFlow Blog, 10 August 2018). The three agree on optimizer, rates, batches, steps and weight decay.
_REVNET: Dict[str, Any] = {
    'optimizer': 'momentum',
    'schedule': 'step',
    'learning_rate_decay': 0.1,
    'label_smoothing': 0.0,
    'moving_average': False,
    # The default of Keras, which the document's program keeps.
    'batch_norm_decay': 0.99,
}
# Paper and programs: 80,000 steps of 100 images; 0.1, divided by 10 at steps 40,000 and 60,000; weight decay 2e-4.
_REVNET_CIFAR: Dict[str, Any] = {
    **_REVNET,
    # Eight cores cannot share 100 images. On a TPU, the document's program uses batches of 1,024, with the same rates.
    'use_tpu': False,
    'num_train_images': 50000,
    'num_eval_images': 10000,
    'num_classes': 11,
    'height': 32,
    'width': 32,
    # As in the document's program (cifar_input.py): padded by 4 pixels in all, cropped at random and flipped.
    'preprocessing': 'cifar',
    'crop_padding': 2,
    'train_batch_size': 100,
    # 0.1 for a batch of 100.
    'learning_rate': 0.256,
    'step_epochs': '80,120',
    'weight_decay': 2e-4,
    'train_steps': 80000,
    # Both are from the document's program, which evaluates every 500 steps.
    'eval_batch_size': 1000,
    'train_steps_per_eval': 500,
}
# Paper and programs: 600,000 steps of 256 images; 0.1, divided by 10 at steps 160,000, 320,000 and 480,000; weight
# decay 1e-4. Images are preprocessed as for Inception, with distorted colours: the default here, and the choice of the
# paper. The document's program uses ResNet's preprocessing instead, without distorted colours. Epochs are whole numbers
# here: the rate falls at the steps 160,146, 320,292 and 480,438.
_REVNET_IMAGENET: Dict[str, Any] = {
    **_REVNET,
    'height': 224,
    'width': 224,
    'train_batch_size': 256,
    'learning_rate': 0.1,
    'step_epochs': '32,64,96',
    'weight_decay': 1e-4,
    'train_steps': 600000,
    # The batch size of the document's program, and the interval of the authors' program.
    'eval_batch_size': 256,
    'train_steps_per_eval': 5000,
}

# Goyal et al., "Accurate, Large Minibatch SGD", section 5.1.
_RESNET: Dict[str, Any] = {
    'network': 'resnet50',
    'zero_init_last_scale': True,
    # In float32, 128 images need an estimated 7.4 GiB of the 8 GiB of a v2 core.
    'precision': 'bfloat16',
    'optimizer': 'momentum',
    'weight_decay': 1e-4,
    'moving_average': False,
    'batch_norm_decay': 0.9,
    'learning_rate': 0.1,
    'use_learning_rate_warmup': True,
}

# For users' own data sets, on the CPU.
_FEW_IMAGES: Dict[str, Any] = {
    'use_tpu': False,
    'train_batch_size': 32,
    'eval_batch_size': 64,
    # A crop of a twentieth of a photograph often misses its subject, and few images cannot make up for that.
    'crop_area_min': 0.5,
    # The head regularizes long trainings, and a SavedModel has no weights for it.
    'auxiliary_head': False,
    'moving_average_decay': 0.99,
    # The cosine ends at 0 for any number of epochs.
    'schedule': 'cosine',
    'train_steps': 1000,
    'train_steps_per_eval': 250,
    'save_summary_steps': 10,
}

PRESETS: Dict[str, Dict[str, Any]] = {
    'imagenet': {},
    'imagenet_large_batch': _imagenet_in_batches_of(4096),
    # With fewer steps, the averages of the first evaluation would still contain the weights' initial values.
    'imagenet_batch_8192': _imagenet_in_batches_of(8192, train_steps_per_eval=1000),
    'imagenet_batch_16384': _imagenet_in_batches_of(16384, train_steps_per_eval=1000),
    'imagenet_v2_128': _imagenet_in_batches_of(4096, 32),
    # A TPU pads batches of fewer than 8 images a core.
    'imagenet_v2_512': _imagenet_in_batches_of(16384, 32, train_steps_per_eval=1000, eval_batch_size=4096),
    # Goyal et al., section 5.1, plus label smoothing. Training images are cropped at random and flipped; their colours
    # are not distorted.
    'resnet50_imagenet': {
        **_RESNET,
        'height': 224,
        'width': 224,
        'crop_area_min': 0.08,
        'brightness_distortion_range': 0.0,
        'cb_distortion_range': 0.0,
        'cr_distortion_range': 0.0,
        'schedule': 'step',
        'learning_rate_decay': 0.1,
        'warmup_epochs': 5,
        'train_steps': 112603,
        'train_steps_per_eval': 1252,
    },
    # The published example of streamed shards: CIFAR-10 repeated to 1,280,000 images. Published values: images, shards,
    # batches per core (128 and 64), epochs with an evaluation after each, bfloat16, the shuffle buffer of 10,000, the
    # padding by 4 pixels, and the log's 10 steps. The other values were chosen here: they are those of
    # resnet50_imagenet, except for a cosine schedule after one epoch of warm-up. An epoch has 312.5 steps: evaluations
    # come at its end, or up to five steps later. The example uses NUM_WORKERS=8 with two meanings; here, a host reads 8
    # files at a time.
    'cifar10_stream': {
        **_RESNET,
        'data_format': 'tar',
        'num_train_images': 1280000,
        'num_eval_images': 50000,
        'num_classes': 11,
        'num_shards': 32,
        'train_batch_size': 4096,
        'eval_batch_size': 2048,
        'num_files_infeed': 8,
        'followup_shuffle_buffer_size': 10000,
        'preprocessing': 'cifar',
        'height': 32,
        'width': 32,
        'schedule': 'cosine',
        'warmup_epochs': 1,
        # The steps are for the published number of images; the epochs hold for any other number.
        'train_steps': 3125,
        'train_epochs': 10.0,
        'train_steps_per_eval': 313,
        'epochs_per_eval': 1.0,
        # A TPU shows its loss only at the end of a loop.
        'iterations': 10,
        'keep_best': True,
        'log_steps': 10,
    },
    'revnet38_cifar': {**_REVNET_CIFAR, 'network': 'revnet38'},
    'revnet110_cifar': {**_REVNET_CIFAR, 'network': 'revnet110'},
    'revnet56_imagenet': {**_REVNET_IMAGENET, 'network': 'revnet56'},
    'revnet104_imagenet': {**_REVNET_IMAGENET, 'network': 'revnet104'},
    'digits': {
        'use_tpu': False,
        'data_dir': 'runs/digits_data',
        'num_train_images': 1438,
        'num_eval_images': 359,
        'num_classes': 11,
        'train_batch_size': 32,
        'eval_batch_size': 128,
        'height': 75,
        'width': 75,
        # A flipped or cropped digit may be another digit, or none; and the digits are grey.
        'random_flip': False,
        'crop_area_min': 0.7,
        'crop_aspect_ratio_max': 1.2,
        'cb_distortion_range': 0.0,
        'cr_distortion_range': 0.0,
        'depth_multiplier': 0.25,
        'auxiliary_head': False,
        'batch_norm_decay': 0.95,
        'model_dir': 'runs/digits',
        'export_dir': 'runs/digits/export',
        # The documented rate is too high for so few images: some runs end below 95 %.
        'learning_rate': 0.06,
        # These 750 steps are as accurate as 1,500 without a warm-up, with distorted colours and averages over 200 steps
        # (docs/measurements).
        'use_learning_rate_warmup': True,
        'cold_epochs': 1,
        'warmup_epochs': 2,
        'moving_average_decay': 0.98,
        'train_steps': 750,
        'train_steps_per_eval': 250,
        'save_summary_steps': 10,
    },
    # For the smallest data sets; `own_images` adapts the values to the number of images.
    'own_images': {
        **_FEW_IMAGES,
        'height': 96,
        'width': 96,
        'depth_multiplier': 0.25,
        'batch_norm_decay': 0.975,
        'learning_rate': 0.12,
    },
    # The network must match the weights: the default, or as other flags say. A classifier that starts from nothing
    # learns at a tenth of the default rate; layers that are trained already change by a tenth of that.
    'finetune': {
        **_FEW_IMAGES,
        'batch_norm_decay': 0.99,
        'optimizer': 'momentum',
        'learning_rate': 0.04,
        'head_learning_rate': 0.4,
    },
}

# Values that follow from the number of training images.

# The flags in epochs, by the flags in steps that they replace.
EPOCHS = {'train_steps': 'train_epochs', 'train_steps_per_eval': 'epochs_per_eval'}
# The sizes of the preset own_images: an upper limit of the number of training images, the factor on the channels, and
# the height and width in pixels.
_SIZES = ((5_000, 0.25, 96), (50_000, 0.5, 160), (float('inf'), 1.0, 224))
# Training uses at least this many images in total, and each image at least this many times.
_IMAGES_SEEN, _EPOCHS = 32_000, 20
_EVALUATIONS = 4
# Images over which the moving statistics of batch normalization average.
_STATISTICS_IMAGES = 1280


def steps_of(epochs: float, images: int, batch_size: int) -> int:
    """The number of steps in a number of epochs, rounded up."""
    # Without the rounding, 0.1 epochs of 1,000 images in batches of 10 would take 11 steps.
    return max(1, math.ceil(round(epochs * images / batch_size, 6)))


def steps_of_epochs(values: Mapping[str, Any]) -> Dict[str, int]:
    """The numbers of steps, by name, that follow from epochs where these are set."""
    images, batch_size = values['num_train_images'], values['train_batch_size']
    return {name: steps_of(values[epochs], images, batch_size) for name, epochs in EPOCHS.items() if values[epochs]}


def own_images(config: Config, given: FrozenSet[str]) -> Dict[str, Any]:
    """The values of the preset own_images that follow from the number of images, and from fields that flags set."""
    images = config.num_train_images
    found: Dict[str, Any] = {}

    def settle(name: str, value: Any) -> Any:
        found[name] = getattr(config, name) if name in given else value
        return found[name]

    multiplier, side = next((multiplier, side) for limit, multiplier, side in _SIZES if images < limit)
    settle('depth_multiplier', multiplier)
    settle('height', side)
    settle('width', side)
    replicas = config.replicas
    # A power of 2, at most the number of images, or the next larger multiple of the replicas.
    batch_size = min(_FEW_IMAGES['train_batch_size'], 1 << max(1, images.bit_length() - 1))
    batch = settle('train_batch_size', -(-batch_size // replicas) * replicas)
    eval_batch_size = min(_FEW_IMAGES['eval_batch_size'], config.eval_images)
    settle('eval_batch_size', -(-eval_batch_size // replicas) * replicas)
    epochs = config.train_epochs or max(_EPOCHS, _IMAGES_SEEN / images)
    steps = settle('train_steps', steps_of(epochs, images, batch))
    settle('train_steps_per_eval', -(-steps // _EVALUATIONS))
    settle('batch_norm_decay', round(max(0.0, 1 - max(batch / _STATISTICS_IMAGES, 10 / steps)), 4))
    settle('moving_average_decay', round(max(0.0, 1 - 10 / steps), 4))
    return found
