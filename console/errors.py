"""Errors that a command reports to its user in one message, and the exit codes that they end it with."""

from absl import app

DONE = 0
RETRY = 1
FIX = 2
RESUME = 75  # EX_TEMPFAIL of sysexits.h: start the same command again.
INTERRUPTED = 130  # 128 + SIGINT, as shells have it.

EXIT_CODES = f"""exit codes:
  {DONE}    done
  {RETRY}    failed; retrying the same command may succeed
  {FIX}    failed; fix something first, the message says what
  {RESUME}   ended by SIGTERM; the same command resumes
  {INTERRUPTED}  interrupted by Ctrl-C; the same command resumes"""


class CommandError(app.UsageError):
    """A failure whose message tells the user what to do; the traceback adds nothing.

    Attributes:
      exit_code: the exit code of a command that ends with it.
    """

    exit_code = FIX


class RetryableError(CommandError):
    """A failure that may be gone when the same command is run again."""

    exit_code = RETRY


class TerminatedError(CommandError):
    """The end of a command that SIGTERM asked for, after its work was saved."""

    exit_code = RESUME
