"""The model card of an export: what it is, how it was made, how good it is, and what it is not for."""

import dataclasses
import math
from typing import List, Optional, Tuple

from data.dataset_info import DatasetInfo, is_background
from inception_v3.config import Config
from inception_v3.export.description import FILE
from inception_v3.export.formats import FORMATS
from inception_v3.export.frozen import FrozenNetwork
from inception_v3.export.verification import Agreement
from inception_v3.model_dir import origin

# The 97.5 % quantile of the normal distribution, for intervals of 95 %.
_QUANTILE = 1.959964
# Settings of a run that say nothing about the model.
_OF_PLACE = (
    'model_dir',
    'export_dir',
    'tpu',
    'master',
    'tpu_zone',
    'gcp_project',
    'mode',
    'use_tpu',
    'intra_op_threads',
)


def wilson_interval(right: int, images: int) -> Tuple[float, float]:
    """The 95 % interval of an accuracy, as fractions (Wilson, "Probable Inference", 1927)."""
    share, square = right / images, _QUANTILE**2
    centre = (share + square / (2 * images)) / (1 + square / images)
    half = _QUANTILE / (1 + square / images) * math.sqrt(share * (1 - share) / images + square / (4 * images**2))
    return centre - half, centre + half


def labels(class_names: List[str], num_classes: int) -> str:
    """The content of `labels.txt`: a line for each class, in the order of the logits; empty without a name."""
    names = [*class_names, *[''] * (num_classes - len(class_names))]
    return ''.join(f'{" ".join(name.split())}\n' for name in names)


def card(
    name: str,
    network: FrozenNetwork,
    info: Optional[DatasetInfo],
    agreement: Optional[Agreement],
) -> str:
    """The card in Markdown.

    Args:
      name: of the format.
      network: the network.
      info: the description of the run's data set; None if there is none.
      agreement: the result of the verification; None if there was none.
    """
    config = network.config
    own = origin.origin_of(config, network.model.checkpoint)
    parameters = sum(values.size for values in network.variables.values())
    has_background = not network.class_names or is_background(network.class_names[0])
    classes = f'{config.num_classes} classes{", of which 0 is the background" * has_background}'
    averages = 'moving averages of the weights' if own.weights == 'average' else 'weights as trained, not averages'
    lines = [
        f'# {config.network}, exported as {name}',
        '',
        f'- file: `{FORMATS[name].file}`, for {FORMATS[name].purpose}',
        f'- network: {config.network}, images of {config.height} x {config.width} pixels, {classes}',
        f'- values: {parameters:,}, moving means and variances of batch normalization included',
        f"- weights: {averages}, of step {own.step:,}; SHA-256 of the checkpoint's index {own.digest}",
        f'- input, outputs and preprocessing: `{FILE}`; the names of the classes: `labels.txt`',
        '',
        '## Accuracy',
        '',
        *_accuracy(own, agreement),
        '',
        '## Data',
        '',
        *_data(config, info),
        '',
        '## Recipe',
        '',
        'The flags of the run that are not the defaults:',
        '',
        *[f'- `--{field}={value}`' for field, value in _recipe(config)],
        '',
        '## Limits',
        '',
        'The accuracy holds for images like those of the data set, prepared as described. Every image is assigned to',
        'one of the classes, also one that shows none of them. The probabilities are not calibrated for other images.',
        'The model was not examined for fairness, for attacks, or for decisions about people. The terms of the images',
        'that it was trained on apply.',
    ]
    return '\n'.join(lines) + '\n'


def _accuracy(own: origin.Origin, agreement: Optional[Agreement]) -> List[str]:
    found = []
    if own.top_1 is not None and own.images:
        found.append(f'- checkpoint: {_interval(round(own.top_1 * own.images), own.images)}')
    else:
        found.append('- checkpoint: this step has no evaluation')
    if agreement:
        found.append(
            f'- this export, in its own runtime: {_interval(agreement.right, agreement.images)}; largest difference of '
            f'logits from the checkpoint {agreement.difference:.2g}'
        )
    else:
        found.append('- this export: not verified (`--verify`)')
    return found


def _interval(right: int, images: int) -> str:
    low, high = wilson_interval(right, images)
    return f'top-1 {right / images:.2%} of {images:,} validation images, 95 % interval {low:.2%} to {high:.2%}'


def _data(config: Config, info: Optional[DatasetInfo]) -> List[str]:
    if config.use_data == 'fake':
        return ['Made-up images.']
    if not info:
        return [f'{config.num_train_images:,} training images, without a description.']
    return [
        f'{info.name}: {info.source}. {info.train_images:,} training and {info.validation_images:,} validation images. '
        f'Fingerprint: {info.fingerprint or "none"}.'
    ]


def _recipe(config: Config) -> List[Tuple[str, str]]:
    default = Config()
    return [
        (field.name, str(getattr(config, field.name)))
        for field in dataclasses.fields(Config)
        if field.name not in _OF_PLACE and getattr(config, field.name) != getattr(default, field.name)
    ]
