"""The shipped studies: a question each, and the runs that answer it.

At full size a study trains on ImageNet on a TPU; the sweep's command line names the data set and the TPU. The small
versions train on the digits. The short one trains a tenth of the network's channels for five epochs, in less than a
minute a trial: it shows how a sweep works, and large effects. The whole one answers the question for the digits: ten
seeds of the preset's network and its 750 steps. Its reference case reaches 97 %, in about four minutes of CPU time.
"""

# Assumed for the cost: a step of 1,024 images on 8 cores takes the TPU time in the guide's sample trace.
STEP_MS = 815

# The preset's recipe from the time when the recorded results were measured, without warm-up. It reproduces them.
COLORS = {'cb_distortion_range': 0.1, 'cr_distortion_range': 0.1}
EARLIER_RECIPE = {**COLORS, 'use_learning_rate_warmup': False, 'moving_average_decay': 0.995}

# Flags of every short version, with evaluations in the middle and at the end. One thread gives the same bits on any
# number of cores, and lets one trial run per core. The host call does not affect training, but its operations in the
# graph change the rounding; it stays on so that earlier results can be reproduced.
DIGITS = {
    **EARLIER_RECIPE,
    'intra_op_threads': 1,
    'skip_host_call': False,
    'depth_multiplier': 0.1,
    'train_steps': 240,
    'train_steps_per_eval': 120,
}

# Flags of every version with longer runs, on one thread for the same reasons. At 1,500 steps the cases approach the
# ceiling, where differences between them are smaller.
DIGITS_WHOLE = {**EARLIER_RECIPE, 'intra_op_threads': 1, 'train_steps': 750, 'train_steps_per_eval': 750}
WHOLE_SEEDS = 10
