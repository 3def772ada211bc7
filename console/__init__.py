"""The screen, messages and errors of every command, and the settings that TensorFlow reads when it is loaded."""

from console import tensorflow_settings  # noqa: F401  Before any module loads TensorFlow.
