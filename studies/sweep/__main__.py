"""Runs all trials of a study, several at a time, and writes a report that is updated after each trial.

A study file (.py or .yaml; studies/study.py shows both) names the preset and flags to start from, the flags that vary,
and the seeds that repeat each case. A shipped study is chosen by its name. Each trial is one command line of the
program with a folder of its own, and can be run alone: OUT/trials/CASE/seed-N/command.sh. The same command resumes a
sweep: it keeps trials that are done, runs failed ones again, and resumes stopped ones from their last checkpoint.
--reuse=DIR takes trials that another sweep has finished with the same flags, such as the documented default, which most
shipped studies share.

Words after -- are flags of the program for every trial: the data set, the TPU, the number of steps.

    inception-v3 sweep optimizers -- --tpu=local --data_dir=gs://BUCKET/imagenet

Each trial uses all cores of its machine, regardless of --workers: the number of threads affects the last bits of its
results, and these must be the same as when its command line is run alone. With --workers above 1, set the flag
intra_op_threads=1 in the study, so that trials share the cores well.

If a trial fails, the other trials still run, and the sweep ends with exit code 1. The same command retries it.
"""

import argparse
import contextlib
import os
import sys
from typing import List, Sequence, Tuple

from console import program as console_program
from console.command_line import folder, new_parser, number_of
from console.errors import DONE, RETRY
from console.paths import expanded
from console.screen import Screen
from data import remote
from inception_v3.run.files import check_writable
from studies import extras
from studies.report import files as report_files
from studies.study import StudyError
from studies.sweep import plan, reuse, trials
from studies.sweep.plan import Plan
from studies.sweep.trials import State
from studies.sweep.workers import Place, ThisMachine

PROGRAM = ('python', '-m', 'inception_v3.main')


def main(argv: Sequence[str], program: Sequence[str] = PROGRAM) -> int:
    """Runs a command line and returns its exit code.

    Args:
      argv: the command line.
      program: the program whose command lines the trials are.
    """
    own, flags_of_trials = _divided(expanded(argv[1:]))
    arguments = _parser().parse_args(own)

    def command(screen: Screen) -> int:
        extras.require('studies')
        return _perform(arguments, plan.make(arguments, flags_of_trials), program)

    return console_program.run(command, on_interrupt='interrupted; the same command resumes the sweep')


def _divided(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The sweep's own arguments, and those after `--`."""
    end = words.index('--') if '--' in words else len(words)
    return list(words[:end]), list(words[end + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('sweep', __doc__)
    parser.add_argument(
        'study', metavar='STUDY', help='a .py or .yaml file, or the name of a shipped study: optimizers'
    )
    parser.add_argument(
        '--out',
        type=folder,
        metavar='DIR',
        help=f'folder of the sweep, created if missing (default {plan.OUT}/NAME)',
    )
    for version, purpose in (
        ('digits', 'to try the study out: less than a minute a trial'),
        ('digits_whole', 'with runs long enough to answer the question'),
    ):
        parser.add_argument(
            f'--{version}',
            action='store_const',
            const=version,
            dest='version',
            help=f"run the study's small version on the digits, {purpose}",
        )
    parser.add_argument('--list', action='store_true', help="print the trials' command lines and states; run nothing")
    parser.add_argument('--filter', metavar='GLOB', help="only trials whose name (CASE/seed-N) matches: '*sgd*/seed-1'")
    parser.add_argument(
        '--limit', type=number_of(int, 1), metavar='N', help='only the first N trials that are not done'
    )
    parser.add_argument(
        '--reuse',
        type=folder,
        action='append',
        default=[],
        metavar='DIR',
        help='folder of another sweep, whose finished trials with the same flags and seed are copied instead of run '
        'again; may be given several times',
    )
    parser.add_argument(
        '--workers',
        type=number_of(int, 1),
        default=1,
        metavar='N',
        help='trials at a time, on this machine or on the smallest node of --ray (default 1)',
    )
    parser.add_argument(
        '--ray',
        metavar='ADDRESS',
        help='run the trials on a Ray cluster, HOST:PORT or auto; its nodes must share --out and the working directory',
    )
    return parser


def _perform(arguments: argparse.Namespace, planned: Plan, program: Sequence[str]) -> int:
    if arguments.list:
        _list(planned, program)
        return DONE
    if remote.is_remote(planned.out):
        raise StudyError(f'--out={planned.out}: must be a local folder, or one on a file system that machines share.')
    check_writable('out', planned.out)
    folder = os.open(planned.out, os.O_RDONLY)
    try:
        plan.lock(folder, planned.out)
        plan.check_folder(planned)
        plan.prepare_data(planned)
        plan.write_study(planned, program)
        for trial, source in reuse.take(planned.selected, arguments.reuse):
            print(f'{trial.name}: taken from {source}', file=sys.stderr)
        return _run(arguments, planned, program)
    finally:
        os.close(folder)


def _list(planned: Plan, program: Sequence[str]) -> None:
    for trial in planned.selected:
        print(f'{trials.command(program, trial)}  # {trials.state_of(trial).value}')
    sys.stdout.flush()
    print(trials.cost_of(planned.study, planned.selected), file=sys.stderr)


def _run(arguments: argparse.Namespace, planned: Plan, program: Sequence[str]) -> int:
    # These need the packages of the extra, which --help does not need.
    from studies.sweep.live import Display, Progress
    from studies.sweep.results import comparison_of, summary
    from studies.sweep.scheduler import Stopping, perform

    all_progress = [Progress(trial, trials.state_of(trial)) for trial in planned.all_trials]
    for progress in all_progress:
        outcome = trials.outcome_of(progress.trial)
        progress.reason = outcome.reason if outcome else ''
    names = {trial.name for trial in planned.selected}
    selected = [progress for progress in all_progress if progress.trial.name in names]
    with contextlib.ExitStack() as running:
        place = running.enter_context(_place(arguments, program, planned.out))
        plan.check_tpus([p.trial for p in selected if p.state is not State.DONE], place.slots)
        # Opened after the connection to Ray, which sets a SIGTERM handler of its own.
        stopping = running.enter_context(Stopping())
        with Display(sys.stderr, all_progress) as display:

            def write_report() -> None:
                try:
                    report_files.write(planned.out, comparison_of(planned, all_progress, program))
                # An error in the report must not end the trials.
                except Exception as error:
                    display.say(f'the report cannot be written: {type(error).__name__}: {error}')

            perform(selected, place, display, stopping, write_report)
            write_report()
    print(summary(planned, all_progress))
    if all(progress.state is State.DONE for progress in selected):
        return DONE
    stopping.check()
    return RETRY


def _place(arguments: argparse.Namespace, program: Sequence[str], out: str) -> Place:
    if arguments.ray is None:
        return ThisMachine(arguments.workers, program)
    extras.require('ray')
    from studies.sweep.ray_cluster import RayCluster

    return RayCluster(arguments.ray, arguments.workers, program, out)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
