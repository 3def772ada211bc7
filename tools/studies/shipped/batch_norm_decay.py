"""Which decay of batch normalization's moving statistics is best?

The documented decay of 0.9976 is 0.9997⁸: one core sees an eighth of the batch, and one of its updates stands for
eight. A decay nearer to 1 averages over more steps: less noise, but the statistics lag behind the weights. A short run
needs a smaller decay, because decayⁿ is the weight of the initial values after n steps.
"""

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Small, Study, grid

_SMALL_AXES = [grid(batch_norm_decay=[0.9, 0.95, 0.9976])]

STUDY = Study(
    axes=[grid(batch_norm_decay=[0.9, 0.99, 0.9976, 0.9997])],
    step_ms=STEP_MS,
    digits=Small(flags=DIGITS, axes=_SMALL_AXES),
    digits_whole=Small(flags=DIGITS_WHOLE, axes=_SMALL_AXES, seeds=WHOLE_SEEDS),
)
