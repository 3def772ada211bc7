"""The commands of `inception-v3` before and after a run, each in its folder.

Only the program's entry imports these. To begin: `predict`.
"""
