"""Reports of runs: `runs` reads them, `tables` and `figures` say what is shown, `page` writes it.

The studies also use `drawing`.
"""
