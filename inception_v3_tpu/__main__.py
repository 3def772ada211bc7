"""One program for training, data sets, predictions, studies and benchmarks.

  inception-v3 COMMAND [argument ...]   runs a command
  inception-v3 COMMAND --help           describes it
  inception-v3 --version

It works in any folder, even one with a data.py or console.py of your own.
"""

import importlib.util
import runpy
import sys
from typing import Dict, Optional, Sequence, Tuple

from compat.deferred import full_name
from compat.errors import DONE, EXIT_CODES, FIX, CommandError
from compat.messages import meant, shown
from inception_v3 import __version__

PROGRAM = 'inception-v3'
# By group and name: the module that `python -m` runs, and the line for `--help`.
GROUPS: Dict[str, Dict[str, Tuple[str, str]]] = {
    'models': {
        'train': ('inception_v3.main', 'train, evaluate and export a network'),
        'evaluate': ('tools.evaluate_report', 'evaluate a checkpoint, and report its errors as a page'),
        'predict': ('tools.predict', 'classify image files with a trained model'),
        'export': ('tools.export', 'export a checkpoint to ONNX, TensorFlow Lite and others'),
        'features': ('tools.features', 'extract features of image files at any layer of a network'),
        'fid': ('tools.fid', 'compute FID, KID and Inception Score of generated images'),
        'plan': ('tools.plan', 'draw the schedules and sizes of a run before it starts'),
        'preflight': ('tools.preflight', 'check without a TPU whether a run can start on one'),
        'weights': ('tools.weights', 'convert and compare weights of other frameworks'),
        'provenance': ('tools.provenance', 'show, verify and compare the origin of runs'),
    },
    'data sets': {
        'from-folder': ('tools.datasets.from_folder', 'convert your images, in a folder per class, to a data set'),
        'audit': ('tools.datasets.audit', 'read every record of a data set, and report all problems'),
        'imagenet': ('tools.datasets.imagenet', 'convert ImageNet-2012 to record files'),
        'cifar10': ('tools.datasets.cifar10', 'convert CIFAR-10 to tar shards'),
        'show': ('tools.show', 'draw photographs under every preprocessing'),
        'digits': ('tools.datasets.digits', 'write the data set of handwritten digits'),
        'tar-shards': ('tools.datasets.tar_shards', 'convert record files to tar shards and back, or list them'),
    },
    'studies': {
        'sweep': ('tools.studies.sweep', 'run all trials of a study, and write its report'),
        'compare': ('tools.studies.compare', 'compare any runs, and write their report'),
        'batch-norm': ('tools.studies.batch_norm', 'repeat an experiment on batch normalization across replicas'),
        'streaming': ('tools.studies.streaming', 'measure reading from files, tar shards and a remote store'),
        'data-size': ('tools.studies.data_size', 'measure the error by the number of training images'),
        'fine-tuning': ('tools.studies.fine_tuning', 'measure what weights of another task are worth'),
        'revnet-memory': ('tools.studies.revnet_memory', 'measure memory and time of RevNet training steps'),
    },
    'benchmarks': {
        'benchmark-input': ('tools.benchmarks.input', 'measure the input pipeline'),
        'benchmark-peers': ('tools.benchmarks.peers', 'compare the input pipeline with those of other libraries'),
        'benchmark-train': ('tools.benchmarks.training', 'measure training steps and their input on any device'),
        'balance': ('tools.benchmarks.balance', 'compute whether a run waits for its host or for its device'),
    },
}
# The modules by name.
COMMANDS = {name: module for group in GROUPS.values() for name, (module, _) in group.items()}
_HINT = f'{PROGRAM} --help lists the commands.'


def run(name: str, arguments: Sequence[str]) -> None:
    """Runs a command like `python -m`, in this process, and ends the process."""
    sys.argv = [f'{PROGRAM} {name}', *arguments]
    runpy.run_module(full_name(COMMANDS[name]), run_name='__main__')


def help_text() -> str:
    """The text that `inception-v3 --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [str(__doc__).strip()]
    for group, commands in GROUPS.items():
        lines += ['', f'{group}:', *(f'  {name:<{width}}  {summary}' for name, (_, summary) in commands.items())]
    return '\n'.join([*lines, '', EXIT_CODES])


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line, `sys.argv` by default, and returns its exit code."""
    name, *arguments = list(sys.argv[1:] if argv is None else argv) or ['']
    if name in COMMANDS:
        if importlib.util.find_spec(full_name(COMMANDS[name].partition('.')[0])) is None:
            return _fail(f'{name}: this copy of the program lacks the folder `tools`, which has this command.')
        try:
            run(name, arguments)
        except CommandError as error:  # TensorFlow, which its module loads, lacks a package.
            return _fail(str(error))
        return DONE
    if name in ('-h', '--help'):
        print(help_text())
        return DONE
    if name == '--version':
        print(f'{PROGRAM} {__version__}')
        return DONE
    if not name:
        return _fail(f'name a command. {_HINT}')
    return _fail(f'{shown(name)}: no such command.{meant(name, COMMANDS)} {_HINT}')


def _fail(message: str) -> int:
    print(f'error: {message}', file=sys.stderr)
    return FIX


if __name__ == '__main__':
    sys.exit(main())
