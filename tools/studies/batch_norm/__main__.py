"""Repeats a published experiment on batch normalization across replicas, on 8 emulated cores.

Prints measured and published figures, and further experiments: unequal replicas, groups of replicas, the
variance of the means, and the decay of one replica in eight. Writes all numbers as JSON, and tables as
Markdown.
"""

import functools
import os
import sys
from typing import Any, Dict, List, Optional, Sequence

from compat.errors import CommandError
from console import program
from console.screen import Screen
from tools.parsers import folder, new_parser
from tools.studies.files import Table, prepare, publish, write_json

OUT = os.path.join('runs', 'studies', 'batch_norm')
NAME = 'batch_norm'
_TITLE = 'Batch normalization of 256 rows: 8 replicas with 32 each, compared with one device'
_HEADER = ('', 'training outputs', 'inference outputs', 'moving mean', 'moving variance')


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    parser = new_parser('batch-norm', __doc__)
    text = f'folder for {NAME}.json and {NAME}.md, created if missing (default {OUT})'
    parser.add_argument('--out', type=folder, default=OUT, help=text)
    text = (
        "also measure Keras' own layers on 8 virtual CPU devices (the document has 8 TPU cores); needs TensorFlow 2.15"
    )
    parser.add_argument('--keras', action='store_true', help=text)
    arguments = parser.parse_args(argv)
    perform = functools.partial(_perform, arguments.out, arguments.keras)
    return program.run(perform, 'interrupted; nothing was written')


def _perform(out: str, keras: bool, screen: Screen) -> None:
    from compat import tf

    if keras and tf.__version__ < '2':
        raise CommandError(
            f"--keras: TensorFlow {tf.__version__} lacks Keras' synchronized layer. "
            'Use 2.15; in a checkout: ./run --tf=2.15 inception-v3 batch-norm --keras'
        )
    prepare(out)
    from inception_v3.run import versions
    from tools.studies.batch_norm import experiments, keras_layers

    screen.update('measuring; this takes less than a minute')
    settings = experiments.SETTINGS
    # Keras first: any operation fixes TensorFlow's devices.
    by_keras = keras_layers.compare(experiments.normal_rows(settings['steps'] + 1, settings['seed'])) if keras else None
    found = {**experiments.measure(settings), 'keras': by_keras}
    screen.clear()
    content = {'published': experiments.PUBLISHED, 'measured': found, 'versions': versions.current()}
    write_json(os.path.join(out, f'{NAME}.json'), content)
    scope = f'Largest absolute differences over {found["settings"]["steps"]} training batches; decay 0.99.'
    print(f'{_TITLE}.\n{scope}')
    publish(out, NAME, _TITLE, [scope], tables(experiments.PUBLISHED, found))


def number(value: Optional[float]) -> str:
    """A number in the format of the published ones: 4 decimals, or 2 digits below 0.001; '-' for None."""
    if value is None:
        return '-'
    if value == 0 or abs(value) >= 1e-3:
        return f'{value:.4f}' if value else '0'
    mantissa, exponent = f'{value:.1e}'.split('e')
    return f'{mantissa}e{int(exponent)}'


