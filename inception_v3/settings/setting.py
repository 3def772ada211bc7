"""The metadata of a configuration field: group, help text, allowed values."""

import dataclasses
import math
import unicodedata
from typing import Any, Iterable, NamedTuple, Optional, Tuple, get_type_hints

from console.messages import shown

TYPE_NAMES = {int: 'a whole number', float: 'a number', bool: 'True or False', str: 'a string'}

# TensorFlow's integers and floats have 32 bits; a Linux path has at most 4,096 bytes.
_LARGEST_INT = 2**31 - 1
_SMALLEST_FLOAT, _LARGEST_FLOAT = 2.0**-126, 2.0**127
_LONGEST_TEXT = 4096


class Setting(NamedTuple):
    """The metadata of a field, besides its name, type and default.

    Attributes:
      group: the heading under which `--help` lists the field.
      help: a phrase for `--help`, with the unit.
      lower: the least allowed value.
      upper: the greatest allowed value.
      above: a bound that the value must exceed.
      choices: the allowed values; empty for no such limit.
    """

    group: str
    help: str
    lower: Optional[float] = None
    upper: Optional[float] = None
    above: Optional[float] = None
    choices: Tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The allowed values in words; empty if every value of the type is allowed."""
        if self.choices:
            return ' or '.join([', '.join(self.choices[:-1]), self.choices[-1]])
        bounds = []
        if self.above is not None:
            bounds.append(f'above {_plain(self.above)}')
        if self.lower is not None:
            bounds.append(f'at least {_plain(self.lower)}')
        if self.upper is not None:
            bounds.append(f'at most {_plain(self.upper)}')
        return ' and '.join(bounds)

    def allows(self, value: Any) -> bool:
        """Whether `value`, of the right type, is among the choices and within the bounds."""
        if self.choices and value not in self.choices:
            return False
        return (
            (self.above is None or value > self.above)
            and (self.lower is None or value >= self.lower)
            and (self.upper is None or value <= self.upper)
        )


def setting_of(field: 'dataclasses.Field[Any]') -> Setting:
    """The metadata of a field of `Config`."""
    return field.metadata['setting']


def plain_type(annotation: Any) -> type:
    """The type of a field's values: the content of an `Optional`, else the annotation itself."""
    return next((t for t in getattr(annotation, '__args__', ()) if t is not type(None)), annotation)


def wrong_values(instance: Any) -> Iterable[str]:
    """Messages about the fields of a dataclass that have a wrong type or are out of bounds.

    A whole number in a float field is converted to float first, since JSON and people write `1` for `1.0`.

    Args:
      instance: a dataclass, all of whose fields have a `Setting`.
    """
    types = get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value: Any = getattr(instance, field.name)
        setting = setting_of(field)
        expected = plain_type(types[field.name])
        if value is None and field.default is None:
            continue
        if expected is float and type(value) is int:
            value = float(value) if abs(value) <= _LARGEST_FLOAT else math.inf
            object.__setattr__(instance, field.name, value)
        flag = f'--{field.name}={shown(value)}'
        if type(value) is not expected or (isinstance(value, float) and not math.isfinite(value)):
            yield f'{flag}: must be {TYPE_NAMES[expected]}.'
        elif not setting.allows(value):
            yield f'{flag}: must be {setting.allowed}.'
        elif _technical_limit(value):
            yield f'{flag}: must be {_technical_limit(value)}.'


def _technical_limit(value: Any) -> Optional[str]:
    """The limit of TensorFlow or of file systems that a value exceeds, in words; None if it exceeds none."""
    if isinstance(value, int) and value > _LARGEST_INT:
        return f'at most {_LARGEST_INT}'
    if isinstance(value, float) and value and not _SMALLEST_FLOAT <= abs(value) <= _LARGEST_FLOAT:
        return f'a 32-bit number, {_SMALLEST_FLOAT:.2g} to {_LARGEST_FLOAT:.2g}'
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f'a string of at most {_LONGEST_TEXT:,} characters'
    if isinstance(value, str) and any(unicodedata.category(character) in ('Cc', 'Cs') for character in value):
        return 'a UTF-8 string without control characters'
    return None


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f'{bound:g}'
