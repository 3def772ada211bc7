"""An example of an evaluation, and of a data set's description."""

from data.dataset_info import DatasetInfo
from inception_v3.run.evaluations import Evaluation

DIGITS = DatasetInfo('digits', 'scikit-learn', 1438, 359, 11, list('_0123456789'), '0123456789abcdef')

EVALUATION = Evaluation(7, 'model.ckpt-7', 'average', 0.75, 1.0, 0.5, 8, 1.5, '2020-01-01T00:00:00+00:00')
