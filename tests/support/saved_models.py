"""Predictions of an exported SavedModel."""

from typing import Dict, List

import numpy as np

from compat import tf


def classify(saved_model: str, encoded: List[bytes]) -> Dict[str, np.ndarray]:
    """The outputs of a SavedModel for encoded images, by name."""
    with tf.Graph().as_default(), tf.Session() as session:
        meta_graph = tf.saved_model.load(session, ['serve'], saved_model)
        signature = meta_graph.signature_def['image_bytes']
        outputs = {name: tensor.name for name, tensor in signature.outputs.items()}
        return session.run(outputs, {signature.inputs['image_bytes'].name: encoded})
