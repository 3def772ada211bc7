"""The shipped studies: their cases, at full size and in the small version."""

import pathlib

import pytest

from inception_v3.config import Config
from inception_v3.run.batch_norm_advice import decay_warning
from tools.studies import shipped
from tools.studies.study import SMALL_VERSIONS, Study, load
from tools.studies.sweep import trials

FOLDER = pathlib.Path(shipped.__file__).parent
FILES = sorted(path.name for path in FOLDER.glob('*.py') if path.name != '__init__.py')
# The number of cases of each study, at full size and in the small version.
CASES = {
    'batch_norm.py': (3, 3),
    'batch_norm_decay.py': (4, 3),
    'class_weights.py': (2, 2),
    'color_distortion.py': (5, 5),
    'large_batch.py': (12, 6),
    'moving_average.py': (4, 3),
    'optimizers.py': (4, 4),
    'precision.py': (2, 2),
}


def configs_of(study: Study) -> dict:
    return {trial.case: trial.config for trial in trials.trials_of(study, 'out')}


@pytest.mark.parametrize('name', FILES)
def test_shipped__has_a_question_a_cost_and_two_small_versions(name: str) -> None:
    study = load(str(FOLDER / name))
    assert study.question.split('\n')[0].endswith('?')
    assert study.step_ms == 815
    short, whole = (study.small(version) for version in SMALL_VERSIONS)
    assert len(study.all_seeds) == len(short.all_seeds) == 3
    assert len(whole.all_seeds) == 10
    assert (len(study.cases()), len(short.cases())) == CASES[name]
    assert [case.name for case in whole.cases()] == [case.name for case in short.cases()]
    # All cases see the same number of images; else they would differ in more than their settings.
    for version in (study, short, whole):
        images = {config.train_batch_size * config.train_steps for config in configs_of(version).values()}
        assert max(images) - min(images) <= 16384


def test_shipped__one_case_is_the_documented_default() -> None:
    documented = {
        'optimizers.py': 'RMS',
        'color_distortion.py': 'fast',
        'moving_average.py': 'decay=0.995',
        'batch_norm_decay.py': 'batch_norm_decay=0.9976',
        'class_weights.py': 'even',
        'precision.py': 'precision=float32',
        'large_batch.py': 'batch=1024,plain',
    }
    for name, case in documented.items():
        config = configs_of(load(str(FOLDER / name)))[case]
        assert Config(seed=config.seed, model_dir=config.model_dir) == config, name
    for config in configs_of(load(str(FOLDER / 'large_batch.py'))).values():
        assert config.train_batch_size == 128 * config.num_shards and decay_warning(config) is None
        assert config.train_steps * config.train_batch_size / config.num_train_images == pytest.approx(170.2, abs=0.1)
