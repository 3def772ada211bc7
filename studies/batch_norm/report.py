"""The report of the study of batch normalization: text for a terminal, and a figure."""

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from studies.batch_norm.experiments import (
    ALPHA,
    MEAN_OF_EIGHT,
    ONE_IN_EIGHT,
    PUBLISHED,
    SEQUENTIAL,
    Comparison,
    Differences,
    Range,
    Results,
)
from studies.batch_norm.layer import AVERAGED, DECAY, GROUPS, LOCAL, REPLICAS, ROWS, SYNCHRONIZED
from studies.report import drawing, sections
from studies.report.sections import Section

_SHARE = ROWS // REPLICAS
_KINDS = ('training outputs', 'inference outputs', 'moving mean', 'moving variance')
_TITLE = f'Batch normalization of {ROWS} rows: {REPLICAS} replicas with {_SHARE} each, compared with one device'


def number(value: Optional[float]) -> str:
    """A number in the format of the published ones: 4 decimals, or 2 digits below 0.001; '-' for None."""
    if value is None:
        return '-'
    if value == 0 or abs(value) >= 1e-3:
        return f'{value:.4f}' if value else '0'
    mantissa, exponent = f'{value:.1e}'.split('e')
    return f'{mantissa}e{int(exponent)}'


def text(results: Results) -> str:
    """The report for a terminal: all tables with their notes."""
    equal, unequal = results.equal, results.unequal
    modes = [_row(mode, unequal.modes[mode]) for mode in (LOCAL, AVERAGED, SYNCHRONIZED)]
    # From groups of one replica to one group of all replicas.
    groups = [
        _row(f'{rows} rows, {mode}', found.modes[mode])
        for rows, found in (('equal', equal), ('unequal', unequal))
        for mode in (LOCAL, *GROUPS, SYNCHRONIZED)
    ]
    tables = [
        _published(equal),
        _readings(results),
        Section(
            '3. Unequal replicas: the rows of replica r have the mean r',
            ['', *_KINDS],
            [*modes, _same_weights('same weights', unequal.same_weights)],
        ),
        Section(
            "4. Groups of replicas that synchronize among themselves; the first group's statistics are kept",
            ['', *_KINDS],
            groups,
        ),
        _recovery(results),
        _decay(results),
    ]
    scope = f'Largest absolute differences over {results.settings.steps} training batches; decay {DECAY}.'
    return f'{_TITLE}.\n{scope}\n\n{sections.plain(tables)}'


def _row(label: str, differences: Differences) -> List[str]:
    return [label, *map(number, differences)]


def _same_weights(label: str, difference: float) -> List[str]:
    return [label, '-', number(difference), '-', '-']


def _published(equal: Comparison) -> Section:
    rows = [
        _row('published: per replica', PUBLISHED.per_replica),
        _row('  local', equal.modes[LOCAL]),
        _row('  averaged', equal.modes[AVERAGED]),
        _row('  local, biased', equal.without_bessel[LOCAL]),
        _row('  averaged, biased', equal.without_bessel[AVERAGED]),
        _row('published: synchronized', PUBLISHED.synchronized),
        _row('  synchronized', equal.modes[SYNCHRONIZED]),
        _same_weights('published: same weights', PUBLISHED.same_weights),
        _same_weights('  same weights', equal.same_weights),
        *([f'  device {device} alone', '-', '-', *map(number, own)] for device, own in enumerate(equal.own)),
        ['  mean of the eight', '-', '-', *map(number, equal.mean_of_own)],
    ]
    notes = (
        'biased: the moving variance without the correction n / (n - 1), which the published layer lacks for rows',
        '  (table 2). In the published outputs, each replica uses its own statistics: compare them with',
        '  "local, biased". The published moving statistics are means over the replicas: compare them with',
        '  "averaged, biased".',
        'device r alone: a device with the rows of replica r, and statistics of its own. The mean of the eight differs',
        f'  by {number(equal.mean_and_kept)} from what "averaged" keeps (published: {PUBLISHED.mean_and_kept}).',
    )
    return Section('1. The published experiment: standard-normal rows', ['', *_KINDS], rows, notes=notes)


