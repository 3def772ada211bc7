"""Do batches of 1,024 to 16,384 images reach the same top-1, with the documented warm-up and without it?

Published, with the fast colour distortion: more than 78.1 % at global batches of 1,024 to 16,384. Every batch size
trains for the same number of epochs, on 8 cores for every 1,024 images. The small version has batches of 32 and 128 for
eight epochs; in the first four, the learning rate with warm-up is below the plain one.
"""

from studies.shipped import DIGITS, STEP_MS
from studies.study import Small, Study, cases

WARM_UP = cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}})

STUDY = Study(
    axes=[
        cases(
            {
                f'batch={batch}': {
                    'train_batch_size': batch,
                    'num_shards': batch // 128,
                    'eval_batch_size': 1024,
                    'train_steps': 213000 * 1024 // batch,
                    'train_steps_per_eval': 2000 * 1024 // batch,
                }
                for batch in (1024, 4096, 8192, 16384)
            }
        ),
        WARM_UP,
    ],
    step_ms=STEP_MS,
    digits=Small(
        flags={**DIGITS, 'cold_epochs': 1, 'warmup_epochs': 2},
        axes=[
            cases(
                {
                    f'batch={batch}': {
                        'train_batch_size': batch,
                        'train_steps': 352 * 32 // batch,
                        'train_steps_per_eval': 176 * 32 // batch,
                    }
                    for batch in (32, 128)
                }
            ),
            WARM_UP,
        ],
    ),
)
