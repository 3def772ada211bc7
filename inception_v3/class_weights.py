"""Class weights of the training loss: balanced by the images per class, or read by `class_weights_file`.

`fitting` computes or reads the weights once per command, and puts them into the run's configuration.
"""

import re
from typing import List, Sequence, Tuple

from compat.messages import shown
from inception_v3.config import LARGEST_FLOAT, SMALLEST_FLOAT, Config, ConfigError

# The value of `--class_weights` that balances the classes by their numbers of images.
BALANCED = 'balanced'
# `Config.class_weights` with numbers: the flag's value as given, then a number for each label.
_WITH_NUMBERS = re.compile(r'(.*)=([0-9.e+-]+(?:,[0-9.e+-]+)+)')
_NUMBER = re.compile('[-+.0-9eE]+')
ALLOWED = f'a number from {SMALLEST_FLOAT:.2g} to {LARGEST_FLOAT:.2g}'


def with_numbers(given: str, weights: Sequence[float]) -> str:
    """Combines a flag, as it was given, and a weight for each label into a value of `Config.class_weights`."""
    return f'{given}={",".join(f"{weight:.9g}" for weight in weights)}'


def given(config: Config) -> str:
    """The value of `--class_weights` as given: `balanced`, or a file."""
    found = _WITH_NUMBERS.fullmatch(config.class_weights)
    return found.group(1) if found else config.class_weights


def by_label(config: Config) -> Tuple[float, ...]:
    """The numbers of `Config.class_weights`, a factor for each label; empty if all classes count the same.

    Raises ConfigError if `fitting.fit_to_data_set` has not yet computed or read them.
    """
    if not config.class_weights:
        return ()
    found = _WITH_NUMBERS.fullmatch(config.class_weights)
    if not found:
        raise ConfigError(
            f'--class_weights={shown(config.class_weights)}: has no numbers yet. `fit_to_data_set` computes or reads '
            'them; or give NAME=W0,W1,…, a number for each label.'
        )
    numbers = found.group(2).split(',')
    if not all(map(is_weight, numbers)):
        raise ConfigError(f'--class_weights={shown(config.class_weights)}: each weight must be {ALLOWED}.')
    return tuple(map(float, numbers))


def is_weight(number: str) -> bool:
    """Whether a text is a class weight in decimal digits, as described by `ALLOWED`."""
    try:
        return bool(_NUMBER.fullmatch(number)) and SMALLEST_FLOAT <= float(number) <= LARGEST_FLOAT
    except ValueError:
        return False


def balanced(images: Sequence[int]) -> List[float]:
    """Weights that make all classes count the same: images / (classes · images of the class).

    The formula is that of scikit-learn's `compute_class_weight('balanced')`. The mean weight of the images is 1, so
    that the learning rate keeps its meaning. Only classes with images count; others, such as the background, get 1,
    which has no effect.

    Args:
      images: the number of training images of each class, by label; at least one is positive.
    """
    classes = sum(count > 0 for count in images)
    return [sum(images) / (classes * count) if count else 1.0 for count in images]
