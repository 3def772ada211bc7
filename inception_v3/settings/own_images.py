"""The settings of `--preset=own_images` that follow from the numbers of images in a data set."""

from typing import Any, Dict, FrozenSet

from inception_v3.config import Config
from inception_v3.settings.epochs import steps_of

# Training images below a limit: the factor on the channels, and the height and width in pixels.
_SIZES = ((5_000, 0.25, 96), (50_000, 0.5, 160), (float('inf'), 1.0, 224))
_BATCH = 32
_EVAL_BATCH = 64
# Images that training uses: at least this many, however few there are, and each image this many times.
_IMAGES_SEEN, _EPOCHS = 32_000, 20
_EVALUATIONS = 4
# Images over which the moving statistics of batch normalization average.
_STATISTICS_IMAGES = 1280


def own_images(config: Config, given: FrozenSet[str]) -> Dict[str, Any]:
    """The values of fields that no flag set.

    Args:
      config: with the numbers of images of the data set.
      given: the names of the fields that flags set; the other values follow from them.
    """
    images = config.num_train_images
    found: Dict[str, Any] = {}

    def settle(name: str, value: Any) -> Any:
        found[name] = getattr(config, name) if name in given else value
        return found[name]

    multiplier, side = next((multiplier, side) for limit, multiplier, side in _SIZES if images < limit)
    settle('depth_multiplier', multiplier)
    settle('height', side)
    settle('width', side)
    # A power of 2, at most the number of images.
    batch = settle('train_batch_size', min(_BATCH, 1 << max(1, images.bit_length() - 1)))
    settle('eval_batch_size', min(_EVAL_BATCH, config.eval_images))
    epochs = config.train_epochs or max(_EPOCHS, _IMAGES_SEEN / images)
    steps = settle('train_steps', steps_of(epochs, images, batch))
    settle('train_steps_per_eval', -(-steps // _EVALUATIONS))
    settle('batch_norm_decay', round(max(0.0, 1 - max(batch / _STATISTICS_IMAGES, 10 / steps)), 4))
    settle('moving_average_decay', round(max(0.0, 1 - 10 / steps), 4))
    return found
