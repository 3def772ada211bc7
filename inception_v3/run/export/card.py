"""The model card of an export: its content, accuracy, data, flags and limits."""

import math
import os
from typing import Iterator, Sequence, Tuple

from compat.messages import in_code, in_markdown, printable
from data.dataset_info import is_background
from data.files import write_whole
from inception_v3.config import Config
from inception_v3.machines.cluster import OF_PLACE
from inception_v3.run.export.origin import Origin
from inception_v3.run.starts import not_default
from inception_v3.run.trained_data import TrainedData

CARD_FILE, LABELS_FILE = 'README.md', 'labels.txt'
# The 97.5 % quantile of the normal distribution, for intervals of 95 %.
_QUANTILE = 1.959964
# Settings of a run that do not concern the model.
_NOT_SHOWN = OF_PLACE | {'mode', 'use_tpu', 'accelerator', 'layout', 'intra_op_threads'}
# Settings that name a file or a folder; the card leaves out its location.
_PATHS = ('init_from', 'class_weights')
_LIMITS = (
    'The accuracy holds for images like those of the data set, prepared as described.',
    'Every image is assigned to one of the classes, also one that shows none of them. The probabilities are not '
    'calibrated for other images.',
    'The model was not examined for fairness, for attacks, or for decisions about people.',
    'The terms of the images that it was trained on apply.',
)


def wilson_interval(right: int, images: int) -> Tuple[float, float]:
    """The 95 % interval of an accuracy, as fractions (Wilson, "Probable Inference", 1927)."""
    share, square = right / images, _QUANTILE**2
    centre = (share + square / (2 * images)) / (1 + square / images)
    half = _QUANTILE / (1 + square / images) * math.sqrt(share * (1 - share) / images + square / (4 * images**2))
    return centre - half, centre + half


def interval(right: int, images: int) -> str:
    """The accuracy for a number of correct answers, with its interval, as text."""
    low, high = wilson_interval(right, images)
    return f'top-1 {right / images:.2%} of {images:,} validation images, 95 % interval {low:.2%} to {high:.2%}'


def labels(class_names: Sequence[str], num_classes: int) -> str:
    """The content of `labels.txt`: a line for each class, in the order of the logits; empty for an unnamed class."""
    names = [*class_names, *[''] * (num_classes - len(class_names))]
    return ''.join(f'{printable(" ".join(name.split()))}\n' for name in names)


def write(
    folder: str, name: str, contents: Sequence[str], config: Config, own: Origin, verified: str, learned: TrainedData
) -> None:
    """Writes the card of an export into its folder, and `labels.txt`; for the other arguments, see `card`."""
    write_whole(os.path.join(folder, CARD_FILE), card(name, contents, config, own, verified, learned))
    write_whole(os.path.join(folder, LABELS_FILE), labels(learned.class_names, config.num_classes))


def card(name: str, contents: Sequence[str], config: Config, own: Origin, verified: str, learned: TrainedData) -> str:
    """The card in Markdown, of an export in the format `name`; `contents` are its files and their purposes."""
    has_background = not learned.class_names or is_background(learned.class_names[0])
    averages = 'moving averages of the weights' if own.weights == 'average' else 'weights as trained, not averages'
    accuracy = 'this step has no evaluation'
    if own.top_1 is not None and own.images:
        accuracy = interval(round(own.top_1 * own.images), own.images)
    sections = {
        f'# {config.network}, exported as {name}': [
            *contents,
            f'network: {config.network}, images of {config.height} x {config.width} pixels, {config.num_classes} '
            f'classes{", of which 0 is the background" * has_background}',
            f"weights: {averages}, of step {own.step:,}; SHA-256 of the checkpoint's index {own.digest}",
        ],
        '## Accuracy': [f'checkpoint: {accuracy}', f'this export: {verified}'],
        '## Data': [*_data(config, learned)],
        '## Flags of the run that are not the defaults': [
            f'`--{name}={in_code(_without_folder(value) if name in _PATHS else str(value))}`'
            for name, value in not_default(config).items()
            if name not in _NOT_SHOWN
        ],
        '## Limits': _LIMITS,
    }
    texts = ['\n'.join([title, '', *(f'- {line}' for line in lines)]) for title, lines in sections.items()]
    return '\n\n'.join(texts) + '\n'


def _without_folder(path: str) -> str:
    return path.rstrip('/').rpartition('/')[2]


def _data(config: Config, learned: TrainedData) -> Iterator[str]:
    info = learned.info
    if config.use_data == 'fake':
        yield 'made-up images'
    elif not info:
        yield f'{config.num_train_images:,} training images, without a description'
    else:
        yield (
            f'{in_markdown(info.name)}: {in_markdown(info.source)}; {info.train_images:,} training and '
            f'{info.validation_images:,} validation images, fingerprint {in_markdown(info.fingerprint) or "unknown"}'
        )
    yield from (in_markdown(f'trained before on {earlier}') for earlier in learned.earlier)
    if learned.note:
        yield in_markdown(learned.note)
