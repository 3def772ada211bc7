"""Auditing a data set: every record is read, and a report says whether training can use the data set."""
