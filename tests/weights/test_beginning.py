"""Tests of the decision about each variable of a run that begins from weights."""

import dataclasses
from typing import Any, Dict, List, Set

import numpy as np
import pytest

from inception_v3.config import Config
from inception_v3.weights.beginning import LOADED, NEW, UNUSED, account, origin_of, origin_text, plan, warnings_of
from inception_v3.weights.sources import AVERAGE, Source, WeightsError

CONFIG = Config(init_from='source', num_classes=3)
NETWORK: Dict[str, List[int]] = {
    'Net/Layer/weights': [1, 1, 3, 2],
    'Net/Layer/BatchNorm/moving_mean': [2],
    'Net/Logits/weights': [1, 1, 2, 3],
    'Net/Logits/biases': [3],
}
WEIGHTS = {name for name in NETWORK if not name.endswith('mean')}
OF_RUN = {'global_step', 'Net/Layer/weights/RMSProp'}
OTHERS = [*OF_RUN, f'Net/Layer/weights{AVERAGE}', f'Net/Logits/biases{AVERAGE}']


def source(averages: bool = False, config: Any = None, **changes: Any) -> Source:
    """A source with its own values; `changes` replace the shapes of scopes, by their last part; None removes them."""
    shapes = {name: changes.get(name.split('/')[1], shape) for name, shape in NETWORK.items()}
    values = {name: np.full(shape, 1.0, np.float32) for name, shape in shapes.items() if shape is not None}
    if averages:
        values.update({name + AVERAGE: values[name] + 1 for name in WEIGHTS})
    values['global_step'] = np.array(7)
    return Source('source/model.ckpt-7', 'checkpoint', values, 'digest', config)


def names(beginning: Any, fate: str) -> Set[str]:
    return {row.name for row in beginning.of(fate)}


@pytest.mark.parametrize(('averages', 'init_averages', 'value'), [(True, True, 2), (True, False, 1), (False, True, 1)])
def test_plan__takes_the_averages_if_there_are_any(averages: bool, init_averages: bool, value: int) -> None:
    beginning = plan(NETWORK, OTHERS, source(averages), dataclasses.replace(CONFIG, init_averages=init_averages))
    assert names(beginning, LOADED) == beginning.values.keys() == {*NETWORK, *OTHERS} - OF_RUN
    for name, loaded in beginning.values.items():
        assert (loaded == (1 if name.endswith('mean') else value)).all(), name
    assert names(beginning, NEW) == OF_RUN


def test_plan__takes_the_averages_if_there_is_nothing_else() -> None:
    saved_model = source(averages=True)
    for name in WEIGHTS:
        del saved_model.values[name]
    beginning = plan(NETWORK, OTHERS, saved_model, dataclasses.replace(CONFIG, init_averages=False))
    assert (beginning.values['Net/Layer/weights'] == 2).all()


def test_plan__accounts_for_every_variable_once() -> None:
    run = source(averages=True)
    beginning = plan(NETWORK, OTHERS, run, CONFIG)
    assert sorted(row.name for row in beginning.rows if row.fate != UNUSED) == sorted([*NETWORK, *OTHERS])
    assert {row.source for row in beginning.rows} - {''} == {*run.values}
    # The weights themselves are not used, because their averages are.
    assert names(beginning, UNUSED) == WEIGHTS | {'global_step'}


