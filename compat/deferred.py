"""Modules of this program by name, and functions whose modules are imported when they are called.

The modules of networks and preprocessings need TensorFlow, which takes seconds to load.
"""

import importlib
from typing import Any, Callable

# The prefix of module names: `inception_v3_tpu.`, the package that holds all others, in the wheel; empty in a checkout.
_PREFIX = __name__[: -len('compat.deferred')]


def is_installed() -> bool:
    """Whether the program was installed by pip, and is not a checkout."""
    return bool(_PREFIX)


def full_name(module: str) -> str:
    """The name by which Python imports a module of this program, in a checkout or in the wheel."""
    return module if module.startswith(_PREFIX) else _PREFIX + module


def deferred(place: str) -> Callable[..., Any]:
    """Returns a function that imports `module:name` and calls it."""
    module, name = place.split(':')

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(full_name(module)), name)(*arguments, **options)

    return call
