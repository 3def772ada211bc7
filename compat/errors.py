"""Errors that end a command with a message to its user, and their exit codes."""

from absl import app

DONE = 0
RETRY = 1
FIX = 2
RESUME = 75  # EX_TEMPFAIL of sysexits.h: run the same command again.
INTERRUPTED = 130  # 128 + SIGINT, as in shells.

EXIT_CODES = f"""exit codes:
  {DONE}    done
  {RETRY}    failed; retrying the same command may succeed
  {FIX}    failed; fix something first, the message says what
  {RESUME}   ended by SIGTERM; the same command resumes, or starts over
  {INTERRUPTED}  ended by Ctrl-C; the same command resumes, or starts over"""


class CommandError(app.UsageError):
    """A failure whose message tells the user what to do; the traceback adds nothing.

    Attributes:
      exit_code: the exit code of a command that ends with this error.
    """

    exit_code = FIX


class CheckpointError(CommandError):
    """A checkpoint cannot be read, or does not fit the run."""


class RetryableError(CommandError):
    """A transient failure: the same command may succeed later."""

    exit_code = RETRY


class TerminatedError(CommandError):
    """SIGTERM ended the command after its work was saved."""

    exit_code = RESUME


class Terminated(KeyboardInterrupt):
    """SIGTERM, which unwinds a command as Ctrl-C does.

    Not an Exception: code that reads damaged files catches every Exception.
    """


class InterruptedByUserError(CommandError):
    """Ctrl-C ended the command after its work was saved."""

    exit_code = INTERRUPTED
