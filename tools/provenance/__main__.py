"""Shows the origin of a model: configuration, seed, data, versions and commands, evaluations and checkpoints.

--verify repeats the first steps of a run with --seed, in a new process, and compares the loss and every variable bit
for bit. --diff compares the configurations, data and results of two runs. --crate copies a run for an archive.
"""

import argparse
import sys
from typing import Any, Dict, List, Optional, Sequence

from compat.errors import DONE, FIX
from compat.messages import counted
from console import program
from console.paths import check_folder
from console.screen import Screen
from tools.parsers import new_parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Shows, verifies or compares as a command line asks, and returns the exit code."""
    help_text = f'{__doc__}\nIf --verify or --diff finds a difference, the exit code is {FIX}.'
    parser = new_parser('provenance', help_text)
    parser.add_argument('model_dir', help='the model_dir of a run; may be at gs:// or, on TensorFlow 1.15, s3://')
    task = parser.add_mutually_exclusive_group()
    task.add_argument('--verify', action='store_true', help='repeat the recorded first steps, and compare them')
    task.add_argument('--diff', metavar='OTHER', help='compare the run with the run in another model_dir')
    crate = 'copy the run, with its newest and best checkpoint, into a new folder for an archive: an RO-Crate'
    task.add_argument('--crate', metavar='DIR', help=crate)
    parser.add_argument('--license', help='with --crate, the licence: a URL, or an SPDX identifier such as CC-BY-4.0')
    arguments = parser.parse_args(argv)
    if bool(arguments.crate) != bool(arguments.license):
        parser.error('--crate and --license: need each other; an RO-Crate must have a licence.')

    def command(screen: Screen) -> int:
        check_folder(arguments.model_dir)
        from tools.provenance import record

        if arguments.verify:
            return _verify(arguments.model_dir)
        run = record.read(arguments.model_dir)
        if arguments.diff:
            return _diff(run, record.read(arguments.diff))
        if arguments.crate:
            return _crate(run, arguments)
        print(run.text())
        return DONE

    return program.run(command)


def _verify(model_dir: str) -> int:
    from tools.provenance import record, verification

    pairs, *starts = verification.verify(model_dir)
    changed, is_read = verification.changes_of_data(starts[0])
    same = 'every image and label is the same' if is_read else 'dataset.json and samples of the files are the same'
    steps = f'compared after step {", ".join(format(step.step, ",") for step, _ in pairs)}'
    # The comparison is by text, so that a loss of NaN equals itself.
    recorded, repeated = next((pair for pair in pairs if str(pair[0]) != str(pair[1])), (None, None))
    if recorded and repeated:
        rows = [(name, f'{getattr(recorded, name)} -> {getattr(repeated, name)}') for name in ('loss', 'digest')]
        different = record.section(f'different after step {recorded.step:,}; {steps}', rows)
        differences = record.differences_of_starts(*starts)
        known = {each.name for each in changed}
        differences['data'] = [*changed, *(each for each in differences['data'] if each.name not in known)]
        print(different, _text(differences, same), sep='\n\n')
    else:
        print(f'loss and variables are equal bit for bit; {steps}')
        if changed:
            print(f'\n{_text({"data": changed})}\n\nthe data set was changed after the start of the run')
    return FIX if recorded or changed else DONE


def _diff(old: Any, new: Any) -> int:
    from tools.provenance import record

    differences = record.differences(old, new)
    different = [name for name in ('configuration', 'data', 'results') if differences[name]]
    evaluations, checkpoints = record.common(old, new)
    verdict = f'different: {", ".join(different)}' if different else 'same configuration, data and results'
    print(f'{old.model_dir} -> {new.model_dir}', _text(differences), sep='\n\n', end='\n\n')
    print(f'compared {evaluations} evaluations and {checkpoints} checkpoints by step; {verdict}')
    return FIX if different else DONE


def _crate(run: Any, arguments: argparse.Namespace) -> int:
    from tools.provenance import crate

    files = crate.write(run, arguments.crate, arguments.license)
    size = sum(int(each['contentSize']) for each in files)
    print(f'{arguments.crate}: an RO-Crate of {counted(len(files), "file")}, {size / 1e6:,.1f} MB')
    return DONE


def _text(differences: Dict[str, List[Any]], same_data: str = 'the same') -> str:
    from tools.provenance.record import section

    rows = {title: [(each.name, each) for each in found] for title, found in differences.items()}
    return '\n\n'.join(
        section(title, found, same_data if title == 'data' else 'the same') for title, found in rows.items()
    )


if __name__ == '__main__':
    sys.exit(main())