def test_plan__leaves_classifiers_of_other_classes_and_excepted_scopes_new() -> None:
    for_five = {**NETWORK, 'Net/Logits/weights': [1, 1, 2, 5], 'Net/Logits/biases': [5]}
    other = source(config=Config(preprocessing='vgg', height=224))
    beginning = plan(for_five, OTHERS, other, CONFIG)
    assert names(beginning, NEW) == {name for name in [*NETWORK, *OTHERS] if 'Logits' in name} | OF_RUN
    # The average that stays new is among the other variables; the biases have a row of their own.
    assert account(beginning) == {
        LOADED: '2 variables of the network with 8 values, and 1 averages',
        NEW: 'Net/Logits/biases ([3] in the source, [5] here), Net/Logits/weights ([1, 1, 2, 3] in the source, [1, 1, '
        '2, 5] here), 3 variables of optimizer, averages and step',
        UNUSED: '3 variables of the source',
    }
    (warning,) = warnings_of(beginning, other, CONFIG)
    assert 'preprocessing: vgg -> inception' in warning and 'height: 224 -> 299' in warning
    # If the flag is given, only the scopes that it names may differ.
    explicit = dataclasses.replace(CONFIG, init_except='Layer')
    with pytest.raises(WeightsError, match=r'biases has the shape \[3\], not \[5\]'):
        plan(for_five, OTHERS, source(), explicit)
    excepted = dataclasses.replace(CONFIG, init_except='Logits,Nothing')
    beginning = plan(NETWORK, OTHERS, source(Logits=None), excepted)
    assert {*beginning.values} == {name for name in [*NETWORK, *OTHERS] if 'Layer' in name and 'RMS' not in name}
    assert warnings_of(beginning, source(), excepted) == ['--init_except: no variable matches Nothing']


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        # Another number of channels, in a layer and in the inputs of the classifier.
        ({'Layer': [1, 1, 3, 4]}, r'Net/Layer/weights has the shape \[1, 1, 3, 4\], not \[1, 1, 3, 2\]'),
        ({'Logits': [1, 1, 9, 3]}, r'Net/Logits/weights has the shape \[1, 1, 9, 3\], not \[1, 1, 2, 3\]'),
        (
            {'Logits': None},
            r'Net/Logits/biases is missing; Net/Logits/weights is missing.* --init_except=Logits,AuxLogits\.$',
        ),
    ],
)
def test_plan__refuses_what_does_not_fit(changes: Dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=f'^--init_from=source: does not fit this run: .*{message}'):
        plan(NETWORK, OTHERS, source(**changes), CONFIG)


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        ([1.0, np.nan, 0.0], 'has values that are not finite'),
        ([1.0, 1e300, 0.0], 'has values that are not finite'),
        ([1, 2, 3], 'is of the type int64, not float32'),
        ([0.1, 0.2, 0.3], ''),
    ],
)
def test_plan__converts_finite_floating_point_numbers(value: List[float], message: str) -> None:
    weights = source()
    weights.values['Net/Logits/biases'] = np.array(value)
    if message:
        with pytest.raises(WeightsError, match=f'Net/Logits/biases {message}'):
            plan(NETWORK, OTHERS, weights, CONFIG)
        # An excepted variable is not read.
        plan(NETWORK, OTHERS, weights, dataclasses.replace(CONFIG, init_except='Logits'))
    else:
        loaded = plan(NETWORK, OTHERS, weights, CONFIG).values['Net/Logits/biases']
        assert loaded.dtype == np.float32 and (loaded == np.array(value, np.float32)).all()


@pytest.mark.parametrize(
    ('averages', 'init_averages', 'values', 'text'),
    [
        (True, True, 'average', 'averages of the weights'),
        (True, False, 'raw', 'weights, not averages'),
        (False, False, 'raw', 'weights, not averages'),
        (False, True, 'raw', 'weights; it has no averages of them'),
    ],
)
def test_origin__says_which_values_are_taken(averages: bool, init_averages: bool, values: str, text: str) -> None:
    config, own = dataclasses.replace(CONFIG, init_averages=init_averages), source(averages)
    assert origin_of(own._replace(path='/a/ckpt'), config) == {
        **{'path': '/a/ckpt', 'kind': 'checkpoint', 'step': 7, 'values': values, 'digest': 'digest'}
    }
    own.values['global_step'] = np.array(1234)
    beginning = plan(NETWORK, OTHERS, own, config)
    assert origin_text(beginning, own, config) == f'source/model.ckpt-7 (checkpoint, step 1,234): {text}'


def test_account__of_weights_without_averages_has_none() -> None:
    beginning = plan(NETWORK, OF_RUN, source(averages=True), dataclasses.replace(CONFIG, init_averages=False))
    assert account(beginning) == {
        # 3 x 2 and 2 values of the layer, 2 x 3 and 3 of the classifier.
        LOADED: '4 variables of the network with 17 values',
        NEW: '2 variables of optimizer, averages and step',
        UNUSED: '4 variables of the source',
    }
    whole = plan(NETWORK, [], source(), CONFIG)
    assert account(whole)[NEW] == 'none'