def _readings(results: Results) -> Section:
    published = PUBLISHED.per_replica
    inference = published.inference_outputs
    compared = (published.training_outputs, inference, inference, published.moving_variance)
    rows = [
        [
            f'{reading.decay:g}, {"unbiased" if reading.bessel else "biased"}',
            *(_range(of_draws, figure) for of_draws, figure in zip(reading[2:], compared)),
        ]
        for reading in results.readings
    ]
    return Section(
        f'2. The experiment by its equations, other settings: minimum and maximum of {results.settings.draws} draws',
        ['decay, variance', 'training', 'inference, own', 'inference, averaged', 'moving variance, averaged'],
        [['published', *(number(figure) + ' ' for figure in compared)], *rows],
        notes=(f'* the range contains the published figure. The published decay is {DECAY}, the default of Keras.',),
    )


def _range(of_draws: Range, figure: float) -> str:
    mark = '*' if of_draws.least <= figure <= of_draws.greatest else ' '
    return f'{number(of_draws.least)} … {number(of_draws.greatest)}{mark}'


def _recovery(results: Results) -> Section:
    rows = []
    for kind, found in results.recovery.items():
        total = found.mean_of_variances + found.variance_of_means
        values = (found.mean_of_variances, found.variance_of_means, total, found.variance)
        rows.append([f'{kind} rows', *(f'{value:.6f}' for value in values), number(found.largest_error)])
    return Section(
        '5. Variance of the first batch, recovered from the moments of the replicas: means over the channels',
        ['', 'mean of variances', '+ variance of means', '= sum', 'one device', 'largest error'],
        rows,
        notes=('largest error: relative, over the channels; the precision of float32 is 1.2e-7.',),
    )


def _decay(results: Results) -> Section:
    decay, settings = results.decay, results.settings
    sequential, one, mean = (decay.noise[way].expected_deviation for way in (SEQUENTIAL, ONE_IN_EIGHT, MEAN_OF_EIGHT))
    rows = [
        [
            way,
            f'{decay.response[way][-1]:.6f}',
            number(decay.largest_error[way]),
            *(f'{value:.5f}' for value in noise),
        ]
        for way, noise in decay.noise.items()
    ]
    step = f'step {settings.response_steps}'
    notes = (
        'step, error: all rows are 1; the error is the largest difference from 1 - α^(8 · step), over all steps.',
        f'noisy: rows of mean 1 and variance 1, {settings.noise_steps} steps, {settings.noise_channels} channels.',
        'Memory and expected value are exactly the same, but the noise is not. Expected deviations relative to the',
        f'  sequential updates: {one / sequential:.2f} for one replica in eight, which sees an eighth of the rows, and',
        f'  {mean / sequential:.2f} for the mean of eight.',
    )
    return Section(
        f'6. Decay: α = {decay.alpha} in {REPLICAS} sequential updates, and β = α⁸ = {decay.beta:.7f} in one',
        ['moving mean, from 0', step, 'error', 'mean, noisy', 'expected', 'deviation', 'expected'],
        rows,
        notes=notes,
    )


# The figure. Colours of Okabe & Ito, which people with colour blindness can distinguish; marks differ as well.

_BLACK, _ORANGE, _BLUE, _GREEN, _VERMILION, _PURPLE = '#000000', '#E69F00', '#0072B2', '#009E73', '#D55E00', '#CC79A7'


_GROUP_SIGNS = dict(zip(GROUPS, [(_PURPLE, 'P'), (_ORANGE, 'v')]))
_SIGNS = {LOCAL: (_VERMILION, 'o'), AVERAGED: (_BLUE, '^'), **_GROUP_SIGNS, SYNCHRONIZED: (_GREEN, 'D')}
_WAYS: Dict[str, Tuple[str, str]] = {
    SEQUENTIAL: (_GREEN, 'D'),
    ONE_IN_EIGHT: (_VERMILION, 'o'),
    MEAN_OF_EIGHT: (_BLUE, '^'),
}


