"""The rows, warnings and files of a plan."""

import math
import os
import pathlib
from typing import List, Tuple

from console import extras, html, processes
from console.log import logger
from console.messages import in_rows
from console.tensorflow_versions import tf
from data.files import write_whole
from inception_v3 import batch_norm
from inception_v3.commands.estimate import Average, Estimate
from inception_v3.commands.plan import PAGE_FILE, PICTURE_FILE
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_data, fit_to_data_set, makes_digits
from inception_v3.flags import CommandLine
from inception_v3.model_fn import network_shapes
from inception_v3.run.checkpoints import latest_checkpoint
from inception_v3.run.files import check_writable
from inception_v3.run.slow_averages import warnings_of
from inception_v3.tpu import topology
from inception_v3.weights import beginning, sources


def write(command_line: CommandLine) -> str:
    """Writes the page and the picture of a plan into `--out`, logs its warnings, and returns its rows as text.

    Raises:
      ConfigError: --step_ms is not a time; the run does not train, its data or weights do not fit, or `--out` is no
        folder for a plan.
      RemoteError: a file cannot be read or written.
    """
    extras.require('studies', 'matplotlib')
    from inception_v3.commands import drawing
    from inception_v3.commands.plan import figures

    out, step_ms = command_line.own['out'], command_line.own['step_ms']
    if not 0 < step_ms < math.inf:
        raise ConfigError(f'--step_ms={step_ms:g}: must be the milliseconds of a training step, above 0.')
    config = _configuration(command_line)
    begins, notes = _weights(config)
    if not out:
        raise ConfigError('--out: must be the path of a folder, not empty.')
    own = config.model_dir and os.path.realpath(out) == os.path.realpath(config.model_dir)
    if own or tf.io.gfile.exists(os.path.join(out, 'config.json')):
        raise ConfigError(f'--out={out}: is the folder of a run. Name another folder for the plan.')
    check_writable('out', out)

    estimate = Estimate(config, step_ms)
    rows = [*_rows(estimate), *begins]
    warnings = [*estimate.warnings, *warnings_of(config), *notes]
    picture = figures.draw(estimate)
    write_whole(os.path.join(out, PICTURE_FILE), picture)
    page = html.template(pathlib.Path(__file__).with_name('page.html').read_text()).render(
        command=processes.command_line('plan'),
        warnings=warnings,
        figure=drawing.on_page(picture),
        rows=rows,
        milliseconds=f'{step_ms:g}',
    )
    write_whole(os.path.join(out, PAGE_FILE), page)
    for warning in warnings:
        logger.info('warning: %s', warning)
    return in_rows([*rows, ('page', os.path.join(out, PAGE_FILE))])


def _configuration(command_line: CommandLine) -> Config:
    """The configuration of the run. The digits need not be written yet, and data_dir need not be named."""
    config = command_line.config
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


def _weights(config: Config) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Rows and warnings about the weights that the run begins from."""
    if not config.init_from:
        return [], []
    checkpoint = latest_checkpoint(str(config.model_dir)) if config.model_dir else None
    if checkpoint:
        return [('begins from', f'{checkpoint}, which the run resumes; --init_from is not read')], []
    source = sources.read(config.init_from)
    begun = beginning.plan(network_shapes(config), (), source, config)
    rows = [('begins from', beginning.origin_text(begun, source, config)), *beginning.account(begun).items()]
    return rows, beginning.warnings_of(begun, source, config)


def _rows(estimate: Estimate) -> List[Tuple[str, str]]:
    config, rates, averages, size = estimate.config, estimate.rates, estimate.averages, estimate.bytes_per_image
    hosts = '1 host' if topology.hosts_of(config) == 1 else f'each of {topology.hosts_of(config)} hosts'
    cores = '1 device' if not config.use_tpu else f'{config.replicas} cores'
    peak = max(rates)
    peak_epoch = estimate.steps[rates.index(peak)] / estimate.steps_per_epoch
    rate = f'{rates[0]:.4g} at first, at most {peak:.4g} (from epoch {peak_epoch:.1f})'
    return [
        ('network', f'{config.network}, {config.height} x {config.width} pixels, {config.precision}'),
        ('epochs', f'{estimate.epochs:,.1f} of {config.num_train_images:,} images'),
        (
            'steps',
            f'{config.train_steps:,} of {config.train_batch_size:,} images, {estimate.steps_per_epoch:,.1f} per epoch',
        ),
        ('devices', f'{cores}, {config.train_batch_size // config.replicas:,} images each'),
        ('hours', f'{estimate.hours:,.1f} if a step takes {estimate.step_ms:g} ms (--step_ms)'),
        ('learning rate', f'{rate}, {rates[-1]:.4g} at last'),
        ('averages', _described(averages) if averages else 'none'),
        ('batch normalization', _described(estimate.statistics)),
        (
            'its documented decay',
            f'alpha = {batch_norm.ONE_DEVICE_DECAY} on 1 device, beta = alpha ** {config.replicas} = '
            f'{batch_norm.decay_for(config.replicas):.4g} for {cores}',
        ),
        (
            'input',
            f'{hosts}: {estimate.images_per_second:,.0f} images/s, {estimate.images_per_second * size / 1e6:,.1f} MB/s '
            f'to the devices at {estimate.step_ms:g} ms; {size:,} bytes per image',
        ),
    ]


def _described(average: Average) -> str:
    left = f'{average.initial_share:.0%}' if average.initial_share >= 0.01 else 'less than 1%'
    return (
        f'decay {average.decay:g}: about the last {average.window:,.0f} steps ({average.window_epochs:,.2f} epochs); '
        f'{left} of the initial values is left at the end'
    )
