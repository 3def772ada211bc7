from console import tensorflow_settings  # noqa: F401  Before any test loads TensorFlow.
