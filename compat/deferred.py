"""Functions whose modules are imported when they are called: those of networks and preprocessings need TensorFlow."""

import importlib
from typing import Any, Callable


def deferred(place: str) -> Callable[..., Any]:
    """The function or class at `module:name`."""
    module, name = place.split(':')

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    return call
