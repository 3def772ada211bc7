"""Memory over the iterations of a published network, with activations kept and rebuilt.

The document's plot: RevNet-104 at 224 pixels on generated images, 100 iterations in batches of 128.
"""

import os
from typing import Any, Dict, Optional

from benchmarks.measurement import MeasurementError, memory_bytes
from console.errors import DONE, RETRY
from console.json_content import from_json
from console.screen import Screen
from inception_v3.config import ConfigError
from studies.report import drawing, sections
from studies.report.palette import sign_of
from studies.report.sections import Section
from studies.revnet_memory.measurement import (
    AS_PUBLISHED,
    PUBLISHED,
    OutOfMemoryError,
    Training,
    memory_of_iterations,
)

JSON_FILE, MARKDOWN_FILE, FIGURE_FILE = (f'published.{extension}' for extension in ('json', 'md', 'png'))

# The batch of the document's plot.
LARGEST_BATCH = 128
# The part of the available memory that a process may use, and bytes of it for TensorFlow, graph and weights.
_SHARE, _OVERHEAD = 0.9, 2 * 10**9


def estimated_batch(kept_bytes: int, available: int) -> int:
    """The largest power of two, at most 128, whose kept activations fit the memory by estimate; at least 1.

    Args:
      kept_bytes: bytes per image that ordinary training keeps from the forward to the backward pass.
      available: bytes of available memory.
    """
    batch = LARGEST_BATCH
    while batch > 1 and _OVERHEAD + kept_bytes * batch > _SHARE * available:
        batch //= 2
    return batch


def run(network: str, size: int, batch_size: Optional[int], iterations: int, out: str, screen: Screen) -> int:
    """Measures both trainings, and writes JSON, Markdown and a figure; returns the exit code.

    Args:
      network: the network.
      size: height and width of the images, in pixels.
      batch_size: images in a step; None: the largest that fits the memory of this machine, at most 128. The estimate
        is halved until the ordinary training fits.
      iterations: iterations of each training.
      out: folder for the files. The curves that it has already are kept.
      screen: shows the progress.
    """
    from inception_v3.networks.registry import sizes_of
    from studies.files import write_json

    settings = {'network': network, 'size': size, 'batch_size': batch_size, 'iterations': iterations}
    path = os.path.join(out, JSON_FILE)
    found = _earlier(path, settings)
    available = found.setdefault('available_bytes', memory_bytes()['MemAvailable'])
    kept = 4 * sizes_of(network, size, size, PUBLISHED[network][1], {'rebuild_activations': False}).kept
    found.setdefault('batch', batch_size or estimated_batch(kept, available))
    try:
        for name in ('plain', 'reversible'):
            while name not in found['curves']:
                training = Training(network, AS_PUBLISHED, found['batch'], size, name == 'reversible')
                screen.update(f'{training}: {iterations} iterations')
                try:
                    curve = memory_of_iterations(training, iterations, int(_SHARE * available))
                except OutOfMemoryError:
                    if batch_size or training.is_reversible or found['batch'] == 1:
                        raise
                    found['batch'] //= 2
                else:
                    found['curves'][name] = curve
                    write_json(path, found)
    except MeasurementError as error:
        screen.clear()
        print(f'failed: {error}; the same command resumes')
        return RETRY
    screen.clear()
    _report(found, out)
    return DONE


def _earlier(path: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    """The results in a file; without curves if there is none."""
    from data.files import text_of

    text = text_of(path)
    if not text:
        return {'settings': settings, 'curves': {}}
    try:
        found = from_json(text, lambda values: {**values, 'curves': dict(values['curves'])})
        before = found['settings']
    except (ValueError, KeyError):
        raise ConfigError(f'{path}: this study did not write the file. Name another folder with --out.')
    if before != settings:
        raise ConfigError(f'{path}: is of {before}, and the command of {settings}. Name another folder with --out.')
    return found


def _report(found: Dict[str, Any], out: str) -> None:
    """Prints the memory and time of both trainings, and writes them with the figure."""
    from data.files import write_whole

    rows = []
    for name, curve in found['curves'].items():
        peaks, seconds = curve['peak_mb'], sorted(curve['seconds'][1:] or curve['seconds'])
        memory = (f'{value:,.0f}' for value in (max(peaks), min(peaks), max(curve['held_mb'])))
        rows.append([name, *memory, f'{seconds[len(seconds) // 2]:.1f}', str(len(peaks))])
    header = ('training', 'largest peak, MB', 'smallest peak', 'largest held between', 's, median', 'iterations')
    table = Section(_title(found), header, rows, 1)
    sections.show([table])
    write_whole(os.path.join(out, FIGURE_FILE), figure(found))
    picture = f'![peak memory of each iteration]({FIGURE_FILE})'
    parts = ['# Memory over iterations', picture, *sections.markdown([table])]
    write_whole(os.path.join(out, MARKDOWN_FILE), '\n\n'.join(parts) + '\n')
    print(f'\nwritten: {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} in {out}')


def _title(found: Dict[str, Any]) -> str:
    settings = found['settings']
    chosen = 'as given' if settings['batch_size'] else f'the largest that fits, up to {LARGEST_BATCH}'
    return f'{settings["network"]} at {settings["size"]} pixels, batches of {found["batch"]} ({chosen})'


def figure(found: Dict[str, Any]) -> bytes:
    """Peak memory against iteration, as a PNG file: a curve for each training."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8.0, 4.8), dpi=130, facecolor='white')
    axes = drawn.subplots()
    for index, (name, curve) in enumerate(found['curves'].items()):
        peaks, sign = curve['peak_mb'], sign_of(index)
        mark = sign.matplotlib_mark if len(peaks) <= 20 else None
        axes.plot(range(1, len(peaks) + 1), peaks, color=sign.light, marker=mark, label=name)
    axes.set_title(_title(found), fontsize=10)
    highest = max(max(curve['peak_mb']) for curve in found['curves'].values())
    axes.set(xlabel='iteration', ylabel='peak memory of the process, MB', ylim=(0, 1.1 * highest))
    axes.xaxis.get_major_locator().set_params(integer=True)
    drawing.lay_out(axes)
    axes.legend(frameon=False, loc='lower right')
    drawn.tight_layout()
    return drawing.png(drawn)
