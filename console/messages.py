"""Shows values from users and files in messages."""

from typing import Any

# The maximum length of a value in a message.
_CHARACTERS = 80


def shown(value: Any, at_most: int = _CHARACTERS) -> str:
    """A value on one line, in printable characters; a longer value than `at_most` is shortened in its middle."""
    text = value.decode(errors='surrogateescape') if isinstance(value, bytes) else str(value)
    if len(text) > at_most:
        text = f'{text[: at_most // 2]}...{text[-at_most // 2 :]}'
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def counted(count: int, singular: str, plural: str = '') -> str:
    """A number and its noun: `1 image`, `2 images`; `plural` if it is not the singular with an s."""
    return f'{count:,} {singular if count == 1 else plural or singular + "s"}'
