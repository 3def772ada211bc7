"""Exports a checkpoint of a run to other formats, with everything that is needed to use it.

Each format gets a folder in --out: the model; preprocessing.json, which describes its input, its outputs and the steps
from decoded pixels to the input; prepare.py, which carries them out with NumPy alone; labels.txt; and README.md, the
model card. The weights are those that the run evaluates. With --verify, each export classifies all validation images in
its own runtime. One that has not the checkpoint's accuracy (int8: that is over a point lower) gives exit code 1.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
from typing import Dict, List, Optional, Sequence

import numpy as np

from console import program
from console.command_line import new_parser
from console.errors import DONE, RETRY
from console.log import logger
from console.paths import expanded
from console.screen import Screen
from data import records, remote
from data.files import write_whole
from inception_v3.commands.export import images, prepare, verification
from inception_v3.commands.export.description import DECODING, FILE, describe
from inception_v3.commands.export.formats import FORMATS, ExportError
from inception_v3.commands.export.frozen import FrozenNetwork, freeze
from inception_v3.commands.export.verification import Agreement
from inception_v3.config import ConfigError
from inception_v3.run import origin, trained_data, trained_model
from inception_v3.run.card import CARD_FILE, LABELS_FILE, card, labels
from inception_v3.run.failures import bad_records_explained
from inception_v3.run.files import check_writable

FOLDER = 'exports'
PROGRAM = 'prepare.py'
_CALIBRATION_IMAGES = 200


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the exports that a command line asks for, and returns the exit code."""
    arguments = _parse(argv)
    return program.run(lambda screen: _perform(arguments, screen), on_interrupt='interrupted')


def _formats(text: str) -> List[str]:
    """The formats of a command line, as a type for argparse."""
    names = [*dict.fromkeys(text.split(','))]
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(f'{", ".join(unknown) or "none"}: the formats are {", ".join(FORMATS)}')
    return names


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('export', __doc__)
    parser.add_argument('model_dir', help='the model_dir of a run; may be at gs:// or s3://')
    parser.add_argument(
        '--format', required=True, type=_formats, metavar='FORMATS', help=f'one or several of {",".join(FORMATS)}'
    )
    parser.add_argument('--out', metavar='DIR', help=f'local folder for the exports (default: {FOLDER} in model_dir)')
    parser.add_argument(
        '--checkpoint',
        metavar='NAME',
        help='a checkpoint in model_dir, such as model.ckpt-500, or its path (default: the newest)',
    )
    parser.add_argument('--verify', action='store_true', help='classify all validation images with each export')
    parser.add_argument(
        '--calibration_images',
        type=int,
        default=_CALIBRATION_IMAGES,
        metavar='N',
        help=f'training images that give the ranges for int8 (default: {_CALIBRATION_IMAGES})',
    )
    arguments = parser.parse_args(expanded(argv))
    if arguments.calibration_images < 1:
        parser.error(f'--calibration_images={arguments.calibration_images}: must be at least 1.')
    return arguments


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    out = arguments.out or os.path.join(arguments.model_dir, FOLDER)
    _check(arguments.format, out)
    screen.update(f'reading {arguments.model_dir}')
    model = trained_model.find(arguments.model_dir, arguments.checkpoint)
    config = model.config
    learned = trained_data.of_checkpoint(config, model.checkpoint)
    if learned.note:
        logger.info('warning: %s', learned.note)
    is_calibrated = any(FORMATS[name].is_calibrated for name in arguments.format)
    if config.use_data == 'fake' and (is_calibrated or arguments.verify):
        raise ConfigError('The run was trained on made-up images: --verify and int8 need a data set.')
    check_writable('out', out)
    network = freeze(model, learned.class_names)
    with bad_records_explained(config, [records.TRAIN], screen):
        calibration = _training_images(network, arguments.calibration_images) if is_calibrated else []
    with tempfile.TemporaryDirectory(prefix='.unfinished-', dir=out) as unfinished:
        paths = {}
        for name in arguments.format:
            screen.update(f'exporting {model.checkpoint} as {name}')
            folder = os.path.join(unfinished, name)
            os.mkdir(folder)
            paths[name] = os.path.join(folder, FORMATS[name].file)
            FORMATS[name]().write(network, calibration, paths[name])
        agreements: Dict[str, Agreement] = {}
        if arguments.verify:
            with bad_records_explained(config, [records.VALIDATION], screen):
                compared = verification.compare(paths, network, images.batches(False, config), screen)
            agreements = {each.name: each for each in compared}
        for name in arguments.format:
            verified = agreements[name].line if name in agreements else 'not verified (`--verify`)'
            _describe(os.path.join(unfinished, name), name, network, verified, learned)
            os.rename(os.path.join(unfinished, name), os.path.join(out, name))
    screen.clear()
    for name in arguments.format:
        print(f'{os.path.join(out, name)}')
    for agreement in agreements.values():
        print(agreement)
    worse = [agreement for agreement in agreements.values() if not agreement.is_kept]
    for agreement in worse:
        print(f'error: {agreement.name}: has not the accuracy of its checkpoint. Do not use it.', file=sys.stderr)
    return RETRY if worse else DONE


def _check(formats: Sequence[str], out: str) -> None:
    """Checks packages and the output folder before anything takes time.

    Raises:
      ExportError: a package is missing, or an export exists already.
    """
    if remote.is_remote(out):
        raise ExportError(f'--out={out}: must be a local folder; name one with --out, and copy it.')
    for name in formats:
        FORMATS[name]().check()
        if os.path.lexists(os.path.join(out, name)):
            raise ExportError(
                f'{os.path.join(out, name)}: exists already. Remove it, or name another folder with --out.'
            )


def _training_images(network: FrozenNetwork, count: int) -> List[np.ndarray]:
    """The first images of the training split, fewer if there are fewer."""
    wanted = min(count, network.config.num_train_images)
    found: List[np.ndarray] = []
    for batch in images.batches(True, network.config):
        found += [*batch.images]
        if len(found) >= wanted:
            break
    return found[:wanted]


def _describe(folder: str, name: str, network: FrozenNetwork, verified: str, learned: trained_data.TrainedData) -> None:
    """Writes what stands beside an export."""
    config, made = network.config, FORMATS[name]
    contents = [
        f'`{made.file}`: the model, for {made.purpose}',
        f'`{FILE}`: input, outputs, and the steps from decoded pixels to the input; `{PROGRAM}` carries them out',
        f'prepared images are made from pixels as viewers show them: {DECODING}',
        f'`{LABELS_FILE}`: the names of the classes',
    ]
    own = origin.origin_of(config, network.model.checkpoint)
    for file, content in (
        (FILE, json.dumps(describe(config, network.class_names), indent=2, ensure_ascii=False) + '\n'),
        (PROGRAM, pathlib.Path(prepare.__file__).read_text(encoding='utf-8')),
        (LABELS_FILE, labels(network.class_names, config.num_classes)),
        (CARD_FILE, card(name, contents, config, own, verified, learned)),
    ):
        write_whole(os.path.join(folder, file), content)


if __name__ == '__main__':
    sys.exit(main())
