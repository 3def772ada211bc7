"""The tables of the comparison."""

import statistics
from typing import Any, Dict, List

from studies.report.sections import Section
from studies.versions.comparison import Numbers
from studies.versions.environments import VERSIONS

BATCHES, TRAINING, SERVING, ACCURACY, COST = 'batches', 'training', 'serving', 'accuracy', 'cost'


def section(name: str, numbers: Numbers, made: Dict[str, Any]) -> Section:
    """The table of one comparison.

    Args:
      name: of the comparison.
      numbers: as `comparison` returns them.
      made: `date`, `command` and `machine` of the comparison.
    """
    makers = {BATCHES: _batches, TRAINING: _training, SERVING: _serving, ACCURACY: _accuracy, COST: _cost}
    found = makers[name](numbers)
    note = f'{made["date"]}, {made["machine"]}: `{made["command"]}`'
    return Section(found.title, found.header, found.rows, notes=[*found.notes, note])


def _batches(numbers: Numbers) -> Section:
    rows = []
    for pipeline, arrays in numbers.items():
        differing = [
            f'{name}: {of["differing"]:,} of {of["values"]:,} values, by at most {of["greatest"]:.3g}'
            if of['greatest'] is not None
            else f'{name}: {of["differing"]:,} of {of["values"]:,}'
            for name, of in arrays.items()
            if of['differing']
        ]
        rows.append([pipeline, ', '.join(arrays), '; '.join(differing) or 'none'])
    return Section('First batches, bit by bit', ('pipeline', 'compared', 'differences'), rows, 3)


def _training(numbers: Numbers) -> Section:
    one, other = (numbers['loss_of_step_1'][version] for version in VERSIONS)
    rows = [
        [name, *(f'{of[measure]:.1e}' for measure in ('absolute', 'relative', 'of_the_change'))]
        for name, of in numbers['variables'].items()
    ]
    notes = [
        f'Loss of step 1: {one:.7f} and {other:.7f}, a relative difference of {abs(other / one - 1):.1e}.',
        *_served(numbers['served']),
    ]
    title = f'Weights and moving statistics after {numbers["steps"]} steps: differences'
    return Section(title, ('runs', 'greatest', 'relative to the variable', 'relative to the change'), rows, 1, notes)


def _served(numbers: Numbers) -> List[str]:
    return [
        f'SavedModel of {version}, served by both: same top-1 for {of["same_top_1"]} of {of["images"]} images; '
        f'probabilities within {of["greatest"]:.1e}.'
        for version, of in numbers.items()
    ]


def _serving(numbers: Numbers) -> Section:
    rows = [
        [version, f'{of["same_top_1"]} of {of["images"]}', f'{of["greatest"]:.1e}'] for version, of in numbers.items()
    ]
    header = ('exported by', 'same top-1', 'greatest difference of a probability')
    return Section('SavedModels of the trained digits, served by both versions', header, rows)


def _accuracy(numbers: Numbers) -> Section:
    rows = [[version, *(f'{value:.2f}' for value in [*of, statistics.mean(of)])] for version, of in _top_1(numbers)]
    seeds = len(rows[0]) - 2
    notes = [f'2.15 minus 1.15: {numbers["difference"]:+.2f} points.']
    if numbers['p'] is not None:
        notes = [
            f'2.15 minus 1.15: {numbers["difference"]:+.2f} points, 95 % interval {numbers["low"]:+.2f} to '
            f"{numbers['high']:+.2f}, p = {numbers['p']:.2f} (Student's test of {seeds} pairs)."
        ]
    header = ('TensorFlow', *(f'seed {seed + 1}' for seed in range(seeds)), 'mean')
    return Section(f'Digits: top-1 after {numbers["steps"]:,} steps, %', header, rows, notes=notes)


def _top_1(numbers: Numbers) -> Any:
    return numbers['top_1'].items()


def _cost(numbers: Numbers) -> Section:
    rows = []
    for name, of in numbers.items():
        cells = [
            f'{statistics.median(of[version]):.3g} ({min(of[version]):.3g}–{max(of[version]):.3g})'
            for version in VERSIONS
        ]
        rows.append([name, *cells, f'{of["ratio"]:.2f}'])
    return Section('CPU time: median (least–greatest)', ('measured', *VERSIONS, '2.15 / 1.15'), rows)
