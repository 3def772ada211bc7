"""Runs all trials of a study, several at a time, and writes a report that is updated after each trial.

A study file is a Python file that sets STUDY = Study(…) of inception_v3_tpu. It names the preset and flags to start
from, the flags that vary, and the seeds that repeat each case. A shipped study is chosen by its name. Each trial is
one command line of the program with a folder of its own, and can be run alone: OUT/trials/CASE/seed-N/command.sh. The
same command resumes a sweep: it keeps trials that are done, runs failed ones again, and resumes stopped ones from
their last checkpoint.

Words after -- are flags of the program for every trial: the data set, the TPU, the number of steps.

    inception-v3 sweep optimizers -- --tpu=local --data_dir=gs://BUCKET/imagenet

Each trial uses all cores of its machine, regardless of --workers: the number of threads affects the last bits of its
results, and these must be the same as when its command line is run alone. With --workers above 1, set the flag
intra_op_threads=1 in the study, so that trials share the cores well. Each trial has GPUs of its own.

If a trial fails, the other trials still run, and the sweep ends with exit code 1. The same command retries it.
"""

import argparse
import sys
from typing import Optional, Sequence, Tuple

from compat.errors import DONE
from compat.messages import alternatives
from console import program as console_program
from console.screen import Screen
from tools.parsers import folder, new_parser, number_of
from tools.studies.files import SHIPPED, require_packages


def main(argv: Sequence[str], program: Optional[Tuple[str, ...]] = None) -> int:
    """Runs a command line and returns its exit code; trials run `program`, by default the program of a run."""
    words = [*argv[1:]]
    end = words.index('--') if '--' in words else len(words)
    arguments = _parser().parse_args(words[:end])

    def command(screen: Screen) -> int:
        require_packages()
        return _perform(arguments, words[end + 1 :], program, screen)

    return console_program.run(command, on_interrupt='interrupted; the same command resumes the sweep')


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('sweep', __doc__)
    add, number = parser.add_argument, number_of(int, 1)
    add('study', metavar='STUDY', help=f'a Python file, or a shipped study: {alternatives(SHIPPED)}')
    add('--out', type=folder, metavar='DIR', help='folder, created if missing (default runs/studies/NAME)')
    for version, purpose in (
        ('digits', 'to try the study out: less than a minute a trial'),
        ('digits_whole', 'with runs long enough to answer the question'),
    ):
        text = f"run the study's small version on the digits, {purpose}"
        add(f'--{version}', action='store_const', const=version, dest='version', help=text)
    add('--list', action='store_true', help="print the trials' command lines and states; run nothing")
    text = (
        "print how many seeds a difference of X in the study's first metric (of top-1: X points) needs, from the "
        'spread of the finished trials; run nothing'
    )
    add('--detect', type=number_of(float, 1e-3), metavar='X', help=text)
    add('--filter', metavar='GLOB', help="only trials whose name (CASE/seed-N) matches: '*sgd*/seed-1'")
    add('--limit', type=number, metavar='N', help='only the first N trials that are not done')
    text = 'trials at a time, on this machine or on the smallest node of --ray (default 1)'
    add('--workers', type=number, default=1, metavar='N', help=text)
    text = (
        'GPUs of each trial, which no other trial uses meanwhile; 0: trials share all GPUs (default: the largest '
        '--num_gpus of the trials; 0 if there is no GPU, or no trial uses one)'
    )
    add('--gpus_per_trial', type=number_of(int, 0), metavar='K', help=text)
    text = 'run on a Ray cluster, HOST:PORT or auto; its nodes must share --out and the working directory'
    add('--ray', metavar='ADDRESS', help=text)
    return parser


def _perform(
    arguments: argparse.Namespace, flags_of_trials: Sequence[str], program: Optional[Tuple[str, ...]], screen: Screen
) -> int:
    # Imported late: these need TensorFlow and the extra's packages, which --help does not.
    from inception_v3 import flags
    from tools.studies.study import StudyError, load
    from tools.studies.sweep import run, trials

    try:
        study = load(arguments.study)
        study = study.small(arguments.version) if arguments.version else study
        given = flags.read(['sweep', *flags_of_trials])
        if given.help or given.verbose or given.preset:
            raise StudyError('after --: only flags of a run are allowed; the study names the preset.')
        study = study.with_flags(given.fields)
        planned = run.plan(study, arguments.out, arguments.filter, arguments.limit, program)
    except StudyError as error:
        raise StudyError(f'{arguments.study}: {error}')
    if arguments.detect:
        print(run.seeds_needed(planned, arguments.detect))
        return DONE
    if not arguments.list:
        return run.run(planned, screen, arguments.workers, arguments.ray, arguments.gpus_per_trial)
    for trial in planned.selected:
        print(f'{trials.command(trial)}  # {trials.state_of(trial).value}')
    sys.stdout.flush()
    print(trials.cost_of(planned.study, planned.selected), file=sys.stderr)
    return DONE


if __name__ == '__main__':
    sys.exit(main(sys.argv))
