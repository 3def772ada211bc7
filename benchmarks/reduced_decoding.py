"""Measures decoding of large photographs at a half and a quarter of their sides: python -m benchmarks.reduced_decoding.

Prepares generated photographs of 3,000 x 2,000 pixels for evaluation: as the program does, and from pixels that
libjpeg computes at a half or a quarter of each side. Prints the CPU time of both, the ratio, and the differences of the
prepared pixels. The program does not decode in this way: most of the time is for the Huffman codes, which are decoded
at any size.
"""

import json
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from benchmarks import arguments, photographs, program, tables
from benchmarks.comparison import spread
from benchmarks.measurement import cpu_seconds
from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3.config import Config, ConfigError
from inception_v3.input_pipeline import resize_for_eval
from inception_v3.settings.flags import CommandLine, OwnFlag
from preprocessing.decoding import image_shape
from preprocessing.inception_preprocessing import central_crop

HEIGHT, WIDTH = 2000, 3000
# The reduced pixels must not be enlarged: 4 x 437 is the height of the central crop.
_LARGEST = 437
REDUCTIONS = (2, 4)
_IMAGES = 5
_OWN_FLAGS: Dict[str, OwnFlag] = {name: arguments.MEASURING[name] for name in ('repeats', 'json')}


class Photographs(NamedTuple):
    """A kind of photographs: the standard deviation of their noise, in levels of 255, and the quality of the JPEG."""

    noise: float
    quality: int


KINDS = (Photographs(6, 92), Photographs(2, 92), Photographs(2, 75), Photographs(0, 75))


def reduced(encoded: tf.Tensor, reduction: int, height: int, width: int) -> tf.Tensor:
    """Prepares a JPEG like `resize_for_eval` with the Inception preprocessing, from reduced pixels.

    Pixel j of a reduced side is the mean of the pixels r * j to r * j + r - 1, whose centre is r * j + (r - 1) / 2. So
    the value at the position p of the photograph is that at (p - (r - 1) / 2) / r.

    Args:
      encoded: string scalar, a JPEG whose central crop is at least `reduction` times as large as the result.
      reduction: r: 2 or 4.
      height: height of the result, in pixels.
      width: width of the result, in pixels.

    Returns:
      float32 [height, width, 3], in [0, 255].
    """
    shape = image_shape(encoded)
    crop = central_crop(shape)
    begin = tf.cast(tf.stack([crop.top, crop.left]), tf.float32)
    step = tf.cast(tf.stack([crop.height, crop.width]), tf.float32) / [height, width]
    first = (begin - (reduction - 1) / 2) / reduction
    last = first + step * [height - 1.0, width - 1.0] / reduction
    low = tf.cast(tf.maximum(tf.floor(first), 0), tf.int32)
    window = tf.concat([low, tf.cast(tf.floor(last), tf.int32) + 2 - low], 0)
    pixels = tf.image.decode_and_crop_jpeg(encoded, window, channels=3, ratio=reduction)
    box = (tf.concat([first, last], 0) - tf.cast(tf.tile(low, [2]), tf.float32)) / tf.cast(
        tf.tile(window[2:] - 1, [2]), tf.float32
    )
    return tf.image.crop_and_resize(pixels[tf.newaxis], [tf.maximum(box, 0)], [0], [height, width])[0]


def measure(config: Config, repeats: int) -> List[Dict[str, Any]]:
    """Measures every kind of photographs; the ways to prepare a photograph take turns.

    Returns:
      A dict per kind and reduction: `cpu_ms` of the program and `reduced_cpu_ms`, an element per repeat; the
      `kilobytes` of a file; the `largest_difference` and `mean_difference` of prepared pixels, in levels of 255.
    """
    options = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    rows: List[Dict[str, Any]] = []
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        encoded = tf.placeholder(tf.string, [])
        ways = {1: resize_for_eval(encoded, config)}
        ways.update({each: reduced(encoded, each, config.height, config.width) for each in REDUCTIONS})
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
            for reduction in REDUCTIONS:
                differences = np.abs(prepared[reduction] - prepared[1])
                rows.append(
                    {
                        **kind._asdict(),
                        'kilobytes': sum(map(len, files)) / len(files) / 1000,
                        'reduction': reduction,
                        'cpu_ms': times[1],
                        'reduced_cpu_ms': times[reduction],
                        'largest_difference': float(differences.max()),
                        'mean_difference': float(differences.mean()),
                    }
                )
    return rows


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(
        argv, 'benchmarks.reduced_decoding', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform
    )


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    config = command_line.config
    if config.preprocessing != 'inception':
        raise ConfigError(f'--preprocessing={config.preprocessing}: this benchmark measures inception. Omit the flag.')
    for name in ('height', 'width'):
        if not 2 <= getattr(config, name) <= _LARGEST:
            raise ConfigError(f'--{name}={getattr(config, name)}: must be 2 to {_LARGEST} here.')
    screen.update('measuring')
    rows = measure(config, own['repeats'])
    screen.clear()
    if own['json']:
        print(json.dumps(rows))
        return 0
    tables.show(
        ['noise', 'quality', 'kB', 'side', 'CPU-ms', 'reduced', 'ratio', 'largest difference', 'mean'],
        [_texts(row) for row in rows],
        names=0,
    )
    return 0


def _texts(row: Dict[str, Any]) -> List[str]:
    """A row of the table; times and ratios are medians with their range."""
    ratios = [plain / reduced for plain, reduced in zip(row['cpu_ms'], row['reduced_cpu_ms'])]
    spreads = [spread(values) for values in (row['cpu_ms'], row['reduced_cpu_ms'], ratios)]
    texts = [f'{each.median:.2f} ({each.least:.2f}–{each.greatest:.2f})' for each in spreads]
    first = [f'{row["noise"]:g}', str(row['quality']), f'{row["kilobytes"]:,.0f}', f'1/{row["reduction"]}']
    return [*first, *texts, f'{row["largest_difference"]:.0f}', f'{row["mean_difference"]:.1f}']


if __name__ == '__main__':
    sys.exit(main(sys.argv))
