"""How long should batch normalization's moving statistics remember?

The documented decay of 0.9976 is 0.9997⁸: one core's statistics, each of an eighth of the batch, remember eight updates
at a time. A longer memory is less noisy, and lags behind the weights. A run of few steps needs a short one: what is
left of the initial values after n steps is decayⁿ.
"""

from studies.shipped import DIGITS, STEP_MS
from studies.study import Small, Study, grid

STUDY = Study(
    axes=[grid(batch_norm_decay=[0.9, 0.99, 0.9976, 0.9997])],
    step_ms=STEP_MS,
    digits=Small(flags=DIGITS, axes=[grid(batch_norm_decay=[0.9, 0.95, 0.9976])]),
)
