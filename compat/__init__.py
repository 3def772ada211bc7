"""TensorFlow in every supported version: `from compat import tf`, or `tf2` for the interface of version 2.

TensorFlow is loaded at the first use of either name. Errors, messages and the log do not need it.
"""

from typing import TYPE_CHECKING, Any

from compat import settings  # noqa: F401  Must precede the import of TensorFlow.

if TYPE_CHECKING:
    import tensorflow.compat.v1 as tf  # noqa: F401
    import tensorflow.compat.v2 as tf2  # noqa: F401
else:

    def __getattr__(name: str) -> Any:
        """Loads TensorFlow; Python calls this for a name that the module does not have yet (PEP 562)."""
        if name not in ('tf', 'tf2'):
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        from compat import tensorflow

        globals().update(tf=tensorflow.tf, tf2=tensorflow.tf2)
        return globals()[name]
