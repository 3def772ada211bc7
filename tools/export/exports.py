"""Makes exports, checks them on the validation images, and describes them."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import sys
import tempfile
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from compat.errors import DONE, FIX, CommandError
from compat.log import logger
from compat.messages import counted, in_markdown
from console.screen import Screen
from data import records, remote
from data.files import write_whole
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_data, description_of
from inception_v3.input.bad_records import BadRecords
from inception_v3.model_dir import check_writable
from inception_v3.run.evaluations import changed_since_training
from inception_v3.run.export import card, origin
from inception_v3.run.failures import bad_records_explained
from inception_v3.run.trained_data import trained_data_of
from tools import extras, other_data, trained_model
from tools.export import prepare
from tools.export.formats import FORMATS, of_variables
from tools.export.network import DECODING, INPUT, Batch, FrozenNetwork, batches, describe, freeze
from tools.paired import FEWEST_DIFFERING, Pairs

_DESCRIPTION, _PROGRAM = 'preprocessing.json', 'prepare.py'
# The default, as in `--help`.
_CALIBRATION_IMAGES = 200


class Agreement(NamedTuple):
    """The agreement of an export, in the format `name`, with its checkpoint on the validation images.

    The export classifies `right` images correctly, the checkpoint `expected` images; `alone` and `checkpoint_alone`
    count images that only one of the two classifies correctly. `difference` is the largest absolute difference between
    two logits.
    """

    name: str
    images: int = 0
    right: int = 0
    expected: int = 0
    alone: int = 0
    checkpoint_alone: int = 0
    difference: float = 0.0

    @property
    def pairs(self) -> Pairs:
        """The comparison image by image; the export is the first of the pair."""
        return Pairs(self.images, self.alone, self.checkpoint_alone)

    @property
    def is_lower(self) -> bool:
        """Whether the accuracy on these images is too low for the format; if it allows no loss, whether it differs."""
        allowed = FORMATS[self.name].loses_at_most
        lost = 100 * (self.expected - self.right) / self.images
        return lost > allowed if allowed else lost != 0

    @property
    def is_kept(self) -> Optional[bool]:
        """Whether the accuracy equals the checkpoint's, or is no lower than the format allows; None if it is uncertain.

        A format that allows a loss changes some answers, and in few images more of these may be on one side by chance.
        """
        if not self.is_lower:
            return True
        return None if FORMATS[self.name].loses_at_most and not self.pairs.are_told_apart else False

    @property
    def verdict(self) -> str:
        """The reason why the accuracy is not kept, or why these images do not show it; empty if it is kept."""
        if self.is_kept is False:
            return f'{self.name}: has not the accuracy of its checkpoint. Do not use it.'
        if self.is_kept:
            return ''
        # The number of images that would show a difference if the same share differed, all to one side.
        needed = math.ceil(FEWEST_DIFFERING * self.images / (self.checkpoint_alone - self.alone))
        return (
            f'{self.name}: {self.images:,} images are too few to tell whether its accuracy is lower than its '
            f"checkpoint's: {self.checkpoint_alone:,} are right only there, {self.alone:,} only here (p = "
            f"{self.pairs.p_value:.2g}, McNemar's exact test). At this rate, about {needed:,} validation images would."
        )

    @property
    def line(self) -> str:
        """The line of the model card."""
        return (
            f'in its own runtime, {card.interval(self.right, self.images)}; largest difference of logits from the '
            f"checkpoint's {self.difference:.2g}"
        )

    def __str__(self) -> str:
        return f'{self.name}: {self.line}; the checkpoint has top-1 {self.expected / self.images:.2%}'


def perform(arguments: argparse.Namespace, out: str, screen: Screen) -> int:
    """Makes the exports of a command line in a folder, and returns the exit code."""
    if remote.is_remote(out):
        raise CommandError(f'--out={out}: must be a local folder; name one with --out, and copy it.')
    formats = {name: FORMATS[name] for name in arguments.format}
    # These checks come before anything that takes time.
    for name, each in formats.items():
        extras.require('export', *each.packages)
        path = os.path.join(out, name)
        if os.path.lexists(path):
            raise CommandError(f'{path}: exists already. Remove it, or name another folder with --out.')
    is_calibrated = any(each.is_calibrated for each in formats.values())
    if arguments.calibration_images and not is_calibrated:
        raise ConfigError(
            '--calibration_images: these exports read no training images; only the formats of int8 do. Leave out the '
            'flag.'
        )
    screen.update(f'reading {arguments.model_dir}')
    model = trained_model.find(arguments.model_dir, arguments.checkpoint)
    config = model.config
    learned = trained_data_of(config, model.checkpoint)
    if learned.note:
        logger.info('warning: %s', learned.note)
    splits = [split for split, used in ((records.TRAIN, is_calibrated), (records.VALIDATION, arguments.verify)) if used]
    changes = other_data.changes_of(config, arguments)
    if changes and not splits:
        raise ConfigError(
            f'--{next(iter(changes))}: these exports read no images; only --verify and the formats of int8 do. Leave '
            'out the flag.'
        )
    data, info = other_data.changed(config, changes)
    if data.use_data == 'fake' and splits:
        raise ConfigError(
            'The run was trained on made-up images: name a data set for --verify and int8 with --data_dir.'
        )
    notes = check_data(data, splits)
    if changes:
        if arguments.verify and not info:
            other_data.check_labels(data, learned.class_names)
        data = other_data.with_sizes(data, splits, info)
    if arguments.verify:
        notes += _changes(data, model.checkpoint)
    check_writable('out', out)
    network = freeze(model, learned)
    # The pipeline writes the names of skipped records below model_dir, and the run's own folder must not change.
    beside = tempfile.TemporaryDirectory(prefix='export_')
    with tempfile.TemporaryDirectory(prefix='.unfinished-', dir=out) as unfinished, beside as folder:
        data = dataclasses.replace(data, model_dir=folder)
        calibration: List[np.ndarray] = []
        if is_calibrated:
            # Training images have no end: closing the batches closes their session and its graph.
            closing = contextlib.closing(batches(is_training=True, config=data))
            with bad_records_explained(data, [records.TRAIN], screen, has_flag=False), closing as endless:
                images = (image for batch in endless for image in batch.images)
                wanted = arguments.calibration_images or _CALIBRATION_IMAGES
                calibration = [*itertools.islice(images, min(wanted, data.num_train_images))]
        for name, each in formats.items():
            screen.update(f'exporting {model.checkpoint} as {name}')
            os.mkdir(os.path.join(unfinished, name))
            each.write(network, calibration if each.is_calibrated else [], os.path.join(unfinished, name, each.file))
        source = in_markdown(str(f'{info.name}: {info.source}' if info else data.source))
        ranges = f'ranges of the 8 bits: measured on {len(calibration):,} training images of {source}'
        ranges = '; '.join([ranges, *_skipped(data, records.TRAIN)])
        about = {name: [ranges] if each.is_calibrated else [] for name, each in formats.items()}
        for name in formats:
            _describe(os.path.join(unfinished, name), name, network, 'not verified (`--verify`)', about[name])
            os.rename(os.path.join(unfinished, name), os.path.join(out, name))
        screen.clear()
        print(*(os.path.join(out, name) for name in formats), sep='\n', flush=True)
        agreements: Dict[str, Agreement] = {}
        if arguments.verify:
            paths = {name: os.path.join(out, name, each.file) for name, each in formats.items()}
            with bad_records_explained(data, [records.VALIDATION], screen, has_flag=False):
                agreements = compare(paths, network, batches(is_training=False, config=data), screen)
            notes += _skipped(data, records.VALIDATION)
        for name, agreement in agreements.items():
            verified = '; '.join([agreement.line, *(in_markdown(note.rstrip('.')) for note in notes)])
            _describe(os.path.join(out, name), name, network, verified, about[name])
    screen.clear()
    for agreement in agreements.values():
        print(agreement)
    for agreement in agreements.values():
        if agreement.verdict:
            print(f'{"error" if agreement.is_kept is False else "warning"}: {agreement.verdict}', file=sys.stderr)
    # The same weights give the same answers, so a retry would not help.
    return FIX if any(agreement.is_kept is False for agreement in agreements.values()) else DONE


def _skipped(config: Config, split: str) -> Iterator[str]:
    """A sentence if records of a split could not be used."""
    skipped = [*BadRecords(config, [split]).skipped()]
    if skipped:
        yield f'skipped, as in the run: {counted(len(skipped), f"{split} record")} that cannot be used'
        for each in skipped:
            logger.info('skipped %s', each)


def _changes(config: Config, checkpoint: str) -> Iterator[str]:
    changed = changed_since_training(config, description_of(config), checkpoint)
    if changed:
        note = f'the validation images are not those of the training: {"; ".join(changed)}'
        logger.info('warning: %s', note)
        yield note


def compare(
    paths: Dict[str, str], network: FrozenNetwork, validation: Iterable[Batch], screen: Screen
) -> Dict[str, Agreement]:
    """Runs the exports at `paths`, each in its own runtime, and their checkpoint on the same images."""
    checkpoint = of_variables(network, network.model.restore)
    runs = {name: FORMATS[name].open(path, network) for name, path in paths.items()}
    found = {name: Agreement(name) for name in runs}
    for batch in validation:
        logits = checkpoint(batch)
        expected = _right(logits, batch.labels)
        for name, run in runs.items():
            own, before = run(batch), found[name]
            # NaN also counts as a difference.
            difference = float(np.maximum(before.difference, np.abs(own - logits).max()))
            right = _right(own, batch.labels)
            counts = len(right), right.sum(), expected.sum(), (right > expected).sum(), (expected > right).sum()
            names = Agreement._fields[1 : 1 + len(counts)]
            sums = {field: getattr(before, field) + int(count) for field, count in zip(names, counts)}
            found[name] = before._replace(difference=difference, **sums)
        screen.update(f'verifying: {max(each.images for each in found.values()):,} images')
    return found


def _right(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether the label of each image has the largest logit, bool [batch]; ties count, as in the metrics."""
    return logits.max(axis=1) == logits[np.arange(len(labels)), labels]


