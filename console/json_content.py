"""Makes values of JSON, whatever a file contains: damaged text, other types, deep nesting, numbers of any size."""

import json
import sys
from typing import Any, Callable, Tuple, Type, TypeVar, Union, get_type_hints

from compat.messages import shown

_Record = TypeVar('_Record')
# The errors of parsing content that was not written by this program, and of using it.
_DAMAGED = (AttributeError, LookupError, MemoryError, OverflowError, TypeError, ValueError)
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_FLOAT = sys.float_info.max


def from_json(content: Union[str, bytes], make: Callable[[Any], _Record]) -> _Record:
    """Makes a value from JSON, whatever a file contains; bytes are UTF-8.

    `make` may use what was parsed as if it had the right types. If it fails, or the content is no JSON, a
    ValueError has the reason.
    """
    try:
        return make(json.loads(content.decode('utf-8-sig') if isinstance(content, bytes) else content))
    except RecursionError:
        raise ValueError('it is nested too deeply')
    except LookupError as error:
        raise ValueError(f'it has no {error}')
    except _DAMAGED as error:
        raise ValueError(str(error))


def record(kind: Type[_Record], values: Any) -> _Record:
    """Makes a NamedTuple from the object of its fields in JSON; a wrong, missing or unknown field is a TypeError."""
    made = kind(**values)
    for name, hint in get_type_hints(kind).items():
        if not fits(getattr(made, name), hint):
            raise TypeError(f'{name} is {shown(repr(getattr(made, name)))}')
    return made


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON has a type: of `typing`, or a basic one. An int has 64 bits."""
    origin = getattr(hint, '__origin__', None)
    arguments: Tuple[Any, ...] = getattr(hint, '__args__', ())
    if origin is Union:
        return any(fits(value, argument) for argument in arguments)
    if origin is dict:
        return type(value) is dict and all(fits(each, arguments[1]) for each in value.values())
    if origin in (list, tuple):
        return type(value) is origin and all(fits(each, arguments[0]) for each in value)
    if hint is float:
        # JSON does not distinguish floats from integers: 1.0 may be written as 1.
        return type(value) is float or (type(value) is int and abs(value) <= _LARGEST_FLOAT)
    return hint is Any or (type(value) is hint and (hint is not int or abs(value) <= _LARGEST_INTEGER))
