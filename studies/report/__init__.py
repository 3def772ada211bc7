"""Reports of runs: `runs` reads them, `tables` and `figures` say what is shown, `page` writes it.

The studies use it, and the parts that draw and print: `palette`, `drawing`, `sections`.
"""
