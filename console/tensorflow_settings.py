"""What TensorFlow 1.15 is told before it is loaded: programs import this first."""

import logging
import os
import warnings

# It would tell of names that it renamed, of NumPy's types, and of the processor that it runs on.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
logging.getLogger('tensorflow').setLevel(logging.CRITICAL)
warnings.filterwarnings('ignore', category=FutureWarning)
# Of `cryptography`, which Google's packages load if it is there.
warnings.filterwarnings('ignore', 'Python 3.7 is no longer supported')

# What a CPU runs is not compiled by XLA unless that is asked for. Still, TensorFlow searches each graph for clusters
# to compile, in a time that grows with the square of the number of variables. Without fuel, the search ends at once.
os.environ.setdefault('TF_XLA_FLAGS', '--tf_xla_clustering_fuel=0')

# The C library fetches memory for what is as large as a batch from the system, page by page, each time, and gives it
# back: half a millisecond per image of the input pipeline. TensorFlow can keep it for the next.
os.environ.setdefault('TF_CPU_ALLOCATOR_USE_BFC', '1')
