"""Reads the names of classes: from files of labels, from settings beside weights, and for a number of classes.

Files: `imagenet_class_index.json` of Keras, `synset_words.txt` of Caffe, `LOC_synset_mapping.txt` of Kaggle,
`labels.txt` of this program and of TensorFlow's tutorials, the `class_indices` of Keras and the `class_to_idx` of
torchvision in JSON, and a name per line.
"""

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

from compat.messages import counted, listed, shown
from console import inputs
from console.json_content import from_json
from data.dataset_info import BACKGROUND
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tools.weights.choices import ADD, DROP

# Keys under which settings and training scripts keep the names, or the numbers by name.
KEYS = (
    'label_names',
    'id2label',
    'label2id',
    'class_to_idx',
    'idx_to_class',
    'class_names',
    'class_indices',
    'classes',
)
# Names of the background in published lists.
_BACKGROUNDS = ('', BACKGROUND, '__background__', 'dummy', 'unused', 'n/a', '???')
_SYNSET = re.compile(r'(n\d{8})[\s,]+(\S.*)')
_NUMBERED = re.compile(r"""\{?\s*(\d+)\s*[\s:,]\s*(['"]?)(\S.*?)\2\s*,?\s*\}?\s*""")
_FORMS = (
    'Allowed are a name per line in the order of the classes, lines of a synset or a number and a name, such as '
    'synset_words.txt and LOC_synset_mapping.txt, and JSON: a list of names, names by number as in '
    'imagenet_class_index.json, or numbers by name.'
)


def read(path: str) -> List[str]:
    """The names in a file of labels, by class. Raises WeightsError if the file is missing or has another form."""
    flag = f'--labels={path}'
    try:
        text = sources.content_of(path, flag, inputs.TEXT_BYTES).decode('utf-8-sig').strip()
    except UnicodeDecodeError as error:
        raise WeightsError(f'{flag}: is not text in UTF-8 ({shown(error)}). {_FORMS}')
    if text.startswith(('{"', '[')) or re.match(r'\{\s*"', text):
        try:
            content = from_json(text, lambda value: value)
        except ValueError as error:
            raise WeightsError(f'{flag}: is not JSON ({shown(error)}). {_FORMS}')
        names = in_settings(content, flag) if isinstance(content, dict) else None
        names = names if names is not None else of_value(content, flag)
        if names is None:
            raise WeightsError(f'{flag}: has no names of classes. {_FORMS}')
        return names
    lines = [line.strip() for line in text.splitlines()]
    # Dictionaries in Python's notation may have their braces on lines of their own.
    lines = [line for line in lines if line not in ('{', '}')] if lines[:1] and lines[0].startswith('{') else lines
    if not any(lines):
        raise WeightsError(f'{flag}: is empty. {_FORMS}')
    synsets = [_SYNSET.fullmatch(line) for line in lines]
    if all(synsets):
        return [match.group(2) for match in synsets if match]
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    numbers = [int(match.group(1)) for match in numbered if match]
    if len(numbers) == len(lines) > 1 and sorted(numbers) in ([*range(len(lines))], [*range(1, len(lines) + 1)]):
        return [match.group(3) for _, match in sorted(zip(numbers, numbered), key=lambda pair: pair[0]) if match]
    if re.match(r'[^,;\t]*[,;\t][^,;\t]*(label|class|id|index|name)', lines[0].lower()):
        raise WeightsError(f'{flag}: its first line, {shown(lines[0])}, is the header of a table. {_FORMS}')
    return lines


def in_settings(settings: Mapping[str, Any], flag: str) -> Optional[List[str]]:
    """The names of classes in settings, by class; None if there are none. Messages begin with the flag.

    timm's `label_names` may be synsets, for which `label_descriptions` has the words.
    """
    for key in KEYS:
        names = of_value(settings.get(key), f'{flag}: {key}')
        if names:
            words = settings.get('label_descriptions')
            words = words if isinstance(words, dict) else {}
            return [str(words[name]) if isinstance(words.get(name), str) else name for name in names]
    return None


def of_value(value: Any, flag: str) -> Optional[List[str]]:
    """The names in a list, in a dict by number, or in a dict of numbers by name; None for other values.

    Raises WeightsError if a number is missing or occurs twice.
    """
    if isinstance(value, list):
        return [*value] if value and all(isinstance(name, str) for name in value) else None
    if not isinstance(value, dict) or not value:
        return None
    if all(type(each) is int for each in value.values()) and all(isinstance(name, str) for name in value):
        pairs = [(number, name) for name, number in value.items()]
    else:
        # Keras' lists have the synset and the word of a class.
        words = {key: name[-1] if isinstance(name, list) and len(name) == 2 else name for key, name in value.items()}
        is_numbered = all(re.fullmatch(r'\d{1,9}', str(key)) for key in value)
        if not is_numbered or not all(isinstance(name, str) for name in words.values()):
            return None
        pairs = [(int(key), str(name)) for key, name in words.items()]
    by_number: Dict[int, str] = dict(pairs)
    missing = [str(number) for number in range(len(pairs)) if number not in by_number]
    if missing:
        raise WeightsError(
            f'{flag}: has {counted(len(pairs), "name")}, but none of class {listed(missing, separator=", ")}.'
        )
    return [by_number[number] for number in range(len(pairs))]


def for_classes(names: Sequence[str], origin: str, classes: int, change: str, is_ours: bool) -> List[str]:
    """The names of the classes that weights have after a change of class 0, with or without the background in the list.

    Args:
      names: names of the weights' own classes, or of the classes after the change.
      origin: the origin of the names, for messages.
      classes: the number of the classes of the weights, after the change.
      change: the value of `--class_0`.
      is_ours: whether class 0 of the weights is the background by default, as in this program and TF-Slim.

    Raises:
      WeightsError: the numbers do not fit.
    """
    listed_names = [*names]
    has_background = names[0].strip().lower() in _BACKGROUNDS
    own = classes - (change == ADD) + (change == DROP)
    if has_background:
        listed_names[0] = BACKGROUND
    # ImageNet has 1,000 classes.
    is_background = change == ADD or (change != DROP and (is_ours or own == 1001))
    if len(names) == own and change == DROP:
        return listed_names[1:]
    if has_background and len(names) == classes + 1:
        return listed_names[1:]
    if len(names) == classes and not (change == ADD and not has_background) and not (change == DROP and has_background):
        return listed_names
    if len(names) == classes - 1 and is_background and not has_background:
        return [BACKGROUND, *listed_names]
    advice = 'Give the list of these classes with --labels=FILE.'
    if len(names) == classes - 1:
        advice = (
            'If their class 0 is the background, begin the list with the line `background`, and give it by --labels.'
        )
    raise WeightsError(
        f'{origin}: has {counted(len(names), "name")}; the weights have {counted(own, "class", "classes")}'
        + (f', and {classes:,} with --class_0={change}' if classes != own else '')
        + f'. {advice}'
    )
