"""Draws photographs under every preprocessing: inception-v3 show PHOTO...

Writes two pictures of each photograph. NAME_preprocessed.png has the photograph with its crops drawn on it, and, for
one draw, its image under each preprocessing in evaluation and in training, and under each order of the full colour
distortion. NAME_draws.png is a contact sheet of 25 draws of the default training images.
"""

import sys

from console import program
from console.screen import Screen
from tools import extras
from tools.parsers import folder, new_parser, number_of


def main() -> int:
    """Writes the pictures that this process's command line asks for, and returns the exit code."""
    parser = new_parser('show', __doc__)
    add = parser.add_argument
    add('photos', nargs='+', metavar='PHOTO', help='a JPEG, PNG or GIF file')
    add('--out', type=folder, default='shown', metavar='DIR', help='folder for the pictures (default: shown)')
    add('--seed', type=number_of(int, 0, 2**63 - 1), default=0, metavar='N', help='seed of the draws (default: 0)')
    about = "height and width of the network's images (default: 299)"
    add('--size', type=number_of(int, 1, 2048), default=299, metavar='PIXELS', help=about)
    arguments = parser.parse_args()

    def command(screen: Screen) -> None:
        extras.require('studies', 'matplotlib')
        from tools import photo_pictures

        written = photo_pictures.show(arguments.photos, arguments.out, arguments.size, arguments.seed, screen)
        screen.clear()
        print('\n'.join(written))

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main())
