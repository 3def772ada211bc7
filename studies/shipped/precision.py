"""Does bfloat16 for the activations cost top-1, beside float32?

Variables, loss and averages are float32 with either. A CPU computes bfloat16 by rounding what it multiplies, so the
small version has a TPU's rounding, but not its speed.
"""

from studies.shipped import DIGITS, STEP_MS
from studies.study import Small, Study, grid

STUDY = Study(
    axes=[grid(precision=['float32', 'bfloat16'])],
    step_ms=STEP_MS,
    digits=Small(flags=DIGITS),
)
