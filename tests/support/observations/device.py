"""Observations of the estimator and of the requested TPU."""

import dataclasses
from typing import Any, Callable, List

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from tests.support import cloud_tpus
from tests.support.observations import step


def run_config(name: str) -> Callable[..., Any]:
    """A value of the estimator's RunConfig."""
    return lambda config, patch: getattr(make_estimator(config).config, name)


def session_config(name: str) -> Callable[..., Any]:
    """A value of the configuration of TensorFlow's sessions."""
    return lambda config, patch: getattr(make_estimator(config).config.session_config, name)


def convolution_device(config: Config, patch: Any) -> str:
    """The device that a training step requests for a convolution."""
    step.training_step(config)
    return next(op.device for op in tf.get_default_graph().get_operations() if op.type == 'Conv2D')


def chosen_layout(config: Config, patch: Any) -> int:
    """Whether TensorFlow may change the layout of the graph: 0, its default, or 2, off."""
    return make_estimator(config).config.session_config.graph_options.rewrite_options.layout_optimizer


def tpu_config(name: str) -> Callable[..., Any]:
    """A value of the estimator's TPUConfig."""
    return lambda config, patch: getattr(make_estimator(config).config.tpu_config, name)


def batch_size(name: str) -> Callable[..., Any]:
    """A batch size of the estimator."""
    return lambda config, patch: getattr(make_estimator(config)._ctx, f'_{name}_batch_size')


def on_tpu(config: Config, **changes: Any) -> Any:
    """The estimator of the same run on a TPU. Creating it does not contact the TPU."""
    folders = {'data_dir': 'gs://bucket/data', 'model_dir': 'gs://bucket/run'}
    changes = {'use_tpu': True, 'master': config.master or 'grpc://worker:8470', **folders, **changes}
    return make_estimator(dataclasses.replace(config, **changes))


def uses_tpu(config: Config, patch: Any) -> bool:
    return on_tpu(config, use_tpu=config.use_tpu)._ctx._use_tpu


def address(config: Config, patch: Any) -> str:
    return on_tpu(config).config.master


def cores(config: Config, patch: Any) -> int:
    return on_tpu(config).config.tpu_config.num_shards


def cluster(config: Config, patch: Any) -> List[Any]:
    """The name, zone and project in the lookup of the TPU's address; the response is made up."""
    requested = cloud_tpus.found_at(['10.0.0.2'], patch)
    fallbacks = {'tpu': 'node', 'tpu_zone': 'near', 'gcp_project': 'ours'}
    named = on_tpu(config, master='', **{name: getattr(config, name) or value for name, value in fallbacks.items()})
    assert named.config.master == 'grpc://10.0.0.2:8470'
    return requested[:3]
