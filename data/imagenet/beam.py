"""Apache Beam in a process group of its own: however a conversion ends, all of its processes do, and without a word.

Beam's local processes would outlive a killed program for a while, and each would show tracebacks when interrupted.
"""

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

from data.imagenet import shards as imagenet_shards
from data.records import DataError

DIRECT_RUNNER = 'DirectRunner'
# An exit code that Python does not use.
_PROCESS_DIED = 3


class BeamError(Exception):
    """Beam failed, for another reason than the conversion's own."""


def check(runner: str, options: Sequence[str]) -> None:
    """Makes sure that Beam is there and takes its options, before anything begins.

    Args:
      runner: the name of Beam's runner.
      options: Beam's options, as on a command line.

    Raises:
      DataError: something has to be installed, or there is no such runner or option.
      SystemExit: an option has no such value; Beam has said so.
    """
    try:
        import apache_beam.runners
        import rich  # noqa: F401
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise DataError(f"{str(error.name).partition('.')[0]} is not installed: pip install '.[data]'.")
    try:
        apache_beam.runners.create_runner(runner)
    except (ValueError, ImportError) as error:
        raise DataError(f'--runner={runner}: {error}')
    given = PipelineOptions([*options])
    unknown = set(given.get_all_options(retain_unknown_options=True)) - set(given.get_all_options())
    # The runners of clusters have options that are not known here.
    if unknown and runner == DIRECT_RUNNER:
        raise DataError(f'-- {" ".join(options)}: Beam has no option --{", --".join(sorted(unknown))}.')


def run(runner: str, options: Sequence[str], shards: Sequence[str], data_dir: str, work_dir: str) -> None:
    """Calls `imagenet_shards.convert` for each shard.

    Args:
      runner: the name of Beam's runner.
      options: Beam's options, as on a command line.
      shards: the names of the record files.
      data_dir: where they are to be.
      work_dir: where their plans are.

    Raises:
      BeamError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix='beam-') as temporary:
        environment = {
            **os.environ,
            # Beam leaves folders there.
            'TMPDIR': temporary,
            # What `console.tensorflow_settings` keeps quiet is said before that can be loaded, in Beam's processes.
            'PYTHONWARNINGS': 'ignore:Python 3.7 is no longer supported',
        }
        with open(os.path.join(temporary, 'log'), 'w+', errors='replace') as log:
            process = subprocess.Popen(
                [sys.executable, '-m', 'data.imagenet.beam'],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
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
            log.seek(0)
            said = log.read()
    reason = next((line for line in reversed(said.split('\n')) if line.strip()), f'exit code {code}')
    if code == _PROCESS_DIED:
        reason = 'one of its processes was killed, perhaps for want of memory; fewer --processes take less'
    if code:
        with tempfile.NamedTemporaryFile('w', prefix='beam-', suffix='.log', delete=False) as kept:
            kept.write(said)
        raise BeamError(
            f'Apache Beam failed: {reason} (all that it said is in {kept.name}). The same command goes on, and keeps '
            'what is finished.'
        )


def main() -> None:
    """Runs what is asked for on the standard input, for as long as that stays open."""
    runner, options, shards, data_dir, work_dir = json.loads(sys.stdin.readline())

    def end_with_the_program() -> None:
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_the_program, daemon=True).start()
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability import local_job_service

    class Worker(local_job_service.SubprocessSdkWorker):
        """A local process whose untimely end is not waited out: Beam would, for ever."""

        def run(self) -> None:
            try:
                super().run()
            except RuntimeError:
                os._exit(_PROCESS_DIED)

    local_job_service.SubprocessSdkWorker = Worker
    logging.getLogger('apache_beam').setLevel(logging.ERROR)
    with beam.Pipeline(options=PipelineOptions([f'--runner={runner}', *options])) as pipeline:
        _ = pipeline | beam.Create(shards) | beam.Map(imagenet_shards.convert, data_dir, work_dir)


if __name__ == '__main__':
    main()
