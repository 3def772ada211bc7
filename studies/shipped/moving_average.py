"""Do averages of the weights improve top-1, and which decay is best?

The documented decay is 0.995 per step. An average over the last 1 / (1 - decay) steps reduces the noise of the weights,
but lags behind them; the best decay depends on how fast the weights still change.
"""

from studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from studies.study import Small, Study, cases

_SMALL_AXES = [
    cases(
        {
            'off': {'moving_average': False},
            'decay=0.9': {'moving_average_decay': 0.9},
            'decay=0.995': {'moving_average_decay': 0.995},
        }
    )
]

STUDY = Study(
    axes=[
        cases(
            {
                'off': {'moving_average': False},
                'decay=0.9': {'moving_average_decay': 0.9},
                'decay=0.995': {'moving_average_decay': 0.995},
                'decay=0.9999': {'moving_average_decay': 0.9999},
            }
        )
    ],
    step_ms=STEP_MS,
    digits=Small(flags=DIGITS, axes=_SMALL_AXES),
    digits_whole=Small(flags=DIGITS_WHOLE, axes=_SMALL_AXES, seeds=WHOLE_SEEDS),
)
