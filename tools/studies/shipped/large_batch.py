"""Do batches of 1,024 to 16,384 images reach the same top-1, with the documented warm-up, a capped one, and none?

Published, with the fast colour distortion: more than 78.1 % at global batches of 1,024 to 16,384. Every batch size
trains for the same number of epochs, on 8 cores for every 1,024 images. The small versions have batches of 32 and 128,
for 8 or 17 epochs; in the first four, the learning rate with warm-up is below the plain one.
"""

from typing import Optional

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Flags, Small, Study, cases

WARM_UP = cases(
    {
        'plain': {},
        'warm-up': {'use_learning_rate_warmup': True},
        'capped-warm-up': {'use_learning_rate_warmup': True, 'cap_warmup': True},
    }
)


def _small(flags: Flags, steps: int, seeds: Optional[int] = None) -> Small:
    """A small version with the preset's warm-up: batches of 32 for `steps` steps, and of 128 for a quarter as many."""
    return Small(
        flags=flags,
        axes=[
            cases(
                {
                    f'batch={batch}': {
                        'train_batch_size': batch,
                        'train_steps': steps * 32 // batch,
                        'train_steps_per_eval': steps * 16 // batch,
                    }
                    for batch in (32, 128)
                }
            ),
            WARM_UP,
        ],
        seeds=seeds,
    )


STUDY = Study(
    axes=[
        cases(
            {
                f'batch={batch}': {
                    'train_batch_size': batch,
                    'num_shards': batch // 128,
                    # The documented decay of one sequential update, to the power of the number of cores.
                    'batch_norm_decay': round(0.9997 ** (batch // 128), 4),
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
    digits=_small(DIGITS, 352),
    digits_whole=_small(DIGITS_WHOLE, 752, WHOLE_SEEDS),
)
