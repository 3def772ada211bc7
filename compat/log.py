"""The log of this program, and TensorFlow's. `console.screen` shows both."""

import logging
import sys

logger = logging.getLogger('inception_v3')
_tensorflow = logging.getLogger('tensorflow')


def show(handler: logging.Handler, verbose: bool) -> None:
    """Shows this program's log; TensorFlow's log and warnings only if `verbose`. TensorFlow need not be loaded yet."""
    for each in (logger, _tensorflow):
        each.handlers = [handler]
        each.propagate = False
    logger.setLevel(logging.INFO)
    _tensorflow.setLevel(logging.INFO if verbose else logging.CRITICAL)
    if f'{__package__}.tensorflow' in sys.modules:
        settle_tensorflow(_tensorflow.level)


def settle_tensorflow(level: int) -> None:
    """Restores TensorFlow's log after loading, which adds a handler and may change the level."""
    from tensorflow.python.util import deprecation

    _tensorflow.setLevel(level)
    if logger.handlers:
        _tensorflow.handlers = [*logger.handlers]
    # To warn about deprecated arguments, TensorFlow inspects a function's signature at every call, which takes a fifth
    # of the time to build a graph.
    deprecation._PRINT_DEPRECATION_WARNINGS = level < logging.CRITICAL
