"""Trains, evaluates and exports Inception v3: parses the command line, builds the run, runs it."""

import os
import signal
import sys
from typing import Sequence

if __name__ == '__main__':
    # Before `main` runs there is nothing to save, and no message to give.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *unused: os._exit(75))
    # The folder that contains this package replaces the working directory, where a user may have a data.py. The package
    # is inception_v3, or inception_v3_tpu.inception_v3 in the wheel.
    sys.path[0] = os.path.abspath(__file__).rsplit(os.sep, 2 + (__package__ or '').count('.'))[0]

from compat.deferred import full_name
from compat.errors import EXIT_CODES, CommandError
from console import program
from console.screen import Screen, set_up_logging
from inception_v3 import flags
from inception_v3.machines import channel

_PURPOSE = f'Trains, evaluates and exports Inception v3.\n\n{EXIT_CODES}'


def main(argv: Sequence[str]) -> int:
    """Runs a command line, such as `sys.argv`, and returns its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def command(screen: Screen) -> None:
        def end_process(error: CommandError) -> None:
            os._exit(program.fail(screen, str(error), error.exit_code))

        # Removed, because TensorFlow must not act on it by itself.
        tf_config = os.environ.pop('TF_CONFIG', '')
        with channel.opened(flags.place_of(argv, tf_config), end_process) as workers:
            command_line = flags.parse(argv, tf_config=tf_config)
            if command_line.help:
                print(flags.help_text('train', _PURPOSE, command_line))
                return
            set_up_logging(screen, command_line.verbose)
            flags.check_data_dir(command_line)
            # Only a run needs TensorFlow, which takes seconds to load; --help and a wrong flag answer at once.
            from inception_v3.fitting import fit_to_data_set, makes_digits, with_settled_threads
            from inception_v3.run.hooks.stopping import Termination
            from inception_v3.train_and_evaluate import Run

            if makes_digits(command_line):
                _make_digits(command_line.config.data_dir)
            config = with_settled_threads(fit_to_data_set(command_line))
            with Termination(end_process) as termination:
                print(Run(config, screen, termination, workers).execute())

    return program.run(command, on_interrupt='interrupted; the same command resumes from the last checkpoint')


def _make_digits(data_dir: str) -> None:
    try:
        from tools.datasets import digits
    except ModuleNotFoundError as error:
        if not f'{error.name}.'.startswith(full_name('tools.')):
            raise
        raise CommandError(
            f'--preset=digits: {data_dir} has no data set, and the folder `tools` of this program, which makes it, '
            'is missing. Install the whole program, or name a data set with --data_dir.'
        )
    digits.make(data_dir)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
