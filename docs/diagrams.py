"""Draws docs/diagrams/NAME.svg from the program's own functions: momentum, phases of the input, timescales, a step.

./run python -m docs.diagrams
"""

import pathlib
from typing import Dict, List, Tuple

from compat import tf
from docs.network_diagrams import STYLE, document
from inception_v3.config import Config
from inception_v3.input_pipeline import _GROUP_RECORDS, BATCHES_AHEAD
from inception_v3.optimizers import MOMENTUM, make_optimizer
from inception_v3.run.batch_norm_advice import ONE_DEVICE_DECAY, decay_for
from tools.benchmarks.balance import balance

FOLDER = pathlib.Path(__file__).with_name('diagrams')
_STYLE = STYLE + (
    'path{stroke-width:2}.p{stroke:#0072b2}.o{stroke:#d55e00}.d{stroke-dasharray:4 4}'
    '.a{marker-end:url(#arrow)}.h{fill:context-stroke;stroke:none}.e{fill:#d55e00;stroke:none}circle{fill:#8a939d}'
    'ellipse{fill:none;stroke:#8a939d;opacity:.5}.m{text-anchor:middle}.w{fill:#fff}'
    '@media(prefers-color-scheme:dark){.p{stroke:#56b4e9}.o{stroke:#e69f00}.e{fill:#e69f00}.w{fill:#1b1f24}}'
)
# The loss x² / 2 + CURVATURE y² / 2 shows the difference between the optimizers: it is narrow in y.
CURVATURE, START, RATE, STEPS = 6.0, (-6.0, 1.6), 0.07, 6
# The step of momentum of which the parts are drawn, counted from 0.
_PART_STEP = 3
Points = List[Tuple[float, float]]


def paths() -> Dict[str, Points]:
    """The weights (x, y) of each optimizer of the program, at the start and after each step."""
    found: Dict[str, Points] = {}
    for name in ('sgd', 'momentum'):
        with tf.Graph().as_default(), tf.Session() as session:
            weights = tf.get_variable('weights', initializer=list(START), use_resource=True)
            optimizer = make_optimizer(RATE, Config(use_tpu=False, optimizer=name))
            step = optimizer.apply_gradients([(weights * [1.0, CURVATURE], weights)])
            session.run(tf.global_variables_initializer())
            found[name] = [START]
            for _ in range(STEPS):
                session.run(step)
                x, y = session.run(weights).tolist()
                found[name].append((x, y))
    return found


def momentum() -> str:
    """Paths of the optimizers down a narrow valley, and one update of momentum as the sum of its two parts."""
    found = paths()
    before, now, after = found['momentum'][_PART_STEP - 1 : _PART_STEP + 2]
    kept = now[0] + MOMENTUM * (now[0] - before[0]), now[1] + MOMENTUM * (now[1] - before[1])
    gradient = now[0] - RATE * now[0], now[1] - RATE * CURVATURE * now[1]
    lines = [
        f'<ellipse cx="{_x(0)}" cy="{_y(0)}" rx="{_SCALE * size:.0f}" ry="{_SCALE * size / CURVATURE**0.5:.0f}"/>'
        for size in (2, 4)
    ]
    for name, points in found.items():
        lines.append(_path(points, 'd' if name == 'sgd' else ''))
        lines += [f'<circle cx="{_x(x)}" cy="{_y(y)}" r="3"/>' for x, y in points]
        lines.append(f'<text x="{_x(points[-1][0]) + 8}" y="{_y(points[-1][1]) - 8}">{name}</text>')
    lines += [_path([gradient, after], 'd'), _path([kept, after], 'd')]
    lines += [_path([now, gradient], 'p a'), _path([now, kept], 'o a'), _path([now, after], 'a')]
    lines += [
        f'<text x="{_x(gradient[0]) + 10}" y="{_y(gradient[1]) - 4}">−rate × gradient</text>',
        f'<text x="{_x(kept[0]) + 10}" y="{_y(kept[1]) + 14}">{MOMENTUM:g} × the update before</text>',
        f'<text x="{_x(after[0]) + 10}" y="{_y(after[1]) + 14}">the update, their sum</text>',
    ]
    return _svg('Momentum: each update has a part of the one before', 376, lines)


