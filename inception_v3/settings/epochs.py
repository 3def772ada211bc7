"""The training steps of `--train_epochs` and `--epochs_per_eval`, from the number of images in the data set."""

import math


def steps_of(epochs: float, images: int, batch_size: int) -> int:
    """The steps that take a number of epochs, rounded up to whole steps.

    Args:
      epochs: the number of epochs, which may be a fraction.
      images: training images per epoch.
      batch_size: images per step, over all cores.
    """
    # Without the rounding, 0.1 epochs of 1,000 images in batches of 10 would take 11 steps.
    return max(1, math.ceil(round(epochs * images / batch_size, 6)))
