"""Reports on runs: `runs` reads them, `statistics` and `tables` compute the results, `page` writes the report."""