_SCALE = 85


def _x(value: float) -> int:
    return round(640 + _SCALE * value)


def _y(value: float) -> int:
    return round(200 - _SCALE * value)


def _path(points: Points, kind: str) -> str:
    return f'<path class="{kind}" d="M {" L ".join(f"{_x(x)} {_y(y)}" for x, y in points)}"/>'


def _svg(title: str, height: int, lines: List[str]) -> str:
    arrow = (
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" class="h"/></marker>'
    )
    return document(title, height, _STYLE, [arrow, f'<text class="t" x="10" y="24">{title}</text>', *lines])


def phases() -> str:
    """The three phases of the input pipeline with the documented defaults."""
    config = Config()
    columns = {
        'storage': [
            'list the files',
            f'shuffle {config.initial_shuffle_buffer_size:,} of them',
            f'read {config.num_files_infeed} at a time',
            f'shuffle {config.followup_shuffle_buffer_size:,} records',
        ],
        'preprocessing': [
            f'parse and draw {_GROUP_RECORDS} records',
            'decode the crop',
            f'resize to {config.height} × {config.width}',
            'flip, distort the colour',
            f'{config.num_parallel_calls} images at a time',
        ],
        'transfer': ['batch', 'batch last, for a TPU', f'prefetch {BATCHES_AHEAD} batches'],
    }
    lines = []
    for column, (phase, steps) in enumerate(columns.items()):
        left = 10 + 240 * column
        lines.append(f'<rect x="{left}" y="44" width="190" height="170" rx="6"/>')
        lines.append(f'<text class="m" style="font-weight:600" x="{left + 95}" y="66">{phase}</text>')
        lines += [
            f'<text class="m" x="{left + 95}" y="{94 + 26 * row}">{step}</text>' for row, step in enumerate(steps)
        ]
    for right, what in ((205, 'records'), (445, 'images')):
        lines.append(
            f'<path class="a" d="M {right} 129 h 40"/><text class="f m" x="{right + 20}" y="119">{what}</text>'
        )
    return _svg('The three phases of the input pipeline', 224, lines)


# The step of the guide's sample trace, and the CPU time of an image in docs/measurements.md (training, machine C).
_STEP_MS, _CPU_MS, _IMAGES, _BATCHES = 815, 2.08, 1024, 6


def timescale(cores: int) -> Tuple[List[float], List[float]]:
    """When a host with some cores begins to prepare each batch, and when its device begins each step, in ms."""
    host_ms = balance(_STEP_MS, _IMAGES, _CPU_MS, cores, 1)['host_ms']
    host: List[float] = []
    device: List[float] = []
    for batch in range(_BATCHES):
        # A place for the batch is free when the device has taken an earlier one.
        free = device[batch - BATCHES_AHEAD - 1] if batch > BATCHES_AHEAD else 0
        host.append(max(free, host[-1] + host_ms if host else 0))
        device.append(max(host[-1] + host_ms, device[-1] + _STEP_MS if device else 0))
    return host, device


