"""The documentation: its pages, and the programs that make parts of them."""
