"""Does top-1 change if each core normalizes its own share of a batch?

`local` keeps one core's moving statistics, `averaged` keeps their mean over the cores, and `synchronized` normalizes
with the moments of the whole batch. The effect is larger with fewer images per core. Here a core has 32, a quarter of
the documented number, as in the published experiment on the layer itself; `inception-v3 batch-norm` repeats that
experiment. The small versions have 2 emulated cores with 8 images each.
"""

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Flags, Small, Study, grid

_TWO_CORES: Flags = {'tpu': 'emulated:2', 'iterations': 10, 'train_batch_size': 16}

STUDY = Study(
    flags={'train_batch_size': 256, 'train_steps': 852000, 'train_steps_per_eval': 8000},
    axes=[grid(batch_norm=['local', 'averaged', 'synchronized'])],
    step_ms=STEP_MS,
    digits=Small(flags={**DIGITS, **_TWO_CORES, 'train_steps_per_eval': 240}),
    digits_whole=Small(
        flags={**DIGITS_WHOLE, **_TWO_CORES, 'train_steps': 1500, 'train_steps_per_eval': 1500}, seeds=WHOLE_SEEDS
    ),
)
