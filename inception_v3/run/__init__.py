"""Guards of a run and of its folder: checkpoints, lock, records of starts and evaluations, hooks, failures.

The loop and the commands import these; no documented module does. Start with `checkpoints`. Functions that read or
write a folder may raise RemoteError: access is denied, or the store cannot be reached.
"""
