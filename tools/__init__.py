"""Tools around a run: data sets, predictions, reports, exports, studies, benchmarks.

Imports point one way: the tools import the program. Only two entries import tools: `inception_v3.main`, to make the
digits, and `inception_v3_tpu`, for the commands. Both report a missing tool, so each folder here may be removed. With
all of them gone, the program still trains, evaluates, resumes and exports, given a data set.

Start reading with `predict`, or for data sets with `datasets.from_folder`.
"""