def tables(published: Dict[str, Any], found: Dict[str, Any]) -> List[Table]:
    """All tables, from the published and the measured part of the JSON file."""
    settings, equal, unequal = found['settings'], found['equal'], found['unequal']
    modes, biased = equal['modes'], equal['without_bessel']
    documented = {'published': published, **({"Keras' layers": found['keras']} if found['keras'] else {})}
    means = ', '.join(f'{name}: {number(of["mean_and_kept"])}' for name, of in documented.items())

    def row(label: str, *values: Optional[float]) -> List[str]:
        return [label, *map(number, values)]

    compared = [
        *(row(f'{name}: per replica', *of['per_replica'].values()) for name, of in documented.items()),
        row('  local', *modes['local'].values()),
        row('  averaged', *modes['averaged'].values()),
        row('  local, biased', *biased['local'].values()),
        row('  averaged, biased', *biased['averaged'].values()),
        *(row(f'{name}: synchronized', *of['synchronized'].values()) for name, of in documented.items()),
        row('  synchronized', *modes['synchronized'].values()),
        *(row(f'{name}: same weights', None, of['same_weights'], None, None) for name, of in documented.items()),
        row('  same weights', None, equal['same_weights'], None, None),
        *(row(f'  device {device} alone', None, None, *own) for device, own in enumerate(equal['own'])),
        row('  mean of the eight', None, None, *equal['mean_of_own']),
    ]
    # From groups of one replica to one group of all replicas.
    groups = [
        row(f'{rows} rows, {mode}', *found[rows]['modes'][mode].values())
        for rows in ('equal', 'unequal')
        for mode in ('local', 'groups of 2', 'groups of 4', 'synchronized')
    ]
    recovery = [
        [f'{kind} rows', *(f'{value:.6f}' for value in (*of[:2], of[0] + of[1], of[2])), number(of[3])]
        for kind, of in ((kind, [*each.values()]) for kind, each in found['recovery'].items())
    ]
    decay = found['decay']
    decays = []
    for way, noise in decay['noise'].items():
        response = [f'{decay["response"][way][-1]:.6f}', number(decay['largest_error'][way])]
        decays.append([way, *response, *(f'{value:.5f}' for value in noise.values())])
    sequential, one, mean = (noise['expected_deviation'] for noise in decay['noise'].values())
    kinds = ('moving mean, from 0', f'step {settings["response_steps"]}', 'error', 'mean, noisy', 'expected')
    notes = (
        'biased: the moving variance without the correction n / (n - 1), which the published layer lacks for rows. In '
        'the published outputs, each replica uses its own statistics: compare them with "local, biased". The published '
        'moving statistics are means over the replicas: compare them with "averaged, biased".',
        'device r alone: a device with the rows of replica r, and statistics of its own. The mean of the eight differs '
        f'by {number(equal["mean_and_kept"])} from what "averaged" keeps ({means}).',
    )
    unlike = [row(mode, *unequal['modes'][mode].values()) for mode in ('local', 'averaged', 'synchronized')]
    unlike.append(row('same weights', None, unequal['same_weights'], None, None))
    parts = ('', 'mean of variances', '+ variance of means', '= sum', 'one device', 'largest error')
    of_recovery = ('largest error: relative, over the channels; the precision of float32 is 1.2e-7.',)
    of_decay = (
        'step, error: all rows are 1; the error is the largest difference from 1 - α^(8 · step), over all steps.',
        f'noisy: rows of mean and variance 1, {settings["noise_steps"]} steps, {settings["noise_channels"]} channels.',
        'Memory and expected value are exactly the same, but the noise is not. Expected deviations relative to the '
        f'sequential updates: {one / sequential:.2f} for one replica in eight, which sees an eighth of the rows, and '
        f'{mean / sequential:.2f} for the mean of eight.',
    )
    titles = (
        '1. The published experiment: standard-normal rows',
        '2. Unequal replicas: the rows of replica r have the mean r',
        "3. Groups of replicas that synchronize among themselves; the first group's statistics are kept",
        '4. Variance of the first batch, recovered from the moments of the replicas: means over the channels',
        f'5. Decay: α = {decay["alpha"]} in 8 sequential updates, and β = α⁸ = {decay["beta"]:.7f} in one',
    )
    return [
        Table(titles[0], _HEADER, compared, notes=notes),
        Table(titles[1], _HEADER, unlike),
        Table(titles[2], _HEADER, groups),
        Table(titles[3], parts, recovery, notes=of_recovery),
        Table(titles[4], (*kinds, 'deviation', 'expected'), decays, notes=of_decay),
    ]


if __name__ == '__main__':
    sys.exit(main())
