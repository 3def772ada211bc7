"""Presets: named sets of values, each the documented default except for the fields listed here."""

from typing import Any, Dict

DEFAULT_PRESET = 'imagenet'

# For --help and the documentation; the values are in PRESETS.
DESCRIPTIONS: Dict[str, str] = {
    'imagenet': 'Inception v3 on ImageNet, the documented default: 170 epochs in batches of 1,024 on a v2-8 or v3-8.',
    'imagenet_large_batch': ('The same 170 epochs in batches of 4,096 on 32 cores, with a learning-rate warm-up.'),
    'imagenet_batch_8192': 'The same in batches of 8,192 on 64 cores.',
    'imagenet_batch_16384': 'The same in batches of 16,384 on 128 cores.',
    'resnet50_imagenet': (
        'ResNet-50 on ImageNet: 90 epochs in batches of 1,024 on a v2-8 or v3-8, with the learning rate of Goyal et al.'
    ),
    'cifar10_stream': (
        'ResNet-50 on CIFAR-10 streamed from tar files, made by python -m data.cifar10: 10 epochs of 1,280,000 images '
        'in batches of 4,096 on a v3-32.'
    ),
    'digits': (
        "A small Inception v3 on the CPU: scikit-learn's 1,797 handwritten digits, which the run itself writes to "
        'runs/digits_data. Takes minutes on two cores.'
    ),
    'own_images': (
        'Inception v3 on the CPU for a data set of python -m data.from_folder. The size of the network and of the '
        'images, the batches, the steps and the decays follow from the number of images, unless flags set them.'
    ),
}


def _imagenet_in_batches_of(images: int, **changes: Any) -> Dict[str, Any]:
    """ImageNet with 128 images a core, for as many images as the default has in its 213,000 steps of 1,024."""
    return {
        'num_shards': images // 128,
        'train_batch_size': images,
        'use_learning_rate_warmup': True,
        'train_steps': 213000 * 1024 // images,
        **changes,
    }


PRESETS: Dict[str, Dict[str, Any]] = {
    'imagenet': {},
    'imagenet_large_batch': _imagenet_in_batches_of(4096),
    # The cycles between evaluations have as many images as those of batches of 4,096.
    'imagenet_batch_8192': _imagenet_in_batches_of(8192, train_steps_per_eval=1000),
    'imagenet_batch_16384': _imagenet_in_batches_of(16384, train_steps_per_eval=500),
    # Goyal et al., "Accurate, Large Minibatch SGD", section 5.1, plus label smoothing. Their training images are
    # cropped at random and flipped; their colours are not distorted.
    'resnet50_imagenet': {
        'network': 'resnet50',
        'zero_init_last_scale': True,
        'height': 224,
        'width': 224,
        'crop_area_min': 0.08,
        'brightness_distortion_range': 0.0,
        'cb_distortion_range': 0.0,
        'cr_distortion_range': 0.0,
        # In float32, 128 images need an estimated 7.4 GiB of the 8 GiB of a v2 core.
        'precision': 'bfloat16',
        'optimizer': 'momentum',
        'weight_decay': 1e-4,
        'moving_average': False,
        'batch_norm_decay': 0.9,
        'schedule': 'step',
        'learning_rate': 0.1,
        'learning_rate_decay': 0.1,
        'use_learning_rate_warmup': True,
        'warmup_epochs': 5,
        'train_steps': 112603,
        'train_steps_per_eval': 1252,
    },
    # The published example of streamed shards: CIFAR-10 repeated to 1,280,000 images, 128 per core, and an evaluation
    # after each epoch. Images, shards, batches and epochs are published; the other values are chosen here: those of
    # resnet50_imagenet, except for a cosine schedule after one epoch of warm-up, and for larger crops, because the
    # images have only 32 pixels. An epoch has 312.5 steps: evaluations come at its end, or up to five steps later.
    'cifar10_stream': {
        'data_format': 'tar',
        'num_train_images': 1280000,
        'num_eval_images': 50000,
        'num_classes': 11,
        'num_shards': 32,
        'train_batch_size': 4096,
        'eval_batch_size': 4096,
        'network': 'resnet50',
        'zero_init_last_scale': True,
        'height': 32,
        'width': 32,
        'crop_area_min': 0.35,
        'brightness_distortion_range': 0.0,
        'cb_distortion_range': 0.0,
        'cr_distortion_range': 0.0,
        'optimizer': 'momentum',
        'weight_decay': 1e-4,
        'moving_average': False,
        'batch_norm_decay': 0.9,
        'schedule': 'cosine',
        'learning_rate': 0.1,
        'use_learning_rate_warmup': True,
        'warmup_epochs': 1,
        'train_steps': 3125,
        'train_steps_per_eval': 313,
        'keep_best': True,
        'step_lines': True,
    },
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
        # A flipped or cut digit may be another digit, or none.
        'random_flip': False,
        'crop_area_min': 0.7,
        'crop_aspect_ratio_max': 1.2,
        'depth_multiplier': 0.25,
        'auxiliary_head': False,
        'batch_norm_decay': 0.95,
        'model_dir': 'runs/digits',
        'export_dir': 'runs/digits/export',
        # The documented rate is too high for so few images: some runs end below 95 %.
        'learning_rate': 0.06,
        'train_steps': 1500,
        'train_steps_per_eval': 500,
        'save_summary_steps': 10,
    },
    # For the smallest data sets; `settings.own_images` adapts the values to the number of images.
    'own_images': {
        'use_tpu': False,
        'train_batch_size': 32,
        'eval_batch_size': 64,
        'height': 96,
        'width': 96,
        # A crop of a twentieth of a photograph often misses its subject, which few images cannot make up for.
        'crop_area_min': 0.5,
        'depth_multiplier': 0.25,
        'auxiliary_head': False,
        'batch_norm_decay': 0.975,
        'moving_average_decay': 0.99,
        'learning_rate': 0.12,
        # It ends at 0 for any number of epochs.
        'schedule': 'cosine',
        'train_steps': 1000,
        'train_steps_per_eval': 250,
        'save_summary_steps': 10,
    },
}
