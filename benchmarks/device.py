"""Measures the work that --transfer=uint8 leaves to the device, on this CPU: python -m benchmarks.device [any flags].

Measures only the device's share of preprocessing: flip, colour and scaling, and on a TPU also the unpacking of words.
With --transfer=float, which is measured for comparison, the device has nothing to do.
"""

import dataclasses
import json
import statistics
import sys
from typing import Any, Dict, List, Sequence

from benchmarks import arguments, program, tables
from benchmarks.measurement import cpu_seconds
from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3 import device_images
from inception_v3.config import Config
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.input_pipeline import InputPipeline

_OWN_FLAGS: Dict[str, OwnFlag] = {name: arguments.MEASURING[name] for name in ('repeats', 'json')}
_BATCHES = 8
# Formats of the images that are sent to the device, with their flags.
_SENT: Dict[str, Dict[str, Any]] = {
    'floats': {'transfer': 'float', 'use_tpu': False},
    'bytes': {'transfer': 'uint8', 'use_tpu': False},
    'words, to a TPU': {'transfer': 'uint8', 'use_tpu': True, 'num_shards': 1},
}


def _measure(config: Config, batch_size: int) -> float:
    """CPU-ms per image for the preprocessing of a batch that is already on the device."""
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = InputPipeline(True, config)({'batch_size': batch_size})
        features, _ = tf.data.make_one_shot_iterator(dataset).get_next()
        batch = tf.nest.map_structure(
            lambda tensor: tf.get_local_variable(
                f'part_{tensor.op.name}_{tensor.value_index}', initializer=tensor, use_resource=True
            ),
            features,
        )
        session.run(tf.local_variables_initializer())
        on_device = tf.nest.map_structure(tf.identity, batch)
        finished = device_images.received(on_device, config.transpose_enabled, config).op
        session.run(finished)
        before = cpu_seconds()
        for _ in range(_BATCHES):
            session.run(finished)
        return 1000 * (cpu_seconds() - before) / (_BATCHES * batch_size)


def measure(config: Config, repeats: int) -> Dict[str, List[float]]:
    """CPU-ms per image by format, an element per repeat; each repeat measures every format."""
    batch_size = config.train_batch_size // config.num_shards
    fake = dataclasses.replace(config, use_data='fake')
    measured: Dict[str, List[float]] = {name: [] for name in _SENT}
    for _ in range(repeats):
        for name, flags in _SENT.items():
            measured[name].append(_measure(dataclasses.replace(fake, **flags), batch_size))
    return measured


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'benchmarks.device', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    screen.update('measuring')
    measured = measure(command_line.config, own['repeats'])
    screen.clear()
    if own['json']:
        print(json.dumps({'cpu_ms_per_image': measured}))
        return 0
    tables.show(
        ['sent', 'CPU-ms / image on the device'],
        [[name, f'{statistics.median(ms):.2f} ({min(ms):.2f}–{max(ms):.2f})'] for name, ms in measured.items()],
        names=1,
    )
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
