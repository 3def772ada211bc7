"""Draws photographs under every preprocessing: inception-v3 show PHOTO...

For each photograph, writes NAME_preprocessed.png: the photograph with its crops drawn on it, and its image under each
preprocessing in evaluation and in training, and under each order of the full colour distortion, for one draw; and
NAME_draws.png: a contact sheet of 25 draws of the default training images.
"""

import argparse
import sys
from typing import Dict, Sequence, Tuple

from console import extras, program
from console.command_line import new_parser
from console.errors import CommandError
from console.paths import expanded
from console.screen import Screen

_SIDE_AT_MOST = 2048


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = new_parser('show', __doc__)
    parser.add_argument('photos', nargs='+', metavar='PHOTO', help='a JPEG, PNG or GIF file')
    parser.add_argument('--out', default='shown', metavar='DIR', help='folder for the pictures (default: shown)')
    parser.add_argument('--seed', type=int, default=0, metavar='N', help='seed of the draws (default: 0)')
    parser.add_argument(
        '--size',
        type=int,
        default=299,
        metavar='PIXELS',
        help="height and width of the network's images (default: 299)",
    )
    arguments = parser.parse_args(argv)
    limits: Dict[str, Tuple[int, int]] = {'seed': (0, 2**63 - 1), 'size': (1, _SIDE_AT_MOST)}
    for name, (lower, upper) in limits.items():
        if not lower <= getattr(arguments, name) <= upper:
            parser.error(f'--{name}={getattr(arguments, name)}: must be from {lower} to {upper}.')
    if not arguments.out:
        parser.error('--out: must be the path of a folder, not empty.')
    return arguments


def main() -> int:
    """Writes the pictures that this process's command line asks for, and returns the exit code."""
    arguments = _parse(expanded())

    def command(screen: Screen) -> None:
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError as error:
            raise CommandError(f'The pictures need {error.name}, which is not installed: {extras.command("studies")}.')
        from preprocessing import photo_pictures

        written = photo_pictures.show(arguments.photos, arguments.out, arguments.size, arguments.seed, screen)
        screen.clear()
        print('\n'.join(written))

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main())
