"""Observations of a run: each builds a part of the program from a configuration, and returns a property of it.

`tests/test_flag_effects.py` makes each observation with the default, and with another value of one flag. `patch` is
pytest's monkeypatch; observations use it to replace parts that take minutes or need a TPU.
"""
