"""Does bfloat16 for the activations reduce top-1, compared with float32?

Variables, loss and averages are float32 in both cases. A CPU emulates bfloat16 by rounding the operands of products, so
the small version has a TPU's rounding, but not its speed.
"""

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Small, Study, grid

STUDY = Study(
    axes=[grid(precision=['float32', 'bfloat16'])],
    step_ms=STEP_MS,
    digits=Small(flags=DIGITS),
    digits_whole=Small(flags=DIGITS_WHOLE, seeds=WHOLE_SEEDS),
)
