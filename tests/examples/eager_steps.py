"""Trains in all modes of `examples.eager_revnet`, resumes a run, and prints whether the weights are equal."""

import json
import os
import sys
from typing import Dict

import numpy as np

from compat import tf
from examples import eager_revnet
from examples.eager_revnet import ARCHITECTURES, Trainer

STEPS = 4
# A short network: tracing its functions costs most.
ARCHITECTURES['revnet38'] = ARCHITECTURES['revnet38']._replace(units=(1, 2), depths=(16, 32))


def weights_of(trainer: Trainer) -> Dict[str, np.ndarray]:
    # Each model of a process has a name of its own.
    return {variable.name.partition('/')[2]: variable.numpy() for variable in trainer.model.variables}


def main(folder: str, data_dir: str) -> None:
    resumed_folder = os.path.join(folder, 'resumed')
    flags = [f'--folder={resumed_folder}', f'--data_dir={data_dir}', '--batch_size=4', '--steps_per_checkpoint=2']
    code = eager_revnet.main([*flags, '--steps=2'])
    # Other random weights than in the run, but the same order of the data set.
    tf.set_random_seed(2)
    resumed = Trainer(resumed_folder, 'revnet38', True, True)
    tf.set_random_seed(1)
    step = int(resumed.step.numpy())
    resumed.train(data_dir, STEPS, 4, 4)
    found = [weights_of(resumed)]
    for name, defun, rebuild in (('operations', False, True), ('stored', True, False)):
        tf.set_random_seed(1)
        trainer = Trainer(os.path.join(folder, name), 'revnet38', defun, rebuild)
        trainer.train(data_dir, STEPS, 4, 3)
        found.append(weights_of(trainer))
    rates = []
    for done in (40, 41, 61):
        resumed.step.assign(done)
        resumed.train(data_dir, done + 1, 4, 100)
        rates.append(float(resumed.learning_rate.numpy()))
    again = Trainer(resumed_folder, 'revnet38', True, True)
    different = [[name for name in found[0] if not np.array_equal(found[0][name], each[name])] for each in found[1:]]
    print(
        json.dumps(
            {
                'exit code': code,
                'resumed at': step,
                'variables': [len(each) for each in found],
                'different': different,
                'rates': rates,
                'restored rate': float(again.learning_rate.numpy()),
            }
        )
    )


if __name__ == '__main__':
    main(*sys.argv[1:])
