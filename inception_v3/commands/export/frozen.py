"""A trained network for conversion: a graph from prepared images to logits, with the evaluated weights as constants."""

from typing import Dict, NamedTuple, Sequence

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.commands.export.description import INPUT, LOGITS, PROBABILITIES
from inception_v3.config import Config
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.trained_model import TrainedModel


class FrozenNetwork(NamedTuple):
    """A network in float32.

    Attributes:
      graph_def: from `images`, float32 [batch, height, width, 3], to `logits` and `probabilities`, float32 [batch,
        num_classes].
      variables: the values of all variables of the network, by name, as evaluated.
      model: the checkpoint.
      class_names: the name of each class; empty without a description of the data set.
    """

    graph_def: tf.GraphDef
    variables: Dict[str, np.ndarray]
    model: TrainedModel
    class_names: Sequence[str]

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.model.config


def build(config: Config) -> None:
    """Builds the network into the current graph, with its input and outputs named as in `description`."""
    images = tf.placeholder(tf.float32, [None, config.height, config.width, 3], INPUT)
    # A scope, because a network may have a layer with the name of an output.
    with tf.name_scope('network'):
        spec = inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
    probabilities = spec.predictions['probabilities']
    # The softmax takes the logits.
    tf.identity(probabilities.op.inputs[0], LOGITS)
    tf.identity(probabilities, PROBABILITIES)


def freeze(model: TrainedModel, class_names: Sequence[str]) -> FrozenNetwork:
    """Restores a checkpoint as it is evaluated, and replaces its variables by constants.

    Raises:
      CheckpointError: as `TrainedModel.restore`.
    """
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        build(model.config)
        model.restore(session)
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        values = session.run(variables)
        constants = tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [LOGITS, PROBABILITIES])
    return FrozenNetwork(constants, values, model, class_names)
