"""Audits a data set: reads every record, and reports whether training can use the data set."""
