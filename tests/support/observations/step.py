"""Observations of the graph of a step: its variables, operations and loss, and the values after a step."""

import dataclasses
import functools
from typing import Any, Dict, List, Set, Tuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn, total_loss
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet
from tests.support.graphs import evaluate
from tests.support.runs import one_layer_network

MODES = tf.estimator.ModeKeys


def training_step(config: Config, size: int = 75) -> Any:
    labels = tf.zeros([4], tf.int32)
    return inception_model_fn(tf.zeros([4, size, size, 3]), labels, MODES.TRAIN, {'config': config})


def variable_kinds(config: Config, patch: Any) -> Set[str]:
    """The kinds of variables in a training step besides those of the network."""
    training_step(config)
    kinds = {variable.op.name.rpartition('/')[2] for variable in tf.global_variables()}
    return kinds - {'weights', 'beta', 'biases', 'moving_mean', 'moving_variance', 'global_step'}


def variables() -> Dict[str, tf.Variable]:
    return {variable.op.name: variable for variable in tf.global_variables()}


def classes(config: Config, patch: Any) -> List[int]:
    training_step(config)
    return variables()['Logits/biases'].shape.as_list()


def update_ops(config: Config, patch: Any) -> int:
    training_step(config)
    return len(tf.get_collection(tf.GraphKeys.UPDATE_OPS))


def has_host_call(config: Config, patch: Any) -> bool:
    return training_step(config).host_call is not None


def prints(config: Config, patch: Any) -> int:
    images, labels = tf.zeros([4, 75, 75, 3]), tf.zeros([4], tf.int32)
    inception_model_fn(images, labels, MODES.EVAL, {'config': config}).as_estimator_spec()
    graph = tf.get_default_graph()
    return len([operation for operation in graph.get_operations() if operation.type == 'PrintV2'])


def cross_entropies(config: Config, patch: Any) -> int:
    """The number of classifiers in the loss, for a network with an optional auxiliary head."""

    def build(images: tf.Tensor, num_classes: int, is_training: bool, auxiliary_head: bool, **options: Any) -> Any:
        logits, _ = one_layer_network(images, num_classes, is_training, **options)
        return logits, logits if auxiliary_head else None

    patch.setitem(NETWORKS, 'inception_v3', NETWORKS['inception_v3']._replace(build=build))
    training_step(dataclasses.replace(config, height=107, width=107), size=107)
    return len(tf.losses.get_losses())


def loss(config: Config, patch: Any) -> float:
    """The loss for the logits 1 (the right class) and 0, and a single weight of 2."""
    tf.add_to_collection(tf.GraphKeys.WEIGHTS, tf.constant([2.0]))
    value = evaluate(total_loss(tf.constant([[1.0, 0.0]]), None, tf.constant([0]), config))
    return round(float(value), 4)


def trained(config: Config, *names: str) -> List[Tuple[np.ndarray, np.ndarray]]:
    """The values of variables before and after a step on black images."""
    spec = training_step(config)
    found = [variables()[name] for name in names]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(found)
        session.run(spec.train_op)
        return list(zip(before, session.run(found)))


def kept_of_the_variance(config: Config, patch: Any) -> float:
    """The ratio of the moving variance after a step to that before it; the batch's variance is 0."""
    ((before, after),) = trained(config, 'Layer/BatchNorm/moving_variance')
    return round(float((after / before)[0]), 4)


def kept_of_the_average(config: Config, patch: Any) -> float:
    """The decay of a weight's moving average in the first step; the average starts at the weight's initial value."""
    name = 'Logits/biases'
    (initial, weight), (_, average) = trained(config, name, f'{name}/ExponentialMovingAverage')
    return round(float(((average - weight) / (initial - weight))[0]), 2)


def initial_weights(config: Config, patch: Any) -> float:
    """The sum of the initial weights of a layer."""
    training_step(config)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return float(session.run(variables()['Layer/weights']).sum())


def repeats_itself(config: Config, patch: Any) -> bool:
    found = set()
    for _ in range(2):
        with tf.Graph().as_default():
            found.add(initial_weights(config, patch))
    return len(found) == 1


def sums_over_cores(config: Config, patch: Any) -> List[List[List[int]]]:
    """The groups of cores over which the batch normalization of a training step sums."""
    training_step(config)
    return [
        tf.make_ndarray(operation.inputs[1].op.get_attr('value')).tolist()
        for operation in tf.get_default_graph().get_operations()
        if operation.type == 'CrossReplicaSum' and 'BatchNorm' in operation.name and 'gradients' not in operation.name
    ]


def scopes(config: Config, patch: Any) -> Set[str]:
    """The outer scopes of the network's variables."""
    images = tf.zeros([1, config.height, config.width, 3])
    inception_model_fn(images, None, MODES.PREDICT, {'config': config})
    return {name.partition('/')[0] for name in variables()}


def channels(config: Config, patch: Any) -> int:
    """The channels of the first layer of a small RevNet."""
    scopes(dataclasses.replace(config, network='revnet38'), patch)
    return int(variables()['RevNet/stem/weights'].shape[-1])


def convolutions(config: Config, patch: Any) -> int:
    """The number of Conv2D operations in a RevNet's training step, without the convolutions of gradients."""
    small = REVNET_38._replace(units=(2, 1, 1))
    patch.setitem(NETWORKS, 'revnet38', NETWORKS['revnet38']._replace(build=functools.partial(revnet, small)))
    training_step(dataclasses.replace(config, network='revnet38', height=32, width=32), size=32)
    return len([op for op in tf.get_default_graph().get_operations() if op.type == 'Conv2D'])


def last_scale(config: Config, patch: Any) -> float:
    """The initial batch normalization scale after the last convolution of ResNet-50's first block."""
    scopes(dataclasses.replace(config, height=32, width=32), patch)
    # Its initializer alone: those of all weights of the network take seconds.
    with tf.Session() as session:
        return float(session.run(variables()['ResNet50/stage_1/block_1/conv_3/BatchNorm/gamma'].initial_value)[0])
