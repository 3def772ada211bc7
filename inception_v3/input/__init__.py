"""The parts of the input pipeline: order of records, bad records, drawing, fake data, infeed.

The pipeline and the modules that run it import these. They do not depend on the model. Start with
`record_preprocessing`.
"""
