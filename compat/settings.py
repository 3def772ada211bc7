"""Settings that TensorFlow reads at import. The packages import this module first."""

import importlib.util
import logging
import os
import sys
import warnings

# Hides warnings about renamed functions, NumPy types and processor features, and errors that TensorFlow also raises,
# for example about damaged images.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
_log = logging.getLogger('tensorflow')
if not _log.level:  # A program that has called `tf.logging.set_verbosity` before keeps its level.
    _log.setLevel(logging.CRITICAL)
warnings.filterwarnings('ignore', category=FutureWarning)
# A warning of `cryptography`, which Google's packages import if it is installed.
warnings.filterwarnings('ignore', 'Python 3.7 is no longer supported')

# Estimator needs Keras 2, which 2.16 replaced with Keras 3. The package tf_keras is Keras 2.
if importlib.util.find_spec('tf_keras') is not None:
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')

# On a CPU, XLA compiles nothing unless requested. TensorFlow still searches each graph for clusters to compile, in a
# time that grows with the square of the number of variables. With zero fuel, the search ends at once.
TF_XLA_FLAGS = '--tf_xla_clustering_fuel=0'
os.environ.setdefault('TF_XLA_FLAGS', TF_XLA_FLAGS)

# The C library requests the memory of large tensors, such as batches, from the system page by page, and returns it
# after each use. This costs the input pipeline half a millisecond per image. TensorFlow's BFC allocator keeps the
# memory instead.
os.environ.setdefault('TF_CPU_ALLOCATOR_USE_BFC', '1')

# TensorFlow loads TensorBoard, which loads boto3 if it is installed, for files that this program does not open: a tenth
# of the time to load TensorFlow. `compat.tensorflow` removes this entry afterwards.
if 'boto3' not in sys.modules:
    sys.modules['boto3'] = None  # type: ignore[assignment]
