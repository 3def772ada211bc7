"""Which optimizer trains Inception v3 to the best top-1: RMSProp, momentum, or plain gradient descent?

The documented program uses RMSProp with ε = 1 inside the root. For gradients far below 1 it then resembles momentum,
because their squares are negligible compared with ε. Plain gradient descent is also run with ten times the rate,
because a momentum of 0.9 amplifies a steady gradient up to ten times.
"""

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Axis, Small, Study, cases


def _optimizers(rate: float) -> Axis:
    return cases(
        {
            'RMS': {'optimizer': 'RMS'},
            'momentum': {'optimizer': 'momentum'},
            'sgd': {'optimizer': 'sgd'},
            'sgd,10-times-the-rate': {'optimizer': 'sgd', 'learning_rate': round(10 * rate, 3)},
        }
    )


STUDY = Study(
    axes=[_optimizers(0.165)],
    step_ms=STEP_MS,
    digits=Small(flags=DIGITS, axes=[_optimizers(0.06)]),
    digits_whole=Small(flags=DIGITS_WHOLE, axes=[_optimizers(0.06)], seeds=WHOLE_SEEDS),
)
