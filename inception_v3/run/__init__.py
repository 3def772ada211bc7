"""Guards of a run and of its folder: checkpoints, lock, records of starts and evaluations, hooks, failures.

The loop and the commands import these; no documented module does. To begin: `checkpoints`.
What reads or writes a folder may raise RemoteError: access is denied, or the store cannot be reached.
"""
