"""Screen, messages and errors of all commands, and the settings that TensorFlow reads when it is loaded."""

from console import tensorflow_settings  # noqa: F401  Must precede the import of TensorFlow.
