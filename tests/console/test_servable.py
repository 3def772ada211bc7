"""Tests of what an exported SavedModel may contain, so that both versions of TensorFlow serve it."""

import pathlib

from tensorflow.core.protobuf import saved_model_pb2

from console.tensorflow_names import make_servable_by_both


def test_make_servable_by_both__removes_only_the_attribute_that_1_15_does_not_know(tmp_path: pathlib.Path) -> None:
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
