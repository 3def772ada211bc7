"""Tests of the decision about each variable of a run that begins from weights."""

import dataclasses
from typing import Any, Dict, List, Set

import numpy as np
import pytest

from inception_v3.config import Config
from inception_v3.weights.beginning import LOADED, NEW, UNUSED, description, plan
from inception_v3.weights.sources import AVERAGE, Source, WeightsError

CONFIG = Config(init_from='source', num_classes=3)
NETWORK: Dict[str, List[int]] = {
    'Net/Layer/weights': [1, 1, 3, 2],
    'Net/Layer/BatchNorm/moving_mean': [2],
    'Net/Logits/weights': [1, 1, 2, 3],
    'Net/Logits/biases': [3],
}
OTHERS = ['global_step', 'Net/Layer/weights/RMSProp', f'Net/Layer/weights{AVERAGE}', f'Net/Logits/biases{AVERAGE}']


def source(averages: bool = False, config: Any = None, **changes: Any) -> Source:
    """A source with values of its own; `changes` replace shapes by the last part of the scope, None removes them."""
    shapes = {name: changes.get(name.split('/')[1], shape) for name, shape in NETWORK.items()}
    values = {name: np.full(shape, 1.0, np.float32) for name, shape in shapes.items() if shape is not None}
    if averages:
        weights = [name for name in values if not name.endswith('mean')]
        values.update({name + AVERAGE: values[name] + 1 for name in weights})
    values['global_step'] = np.array(7)
    return Source('source/model.ckpt-7', 'checkpoint', values, 'digest', config)


def names(beginning: Any, fate: str) -> Set[str]:
    return {row.name for row in beginning.of(fate)}


@pytest.mark.parametrize(('averages', 'init_averages', 'value'), [(True, True, 2), (True, False, 1), (False, True, 1)])
def test_plan__takes_the_averages_if_there_are_any(averages: bool, init_averages: bool, value: int) -> None:
    beginning = plan(NETWORK, OTHERS, source(averages), dataclasses.replace(CONFIG, init_averages=init_averages))
    own_averages = {name for name in OTHERS if name.endswith(AVERAGE)}
    assert names(beginning, LOADED) == beginning.values.keys() == {*NETWORK} | own_averages
    for name, loaded in beginning.values.items():
        assert (loaded == (1 if name.endswith('mean') else value)).all(), name
    assert names(beginning, NEW) == {'global_step', 'Net/Layer/weights/RMSProp'}


def test_plan__takes_the_averages_if_there_is_nothing_else() -> None:
    given = source(averages=True)
    for name in NETWORK:
        if not name.endswith('mean'):
            del given.values[name]
    beginning = plan(NETWORK, OTHERS, given, dataclasses.replace(CONFIG, init_averages=False))
    assert (beginning.values['Net/Layer/weights'] == 2).all()


def test_plan__accounts_for_every_variable_once() -> None:
    given = source(averages=True)
    beginning = plan(NETWORK, OTHERS, given, CONFIG)
    ours = [row.name for row in beginning.rows if row.fate != UNUSED]
    assert sorted(ours) == sorted([*NETWORK, *OTHERS])
    theirs = {row.source for row in beginning.rows} - {''}
    assert theirs == {*given.values}
    # The weights themselves are not used, because their averages are.
    assert names(beginning, UNUSED) == {n for n in NETWORK if not n.endswith('mean')} | {'global_step'}


