"""Apache Beam in a process group of its own: however a conversion ends, all of its processes do, and without a word.

Beam's local processes would outlive a killed program for a while, and each would show tracebacks when interrupted.
"""

from data import before_tensorflow  # noqa: F401, I001  first: before TensorFlow is loaded

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Sequence

from data import imagenet_shards
from data.records import DataError

DIRECT_RUNNER = 'DirectRunner'


class BeamError(Exception):
    """Beam failed, for another reason than the conversion's own."""


def check_installed() -> None:
    """Makes sure that there is what a conversion takes, before it begins.

    Raises:
      DataError: it has to be installed.
    """
    try:
        import apache_beam  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        raise DataError(f"{error.name} is not installed: pip install '.[data]'.")


def run(runner: str, options: Sequence[str], shards: Sequence[str], data_dir: str, work_dir: str) -> None:
    """Calls `imagenet_shards.convert` for each shard.

    Args:
      runner: the name of Beam's runner.
      options: Beam's options, as on a command line.
      shards: the names of the record files.
      data_dir: where they are to be.
      work_dir: where their plans are.

    Raises:
      BeamError: it failed; the message names a file with all that Beam said.
    """
    # What `before_tensorflow` keeps quiet is said before that can be loaded, in Beam's processes.
    environment = {**os.environ, 'PYTHONWARNINGS': 'ignore:Python 3.7 is no longer supported'}
    with tempfile.NamedTemporaryFile(prefix='beam-', suffix='.log', delete=False) as log:
        process = subprocess.Popen(
            [sys.executable, '-m', 'data.imagenet_beam'],
            stdin=subprocess.PIPE,
            # A cluster's runner says where to look at the job.
            stderr=log if runner == DIRECT_RUNNER else None,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps([runner, options, shards, data_dir, work_dir]).encode() + b'\n')
                process.stdin.flush()
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        with open(log.name, errors='replace') as file:
            lines = file.read().split('\n')
        reason = next((line for line in reversed(lines) if line.strip()), f'exit code {code}')
        raise BeamError(f'Apache Beam failed: {reason}. All that it said is in {log.name}.')
    os.remove(log.name)


def main() -> None:
    """Runs what is asked for on the standard input, for as long as that stays open."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    logging.getLogger('apache_beam').setLevel(logging.ERROR)
    runner, options, shards, data_dir, work_dir = json.loads(sys.stdin.readline())

    def end_with_the_program() -> None:
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_the_program, daemon=True).start()
    with beam.Pipeline(options=PipelineOptions([f'--runner={runner}', *options])) as pipeline:
        _ = pipeline | beam.Create(shards) | beam.Map(imagenet_shards.convert, data_dir, work_dir)


if __name__ == '__main__':
    main()
