"""What keeps a run alive and its folder whole: checkpoints, lock, records of starts and evaluations, hooks, failures.

The loop and the commands import these; no documented module does. To begin: `checkpoints`.
"""
