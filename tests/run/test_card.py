"""Tests of the whole card of an export; `tests/cycles/test_export.py` tests the card of a run's export."""

from typing import Any, Dict

import pytest
from scipy import stats

from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.run.export import card
from inception_v3.run.export.origin import Origin
from inception_v3.run.trained_data import TrainedData

INFO = DatasetInfo('pets', 'my | folder', 6000, 359, 4, ['background', 'cat', 'dog', ''], 'a' * 64)
ORIGIN = Origin('/runs/m', 12345, 'average', 'digest', {}, 0.9, 359)
CONFIG = Config(
    use_tpu=False,
    num_classes=4,
    num_train_images=6000,
    height=200,
    width=300,
    train_steps=12345,
    init_from='/me/photos-v3/',
    # Paths and addresses of the run, which the card does not show.
    model_dir='/runs/m',
    train_files='/me/*.tar',
    worker_hosts='a:1,b:1',
    task_index=0,
    worker_timeout=99,
    log_device_placement=True,
    profile_steps='101,110',
)

WHOLE = """# inception_v3, exported as onnx

- model.onnx: the network
- network: inception_v3, images of 200 x 300 pixels, 4 classes, of which 0 is the background
- weights: moving averages of the weights, of step 12,345; SHA-256 of the checkpoint's index digest

## Accuracy

- checkpoint: top-1 89.97% of 359 validation images, 95 % interval 86.43% to 92.67%
- this export: compared

## Data

- pets: my \\\\| folder; 6,000 training and 359 validation images, fingerprint {fingerprint}
- trained before on toys
- trained before on tools
- and a note

## Flags of the run that are not the defaults

- `--num_train_images=6000`
- `--num_classes=4`
- `--height=200`
- `--width=300`
- `--train_steps=12345`
- `--init_from=photos-v3`

## Limits

"""


LEARNED = TrainedData(INFO)


def of(config: Config = CONFIG, own: Origin = ORIGIN, learned: TrainedData = LEARNED) -> str:
    return card.card('onnx', ['model.onnx: the network'], config, own, 'compared', learned)


def test_card__says_what_the_export_is_of() -> None:
    text = of(learned=TrainedData(INFO, ('toys', 'tools'), 'and a note'))
    expected = WHOLE.replace('\\\\', '\\').format(fingerprint='a' * 64)
    assert text.startswith(expected)
    limits = text[len(expected) :]
    assert limits.startswith('- The accuracy holds') and limits.count('\n- ') == 3 and limits.endswith('apply.\n')


@pytest.mark.parametrize(
    ('arguments', 'part'),
    [
        ({'own': ORIGIN._replace(weights='raw')}, 'weights: weights as trained, not averages, of step'),
        ({'own': ORIGIN._replace(top_1=None, images=None)}, '- checkpoint: this step has no evaluation\n'),
        ({'own': ORIGIN._replace(top_1=0.0, images=10)}, '- checkpoint: top-1 0.00% of 10 validation images'),
        ({'own': ORIGIN._replace(images=0)}, '- checkpoint: this step has no evaluation\n'),
        ({'config': Config(use_data='fake')}, '- made-up images\n'),
        ({'learned': TrainedData(None)}, '- 6,000 training images, without a description\n'),
        # Class 0 is the background if it has no name, or this name.
        ({'learned': TrainedData(None)}, '4 classes, of which 0 is the background\n'),
        ({'learned': TrainedData(None, imported_names=('cat', 'dog'))}, '4 classes\n'),
    ],
)
def test_card__says_what_is_not_known_or_otherwise(arguments: Dict[str, Any], part: str) -> None:
    assert part in of(**arguments)


@pytest.mark.parametrize(('right', 'images'), [(323, 359), (0, 10), (10, 10), (1, 50000)])
def test_interval__is_that_of_wilson(right: int, images: int) -> None:
    expected = stats.binomtest(right, images).proportion_ci(0.95, 'wilson')
    assert card.wilson_interval(right, images) == pytest.approx((expected.low, expected.high), abs=1e-8)


def test_labels__have_a_line_for_each_class() -> None:
    assert card.labels(['a  b', 'c\n'], 4) == 'a b\nc\n\n\n'