def figure(results: Results) -> bytes:
    """The figure of the study, as a PNG file."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(13, 11))
    (equal, unequal), (response, noise) = drawn.subplots(2, 2)
    drawn.suptitle(_TITLE, fontsize=14)
    modes, biased = results.equal.modes, results.equal.without_bessel
    _draw_differences(
        equal,
        'Standard-normal rows, and the published experiment',
        {
            'published, per replica': (PUBLISHED.per_replica, _BLACK, 's', 'none'),
            'local': (modes[LOCAL], *_SIGNS[LOCAL], None),
            'averaged': (modes[AVERAGED], *_SIGNS[AVERAGED], None),
            'local, biased variance': (biased[LOCAL], *_SIGNS[LOCAL], 'none'),
            'averaged, biased variance': (biased[AVERAGED], *_SIGNS[AVERAGED], 'none'),
            'published, synchronized': (PUBLISHED.synchronized, _BLACK, 'D', 'none'),
            'synchronized': (modes[SYNCHRONIZED], *_SIGNS[SYNCHRONIZED], None),
        },
    )
    _draw_differences(
        unequal,
        'Unequal replicas: the rows of replica r have the mean r',
        {mode: (results.unequal.modes[mode], *sign, None) for mode, sign in _SIGNS.items()},
    )
    _draw_response(response, results)
    _draw_noise(noise, results)
    drawn.tight_layout(h_pad=2.5, rect=(0, 0, 1, 0.98))
    return drawing.png(drawn, dpi=110)


def _draw_differences(axes: Any, title: str, series: Dict[str, Tuple[Differences, str, str, Optional[str]]]) -> None:
    """Draws marks side by side for each kind of difference: by label, with colour, mark and the mark's inside."""
    positions = np.arange(len(_KINDS))
    for index, (label, (differences, colour, mark, inside)) in enumerate(series.items()):
        style = {'linestyle': 'none', 'marker': mark, 'markersize': 8, 'color': colour, 'label': label}
        places = positions + 0.7 * ((index + 0.5) / len(series) - 0.5)
        axes.plot(places, differences, markerfacecolor=inside or colour, **style)
    for boundary in positions[1:] - 0.5:
        axes.axvline(boundary, color='0.8', linewidth=0.8)
    axes.set(title=title, xticks=positions, xticklabels=[kind.replace(' ', '\n') for kind in _KINDS])
    axes.set(xlim=(-0.5, len(_KINDS) - 0.5), yscale='log', ylim=(3e-10, 30), axisbelow=True)
    axes.set_ylabel('largest absolute difference (units of the rows)')
    axes.grid(axis='y', color='0.9')
    axes.legend(fontsize=9, loc='upper center', bbox_to_anchor=(0.5, -0.13), ncol=3, frameon=False)


def _draw_response(axes: Any, results: Results) -> None:
    steps = np.arange(1, results.settings.response_steps + 1)
    axes.plot(steps, 1 - results.decay.beta**steps, color='0.6', linewidth=4, label='1 − α^(8 · step)')
    spacing = max(1, len(steps) // 15)
    for index, (way, (colour, mark)) in enumerate(_WAYS.items()):
        every = slice(index * spacing // len(_WAYS), None, spacing)
        response = np.array(results.decay.response[way])
        axes.plot(steps[every], response[every], linestyle='none', marker=mark, color=colour, label=way)
    title = f'Decay: all rows are 1; α = {ALPHA}, α⁸ = {results.decay.beta:.4f}'
    axes.set(title=title, xlabel='global step (256 rows each)', ylabel='moving mean (units of the rows)')
    axes.grid(color='0.9')
    axes.legend(fontsize=9, loc='lower right', framealpha=1)


def _draw_noise(axes: Any, results: Results) -> None:
    positions = np.arange(len(_WAYS))
    for position, (way, (colour, mark)) in enumerate(_WAYS.items()):
        noise = results.decay.noise[way]
        axes.plot(position, noise.deviation, linestyle='none', marker=mark, markersize=9, color=colour)
        label = None if position else 'by the equations; marks: measured'
        axes.plot([position - 0.25, position + 0.25], [noise.expected_deviation] * 2, color='0.4', label=label)
    highest = max(noise.expected_deviation for noise in results.decay.noise.values())
    labels = [way.replace(', ', ',\n').replace(' (', '\n(') for way in _WAYS]
    axes.set_title(f'Decay: noise of the moving mean of normal rows after {results.settings.noise_steps} steps')
    axes.set(xticks=positions, xticklabels=labels, xlim=(-0.5, len(_WAYS) - 0.5), ylim=(0, 1.2 * highest))
    axes.set(ylabel='standard deviation (units of the rows)', axisbelow=True)
    axes.grid(axis='y', color='0.9')
    axes.legend(fontsize=9, loc='lower center', framealpha=1)
