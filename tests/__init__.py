from compat import settings  # noqa: F401  Before any test loads TensorFlow.
