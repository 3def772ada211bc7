"""Tests of the introduction of a run."""

from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.reporting.summary import introduction_of
from inception_v3.settings.presets import PRESETS


def test_introduction__describes_the_digits_preset() -> None:
    data_set = DatasetInfo('digits', 'scikit-learn', 1438, 359, 11, list('_0123456789'))
    assert introduction_of(Config(**PRESETS['digits']), data_set).splitlines() == [
        'network   inception_v3, 1,379,119 parameters, 75 x 75 pixels, 11 classes',
        'data set  digits: 1,438 training and 359 validation images',
        'run       train_and_eval, batches of 32 images, 1,500 steps (33.4 epochs)',
        'device    the CPU of this machine, float32',
        'folders   data runs/digits_data, results runs/digits, export runs/digits/export',
    ]


def test_introduction__names_the_device() -> None:
    def device(**changes: object) -> str:
        config = Config(model_dir='m', use_data='fake', **changes)  # type: ignore[arg-type]
        return introduction_of(config, None).splitlines()[3]

    assert device(tpu='node', num_shards=32) == 'device    TPU node, 32 cores, 4 hosts, float32'
    assert device(tpu='emulated:8', precision='bfloat16') == 'device    an emulated TPU with 8 cores, bfloat16'
