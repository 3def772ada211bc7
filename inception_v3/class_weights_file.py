"""Reads a weight for each class from a CSV file, for `--class_weights`."""

import csv
import io
from typing import Dict, Iterator, List, Sequence, Tuple

from compat.messages import listed, shown
from data.dataset_info import is_background
from inception_v3.class_weights import ALLOWED, is_weight
from inception_v3.config import ConfigError

_VALUES = 2
_FORM = (
    'a name or label and a weight, with a comma between them, such as cat,2.5; a name with a comma is quoted: '
    '"cat, tabby",2.5'
)
_PROBLEMS_SHOWN = 5


def parsed(content: bytes, place: str, names: Sequence[str], num_classes: int) -> List[float]:
    """Reads the weight of each class, by label, from a CSV file.

    Either all lines name classes, or all have labels. Each class except the background needs a line. If the data set
    names only some of its classes, the others need none. A first line whose weight is the word `weight`, such as
    `class,weight`, is a heading.

    Args:
      content: the content of the file, in UTF-8.
      place: the flag with its value, for messages.
      names: the names of the classes by label; empty if they are unknown.
      num_classes: the number of weights, background included.

    Raises:
      ConfigError: a line is malformed; a class is unknown, missing or given twice; or a weight is not allowed.
    """
    try:
        text = io.StringIO(content.decode('utf-8-sig'), newline='')
        reader = csv.reader(text, strict=True)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except UnicodeDecodeError:
        raise ConfigError(f'{place}: not a text file in UTF-8. It has {_FORM}.')
    except csv.Error as error:
        raise ConfigError(f'{place}: line {reader.line_num}: not CSV: {error}. It has {_FORM}.')
    if rows and [cell.lower() for cell in rows[0][1][1:]] == ['weight']:
        del rows[0]
    label_of: Dict[str, List[int]] = {}
    for label, name in enumerate(names):
        label_of.setdefault(name.strip(), []).append(label)
    cells = [row[0] for _, row in rows]
    # Names of classes may be numbers, as in the data set of digits.
    is_named = any(map(str.strip, names)) and not (
        all(cell.isdecimal() for cell in cells) and not all(cell in label_of for cell in cells)
    )
    if not is_named:
        label_of = {str(label): [label] for label in range(num_classes)}
    found: Dict[int, Tuple[int, float]] = {}
    problems = [*_problems(rows, label_of, found, is_named)]
    described = [label for label, name in enumerate(names) if name] or range(num_classes)
    needed = [label for label in described if label or not is_background(names[0] if names else '')]
    missing = [names[label] if is_named else str(label) for label in needed if label not in found]
    if missing and not problems:
        kind = 'classes' if is_named else 'labels'
        problems.append(f'has no weight for {len(missing):,} of {len(needed):,} {kind}: {listed(missing, 5, ", ")}')
    if problems:
        raise ConfigError('\n'.join(f'{place}: {problem}.' for problem in problems[:_PROBLEMS_SHOWN]))
    return [found[label][1] if label in found else 1.0 for label in range(num_classes)]


def _problems(
    rows: Sequence[Tuple[int, List[str]]],
    label_of: Dict[str, List[int]],
    found: Dict[int, Tuple[int, float]],
    is_named: bool,
) -> Iterator[str]:
    """Yields the problems of lines; adds the other lines to `found`, by label: the line number and the weight."""
    allowed = 'a class of the data set' if is_named else f'a label from 0 to {len(label_of) - 1:,}'
    for line, row in rows:
        where = f'line {line}: '
        if len(row) != _VALUES:
            yield f'{where}{len(row)} {"value" if len(row) == 1 else "values"}; it must have two: {_FORM}'
            continue
        cell, weight = row
        labels = label_of.get(cell if is_named else cell.lstrip('0') or '0', [])
        if not labels:
            yield f'{where}{shown(cell) or "an empty name"} is not {allowed}'
        elif len(labels) > 1:
            yield f'{where}{shown(cell)} is the name of {len(labels)} classes; give labels in every line'
        elif labels[0] in found:
            yield f'{where}{shown(cell)} was given in line {found[labels[0]][0]} already'
        elif not is_weight(weight):
            yield f'{where}the weight of {shown(cell)} is {shown(weight) or "empty"}; it must be {ALLOWED}'
        else:
            found[labels[0]] = line, float(weight)
