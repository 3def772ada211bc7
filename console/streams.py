"""Opens the standard streams that the caller of a program has closed, as by `2>&-`."""

import os
import sys

_NAMES = ('stdin', 'stdout', 'stderr')


def open_closed() -> None:
    """Opens each closed standard stream on the null device, for this process and its children.

    Python has no object for a closed stream, and the next file that the process opens would get its descriptor:
    libraries in C would then write their messages into that file.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            # The system takes the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, 'w' if number else 'r', closefd=False))
