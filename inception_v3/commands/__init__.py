"""What one does before and after a run: each command of `inception-v3` that reads or plans one, in its folder.

Only the program's entry imports these. To begin: `predict`.
"""
