"""Functions of TensorFlow under one name in both versions, and SavedModels that both serve."""

import pathlib
from typing import Any

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from compat import tf
from compat.names import make_servable_by_both
from compat.tensorflow import complete, either
from tests.support.graphs import evaluate


@pytest.mark.parametrize(('value', 'expected'), [(3, (6, [3, 3, 3])), (-2, (2, []))])
def test_either__runs_one_of_two_functions(value: int, expected: tuple) -> None:
    def double(number: tf.Tensor) -> tuple:
        with tf.control_dependencies([tf.Assert(number > 0, ['must not run'])]):
            return tf.identity(number * 2), tf.fill([number], number)

    def negate(number: tf.Tensor) -> tuple:
        with tf.control_dependencies([tf.Assert(number <= 0, ['must not run'])]):
            return tf.identity(-number), tf.fill([0], number)

    number = tf.placeholder_with_default(tf.constant(value), [])
    found, copies = evaluate(*either(number > 0, double, negate, number))
    assert (found, copies.tolist()) == expected


def test_complete__warns_of_a_version_newer_than_the_newest_that_was_tried(caplog: Any) -> None:
    for version in ('1.15.5', '2.15.1', '2.21.3'):
        complete(version)
    assert not caplog.messages
    for version in ('2.22.0-rc1', '3.0.0'):
        complete(version)
        assert (
            caplog.messages.pop()
            == f'TensorFlow {version} is newer than 2.21, the newest that this program was tried on'
        )
        caplog.clear()


def test_make_servable_by_both__removes_only_the_attribute_unknown_to_1_15(tmp_path: pathlib.Path) -> None:
    model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    graph = model.meta_graphs.add().graph_def
    for name in ('weights', 'biases'):
        node = graph.node.add(name=name, op='VarHandleOp')
        node.attr['shared_name'].s = name.encode()
    expected = model.SerializeToString(deterministic=True)
    for node in graph.node:
        node.attr['debug_name'].s = f'{node.name}/'.encode()
    path = tmp_path / 'saved_model.pb'
    path.write_bytes(model.SerializeToString())
    make_servable_by_both(str(tmp_path))
    assert path.read_bytes() == expected
    path.chmod(0o444)
    make_servable_by_both(str(tmp_path))
    assert path.read_bytes() == expected
