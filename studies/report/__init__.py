"""Reports of runs: `runs` reads them, `findings` computes, `tables` and `figures` say what is shown, `files` writes it.

Begin with `files`. The studies use it, and the parts that draw and print: `palette`, `drawing`, `sections`.
"""
