"""Audits a data set: reads every record, and reports the content, all problems, and whether training can use it.

Every image is decoded whole, which is the way to find damage inside images. --data_format=tar audits tar shards.
--train_files, --eval_files, --image_key, --label_key and --label_offset are those of the run. --croissant also writes
croissant.json, beside dataset.json. Exit code 2 means that training would fail, or that there is no data set.
"""

import argparse
import json
import sys

from console import extras, program
from console.command_line import new_parser, number_of
from console.errors import DONE, FIX, CommandError
from console.paths import expanded
from console.processes import usable_cores
from console.screen import Screen

# The properties of a data set that a Croissant description has and dataset.json lacks, by flag.
_PROPERTIES = {
    'license': ('license', "URL of the data set's licence"),
    'url': ('url', 'URL of its page'),
    'citation': ('citeAs', 'text of its citation'),
    'published': ('datePublished', 'date of publication, YYYY-MM-DD'),
    'release': ('version', 'number of its release, such as 1.0.0'),
}


def _arguments() -> argparse.Namespace:
    cores = usable_cores()
    parser = new_parser('audit', __doc__)
    # The source, with the names and the defaults of a run's flags.
    add = parser.add_argument
    add('data_dir', nargs='?', default='', help='the folder of the data set; local, gs:// or s3://')
    formats = ['tfrecord', 'tar']
    add('--data_format', choices=formats, default='tfrecord', help='format of the files (default: tfrecord)')
    for flag, kind in (('train_files', 'training'), ('eval_files', 'validation')):
        add(f'--{flag}', default='', metavar='PATTERNS', help=f'the {kind} files, such as NAME-{{000..639}}.tar')
    image, label = 'image/encoded', 'image/class/label'
    add('--image_key', default=image, help=f'key of the encoded image in TFRecords (default: {image})')
    in_tar = 'in tar, its extension or json:KEY'
    add('--label_key', default=label, help=f'key of the label in TFRecords (default: {label}); {in_tar}')
    add('--label_offset', type=int, default=0, help='number to add to each label (default: 0)')
    add('--json', action='store_true', help='print the complete report as JSON')
    add(
        '--num_classes',
        type=number_of(int, 2),
        help="labels must be less than this (default: as in dataset.json, or ImageNet's 1001, with the background)",
    )
    per_core = f'processes that read files (default: one per core, {cores} here)'
    add('--processes', type=number_of(int, 1), default=cores, help=per_core)
    add('--croissant', action='store_true', help='also write a Croissant description, croissant.json; it has:')
    for flag, (_, text) in _PROPERTIES.items():
        add(f'--{flag}', help=f'with --croissant, the {text}')
    arguments = parser.parse_args(expanded())
    if any(getattr(arguments, flag) for flag in _PROPERTIES) and not arguments.croissant:
        parser.error(f'{", ".join(f"--{flag}" for flag in _PROPERTIES)}: need --croissant.')
    if not (arguments.data_dir or arguments.train_files or arguments.eval_files):
        parser.error('name the folder of the data set, or its files with --train_files and --eval_files.')
    return arguments


def main() -> int:
    """Audits the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> int:
        from data.audit import croissant
        from data.audit.report import audit
        from data.braces import check_given_once
        from data.convert import conversion
        from data.sources import FILE_FLAGS, source_of

        check_given_once(sys.argv[1:], [*FILE_FLAGS.values()])
        if not arguments.json:
            try:
                from data.audit.table import print_report
            except ImportError:
                raise CommandError(f'the table needs rich: {extras.command("data")}, or print the report with --json.')
        source = source_of(arguments)
        described = croissant.description_of(source) if arguments.croissant else None
        with conversion.progress() as progress:
            report = audit(source, arguments.num_classes, arguments.processes, progress)
        if described and report['can_be_trained_on']:
            given = {name: getattr(arguments, flag) for flag, (name, _) in _PROPERTIES.items()}
            known = {name: value for name, value in given.items() if value}
            missing = [f'--{flag}' for flag, (name, _) in _PROPERTIES.items() if name not in known]
            report['croissant'] = {**croissant.write(source, described, report, known), 'not_given': missing}
        if arguments.json:
            print(json.dumps(report, indent=2))
        else:
            print_report(report)
        return DONE if report['can_be_trained_on'] else FIX

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main())