def _numbers_of(description: Dict[str, Any]) -> Iterator[str]:
    """The meaning of an export's integers, for its card."""
    ends = {INPUT: description['input'].get('quantization'), **description.get('output_quantization', {})}
    for name, end in ends.items():
        if end:
            yield f'`{name}`: int8; a number n stands for {end["scale"]:.9g} · (n - {end["zero_point"]})'


def _describe(folder: str, name: str, network: FrozenNetwork, verified: str, about: Sequence[str]) -> None:
    config = network.model.config
    contents = [
        f'`{FORMATS[name].file}`: the model, for {FORMATS[name].purpose}',
        f'`{_DESCRIPTION}`: input, outputs, and the steps from decoded pixels to the input; `{_PROGRAM}` carries them '
        'out',
        f'prepared images are made from pixels as viewers show them: {DECODING}',
        f'`{card.LABELS_FILE}`: the names of the classes',
    ]
    description = describe(config, network.learned.class_names)
    FORMATS[name].describe(description, os.path.join(folder, FORMATS[name].file))
    contents[1:1] = [*_numbers_of(description), *about]
    text = json.dumps(description, indent=2, ensure_ascii=False) + '\n'
    write_whole(os.path.join(folder, _DESCRIPTION), text)
    write_whole(os.path.join(folder, _PROGRAM), pathlib.Path(prepare.__file__).read_text(encoding='utf-8'))
    own = origin.origin_of(config, network.model.checkpoint)
    card.write(folder, name, contents, config, own, verified, network.learned)
