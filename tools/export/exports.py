"""Makes exports, checks them on the validation images, and describes them."""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile
from typing import Dict, Iterable, List, NamedTuple

import numpy as np

from compat.errors import DONE, RETRY, CommandError
from compat.log import logger
from console import extras
from console.screen import Screen
from data import records, remote
from data.files import write_whole
from inception_v3.config import ConfigError
from inception_v3.run import history, trained_model
from inception_v3.run.export import card, origin
from inception_v3.run.failures import bad_records_explained
from inception_v3.run.files import check_writable
from tools.export import prepare
from tools.export.formats import FORMATS, of_variables
from tools.export.network import DECODING, Batch, FrozenNetwork, batches, describe, freeze

_DESCRIPTION, _PROGRAM = 'preprocessing.json', 'prepare.py'


class Agreement(NamedTuple):
    """The agreement of an export, in the format `name`, with its checkpoint on the validation images.

    The export classifies `right` images as their label, the checkpoint `expected` ones; `difference` is the largest
    absolute difference of two logits.
    """

    name: str
    images: int
    right: int
    expected: int
    difference: float

    @property
    def is_kept(self) -> bool:
        """Whether the accuracy is the checkpoint's, or no lower than the format allows."""
        allowed = FORMATS[self.name].loses_at_most
        lost = 100 * (self.expected - self.right) / self.images
        return lost <= allowed if allowed else lost == 0

    @property
    def line(self) -> str:
        """The line of the model card."""
        return (
            f'in its own runtime, {card.interval(self.right, self.images)}; largest difference of logits from the '
            f"checkpoint's {self.difference:.2g}"
        )

    def __str__(self) -> str:
        return f'{self.name}: {self.line}; of the checkpoint, top-1 {self.expected / self.images:.2%}'


def perform(arguments: argparse.Namespace, out: str, screen: Screen) -> int:
    """Makes the exports of a command line in a folder, and returns the exit code."""
    if remote.is_remote(out):
        raise CommandError(f'--out={out}: must be a local folder; name one with --out, and copy it.')
    formats = {name: FORMATS[name] for name in arguments.format}
    # Before anything takes time.
    for name, each in formats.items():
        extras.require('export', *each.packages)
        path = os.path.join(out, name)
        if os.path.lexists(path):
            raise CommandError(f'{path}: exists already. Remove it, or name another folder with --out.')
    screen.update(f'reading {arguments.model_dir}')
    model = trained_model.find(arguments.model_dir, arguments.checkpoint)
    config = model.config
    learned = history.trained_data_of(config, model.checkpoint)
    if learned.note:
        logger.info('warning: %s', learned.note)
    is_calibrated = any(each.is_calibrated for each in formats.values())
    if config.use_data == 'fake' and (is_calibrated or arguments.verify):
        raise ConfigError('The run was trained on made-up images: --verify and int8 need a data set.')
    check_writable('out', out)
    network = freeze(model, learned.class_names)
    calibration: List[np.ndarray] = []
    if is_calibrated:
        with bad_records_explained(config, [records.TRAIN], screen):
            images = (image for batch in batches(True, config) for image in batch.images)
            calibration = [*itertools.islice(images, min(arguments.calibration_images, config.num_train_images))]
    agreements: Dict[str, Agreement] = {}
    with tempfile.TemporaryDirectory(prefix='.unfinished-', dir=out) as unfinished:
        paths = {name: os.path.join(unfinished, name, each.file) for name, each in formats.items()}
        for name, each in formats.items():
            screen.update(f'exporting {model.checkpoint} as {name}')
            os.mkdir(os.path.join(unfinished, name))
            each.write(network, calibration if each.is_calibrated else [], paths[name])
        if arguments.verify:
            with bad_records_explained(config, [records.VALIDATION], screen):
                agreements = compare(paths, network, batches(False, config), screen)
        for name in formats:
            verified = agreements[name].line if name in agreements else 'not verified (`--verify`)'
            _describe(os.path.join(unfinished, name), name, network, verified, learned)
            os.rename(os.path.join(unfinished, name), os.path.join(out, name))
    screen.clear()
    print(*(os.path.join(out, name) for name in formats), *agreements.values(), sep='\n')
    worse = [name for name, agreement in agreements.items() if not agreement.is_kept]
    for name in worse:
        print(f'error: {name}: has not the accuracy of its checkpoint. Do not use it.', file=sys.stderr)
    return RETRY if worse else DONE


def compare(
    paths: Dict[str, str], network: FrozenNetwork, validation: Iterable[Batch], screen: Screen
) -> Dict[str, Agreement]:
    """Runs the exports at paths, each in its own runtime, and their checkpoint on the same images."""
    checkpoint = of_variables(network, network.model.restore)
    runs = {name: FORMATS[name].open(path, network) for name, path in paths.items()}
    found = {name: Agreement(name, 0, 0, 0, 0.0) for name in runs}
    for batch in validation:
        logits = checkpoint(batch)
        for name, run in runs.items():
            own, before = run(batch), found[name]
            # NaN, too, is a difference.
            difference = float(np.maximum(before.difference, np.abs(own - logits).max()))
            right = before.right + _right(own, batch.labels)
            expected = before.expected + _right(logits, batch.labels)
            found[name] = Agreement(name, before.images + len(batch.labels), right, expected, difference)
        screen.update(f'verifying: {max(each.images for each in found.values()):,} images')
    return found


def _right(logits: np.ndarray, labels: np.ndarray) -> int:
    """The number of images whose label has the largest logit; ties count, as in the metrics."""
    return int((logits.max(axis=1) == logits[np.arange(len(labels)), labels]).sum())


def _describe(folder: str, name: str, network: FrozenNetwork, verified: str, learned: history.TrainedData) -> None:
    config = network.model.config
    contents = [
        f'`{FORMATS[name].file}`: the model, for {FORMATS[name].purpose}',
        f'`{_DESCRIPTION}`: input, outputs, and the steps from decoded pixels to the input; `{_PROGRAM}` carries them '
        'out',
        f'prepared images are made from pixels as viewers show them: {DECODING}',
        f'`{card.LABELS_FILE}`: the names of the classes',
    ]
    description = json.dumps(describe(config, network.class_names), indent=2, ensure_ascii=False) + '\n'
    write_whole(os.path.join(folder, _DESCRIPTION), description)
    write_whole(os.path.join(folder, _PROGRAM), pathlib.Path(prepare.__file__).read_text(encoding='utf-8'))
    own = origin.origin_of(config, network.model.checkpoint)
    text = card.card(name, contents, config, own, verified, learned)
    write_whole(os.path.join(folder, card.CARD_FILE), text)
    write_whole(os.path.join(folder, card.LABELS_FILE), card.labels(network.class_names, config.num_classes))
