"""The summary that a run ends with on the screen."""

import os
from typing import Optional

from console.screen import duration
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.model_dir.evaluations import Evaluation
from inception_v3.model_dir.files import BEST_FOLDER

# As many digits of a fingerprint tell a user's data sets apart.
_DIGITS_SHOWN = 12


def summary_of(
    config: Config,
    data_set: Optional[DatasetInfo],
    evaluation: Optional[Evaluation],
    images_per_second: Optional[float],
    export: Optional[str],
    best: Optional[Evaluation],
    seconds: Optional[float] = None,
    most_accurate: Optional[Evaluation] = None,
) -> str:
    """What a run ends with on the screen: a value a line.

    Args:
      config: of the run.
      data_set: what its data set says of itself.
      evaluation: the last.
      images_per_second: of training.
      export: the folder of the SavedModel.
      best: the evaluation of the checkpoint that is kept as the best.
      seconds: that the command took.
      most_accurate: the evaluation with the best top-1.
    """
    rows = []
    if evaluation:
        rows += [
            ('top-1', f'{evaluation.top_1:.2%}'),
            ('top-5', f'{evaluation.top_5:.2%}'),
            ('evaluated', f'{evaluation.images:,} images, {evaluation.weights} weights of step {evaluation.step:,}'),
        ]
    if best:
        folder = os.path.join(str(config.model_dir), BEST_FOLDER)
        rows.append(('best', f'{best.top_1:.2%} top-1 at step {best.step:,}, in {folder}'))
    if most_accurate:
        rows.append(('Max Accuracy', f'{most_accurate.top_1:.2%} at step {most_accurate.step:,}'))
    if seconds is not None:
        rows.append(('total time', duration(seconds)))
    if images_per_second:
        rows.append(('training', f'{images_per_second:,.1f} images/s'))
    rows += [('data set', _named(config, data_set)), ('results', str(config.model_dir))]
    if export:
        rows.append(('SavedModel', export))
    width = max(len(name) for name, _ in rows)
    return '\n'.join(f'{name:<{width}}  {value}' for name, value in rows)


def _named(config: Config, data_set: Optional[DatasetInfo]) -> str:
    """Which data set a run has used, in a few words."""
    if config.use_data == 'fake':
        return 'made up'
    if not data_set:
        return config.data_dir
    return f'{data_set.name}, {data_set.fingerprint[:_DIGITS_SHOWN]}' if data_set.fingerprint else data_set.name
