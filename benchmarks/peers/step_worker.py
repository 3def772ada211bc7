"""Measures training steps of Inception v3 in any of the environments: a script that starts without this program.

Only `ours` and `keras` import the program's packages; the environment of PyTorch lacks what they need. The argument is
a JSON file:

    peer: a name in PEERS.
    config: the configuration of a run as JSON, whose steps `ours` takes: a warm-up, then those that are measured.
    warm_up, steps: the numbers of those steps.
    size: height and width of the images; batch_size: images of a batch; classes: outputs of the network.

It prints, as the last line, a JSON object: step_ms and cpu_ms, each a list with the milliseconds of each measured step,
by the clock and of all threads' CPU time; parameters, the number of trained numbers; library, with its version.
"""

import json
import pathlib
import resource
import sys
import time
from typing import Any, Callable, Dict, Tuple

Spec = Dict[str, Any]
# A training step, the number of trained parameters, and the library with its version.
Training = Tuple[Callable[[], Any], int, str]

# As RMSProp's in the documented program. The learning rate does not change the work of a step; this one is low enough
# for random images.
_LEARNING_RATE, _DECAY, _MOMENTUM, _EPSILON = 1e-3, 0.9, 0.9, 1.0
# The weight of the auxiliary classifier's loss.
_AUXILIARY = 0.4


def _ours(spec: Spec) -> Dict[str, Any]:
    from benchmarks import training
    from console.tensorflow_versions import tf
    from inception_v3.config import Config

    found = training.measure_here(Config.from_json(spec['config']), training.REPEATED)
    return {
        'step_ms': found.step_ms,
        'cpu_ms': found.cpu_ms,
        'parameters': found.parameters,
        'library': f'TensorFlow {tf.__version__}',
    }


def _keras(spec: Spec) -> Training:
    import numpy as np

    from console.tensorflow_versions import tf

    model = tf.keras.applications.InceptionV3(weights=None, classes=spec['classes'], input_shape=(*spec['size'], 3))
    optimizer = tf.keras.optimizers.RMSprop(_LEARNING_RATE, rho=_DECAY, momentum=_MOMENTUM, epsilon=_EPSILON)
    model.compile(optimizer, loss='sparse_categorical_crossentropy')
    draw = np.random.RandomState(0)
    images = draw.uniform(-1, 1, [spec['batch_size'], *spec['size'], 3]).astype(np.float32)
    labels = draw.randint(spec['classes'], size=[spec['batch_size']])
    parameters = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    return lambda: model.train_on_batch(images, labels), parameters, f'TensorFlow {tf.__version__}'


def _torchvision(spec: Spec) -> Training:
    import torch
    import torchvision

    model = torchvision.models.inception_v3(num_classes=spec['classes'], aux_logits=True, init_weights=False)
    model.train()
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), _LEARNING_RATE, alpha=_DECAY, momentum=_MOMENTUM, eps=_EPSILON)
    images = torch.rand([spec['batch_size'], 3, *spec['size']]) * 2 - 1
    labels = torch.randint(spec['classes'], [spec['batch_size']])

    def step() -> float:
        optimizer.zero_grad()
        found = model(images)
        loss = loss_of(found.logits, labels) + _AUXILIARY * loss_of(found.aux_logits, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    parameters = sum(each.numel() for each in model.parameters())
    return step, parameters, f'torchvision {torchvision.__version__}, PyTorch {torch.__version__}'


PEERS: Dict[str, Callable[[Spec], Training]] = {'keras': _keras, 'torchvision': _torchvision}


def timed(step: Callable[[], Any], warm_up: int, steps: int) -> Dict[str, Any]:
    """Takes steps; `step_ms` and `cpu_ms` are described above."""
    for _ in range(warm_up):
        step()
    readings = [_reading()]
    for _ in range(steps):
        step()
        readings.append(_reading())
    return {
        name: [after[name] - before[name] for before, after in zip(readings, readings[1:])]
        for name in ('step_ms', 'cpu_ms')
    }


def _reading() -> Dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {'step_ms': 1000 * time.perf_counter(), 'cpu_ms': 1000 * (usage.ru_utime + usage.ru_stime)}


def main() -> None:
    """Does what the file of the first argument describes."""
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding='utf-8'))
    # The program's packages, of the same folder as this script.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
    if spec['peer'] == 'ours':
        found = _ours(spec)
    else:
        step, parameters, library = PEERS[spec['peer']](spec)
        found = {**timed(step, spec['warm_up'], spec['steps']), 'parameters': parameters, 'library': library}
    print(json.dumps(found))


if __name__ == '__main__':
    main()
