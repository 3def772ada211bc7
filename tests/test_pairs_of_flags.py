"""Every pair of values of two flags with alternatives is refused by a rule, or its graphs can be built."""

import dataclasses
import functools
import itertools
from typing import Any, Dict, FrozenSet, Iterator, List, Tuple

import pytest

from compat import tf
from inception_v3.config import Config, setting_of
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks import resnet, revnet
from inception_v3.networks.registry import NETWORKS
from inception_v3.rules import contradictions
from inception_v3.tpu import topology
from tests.support.tiny_network import TINY
from tools.preflight import graphs

MODES = tf.estimator.ModeKeys
# The values of each flag: its choices, or True and False; and two values for a few others that switch something.
VALUES: Dict[str, Tuple[Any, ...]] = {
    **{f.name: tuple(setting_of(f).choices) for f in dataclasses.fields(Config) if setting_of(f).choices},
    **{f.name: (True, False) for f in dataclasses.fields(Config) if isinstance(f.default, bool)},
    **{'seed': (None, 1), 'max_bad_records': (0, 2), 'freeze': ('', 'Logits*'), 'head_learning_rate': (None, 0.1)},
    **{'batch_norm_group_size': (0, 1), 'eval_total_size': (0, 4), 'class_weights': ('', f'mine=2{",1" * 10}')},
    # The two networks that are left out have the functions and options of others, with more layers.
    'network': tuple(name for name in NETWORKS if name not in ('revnet104', 'revnet110')),
}
BASE: Dict[str, Any] = {
    **{'height': 112, 'width': 107, 'num_classes': 11, 'train_batch_size': 4, 'eval_batch_size': 4},
    **{'depth_multiplier': 0.01, 'num_train_images': 40, 'num_eval_images': 73, 'num_parallel_calls': 2},
    **{'model_dir': 'model', 'data_dir': 'data', 'num_shards': 2, 'tpu': 'emulated:2'},
}
# No flags, and flags that other flags need.
NEEDED: Tuple[Dict[str, Any], ...] = (
    {},
    {'use_tpu': False},
    {'use_tpu': False, 'accelerator': 'gpu'},
    {'use_learning_rate_warmup': True},
    {'freeze': 'Logits*'},
)
CORES = topology.emulated('emulated:2')
Row = Dict[str, Any]


def config_of(row: Row) -> Config:
    config = Config(**{**BASE, **row})
    return config if config.use_tpu else dataclasses.replace(config, tpu=None)


def is_refused(row: Row) -> bool:
    return any(contradictions(config_of(row), frozenset(row)))


def pairs_of(row: Row) -> Iterator[FrozenSet[Tuple[str, Any]]]:
    return map(frozenset, itertools.combinations(row.items(), 2))


def rows_for(values: Dict[str, Tuple[Any, ...]]) -> Tuple[List[Row], int]:
    """Rows of flags that no rule refuses, which together have every allowed pair; and the number of refused pairs.

    Each row begins with a missing pair. Flag after flag, it then takes the value with the most missing pairs.
    """
    every = [{a: x, b: y} for a, b in itertools.combinations(values, 2) for x in values[a] for y in values[b]]
    # A pair that is refused alone may be allowed with a third flag.
    begun = {frozenset(pair.items()): [{**each, **pair} for each in NEEDED] for pair in every}
    allowed = {pair: next((row for row in rows if not is_refused(row)), None) for pair, rows in begun.items()}
    missing = {pair for pair, row in allowed.items() if row}
    refused, rows = len(every) - len(missing), []
    for pair, begin in allowed.items():
        if begin is None or pair not in missing:
            continue
        row = dict(begin)
        for name in values:
            if name in row:
                continue
            gains = [(sum(frozenset([(name, x), each]) in missing for each in row.items()), x) for x in values[name]]
            for _, value in sorted(gains, key=lambda each: -each[0]):
                if not is_refused({**row, name: value}):
                    row[name] = value
                    break
        missing -= {*pairs_of(row)}
        rows.append(row)
    assert not missing
    return rows, refused


def build(config: Config) -> None:
    """Builds the graphs of training, evaluation and prediction, with their input."""
    for mode in (MODES.TRAIN, MODES.EVAL):
        is_training = mode == MODES.TRAIN
        if config.use_tpu:
            graphs.build(config, CORES, is_training)
            continue
        with tf.Graph().as_default():
            tf.train.create_global_step()
            dataset = InputPipeline(is_training, config)({'batch_size': 4})
            features, labels = tf.data.make_initializable_iterator(dataset).get_next()
            if is_training:
                labels.set_shape([4])
            spec = inception_model_fn(features, labels, mode, {'config': config})
            assert spec.loss.shape.rank == 0 and (spec.train_op is not None) == is_training
    with tf.Graph().as_default():
        images = tf.placeholder(tf.float32, [None, config.height, config.width, 3])
        spec = inception_model_fn(images, None, MODES.PREDICT, {'config': config})
        assert spec.predictions['probabilities'].shape.as_list() == [None, 11]


@pytest.fixture
def short(monkeypatch: Any) -> None:
    """Replaces the networks by short ones with the same options."""
    for name, network in NETWORKS.items():
        if name.startswith('revnet'):
            build: Any = functools.partial(revnet.revnet, revnet.REVNET_38._replace(units=(1,), depths=(32,)))
        elif name == 'resnet50':
            monkeypatch.setattr(resnet, 'STAGES', (resnet.Stage(1, 16, stride=1),))
            build = functools.partial(network.build)  # A new function, because sizes are cached by function.
        else:
            build = TINY.build
        monkeypatch.setitem(NETWORKS, name, network._replace(build=build))


@pytest.mark.parametrize(
    'share', [pytest.param(3, marks=pytest.mark.program), pytest.param(1, marks=pytest.mark.nightly)]
)
def test_pairs__are_refused_or_build_their_graphs(
    share: int, few_digits_dir: str, tar_dir: str, tmp_path: Any, short: None
) -> None:
    rows, refused = rows_for(VALUES)
    assert 10 < len(rows) < 100 and refused > 100
    # Chosen by hand: pairs that a rule refuses, and pairs that no rule refuses.
    never: List[Row] = [{'precision': 'float16', 'use_tpu': True}, {'data_format': 'tar', 'use_data': 'fake'}]
    for pair in never:
        assert not [row for row in rows if pair.items() <= row.items()]
    some: List[Row] = [{'layout': 'NCHW', 'optimizer': 'momentum'}, {'transfer': 'uint8', 'preprocessing': 'vgg'}]
    for pair in some:
        assert [row for row in rows if pair.items() <= row.items()]
    failed, tried = {}, rows[: len(rows) // share]
    # The first rows have the most pairs: a third of the rows has more than four fifths of the pairs.
    pairs, of_all = ({pair for row in those for pair in pairs_of(row)} for those in (tried, rows))
    assert len(pairs) > 0.8 * len(of_all)
    for number, row in enumerate(tried):
        data_dir = tar_dir if row.get('data_format') == 'tar' else few_digits_dir
        config = dataclasses.replace(config_of(row), data_dir=data_dir, model_dir=str(tmp_path / str(number)))
        try:
            build(config)
        except Exception as error:
            failed[str(row)] = f'{type(error).__name__}: {error}'
    assert not failed
