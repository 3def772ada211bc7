"""Draws the plan of a run before it starts: inception-v3 plan [flags of inception-v3 train]."""

import sys
from typing import Sequence

from compat.errors import EXIT_CODES
from console import program
from console.screen import Screen, set_up_logging
from inception_v3 import flags
from tools.plan import PAGE_FILE, PICTURE_FILE

_PURPOSE = f"""Draws the plan of a run before it starts, from the flags of inception-v3 train.

Prints the length of the run, its learning rate, the memory of its averages, and what its hosts must deliver; and writes
them with figures to {PAGE_FILE}, a self-contained page, and {PICTURE_FILE}. Nothing is trained, and nothing
is written to model_dir.

{EXIT_CODES}"""
_OWN_FLAGS = {
    'out': flags.OwnFlag(str, 'plan', f'folder for {PAGE_FILE} and {PICTURE_FILE}'),
    # The guide names no TPU and no batch for this trace, which may not be of a single step.
    'step_ms': flags.OwnFlag(
        float,
        None,
        'milliseconds of a training step, for hours and rates; by default those of the run in model_dir, or, before it '
        "has begun, 815, the TPU time in the guide's trace",
    ),
}


def main(argv: Sequence[str]) -> int:
    """Writes the plan of a command line, such as `sys.argv`, and returns the exit code."""

    def command(screen: Screen) -> None:
        command_line = flags.parse(argv, _OWN_FLAGS, tf_config='')
        if command_line.help:
            print(flags.help_text('plan', _PURPOSE, command_line, _OWN_FLAGS))
            return
        set_up_logging(screen, command_line.verbose)
        flags.check_data_dir(command_line)
        # TensorFlow and matplotlib take seconds to load; --help and a wrong flag answer at once.
        from tools.plan import writing

        print(writing.write(command_line))

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
