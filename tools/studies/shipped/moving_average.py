"""Do averages of the weights improve top-1, and which decay is best?

The documented decay is 0.995 per step. An average over the last 1 / (1 - decay) steps reduces the noise of the weights,
but lags behind them; the best decay depends on how fast the weights still change.
"""

from typing import Dict

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Flags, Small, Study, cases, without

_DECAY = 'moving_average_decay'
_CASES: Dict[str, Flags] = {
    'off': {'moving_average': False},
    'decay=0.9': {_DECAY: 0.9},
    'decay=0.995': {_DECAY: 0.995},
}

STUDY = Study(
    axes=[cases({**_CASES, 'decay=0.9999': {_DECAY: 0.9999}})],
    step_ms=STEP_MS,
    digits=Small(flags=without([_DECAY], DIGITS), axes=[cases(_CASES)]),
    digits_whole=Small(flags=without([_DECAY], DIGITS_WHOLE), axes=[cases(_CASES)], seeds=WHOLE_SEEDS),
)
