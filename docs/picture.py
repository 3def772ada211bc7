"""Draws docs/digits.png: the terminal of a digits run, its loss, and its accuracy.

./run python -m docs.picture

It runs the digits preset with --seed=1, which takes minutes.
"""

import json
import os
import pathlib
import pty
import re
import sys
import tempfile
import textwrap
from typing import List, Sequence, Tuple

from matplotlib.figure import Figure

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PICTURE = _ROOT / 'docs' / 'digits.png'
_COMMAND = ['-m', 'inception_v3.main', '--preset=digits', '--seed=1']
_COLUMNS = 88
# In points, the font and the distance of lines; in inches, the terminal's margins and the height of the plots.
_FONT, _LINE, _MARGIN, _PLOTS = 11.3, 14.2, 0.4, 2.5
# The live line of this step is shown.
_SHOWN_STEP = 600


def record(folder: pathlib.Path) -> str:
    """Runs the digits preset in a folder, and returns what it sends to its terminal."""
    content = []

    def read(terminal: int) -> bytes:
        content.append(os.read(terminal, 1 << 16))
        return content[-1]

    os.environ.update(PYTHONPATH=str(_ROOT), COLUMNS=str(_COLUMNS))
    os.chdir(folder)
    status = pty.spawn([sys.executable, *_COMMAND], read)
    recording = b''.join(content).decode('utf-8')
    if status:
        raise SystemExit(f'{recording}\nerror: the run failed')
    return recording


def draw(recording: str, evaluations: Sequence[Tuple[int, float]]) -> Figure:
    """Draws the picture of what the run sent to its terminal, and of step and top-1, in [0, 1], of its evaluations."""
    # The lines that stay; and the states of the live line: step, loss, number of lines above, text.
    lines: List[str] = []
    live: List[Tuple[int, float, int, str]] = []
    for text, end in re.findall('(.*?)(\r\x1b\\[K|\r?\n)', recording):
        match = re.search(r'\bstep ([\d,]+) of [\d,]+, loss ([\d.]+)', text)
        if end.endswith('\n'):
            lines.append(text)
        elif match:
            live.append((int(match[1].replace(',', '')), float(match[2]), len(lines), text))
    _, _, above, shown = min(live, key=lambda entry: abs(entry[0] - _SHOWN_STEP))
    losses = [entry[:2] for entry in live]
    screen_lines = ['$ ./run python ' + ' '.join(_COMMAND), *lines[:above], shown, '', '…', '', *lines[above:]]
    text = '\n'.join(textwrap.fill(line, _COLUMNS, subsequent_indent='         ') for line in screen_lines)

    # The lines of the terminal have the size of the text beside a picture of 880 pixels, the width of a page.
    of_screen = _MARGIN + _LINE * (text.count('\n') + 1) / 72
    height = of_screen + _PLOTS
    figure = Figure(figsize=(8.8, height), dpi=100)
    screen = figure.add_axes([0, _PLOTS / height, 1, of_screen / height])
    screen.set_facecolor('#1c1f26')
    screen.set_xticks([])
    screen.set_yticks([])
    # A line of this font is 0.969 of its size high.
    middle = {'va': 'center', 'linespacing': _LINE / (0.969 * _FONT), 'fontsize': _FONT}
    screen.text(0.015, 0.5, text, color='#e6e6e6', family='monospace', **middle)
    bottom, of_plot = 0.45 / height, (_PLOTS - 0.8) / height
    loss_axes = figure.add_axes([0.06, bottom, 0.41, of_plot])
    loss_axes.plot(*zip(*losses), color='#0072b2', linewidth=0.8)
    loss_axes.set_title('training loss', fontsize=9, loc='left')
    accuracy_axes = figure.add_axes([0.56, bottom, 0.41, of_plot])
    steps, accuracies = zip(*evaluations)
    accuracy_axes.plot(steps, [100 * accuracy for accuracy in accuracies], 'o-', color='#d55e00')
    for step, accuracy in evaluations:
        label = f'{accuracy:.1%}'
        accuracy_axes.annotate(
            label, (step, 100 * accuracy), (0, 7), textcoords='offset points', ha='center', fontsize=8
        )
    accuracy_axes.set_title('top-1 of all validation images, %', fontsize=9, loc='left')
    accuracy_axes.set_ylim(90, 100)
    for axes in (loss_axes, accuracy_axes):
        axes.set_xlabel('step', fontsize=8)
        axes.set_xlim(0, 1.08 * max(steps))
        axes.tick_params(labelsize=8)
        axes.spines[['top', 'right']].set_visible(False)
    figure.savefig(_PICTURE, pil_kwargs={'optimize': True})
    return figure


def main() -> None:
    """Makes the picture."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        recording = record(folder)
        results = (folder / 'runs' / 'digits' / 'results.jsonl').read_text().splitlines()
        draw(recording, [(result['step'], result['top_1']) for result in map(json.loads, results)])
    print(f'{_PICTURE}  {_PICTURE.stat().st_size / 1000:.0f} kB')


if __name__ == '__main__':
    main()
