"""Keeps TensorFlow 1.15 from talking while it is loaded: programs import this before it.

It would tell of names that it renamed, of NumPy's types, and of the processor that it runs on.
"""

import logging
import os
import warnings

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
logging.getLogger('tensorflow').setLevel(logging.CRITICAL)
warnings.filterwarnings('ignore', category=FutureWarning)
