"""Do batches of 1,024 to 16,384 images reach the same top-1, with the documented warm-up and without it?

Published: 78.1 to 78.5 % at all of these sizes. Every batch size sees the same number of epochs, on 8 cores for every
1,024 images. The small version has batches of 32 and 256 for the same eight epochs, of which one is cold and two are
for warming up.
"""

from studies.shipped import DIGITS, STEP_MS
from studies.study import Small, Study, cases, together

WARM_UP = cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}})

STUDY = Study(
    axes=[
        together(
            train_batch_size=[1024, 4096, 8192, 16384],
            num_shards=[8, 32, 64, 128],
            eval_batch_size=[1024, 4096, 4096, 4096],
            train_steps=[213000, 53250, 26625, 13312],
            train_steps_per_eval=[2000, 500, 250, 125],
        ),
        WARM_UP,
    ],
    step_ms=STEP_MS,
    digits=Small(
        flags={**DIGITS, 'cold_epochs': 1, 'warmup_epochs': 2},
        axes=[
            together(train_batch_size=[32, 256], train_steps=[352, 44], train_steps_per_eval=[176, 22]),
            WARM_UP,
        ],
    ),
)
