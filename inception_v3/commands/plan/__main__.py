"""Draws the plan of a run before it starts: inception-v3 plan [flags of inception_v3.main]."""

import os
import pathlib
import sys
from typing import List, Sequence, Tuple

from console import extras, html, processes, program
from console.errors import EXIT_CODES
from console.log import logger
from console.messages import in_rows
from console.screen import Screen, set_up_logging
from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from inception_v3 import batch_norm, flags
from inception_v3.commands.plan.forecast import PUBLISHED_STEP, Average, Forecast, forecast
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_data, fit_to_data_set, makes_digits
from inception_v3.model_fn import network_shapes
from inception_v3.run.checkpoints import latest_checkpoint
from inception_v3.run.files import check_writable
from inception_v3.run.slow_averages import warnings_of
from inception_v3.tpu import topology
from inception_v3.weights import beginning, sources

PICTURE_FILE, PAGE_FILE = 'plan.png', 'plan.html'
_MILLISECONDS = round(PUBLISHED_STEP * 1000)
_PURPOSE = f"""Draws the plan of a run before it starts, from the flags of inception_v3.main.

Prints the length of the run, its learning rate, the memory of its averages, and what its hosts must deliver; and writes
them with figures to {PAGE_FILE}, a self-contained page, and {PICTURE_FILE}. Nothing is trained, and nothing
is written to model_dir.

{EXIT_CODES}"""
_OWN_FLAGS = {'out': flags.OwnFlag(str, 'plan', f'folder for {PAGE_FILE} and {PICTURE_FILE}')}


def main(argv: Sequence[str]) -> int:
    """Writes the plan of a command line, such as `sys.argv`, and returns the exit code."""

    def command(screen: Screen) -> None:
        command_line = flags.parse(argv, _OWN_FLAGS)
        if command_line.help:
            print(flags.help_text('plan', _PURPOSE, command_line, _OWN_FLAGS))
            return
        set_up_logging(screen, command_line.verbose)
        _check_drawable()
        config = _configuration(command_line)
        begun, notes = _weights(config)
        out = command_line.own['out']
        _check_out(out, config)
        plan = forecast(config)
        rows = [*rows_of(plan), *begun]
        warnings = [*plan.warnings, *warnings_of(config), *notes]
        _write(plan, rows, warnings, out)
        for warning in warnings:
            logger.info('warning: %s', warning)
        print(in_rows([*rows, ('page', os.path.join(out, PAGE_FILE))]))

    return program.run(command)


def _check_drawable() -> None:
    try:
        import inception_v3.commands.plan.figures  # noqa: F401
    except ImportError as error:
        raise ConfigError(f'The plan needs {error.name}, which is not installed: {extras.command("studies")}.')


def _configuration(command_line: flags.CommandLine) -> Config:
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


def _check_out(out: str, config: Config) -> None:
    """Refuses an empty folder name, and the folder of a run."""
    if not out:
        raise ConfigError('--out: must be the path of a folder, not empty.')
    own = config.model_dir and os.path.realpath(out) == os.path.realpath(config.model_dir)
    if own or tf.io.gfile.exists(os.path.join(out, 'config.json')):
        raise ConfigError(f'--out={out}: is the folder of a run. Name another folder for the plan.')
    check_writable('out', out)


def _weights(config: Config) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Rows and warnings about the weights that the run begins from. Of remote weights, names and shapes are read."""
    if not config.init_from:
        return [], []
    checkpoint = latest_checkpoint(str(config.model_dir)) if config.model_dir else None
    if checkpoint:
        return [('begins from', f'{checkpoint}, which the run resumes; --init_from is not read')], []
    source = sources.read(config.init_from, outline=remote.is_remote(config.init_from))
    begun = beginning.plan(network_shapes(config), (), source, config)
    rows = [('begins from', beginning.origin_text(begun, source, config)), *beginning.account(begun).items()]
    return rows, [*beginning.unmatched(begun, config), *beginning.other_settings(source, config)]


def _write(plan: Forecast, rows: Sequence[Tuple[str, str]], warnings: Sequence[str], out: str) -> None:
    from inception_v3.commands import drawing
    from inception_v3.commands.plan import figures

    light, dark = (figures.draw(plan, look) for look in (drawing.LIGHT, drawing.DARK))
    write_whole(os.path.join(out, PICTURE_FILE), light)
    page = html.template(pathlib.Path(__file__).with_name('page.html').read_text()).render(
        command=processes.command_line('plan'),
        warnings=warnings,
        light=html.data_uri(light, 'image/png'),
        dark=html.data_uri(dark, 'image/png'),
        width=drawing.width_on_page(int.from_bytes(light[16:20], 'big')),
        rows=rows,
        milliseconds=_MILLISECONDS,
    )
    write_whole(os.path.join(out, PAGE_FILE), page)


def rows_of(plan: Forecast) -> List[Tuple[str, str]]:
    """The numbers of a plan: a name and a value each."""
    config = plan.config
    hosts = '1 host' if topology.hosts_of(config) == 1 else f'each of {topology.hosts_of(config)} hosts'
    cores = '1 device' if not config.use_tpu else f'{config.replicas} cores'
    rate = f'{plan.curve.rates[0]:.4g} at first, at most {plan.peak:.4g} (from epoch {plan.peak_epoch:.1f})'
    return [
        ('network', f'{config.network}, {config.height} x {config.width} pixels, {config.precision}'),
        ('epochs', f'{plan.epochs:,.1f} of {config.num_train_images:,} images'),
        (
            'steps',
            f'{config.train_steps:,} of {config.train_batch_size:,} images, {plan.steps_per_epoch:,.1f} per epoch',
        ),
        ('devices', f'{cores}, {config.train_batch_size // config.replicas:,} images each'),
        ('hours', f'{plan.hours:,.1f} if a step takes the published {_MILLISECONDS} ms'),
        ('learning rate', f'{rate}, {plan.curve.rates[-1]:.4g} at last'),
        ('averages', _described(plan.averages) if plan.averages else 'none'),
        ('batch normalization', _described(plan.statistics)),
        (
            'its documented decay',
            f'alpha = {batch_norm.ONE_DEVICE_DECAY} on 1 device, beta = alpha ** {config.replicas} = '
            f'{plan.fitting_decay:.4g} for {cores}',
        ),
        (
            'input',
            f'{hosts}: {plan.images_per_second:,.0f} images/s, {plan.bytes_per_second / 1e6:,.1f} MB/s to the devices '
            f'at {_MILLISECONDS} ms; {plan.bytes_per_image:,} bytes per image',
        ),
    ]


def _described(average: Average) -> str:
    left = f'{average.initial_share:.0%}' if average.initial_share >= 0.01 else 'less than 1%'
    return (
        f'decay {average.decay:g}: about the last {average.window:,.0f} steps ({average.window_epochs:,.2f} epochs); '
        f'{left} of the initial values is left at the end'
    )


if __name__ == '__main__':
    sys.exit(main(sys.argv))
