"""Writes a plan: its rows and warnings, and a figure of the learning rate and of the windows of the averages."""

import contextlib
import datetime
import math
import os
import pathlib
from typing import Any, Callable, List, Optional, Tuple

import numpy as np

from compat import tf
from compat.log import logger
from compat.messages import in_rows
from console import html, processes
from data import remote
from data.files import write_whole
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_data
from inception_v3.fitting import fit_to_data_set, makes_digits
from inception_v3.flags import CommandLine
from inception_v3.machines import cluster
from inception_v3.model_dir import check_writable, latest_checkpoint
from inception_v3.run.batch_norm_advice import ONE_DEVICE_DECAY, decay_for
from inception_v3.run.hooks.summaries import HOST_FOLDER, IMAGES_PER_SECOND
from inception_v3.run.starts import read_starts
from inception_v3.run.summary import initial_share_of_averages, initial_share_of_statistics, warnings_of
from inception_v3.tpu import accelerator, topology
from tools import drawing, extras
from tools.estimate import ASSUMED_STEP_MS, Estimate, weights_of
from tools.plan import PAGE_FILE, PICTURE_FILE

# The settings that affect the time of a step.
_OF_STEP = (
    *('network', 'height', 'width', 'depth_multiplier', 'auxiliary_head', 'num_classes', 'train_batch_size'),
    *(
        'precision',
        'use_tpu',
        'tpu',
        'num_shards',
        'accelerator',
        'batch_norm',
        'preprocessing',
        'use_data',
        'num_gpus',
    ),
)


def write(command_line: CommandLine) -> str:
    """Writes the page and the picture of a plan into `--out`, logs its warnings, and returns its rows as text.

    Raises:
      ConfigError: --step_ms is not a time; the run does not train, its data or weights do not fit, or `--out`
        cannot be the plan's folder.
      RemoteError: a file cannot be read or written.
    """
    extras.require('studies', 'matplotlib')
    out, step_ms = command_line.own['out'], command_line.own['step_ms']
    if step_ms is not None and not 0 < step_ms < math.inf:
        raise ConfigError(f'--step_ms={step_ms:g}: must be the milliseconds of a training step, above 0.')
    config = _configuration(command_line)
    begins, notes = weights_of(config, latest_checkpoint(config.model_dir) if config.model_dir else None)
    if not out:
        raise ConfigError('--out: must be the path of a folder, not empty.')
    own = config.model_dir and os.path.realpath(out) == os.path.realpath(config.model_dir)
    if own or tf.io.gfile.exists(os.path.join(out, 'config.json')):
        raise ConfigError(f'--out={out}: is the folder of a run. Name another folder for the plan.')
    check_writable('out', out)

    measured = None if step_ms else measured_step_ms(config)
    origin = (
        '--step_ms' if step_ms else 'as in this run so far' if measured else 'an assumption, which --step_ms replaces'
    )
    estimate = Estimate(config, step_ms or measured or ASSUMED_STEP_MS, command_line.chooses_statistics)
    rows = [*_rows(estimate, origin), *begins]
    warnings = [*estimate.warnings, *warnings_of(config), *notes]
    picture = _draw(estimate)
    write_whole(os.path.join(out, PICTURE_FILE), picture)
    page = html.template(pathlib.Path(__file__).with_name('page.html').read_text()).render(
        command=processes.command_line('plan'),
        warnings=warnings,
        figure=drawing.on_page(picture),
        rows=rows,
        milliseconds=f'{estimate.step_ms:.4g} ms ({origin})',
    )
    write_whole(os.path.join(out, PAGE_FILE), page)
    for warning in warnings:
        logger.info('warning: %s', warning)
    return in_rows([*rows, ('page', os.path.join(out, PAGE_FILE))])


def _configuration(command_line: CommandLine) -> Config:
    """The configuration of the run. The digits need not be written yet, and data_dir need not be named."""
    config = accelerator.settled(command_line.config)
    command_line = command_line._replace(config=config)
    if config.mode == 'eval':
        raise ConfigError('--mode=eval: does not train, so there is nothing to plan. Use train or train_and_eval.')
    if makes_digits(command_line):
        return config
    if config.use_data == 'real' and not config.data_dir and command_line.preset != 'own_images':
        logger.info('no --data_dir: planned for %s training images', f'{config.num_train_images:,}')
        return config
    config = fit_to_data_set(command_line)
    check_data(config)
    return config


def _rows(estimate: Estimate, origin: str) -> List[Tuple[str, str]]:
    config, rates, size = estimate.config, estimate.rates, estimate.bytes_per_image
    hosts = '1 host' if topology.hosts_of(config) == 1 else f'each of {topology.hosts_of(config)} hosts'
    cores = '1 device' if not config.use_tpu else f'{config.replicas} cores'
    if not config.use_tpu and config.replicas > 1:
        cores = f'{config.replicas} replicas' + (f' on {config.machines} machines' if config.machines > 1 else '')
    peak = max(rates)
    peak_epoch = estimate.steps[rates.index(peak)] / estimate.steps_per_epoch
    rate = f'{rates[0]:.4g} at first, at most {peak:.4g} (from epoch {peak_epoch:.1f})'
    averages = _described(config.moving_average_decay, initial_share_of_averages, estimate)
    return [
        ('network', f'{config.network}, {config.height} x {config.width} pixels, {config.precision}'),
        ('epochs', f'{estimate.epochs:,.1f} of {config.num_train_images:,} images'),
        (
            'steps',
            f'{config.train_steps:,} of {config.train_batch_size:,} images, {estimate.steps_per_epoch:,.1f} per epoch',
        ),
        ('devices', f'{cores}, {config.train_batch_size // config.replicas:,} images each'),
        ('hours', f'{estimate.hours:,.1f} if a step takes {estimate.step_ms:.4g} ms ({origin})'),
        ('learning rate', f'{rate}, {rates[-1]:.4g} at last'),
        ('averages', averages if config.moving_average else 'none'),
        ('batch normalization', _described(config.batch_norm_decay, initial_share_of_statistics, estimate)),
        (
            'its documented decay',
            f'alpha = {ONE_DEVICE_DECAY} per update of a GPU job, beta = alpha ** {config.replicas} = '
            f'{decay_for(config.replicas):.4g} for {cores}',
        ),
        (
            'input',
            f'{hosts}: {estimate.images_per_second:,.0f} images/s, {estimate.images_per_second * size / 1e6:,.1f} MB/s '
            f'to the devices at {estimate.step_ms:.4g} ms; {size:,} bytes per image',
        ),
    ]


