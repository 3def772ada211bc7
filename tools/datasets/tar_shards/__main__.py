"""Converts TFRecord files to tar shards and back, and lists the samples of tar shards.

  inception-v3 tar-shards write SOURCE TARGET
  inception-v3 tar-shards list SHARD ...

The first converts record files to tar shards, or tar shards to record files. The second shows each sample of the
shards: its position, key, label, files and their bytes.

The flags of fields describe the source. What is written has the documented fields, with the offset added.
"""

import functools
import sys

from compat import native_messages
from compat.errors import DONE, FIX
from console import program
from console.screen import Screen
from tools.datasets import field_flags
from tools.parsers import new_parser, number_of


def main() -> int:
    """Runs the command line: converts a folder, or lists shards."""
    parser = new_parser('tar-shards', __doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    write = commands.add_parser('write', help='convert TFRecord files to tar shards, or tar shards to TFRecord files')
    write.add_argument('source', help='folder of train-* and validation-* files')
    write.add_argument('target', help='new folder for the converted files')
    text = 'unusable images that may be left out (default 0)'
    write.add_argument('--max_bad_records', type=number_of(int, 0), default=0, help=text)
    field_flags.add_flags(write)
    listing = commands.add_parser('list', help='list the samples of shards; exit code 2 if a sample cannot be used')
    listing.add_argument('shards', nargs='+', metavar='SHARD')
    field_flags.add_flags(listing, with_image=False)
    arguments = parser.parse_args()

    def command(screen: Screen) -> int:
        from tools.datasets.tar_shards import conversion

        if arguments.command == 'list':
            are_usable = conversion.list_samples(arguments.shards, arguments.label_key, arguments.label_offset)
            return DONE if are_usable else FIX
        say = functools.partial(print, file=sys.stderr)
        fields = field_flags.fields_of(arguments)
        conversion.convert(arguments.source, arguments.target, arguments.max_bad_records, say, fields)
        return DONE

    with native_messages.captured():
        return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
