"""The parts of the input pipeline: order of records, bad records, drawing, fake data, infeed.

The pipeline and what runs it import these; they know no model. To begin: `record_preprocessing`.
"""
