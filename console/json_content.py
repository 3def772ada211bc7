"""Parses JSON from untrusted files: damaged text, other types, deep nesting, numbers of any size."""

import hashlib
import json
import sys
from typing import Any, Callable, Dict, Tuple, Type, TypeVar, Union, get_type_hints

from compat.messages import shown

_Record = TypeVar('_Record')
# The errors from parsing and using content that this program did not write.
_DAMAGED = (AttributeError, LookupError, MemoryError, OverflowError, TypeError, ValueError)
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_FLOAT = sys.float_info.max
# The key of a digest of all other values, and its length in hexadecimal digits.
_SEAL, _SEAL_DIGITS = 'check', 16


def from_json(content: Union[str, bytes], make: Callable[[Any], _Record]) -> _Record:
    """Makes a value from JSON, whatever a file contains; bytes are UTF-8.

    `make` may use the parsed content as if it had the right types. If it fails, or the content is not JSON, a
    ValueError gives the reason.
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
    """Makes a NamedTuple from a JSON object of its fields; raises TypeError for a wrong, missing or unknown field."""
    made = kind(**values)
    for name, hint in get_type_hints(kind).items():
        if not fits(getattr(made, name), hint):
            raise TypeError(f'{name} is {shown(repr(getattr(made, name)))}')
    return made


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON has a type, basic or from `typing`. Integers must fit 64 bits."""
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


def sealed(values: Dict[str, Any]) -> Dict[str, Any]:
    """The values and their digest, by which `unsealed` detects manual changes. It does not prove their origin."""
    return {**values, _SEAL: _digest_of(values)}


def unsealed(values: Dict[str, Any]) -> Tuple[Dict[str, Any], bool]:
    """The values without the digest, and whether there was one; ValueError if they were changed after `sealed`."""
    content = {name: value for name, value in values.items() if name != _SEAL}
    if _SEAL in values and values[_SEAL] != _digest_of(content):
        raise ValueError('it was changed after it was written')
    return content, _SEAL in values


def _digest_of(values: Dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:_SEAL_DIGITS]
