"""Describes the keys of a record, and says which of them look like those of an image and a label."""

import re
from typing import Any, Sequence, Tuple

from console.messages import shown
from console.tensorflow_versions import tf
from data.image_header import read_header

# Keys in a message, and characters of all of them together; the same for those that look like what is wanted.
_LISTED_AT_MOST = 20
_LONGEST_LIST, _LONGEST_FLAGS = 180, 60
_LONGEST_TEXT = 30
_PLURALS = {'bytes_list': 'texts', 'int64_list': 'whole numbers', 'float_list': 'floats'}
# The image formats that records may hold.
_READABLE = ('JPEG', 'PNG', 'GIF')
# The names of labels in data sets, as whole words.
_LABEL_NAMES = re.compile(r'(?:^|[^a-z])(label|labels|class|cls|category|target|y)(?:[^a-z]|$)', re.IGNORECASE)


def described(example: tf.train.Example) -> str:
    """Sentences with the keys of a record and their values, and with the flags for those of an image and a label."""
    features = sorted(example.features.feature.items())
    if not features:
        return 'The record has no keys.'
    kinds = [(key, *_kind_of(feature)) for key, feature in features]
    listed = shown(', '.join(f'{shown(key)} ({kind})' for key, kind, _ in kinds[:_LISTED_AT_MOST]), _LONGEST_LIST)
    more = len(kinds) - _LISTED_AT_MOST
    texts = [f'The record has the keys {listed}{f" and {more:,} more" if more > 0 else ""}.']
    images = [key for key, _, looks_like in kinds if looks_like == 'image_key']
    numbers = [key for key, _, looks_like in kinds if looks_like == 'label_key']
    named = [key for key in numbers if _LABEL_NAMES.search(key)]
    for what, flag, keys in (('an image', 'image_key', images), ('a label', 'label_key', named or numbers)):
        if keys:
            flags = ' or '.join(f'--{flag}={shown(key)}' for key in keys[:_LISTED_AT_MOST])
            texts.append(f'{shown(flags, _LONGEST_FLAGS)} looks like {what}.')
    if not images:
        texts.append('None holds the bytes of a JPEG, PNG or GIF file; other images must be encoded as one first.')
    return ' '.join(texts)


def _kind_of(feature: Any) -> Tuple[str, str]:
    """The value of a feature, for messages; and the flag of the key that it looks like, or nothing."""
    kind = str(feature.WhichOneof('kind'))
    values: Sequence[Any] = getattr(feature, kind).value if kind in _PLURALS else ()
    if len(values) != 1:
        return f'{len(values):,} {_PLURALS[kind]}' if values else 'empty', ''
    (value,) = values
    if kind != 'bytes_list':
        return (f'{value}', 'label_key') if kind == 'int64_list' else (f'{value:g}, a float', '')
    header = read_header(value)
    if header and header.width:
        size = f'{header.format} of {header.width} x {header.height} pixels'
        return size, 'image_key' if header.format in _READABLE else ''
    is_text = len(value) <= _LONGEST_TEXT and all(32 <= byte < 127 for byte in value)
    return repr(value.decode()) if is_text else f'{len(value):,} bytes', ''
