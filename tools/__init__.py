"""Everything that one does around a run: data sets, predictions, reports, exports, studies, benchmarks.

The rule: imports point one way. The tools import the program, and nothing below imports a tool but the two entries:
`inception_v3.main`, for the digits, and `inception_v3_tpu`, for the commands. Both say what is missing without them. So
each folder here may be removed. With all of them gone, the program still trains, evaluates, resumes and exports on a
data set that is there.

To begin: `predict`, or for data sets `datasets.from_folder`.
"""