def measured_step_ms(config: Config) -> Optional[float]:
    """The median time of a step of the run in model_dir, in milliseconds; None without a run with the same settings.

    The speeds are those in the run's event files since its last start.
    """
    starts = read_starts(config.model_dir) if config.model_dir else []
    if not starts:
        return None
    of_start = {name: starts[-1].config.get(name, getattr(Config, name)) for name in (*_OF_STEP, 'worker_hosts')}
    machines = len(cluster.addresses_in(of_start.pop('worker_hosts'))) or 1
    if machines != config.machines or any(value != getattr(config, name) for name, value in of_start.items()):
        return None
    # Times are compared, too: an earlier start that was killed before a checkpoint has events of the same steps.
    speeds: List[float] = []
    for folder in (config.model_dir, os.path.join(str(config.model_dir), HOST_FOLDER)):
        for name in remote.names_in(str(folder)) or ():
            if not name.startswith('events.out.tfevents.'):
                continue
            with contextlib.suppress(tf.errors.DataLossError):  # A kill leaves an unfinished event.
                for event in tf.train.summary_iterator(os.path.join(str(folder), name)):
                    values = [v.simple_value for v in event.summary.value if v.tag == IMAGES_PER_SECOND]
                    written = datetime.datetime.fromtimestamp(int(event.wall_time), datetime.timezone.utc)
                    is_of_start = event.step > starts[-1].step and written.isoformat() >= starts[-1].time
                    speeds += [each for each in values if is_of_start and each > 0]
    return float(1000 * config.train_batch_size / np.median(speeds)) if speeds else None


def _described(decay: float, share_after: Callable[[float, int], float], estimate: Estimate) -> str:
    """Describes an exponential average: its window of 1 / (1 - decay) steps, and its initial value's final share."""
    window, share = 1 / (1 - decay), share_after(decay, estimate.config.train_steps)
    left = f'{share:.0%}' if share >= 0.01 else 'less than 1%'
    return (
        f'decay {decay:g}: about the last {window:,.0f} steps ({window / estimate.steps_per_epoch:,.2f} epochs); '
        f'{left} of the initial values is left at the end'
    )


def remembered(decay: float, steps: int) -> np.ndarray:
    """The weights in an exponential average, newest value first: of four windows, or of `steps` if these are fewer.

    A window is 1 / (1 - decay) steps; the values in it have 63 % of the total weight.
    """
    return (1 - decay) * decay ** np.arange(min(steps, round(4 / (1 - decay))))


def _draw(estimate: Estimate) -> bytes:
    """Draws the learning rate of a run, beside the documented one, and the windows of its averages, as a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2, gridspec_kw={'width_ratios': (2, 1)})
    _draw_rates(estimate, left)
    _draw_windows(estimate.config, right)
    for axes in (left, right):
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[['top', 'right']].set_visible(False)
        axes.legend(loc='upper right', frameon=False, fontsize=9)
    return drawing.png(figure)


def _draw_windows(config: Config, axes: Any) -> None:
    drawn = [('batch normalization', config.batch_norm_decay, drawing.BAD)]
    if config.moving_average:
        drawn.insert(0, ('weights', config.moving_average_decay, drawing.GOOD))
    for name, decay, color in drawn:
        # A decay of 1 keeps the initial value forever, and has no window.
        if decay < 1:
            weights, window = remembered(decay, config.train_steps), 1 / (1 - decay)
            axes.plot(weights, color=color, linewidth=2, label=f'{name}: {window:,.0f} steps')
            inside = weights[: round(window)]
            axes.fill_between(np.arange(len(inside)), inside, color=color, alpha=0.2)
    axes.set(xlim=(0, None), ylim=(0, None), xlabel='steps before')
    axes.set_title('weight in the average; window: 63 %', loc='left', fontsize=10)


def _draw_rates(estimate: Estimate, axes: Any) -> None:
    over = estimate.overshoot
    epochs = np.array(estimate.steps) / estimate.steps_per_epoch
    documented = {'color': drawing.FAINT, 'linestyle': '--', 'label': 'documented, no warm-up'}
    axes.step(epochs, estimate.documented, where='post', **documented)
    axes.step(epochs, estimate.rates, where='post', color=drawing.GOOD, linewidth=2, label='this run')
    if over:
        axes.axvspan(over.epoch, over.epoch + 1, color=drawing.BAD, alpha=0.3, label='overshoot of the warm-up')
        text, place = f'{over.rate:.4g} instead of {over.plain:.4g}', (over.epoch + 0.5, over.rate)
        axes.annotate(text, place, (18, 4), textcoords='offset points', color=drawing.BAD, fontsize=9)
    axes.set(xlim=(0, estimate.epochs), ylim=(0, 1.12 * max(*estimate.rates, *estimate.documented)), xlabel='epoch')
    axes.set_title('learning rate', loc='left', fontsize=10)
