"""Runs Apache Beam in its own process group, which is killed when the conversion ends.

Otherwise, Beam's local processes outlive a killed program for a while, and show tracebacks when they are interrupted.
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
from typing import Callable, Sequence

from compat.errors import CommandError, RetryableError
from console import processes
from tools import extras

DIRECT_RUNNER = 'DirectRunner'
# An exit code that Python does not use.
_PROCESS_DIED = 3
# Seconds between two updates of the progress.
_POLL_SECONDS = 1


def _quieten() -> None:
    """Hides Beam's warnings, such as those of missing clients for Google Cloud, some of which name no logger."""
    for name in ('apache_beam', None):
        logging.getLogger(name).setLevel(logging.ERROR)


def check(runner: str, options: Sequence[str]) -> None:
    """Raises CommandError unless Beam is installed and knows the named runner and the options."""
    _quieten()
    extras.require('data', 'apache_beam')
    import apache_beam.runners
    from apache_beam.options.pipeline_options import PipelineOptions

    try:
        apache_beam.runners.create_runner(runner)
    except (ValueError, ImportError) as error:
        raise CommandError(f'--runner={runner}: {error}')
    parsed = PipelineOptions([*options])
    unknown = set(parsed.get_all_options(retain_unknown_options=True)) - set(parsed.get_all_options())
    # The runners of clusters have options that Beam itself does not know.
    if unknown and runner == DIRECT_RUNNER:
        raise CommandError(f'-- {" ".join(options)}: Beam has no option --{", --".join(sorted(unknown))}.')


def run(
    runner: str, options: Sequence[str], shards: Sequence[str], data_dir: str, work_dir: str, watch: Callable[[], None]
) -> None:
    """Runs `pipeline.write_shard` for each of the record files; `watch` is called once a second.

    Raises RetryableError if Beam fails for a reason other than an error of the conversion.
    """
    with tempfile.TemporaryDirectory(prefix='beam-') as temporary, tempfile.TemporaryFile() as log:
        environment = {
            **os.environ,
            # Beam does not delete its temporary folders.
            'TMPDIR': temporary,
            # Beam's processes show these warnings before `compat.settings` can silence them.
            'PYTHONWARNINGS': 'ignore:Python 3.7 is no longer supported',
        }
        process = subprocess.Popen(
            processes.module('tools.datasets.imagenet.beam'),
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
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                watch()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        output = log.read().decode(errors='replace')
    if process.returncode:
        with tempfile.NamedTemporaryFile('w', prefix='beam-', suffix='.log', delete=False) as kept:
            kept.write(output)
        reason = (output.strip() or f'exit code {process.returncode}').rpartition('\n')[2]
        if process.returncode == _PROCESS_DIED:
            reason = 'one of its processes was killed, perhaps because memory ran out; lower --processes to use less'
        raise RetryableError(
            f'Apache Beam failed: {reason} (its output is in {kept.name}). The same command resumes and keeps '
            'finished files.'
        )


def main() -> None:
    """Runs the pipeline requested on standard input; kills it when standard input is closed."""
    runner, options, shards, data_dir, work_dir = json.loads(sys.stdin.readline())

    def end_with_parent() -> None:
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    _quieten()
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability import local_job_service

    from tools.datasets.imagenet import pipeline as imagenet_pipeline

    class Worker(local_job_service.SubprocessSdkWorker):
        """A local worker whose crash ends the pipeline; Beam itself would wait for it forever."""

        def run(self) -> None:
            try:
                super().run()
            except RuntimeError:
                os._exit(_PROCESS_DIED)

    local_job_service.SubprocessSdkWorker = Worker
    with beam.Pipeline(options=PipelineOptions([f'--runner={runner}', *options])) as pipeline:
        _ = pipeline | beam.Create(shards) | beam.Map(imagenet_pipeline.write_shard, data_dir, work_dir)


if __name__ == '__main__':
    main()
