"""Measures decoding of large photographs at a half and a quarter of their sides: python -m benchmarks.reduced_decoding.

Prepares generated photographs of 3,000 x 2,000 pixels for evaluation: from all pixels, and from those that libjpeg
computes at a half or a quarter of each side, as --draft_decode does. Prints the CPU time of both, the ratio, and the
differences of the prepared pixels. With --model, it prepares them for the network of that run, and prints the
differences of the log-probabilities and the share of photographs with the same top-1 class, too.
"""

import dataclasses
import json
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from benchmarks import arguments, photographs, program, tables
from benchmarks.comparison import spread
from benchmarks.measurement import cpu_seconds
from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3 import infeed
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import trained_model
from inception_v3.predict.classifier import CheckpointClassifier
from inception_v3.settings.flags import CommandLine, OwnFlag
from preprocessing.decoding import image_shape
from preprocessing.draft import REDUCTIONS, decode_and_resize_reduced
from preprocessing.preprocessings import preprocessing_for
from preprocessing.resizing import resize_for_eval

HEIGHT, WIDTH = 2000, 3000
# The reduced pixels must not be enlarged: 4 x 437 is the height of the central crop.
_LARGEST = 437
_IMAGES = 5
_OWN_FLAGS: Dict[str, OwnFlag] = {
    **{name: arguments.MEASURING[name] for name in ('repeats', 'json')},
    'model': OwnFlag(str, '', 'model_dir of a run whose network to compare, too; its settings replace those below'),
}


class Photographs(NamedTuple):
    """A kind of photographs: the standard deviation of their noise, in levels of 255, and the quality of the JPEG."""

    noise: float
    quality: int


KINDS = (Photographs(6, 92), Photographs(2, 92), Photographs(2, 75), Photographs(0, 75))


def _reduced(encoded: tf.Tensor, reduction: int, config: Config) -> tf.Tensor:
    """As `resize_for_eval`, at 1/`reduction` of the sides."""
    preprocessing = preprocessing_for(config)
    shape = image_shape(encoded)
    return decode_and_resize_reduced(preprocessing, encoded, shape, preprocessing.crop(shape), reduction)


def measure(config: Config, repeats: int, network: Optional[CheckpointClassifier] = None) -> List[Dict[str, Any]]:
    """Measures every kind of photographs; the ways to prepare a photograph take turns.

    Args:
      config: of the preparation.
      repeats: measurements of each way.
      network: the network of a run with this configuration, to compare its outputs.

    Returns:
      A dict per kind and reduction: `cpu_ms` from all pixels and `reduced_cpu_ms`, an element per repeat; the
      `kilobytes` of a file; the `largest_difference` and `mean_difference` of prepared pixels, in levels of 255; with a
      network, `log_probability_difference`, the largest one, and `same_top_1`, a fraction of the photographs.
    """
    options = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    rows: List[Dict[str, Any]] = []
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        encoded = tf.placeholder(tf.string, [])
        ways = {1: resize_for_eval(encoded, config)}
        ways.update({each: _reduced(encoded, each, config) for each in REDUCTIONS})
        inputs = {way: infeed.as_evaluated(op, config) for way, op in ways.items()}
        for kind in KINDS:
            files = [photographs.large(HEIGHT, WIDTH, *kind, seed) for seed in range(_IMAGES)]
            prepared = {way: np.stack([session.run(op, {encoded: file}) for file in files]) for way, op in ways.items()}
            times: Dict[int, List[float]] = {way: [] for way in ways}
            for _ in range(repeats):
                for way, op in ways.items():
                    before = cpu_seconds()
                    for file in files:
                        session.run(op.op, {encoded: file})
                    times[way].append(1000 * (cpu_seconds() - before) / len(files))
            logs: Dict[int, np.ndarray] = {}
            if network:
                for way, op in inputs.items():
                    images = [session.run(op, {encoded: file}) for file in files]
                    logs[way] = np.log(np.stack(network.classify(images)))
            for reduction in REDUCTIONS:
                differences = np.abs(prepared[reduction] - prepared[1])
                row = {
                    **kind._asdict(),
                    'kilobytes': sum(map(len, files)) / len(files) / 1000,
                    'reduction': reduction,
                    'cpu_ms': times[1],
                    'reduced_cpu_ms': times[reduction],
                    'largest_difference': float(differences.max()),
                    'mean_difference': float(differences.mean()),
                }
                if logs:
                    row['log_probability_difference'] = float(np.abs(logs[reduction] - logs[1]).max())
                    row['same_top_1'] = float((logs[reduction].argmax(1) == logs[1].argmax(1)).mean())
                rows.append(row)
    return rows


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(
        argv, 'benchmarks.reduced_decoding', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform
    )


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    model = trained_model.find(own['model']) if own['model'] else None
    network = CheckpointClassifier(model) if model else None
    config = model.config if model else command_line.config
    for name in ('height', 'width'):
        if not 2 <= getattr(config, name) <= _LARGEST:
            raise ConfigError(f'--{name}={getattr(config, name)}: must be 2 to {_LARGEST} here.')
    screen.update('measuring')
    rows = measure(dataclasses.replace(config, draft_decode=False), own['repeats'], network)
    screen.clear()
    if own['json']:
        print(json.dumps(rows))
        return 0
    header = ['noise', 'quality', 'kB', 'side', 'CPU-ms', 'reduced', 'ratio', 'largest difference', 'mean']
    tables.show(header + (['log-probability', 'same top-1'] if network else []), [_texts(row) for row in rows], names=0)
    return 0


def _texts(row: Dict[str, Any]) -> List[str]:
    """A row of the table; times and ratios are medians with their range."""
    ratios = [plain / reduced for plain, reduced in zip(row['cpu_ms'], row['reduced_cpu_ms'])]
    spreads = [spread(values) for values in (row['cpu_ms'], row['reduced_cpu_ms'], ratios)]
    texts = [f'{each.median:.2f} ({each.least:.2f}–{each.greatest:.2f})' for each in spreads]
    first = [f'{row["noise"]:g}', str(row['quality']), f'{row["kilobytes"]:,.0f}', f'1/{row["reduction"]}']
    last = [f'{row["log_probability_difference"]:.3f}', f'{row["same_top_1"]:.0%}'] if 'same_top_1' in row else []
    return [*first, *texts, f'{row["largest_difference"]:.0f}', f'{row["mean_difference"]:.1f}', *last]


if __name__ == '__main__':
    sys.exit(main(sys.argv))
