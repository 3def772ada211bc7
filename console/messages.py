"""What users and files have written, in messages."""

from typing import Any

# The longest that a message shows of it.
_CHARACTERS = 80


def shown(value: Any, at_most: int = _CHARACTERS) -> str:
    """A value on one line, in characters that print; of what is longer than `at_most`, the beginning and the end."""
    text = value.decode(errors='surrogateescape') if isinstance(value, bytes) else str(value)
    if len(text) > at_most:
        text = f'{text[: at_most // 2]}...{text[-at_most // 2 :]}'
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
