"""Every flag is read by the program, and flags that change evaluated pixels distinguish evaluations and exports."""

import ast
import dataclasses
from typing import Any

import pytest

from console.tensorflow_versions import tf
from inception_v3.config import Config, ConfigError, setting_of
from inception_v3.input import infeed
from inception_v3.run import evaluations, origin
from preprocessing.resizing import resize_for_eval
from tests.support.project import ROOT


def test_every_flag__is_read_by_the_program() -> None:
    paths = [path for folder in ('inception_v3', 'data', 'preprocessing') for path in (ROOT / folder).rglob('*.py')]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    # The rate of a schedule is computed from epochs that replace steps, by name.
    assert {field.name for field in dataclasses.fields(Config)} - read <= {'train_epochs', 'epochs_per_eval'}


def another(flag: str, value: Any) -> Any:
    """Another value of a flag, which may be out of its bounds."""
    choices = setting_of(next(field for field in dataclasses.fields(Config) if field.name == flag)).choices
    if choices:
        return next(choice for choice in choices if choice != value)
    return not value if isinstance(value, bool) else f'{value}x' if isinstance(value, str) else (value or 0) * 0.9


def graph_of_evaluation(config: Config) -> bytes:
    with tf.Graph().as_default() as graph:
        infeed.for_evaluation(resize_for_eval(tf.constant(b''), config), config)
    return graph.as_graph_def().SerializeToString(deterministic=True)


@pytest.mark.program
@pytest.mark.both
def test_flags_that_change_evaluated_pixels__distinguish_evaluations_and_exports() -> None:
    config = Config(use_tpu=False, data_dir='d', height=75, width=75, seed=5)
    default, changing = graph_of_evaluation(config), set()
    for flag, value in dataclasses.asdict(config).items():
        for other in (another(flag, value), (value or 0) + 5 if isinstance(value, int) else value):
            try:
                changed = dataclasses.replace(config, **{flag: other})
            except ConfigError:
                continue
            if graph_of_evaluation(changed) != default:
                changing.add(flag)
    assert {'preprocessing', 'height', 'width', 'precision', 'transfer'} <= changing
    assert changing <= {*evaluations.DECIDING} and changing <= {*origin.SETTINGS}