def test_plan__leaves_classifiers_of_other_classes_new() -> None:
    for_five = {**NETWORK, 'Net/Logits/weights': [1, 1, 2, 5], 'Net/Logits/biases': [5]}
    beginning = plan(for_five, OTHERS, source(), CONFIG)
    layers = {'Net/Logits/weights', 'Net/Logits/biases', f'Net/Logits/biases{AVERAGE}'}
    assert names(beginning, NEW) == {*layers, 'global_step', 'Net/Layer/weights/RMSProp'}
    text = '\n'.join(description(beginning, source(), CONFIG))
    assert 'Net/Logits/weights ([1, 1, 2, 3] in the source, [1, 1, 2, 5] here)' in text
    assert 'loaded    2 variables of the network with 8 values, and 1 averages' in text
    # The flag names what may differ.
    explicit = dataclasses.replace(CONFIG, init_except='Layer')
    with pytest.raises(WeightsError, match=r'biases has the shape \[3\], not \[5\].* --init_except=Layer,Logits'):
        plan(for_five, OTHERS, source(), explicit)


def test_plan__leaves_excepted_scopes_new() -> None:
    beginning = plan(NETWORK, OTHERS, source(Logits=None), dataclasses.replace(CONFIG, init_except='Logits,Nothing'))
    assert {*beginning.values} == {name for name in [*NETWORK, *OTHERS] if 'Layer' in name and 'RMS' not in name}
    warning = description(beginning, source(), dataclasses.replace(CONFIG, init_except='Logits,Nothing'))
    assert 'warning: --init_except: no variable matches Nothing' in warning


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        # Another number of channels, in a layer and in the inputs of the classifier.
        ({'Layer': [1, 1, 3, 4]}, r'Net/Layer/weights has the shape \[1, 1, 3, 4\], not \[1, 1, 3, 2\]'),
        ({'Logits': [1, 1, 9, 3]}, r'Net/Logits/weights has the shape \[1, 1, 9, 3\], not \[1, 1, 2, 3\]'),
        ({'Logits': None}, r'Net/Logits/biases is missing; Net/Logits/weights is missing.* --init_except=Logits\.$'),
        ({'Layer': None}, r'Net/Layer/weights is missing.*name scopes to begin anew in --init_except'),
        ({'Layer': None, 'Logits': None}, 'These are the weights of another network: they have no variable'),
        (
            {'Layer': [1, 1, 3, 4], 'config': Config(depth_multiplier=0.5)},
            'The run that wrote the weights had --depth_multiplier=0.5',
        ),
    ],
)
def test_plan__refuses_what_does_not_fit(changes: Dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message) as error:
        plan(NETWORK, OTHERS, source(**changes), CONFIG)
    assert str(error.value).startswith('--init_from=source: does not fit this run: ')


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        (np.array([1.0, np.nan, 0.0]), 'Net/Logits/biases has values that are not finite'),
        (np.array([1.0, np.inf, 0.0]), 'Net/Logits/biases has values that are not finite'),
        (np.array([1.0, 1e300, 0.0]), 'Net/Logits/biases has values that are not finite'),
        (np.array([1, 2, 3]), 'Net/Logits/biases is of the type int64, not float32'),
    ],
)
def test_plan__refuses_values_that_are_no_finite_numbers(value: np.ndarray, message: str) -> None:
    given = source()
    given.values['Net/Logits/biases'] = value
    with pytest.raises(WeightsError, match=message):
        plan(NETWORK, OTHERS, given, CONFIG)
    # An excepted variable is not read.
    plan(NETWORK, OTHERS, given, dataclasses.replace(CONFIG, init_except='Logits'))


def test_plan__converts_other_floating_point_types() -> None:
    given = source()
    given.values['Net/Logits/biases'] = np.array([0.1, 0.2, 0.3], np.float64)
    loaded = plan(NETWORK, OTHERS, given, CONFIG).values['Net/Logits/biases']
    assert loaded.dtype == np.float32 and (loaded == np.array([0.1, 0.2, 0.3], np.float32)).all()


def test_description__names_other_settings_of_images() -> None:
    given = source(config=Config(preprocessing='vgg', height=224))
    text = '\n'.join(description(plan(NETWORK, OTHERS, given, CONFIG), given, CONFIG))
    assert 'preprocessing: vgg -> inception; height: 224 -> 299' in text
