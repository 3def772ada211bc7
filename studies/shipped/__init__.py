"""The shipped studies: a question each, and the runs that answer it.

At full size a study trains on ImageNet on a TPU; the sweep's command line names the data set and the TPU. The small
version trains on the digits, with a tenth of the network's channels, for five epochs: minutes on a CPU. It shows how a
sweep works, and large effects, but does not answer the question.
"""

# Milliseconds of TPU time of a training step with 1,024 images on a v2-8, from the published trace.
STEP_MS = 815

# Flags of every small version, with evaluations at the middle and at the end. One thread gives the same bits on any
# number of cores, and lets one trial run per core. The host call does not affect training, but its operations in the
# graph change the rounding; it stays on so that earlier results can be reproduced.
DIGITS = {
    'intra_op_threads': 1,
    'skip_host_call': False,
    'depth_multiplier': 0.1,
    'train_steps': 240,
    'train_steps_per_eval': 120,
}
