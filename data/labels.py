"""Counts the labels in a data set's files, and compares a sample with the description and with the other split."""

import collections
import contextlib
import os
from typing import Iterator, List, NamedTuple, Optional, Sequence

from compat import tf
from compat.log import logger
from compat.messages import shown
from data import record_checker, tfrecord_files
from data.dataset_info import BACKGROUND, FILE_NAME
from data.records import DataError
from data.sources import Source

# The sample: the largest number of files, and of records and bytes from the beginning of each; at least one record.
_FILES, _RECORDS, _BYTES = 8, 200, 1 << 20
_TEXT = 'image/class/text'
# The fewest images between two lines of the log.
_PROGRESS_EVERY = 100_000


class Labelled(NamedTuple):
    """A record: its label with the offset added; the name of its class, empty if it has none; its image's file."""

    label: int
    text: str
    encoded: bytes


def labelled_in(source: Source, path: str) -> Iterator[Labelled]:
    """Yields the records of a file that have an image and a label, in order.

    Raises:
      DataError, RemoteError, tf.errors.OpError: the file cannot be read.
    """
    offset = source.fields.label_offset
    if source.data_format == 'tar':
        from data.tar import shard
        from data.tar.layout import label_of

        with shard.Shard(path) as content:
            for sample in content.samples(label_of(source.fields.label)):
                if sample.image:
                    encoded = content.read(sample.image.start, sample.image.size)
                    yield Labelled(sample.label + offset, '', encoded)
        return
    stored = source.fields._replace(label_offset=0)
    for serialized in tfrecord_files.serialized_in(path):
        example = record_checker.parse_example(serialized)
        if not example or record_checker.field_problem(example, 1 << 62, stored):
            continue
        feature = example.features.feature
        label = feature[stored.label].int64_list.value[0] + offset
        texts = feature[_TEXT].bytes_list.value if _TEXT in feature else ()
        yield Labelled(label, os.fsdecode(texts[0]) if texts else '', feature[stored.image].bytes_list.value[0])


def count(source: Source, paths: Sequence[str], num_classes: int) -> List[int]:
    """The number of images of each class in some files, by label with the offset added; all files are read.

    Records without an image, or with a label of no class, are not counted, nor is the damaged rest of a tar shard:
    training skips them up to `--max_bad_records`, or stops there. Images are not decoded, so undecodable ones, which
    training skips, are counted. Progress is logged about every 100,000 images.

    Raises:
      DataError: a TFRecord file is damaged.
      RemoteError, tf.errors.OpError: a file cannot be read.
    """
    counts = [0] * num_classes
    logged = 0
    for position, path in enumerate(paths):
        if sum(counts) - logged >= _PROGRESS_EVERY:
            logged = sum(counts)
            logger.info(
                'counted the labels of %s images in %s of %s files', *(f'{n:,}' for n in (logged, position, len(paths)))
            )
        try:
            for each in labelled_in(source, path):
                if 0 <= each.label < num_classes:
                    counts[each.label] += 1
        except tf.errors.DataLossError as error:
            raise DataError(
                f'{path}: its labels cannot be counted: {shown(error.message)}. inception-v3 audit finds damaged '
                'records.'
            )
    return counts


def sample(source: Source, paths: Sequence[str]) -> List[Labelled]:
    """The records at the beginnings of up to eight files of a split. A damaged record ends the sample of its file.

    Raises the other errors of `labelled_in`.
    """
    found: List[Labelled] = []
    for path in paths[:: -(-len(paths) // _FILES)]:
        count = size = 0
        with contextlib.suppress(tf.errors.DataLossError):
            for each in labelled_in(source, path):
                found.append(each._replace(encoded=b''))
                count, size = count + 1, size + len(each.encoded)
                if count >= _RECORDS or size >= _BYTES:
                    break
    return found


def check_described(
    source: Source, split: str, sampled: Sequence[Labelled], names: Sequence[str], origin: str = FILE_NAME
) -> None:
    """Checks that sampled labels of a split agree with the class names of a description, whose file is `origin`.

    Raises:
      DataError: there are labels 0, the background according to the description; or most sampled records name another
        class than the description does for their label. The message says how to correct it.
    """
    flag, offset, is_own = source.flag(split), source.fields.label_offset, origin == FILE_NAME
    background = sum(not each.label for each in sampled)
    if background and any(names) and names[0] in ('', BACKGROUND):
        now = f' (with --label_offset={offset})' if offset else ''
        raise DataError(
            f'{flag}: {background:,} of {len(sampled):,} sampled {split} labels are 0{now}, the {BACKGROUND} in '
            f'{origin}, which has no images. If the labels begin at 0, every class has the name of another: give '
            f'--label_offset={offset + 1}, which is added to the labels of both splits; if only one split begins at 0, '
            f'write it again.{f" If the images of label 0 are a class, name it in {origin}." if is_own else ""}'
        )
    # ImageNet has two classes named crane.
    counts = collections.Counter(names)
    label_of = {name: label for label, name in enumerate(names) if counts[name] == 1}
    named = [(each, label_of[each.text]) for each in sampled if each.text in label_of]
    others = [(each, meant) for each, meant in named if each.label != meant]
    if 2 * len(others) > len(named):
        each, meant = others[0]
        name = shown(names[each.label]) if 0 <= each.label < len(names) else 'nothing'
        raise DataError(
            f'{flag}: {len(others):,} of {len(named):,} sampled {split} records name another class than {origin} '
            f'does, such as label {each.label}: {shown(each.text)} in {_TEXT}, and {name} in {origin}. If all '
            f'labels are shifted, give --label_offset={offset + meant - each.label}, which is added to each; else '
            f'{f"correct {origin}" if is_own else "write the records again"}.'
        )


def shift_between(train: Sequence[Labelled], validation: Sequence[Labelled]) -> Optional[str]:
    """A message if labels seem to begin at 0 in one split and at 1 in the other; otherwise None."""
    if not train or not validation:
        return None
    ends = [(min(labels), max(labels)) for labels in ([each.label for each in split] for split in (train, validation))]
    (first, last), (first_validation, last_validation) = ends
    begins_earlier = first_validation == 0 < first
    is_shifted = abs(first_validation - first) == 1 and last_validation - last == first_validation - first
    if not begins_earlier and not is_shifted:
        return None
    return (
        f'the labels of the splits seem to be shifted: of {len(train):,} sampled training labels the least is '
        f'{first:,} and the greatest {last:,}, of {len(validation):,} validation labels {first_validation:,} and '
        f'{last_validation:,}. If so, the accuracy is wrong: write one split again, or evaluate with inception-v3 '
        f'evaluate --label_offset=N, where N differs from that of the run by {first - first_validation:+d}'
    )
