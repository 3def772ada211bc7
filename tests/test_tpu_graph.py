"""The graphs that a TPU would run, built by the real TPUEstimator; only the TPU's answer to what it is is made up."""

import contextlib
import dataclasses
from typing import Any, Iterator, List

import pytest
import tensorflow as tf
from tensorflow.python.client.session import _DeviceAttributes
from tensorflow.python.tpu import tpu_system_metadata

from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline

CORES = 8


class _BuiltError(Exception):
    """Raised where a session would begin: the graph is complete."""


class _Stop(tf.estimator.SessionRunHook):
    def begin(self) -> None:
        self.graph = tf.compat.v1.get_default_graph()
        raise _BuiltError


@pytest.fixture
def tpu(monkeypatch: Any) -> None:
    """A v2-8, as it describes itself."""

    def devices() -> Iterator[Any]:
        yield _DeviceAttributes('/job:tpu_worker/replica:0/task:0/device:CPU:0', 'CPU', 0, 0)
        for core in range(CORES):
            yield _DeviceAttributes(f'/job:tpu_worker/replica:0/task:0/device:TPU:{core}', 'TPU', 0, 0)

    metadata = tpu_system_metadata._TPUSystemMetadata(CORES, 1, CORES, None, list(devices()))
    monkeypatch.setattr(tpu_system_metadata, '_query_tpu_system_metadata', lambda *args, **kwargs: metadata)


def build(config: Config, is_training: bool) -> tf.Graph:
    estimator, stop = make_estimator(config), _Stop()
    with contextlib.suppress(_BuiltError):
        if is_training:
            estimator.train(InputPipeline(True, config), hooks=[stop], max_steps=1)
        else:
            estimator.evaluate(InputPipeline(False, config), hooks=[stop], steps=1)
    return stop.graph


def of_type(graph: tf.Graph, kind: str) -> List[tf.Operation]:
    return [operation for operation in graph.get_operations() if operation.type == kind]


@pytest.mark.parametrize('transpose_enabled', [False, True])
@pytest.mark.parametrize('is_training', [True, False])
def test_each_core_is_fed_its_share_and_gradients_are_summed(
    small_config: Config, tmp_path: Any, tpu: None, is_training: bool, transpose_enabled: bool
) -> None:
    config = dataclasses.replace(
        small_config,
        use_tpu=True,
        master='grpc://127.0.0.1:8470',
        model_dir=str(tmp_path),
        train_batch_size=32,
        precision='bfloat16',
        skip_host_call=False,
        transpose_enabled=transpose_enabled,
    )
    graph = build(config, is_training)
    infeeds = of_type(graph, 'InfeedEnqueueTuple')
    assert sorted(infeed.get_attr('device_ordinal') for infeed in infeeds) == list(range(CORES))
    share = 4 if is_training else 8
    shape = [75, 75, 3, share] if transpose_enabled else [share, 75, 75, 3]
    for infeed in infeeds:
        assert [inputs.shape.as_list() for inputs in infeed.inputs] == [shape, [share]]
        assert infeed.inputs[0].dtype == tf.bfloat16
    # One for each trainable variable of the network without the auxiliary head: 94 kernels and shifts, and the logits'.
    assert len(of_type(graph, 'CrossReplicaSum')) == (2 * 94 + 2 if is_training else 0)
    replicated = [operation for operation in graph.get_operations() if '_tpu_replicate' in operation.node_def.attr]
    assert {o.inputs[0].dtype.base_dtype for o in replicated if o.type == 'Conv2D'} == {tf.bfloat16}
    # A core runs no Python and reads no files.
    assert not [o for o in replicated if o.type in ('PyFunc', 'EagerPyFunc', 'ReadFile', 'DecodeJpeg')]
