"""Checks without a TPU or GPUs whether a run can start there: inception-v3 preflight --topology=v2-8 [flags]."""

import re
import sys
from typing import Optional, Sequence

from compat.errors import DONE, EXIT_CODES, FIX
from console import program
from console.screen import Screen, set_up_logging
from inception_v3 import flags
from inception_v3.config import ALL_GPUS, ConfigError
from inception_v3.tpu import topology
from inception_v3.tpu.topology import CLOUD_TPUS, Topology

_PURPOSE = f"""Checks without a TPU whether a run can start on one; with --num_gpus or --worker_hosts instead of a
topology, without GPUs whether a run can start on those, and with the command line of any of its machines.

{EXIT_CODES}

If a problem keeps the run from starting, the exit code is {FIX}. Warnings and flags that are still to be given do not
change the exit code. Exit code {DONE} promises nothing about the points that the report lists as not checked."""
_OWN_FLAGS = {
    'topology': flags.OwnFlag(
        str,
        '',
        f'the Cloud TPU of the run: {", ".join(CLOUD_TPUS)}; default: the emulated TPU that --tpu names',
    ),
    'xla': flags.OwnFlag(bool, False, 'also compile a training step of two images with XLA for this CPU, and run it'),
    'json': flags.OwnFlag(bool, False, 'print the report as a JSON object'),
}


def main(argv: Sequence[str]) -> int:
    """Checks the run of a command line, such as `sys.argv`, prints the report, and returns the exit code."""

    def command(screen: Screen) -> int:
        line = flags.read(argv, _OWN_FLAGS)
        if line.help:
            print(flags.help_text('preflight', _PURPOSE, line, _OWN_FLAGS))
            return DONE
        set_up_logging(screen, line.verbose)
        tpu = _topology(line.own['topology'], line)
        # TensorFlow takes seconds to load; --help and a wrong flag answer at once.
        from tools.preflight import checks

        report = checks.check(tpu, line, line.own['xla'], screen)
        screen.clear()
        print(report.json() if line.own['json'] else report.text())
        return FIX if report.errors else DONE

    return program.run(command)


def _topology(name: str, line: flags.CommandLine) -> Optional[Topology]:
    """The TPU of the run; None for a run on GPUs."""
    tpu = line.fields.get('tpu')
    on_gpus = line.fields.get('num_gpus', 1) != 1 or line.fields.get('worker_hosts')
    if not name and not tpu and (on_gpus or line.fields.get('accelerator') == 'gpu'):
        if line.fields.get('num_gpus') == ALL_GPUS:
            raise ConfigError(f'--num_gpus={ALL_GPUS}: give the number of GPUs of a machine of the run.')
        if line.own['xla']:
            raise ConfigError("--xla: is for a TPU; GPUs run TensorFlow's own kernels. Leave out the flag.")
        return None
    if name in CLOUD_TPUS:
        return CLOUD_TPUS[name]
    if name or not topology.is_emulated(tpu):
        problem = f'--topology={name}: {_why_not(name)}' if name else '--topology: name the TPU of the run'
        others = '--tpu=emulated:CORES, or, for a run on GPUs, --num_gpus or --accelerator=gpu'
        raise ConfigError(f'{problem}. Choose from {", ".join(CLOUD_TPUS)}; or give {others}.')
    try:
        return topology.emulated(str(tpu))
    except ValueError as error:
        raise ConfigError(f'--tpu={tpu}: {error}.')


def _why_not(name: str) -> str:
    """The reason why a type that Cloud TPU may have is not among `CLOUD_TPUS`."""
    if re.match(r'v[4-9]|tpu\d', name):
        # v5: https://github.com/tensorflow/tensorflow/issues/90807
        return (
            'this program runs on v2 and v3 only; TPUEstimator does not run on the runtime of v5 and later (PJRT), and '
            'was not tried on v4'
        )
    return 'no such Cloud TPU'


if __name__ == '__main__':
    sys.exit(main(sys.argv))
