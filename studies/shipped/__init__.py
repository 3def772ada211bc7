"""The studies that come with the program: each a question, and the runs that answer it.

At its full size a study is for ImageNet on a TPU; its data and its TPU are named on the sweep's command line. Its small
version is for the digits, at a tenth of the network's channels and for five epochs: minutes on a CPU, and enough
to see the machinery work and large effects show, but no answer to the question.
"""

# Milliseconds of a training step with 1,024 images on a v2-8, of the TPU: the published trace's.
STEP_MS = 815

# Of every small version. Its evaluations are at the middle and at the end. One thread gives the same bits on any number
# of cores, and leaves room for as many trials at a time as there are cores. The host call has no bearing on what is
# learnt, but its operations are in the graph, whose arithmetic rounds otherwise with them.
DIGITS = {
    'intra_op_threads': 1,
    'skip_host_call': False,
    'depth_multiplier': 0.1,
    'train_steps': 240,
    'train_steps_per_eval': 120,
}
