"""Numbers on the studies' command lines, as types for argparse."""

import argparse
from typing import Any, Callable, List

from console.messages import shown

_KINDS = {int: 'a whole number', float: 'a number'}


def number_of(number_type: type, least: float, most: float = float('inf')) -> Callable[[str], Any]:
    """What reads a finite number.

    Args:
      number_type: int or float.
      least: that is allowed.
      most: that is allowed.
    """

    def parse(text: str) -> Any:
        try:
            value = number_type(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most or value == float('inf'):
            bounds = f'from {least:g} to {most:g}' if most < float('inf') else f'at least {least:g}'
            raise argparse.ArgumentTypeError(f'{shown(text)}: must be {_KINDS[number_type]}, {bounds}')
        return value

    return parse


def numbers_of(number_type: type, least: float, most: float = float('inf')) -> Callable[[str], List[Any]]:
    """What reads finite numbers with commas between, and returns them in their order, each once."""
    parse = number_of(number_type, least, most)
    return lambda text: sorted({parse(part) for part in text.split(',')})