def timescales() -> str:
    """Host and device over time, where the host is the slower one and where the device is."""
    lines, millisecond = [], 640 / (timescale(2)[1][-1] + _STEP_MS)
    for top, cores in ((44, 2), (164, 8)):
        found = balance(_STEP_MS, _IMAGES, _CPU_MS, cores, 1)
        slower = 'the device waits for the host' if found['host_bound'] else 'the host waits for the device'
        lines.append(
            f'<text x="10" y="{top + 10}">{cores} cores prepare a batch in {found["host_ms"]:,.0f} ms, '
            f'and a step takes {_STEP_MS} ms: {slower}</text>'
        )
        for row, (kind, name, begins) in enumerate(zip('be', ('host', 'device'), timescale(cores))):
            y, length = top + 24 + 34 * row, found['step_ms' if row else 'host_ms'] * millisecond
            lines.append(f'<text x="10" y="{y + 17}">{name}</text>')
            for batch, begin in enumerate(begins, 1):
                x = 64 + begin * millisecond
                lines.append(f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{length - 2:.0f}" height="24"/>')
                lines.append(f'<text class="w m" x="{x + length / 2:.0f}" y="{y + 17}">{batch}</text>')
    return _svg('Batches of an input pipeline and steps of a device', 274, lines)


# Replicas of the guide's GPU job, which is also the number of cores of its TPU, and steps that are drawn.
_REPLICAS, _UPDATES = 8, 3


def moved(decay: float, updates: int) -> List[float]:
    """A moving statistic from 0, before and after each of some updates by a batch with the value 1."""
    values = [0.0]
    for _ in range(updates):
        values.append(decay * values[-1] + (1 - decay) * 1.0)
    return values


def updates() -> str:
    """Eight sequential updates of a moving statistic in a GPU job, within one update of a TPU."""
    rows = (
        ('o', _REPLICAS, ONE_DEVICE_DECAY, f'GPU job: {_REPLICAS} updates per step, one after the other'),
        ('p', 1, decay_for(_REPLICAS), "TPU: one update per step, by the first core's batch"),
    )
    step, height = 190, 150 / moved(decay_for(_REPLICAS), _UPDATES)[-1]
    lines = []
    for number in range(1, _UPDATES + 1):
        x = 60 + number * step
        lines.append(f'<path class="d" d="M {x} 130 V 250"/><text class="f m" x="{x}" y="268">step {number}</text>')
    for row, (kind, per_step, decay, label) in enumerate(rows):
        points = ['M 60 220']
        for number, value in enumerate(moved(decay, _UPDATES * per_step)[1:], 1):
            points.append(f'H {60 + number * step / per_step:.0f} V {220 - height * value:.1f}')
        lines.append(f'<path class="{kind}" d="{" ".join(points)}"/>')
        y = 70 + 36 * row
        lines.append(f'<path class="{kind}" d="M 66 {y - 4} h 24"/><text x="98" y="{y}">{label}</text>')
        lines.append(f'<text class="f" x="98" y="{y + 16}">decay {decay:.4f} per update</text>')
    lines.append('<text class="f" x="10" y="42">A moving statistic, if all batches have the same value</text>')
    return _svg('Eight updates of a GPU job within one of a TPU', 280, lines)


def training_loop() -> str:
    """A step of training on a host and a device, from a record to the weights."""
    boxes = (
        ('1', 'host (CPU)', ('read records,', 'decode, distort,', 'batch')),
        ('2a', 'forward', ('activations', 'and logits')),
        ('2b', 'loss', ('cross-entropy,', 'auxiliary head,', 'weight decay')),
        ('2c', 'backward', ('gradients,', 'averaged over', 'the cores')),
        ('3', 'update', ('weights, moving', 'statistics,', 'averages')),
    )
    lines = ['<text class="f" x="10" y="50">records, on a disk or in a bucket</text>']
    lines.append('<path class="a" d="M 74 58 V 78"/>')
    lines.append('<path d="M 152 72 V 64 H 706 V 72"/><text class="m" x="429" y="56">device (TPU, GPU)</text>')
    for column, (number, name, texts) in enumerate(boxes):
        left = 10 + 142 * column
        lines.append(f'<rect x="{left}" y="80" width="128" height="104" rx="6"/>')
        lines.append(f'<text class="m" style="font-weight:600" x="{left + 64}" y="102">{number} {name}</text>')
        lines += [
            f'<text class="m" x="{left + 64}" y="{126 + 20 * row}">{text}</text>' for row, text in enumerate(texts)
        ]
        if column:
            lines.append(f'<path class="a" d="M {left - 13} 132 h 12"/>')
    lines.append('<path class="a" d="M 642 186 V 212 H 74 V 187"/>')
    lines.append('<text class="f m" x="358" y="230">the next batch, which the host has prepared meanwhile</text>')
    return _svg('A step of training', 242, lines)


DIAGRAMS = {
    'momentum': momentum,
    'phases': phases,
    'timescale': timescales,
    'training_loop': training_loop,
    'updates': updates,
}


def main() -> None:
    """Writes all diagrams."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        path = FOLDER / f'{name}.svg'
        path.write_text(draw(), encoding='utf-8')
        print(path)


if __name__ == '__main__':
    main()
