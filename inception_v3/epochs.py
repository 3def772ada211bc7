"""The training steps of `--train_epochs` and `--epochs_per_eval`, from the number of images in the data set."""

import math
from typing import Any, Dict, Mapping

# The flags that count epochs, by the flags of steps that they replace.
EPOCHS = {'train_steps': 'train_epochs', 'train_steps_per_eval': 'epochs_per_eval'}


def steps_of(epochs: float, images: int, batch_size: int) -> int:
    """The steps that take a number of epochs, rounded up to whole steps."""
    # Without the rounding, 0.1 epochs of 1,000 images in batches of 10 would take 11 steps.
    return max(1, math.ceil(round(epochs * images / batch_size, 6)))


def steps_of_epochs(values: Mapping[str, Any]) -> Dict[str, int]:
    """The numbers of steps, by name, that follow from epochs; none of those without epochs."""
    images, batch_size = values['num_train_images'], values['train_batch_size']
    return {name: steps_of(values[epochs], images, batch_size) for name, epochs in EPOCHS.items() if values[epochs]}
