"""The report of a comparison of runs: a page, and a Markdown file with pictures."""
