"""Reports of runs: `runs` reads them, `tables` and `statistics` say what is shown, `page` writes it."""
