"""Warnings about averages that would still hold their initial values when they are used."""

from typing import Iterator

from inception_v3.config import Config

# More than this share of the initial values is too much, and a suggested decay leaves this share.
TOO_MUCH, _LITTLE = 0.1, 0.01


def initial_share_of_statistics(decay: float, steps: int) -> float:
    """The share of the initial values in the moving statistics of batch normalization after a number of steps."""
    return decay**steps


def initial_share_of_averages(decay: float, steps: int) -> float:
    """The share of the initial weights in the averages of the weights; `moving_average.update_averages` has the decay.

    The decay of step n is (1 + n) / (10 + n) up to that of the flag, so that this share is small after a few steps.
    """
    share = 1.0
    for step in range(1, steps + 1):
        share *= min(decay, (1 + step) / (10 + step))
        if share < _LITTLE**2:
            break
    return share


def warnings_of(config: Config) -> Iterator[str]:
    """A sentence for each average that holds more than a tenth of its initial values when it is first evaluated."""
    last = config.train_steps
    first = min(last, config.train_steps_per_eval) if config.mode == 'train_and_eval' else last
    for flag, name, share_after in (
        ('batch_norm_decay', 'the moving mean and variance of batch normalization', initial_share_of_statistics),
        ('moving_average_decay', 'the averages of the weights', initial_share_of_averages),
    ):
        decay = getattr(config, flag)
        if flag == 'moving_average_decay' and not config.moving_average:
            continue
        if flag == 'batch_norm_decay' and config.init_from:
            # The initial values are those of a trained network.
            continue
        for steps, when in ((last, 'at the end'), (first, 'at the first evaluation')):
            share = share_after(decay, steps)
            if share > TOO_MUCH:
                yield (
                    f'--{flag}={decay:g}: {when}, after {steps:,} steps, {name} would still hold {share:.0%} of their '
                    f'initial values, so evaluation and export would be wrong. Use {_advice(flag, steps)}.'
                )
                break


def _advice(flag: str, steps: int) -> str:
    if flag == 'moving_average_decay':
        return 'more steps, or --moving_average=False'
    return f'--{flag}={_LITTLE ** (1 / steps):g} or less, or more steps'
