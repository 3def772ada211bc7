"""Trains a short RevNet in all modes of `examples.eager_revnet`, two steps each; prints whether weights are equal."""

import functools
import json
import os
import sys
from typing import Dict, List

import numpy as np

from console.tensorflow_versions import tf
from examples.eager_revnet import Trainer, batch
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.revnet import REVNET_38, revnet


def weights_of(trainer: Trainer) -> Dict[str, np.ndarray]:
    # Each trainer of a process has a name of its own.
    return {variable.name.partition('/')[2]: variable.numpy() for variable in trainer.net.variables}


def main(folder: str) -> None:
    tf.enable_eager_execution()
    short = functools.partial(revnet, REVNET_38._replace(units=(2, 1, 1)))
    NETWORKS['revnet38'] = NETWORKS['revnet38']._replace(build=short)
    found: List[Dict[str, np.ndarray]] = []
    for name, defun, rebuild in (('defun', True, True), ('operations', False, True), ('stored', True, False)):
        tf.set_random_seed(1)
        path = os.path.join(folder, name)
        trainer = Trainer(path, 'revnet38', defun, rebuild)
        trainer.train(2, 4, 1)
        found.append(weights_of(trainer))
    tf.set_random_seed(1)
    # Another run to step 1, from whose checkpoint a new trainer goes on.
    Trainer(os.path.join(folder, 'again'), 'revnet38', True, True).train(1, 4, 1)
    resumed = Trainer(os.path.join(folder, 'again'), 'revnet38', True, True)
    step = int(resumed.step.numpy())
    resumed.train(2, 4, 1)
    found.append(weights_of(resumed))
    images, labels = batch(0, 4)
    print(
        json.dumps(
            {
                'resumed at': step,
                'variables': [len(each) for each in found],
                'different': [
                    [name for name in found[0] if not np.array_equal(found[0][name], each[name])] for each in found[1:]
                ],
                'accuracy': resumed.accuracy(images, labels),
            }
        )
    )


if __name__ == '__main__':
    main(sys.argv[1])
