"""Compares the time of host and device per step: inception-v3 balance --step_ms=815 --cores=96 [any flags]."""

import json
import math
import sys
from typing import Any, Dict, List, Sequence, Tuple

from compat.messages import shown
from console.processes import usable_cores
from console.screen import Screen
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.tpu import topology
from tools.benchmarks import command, measurement, tables
from tools.benchmarks.input import Pipeline, rows_of, variant_of
from tools.benchmarks.measurement import PHASES, Measurement

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'profile': OwnFlag(str, None, 'model_dir of a run with --profile_steps, whose profile has all numbers of the run'),
    'step_ms': OwnFlag(float, None, 'time of a training step on the device for this batch, in ms, from a profile'),
    'cores': OwnFlag(int, None, "number of a host's cores; default: this machine's"),
    'cpu_ms_per_image': OwnFlag(float, None, 'CPU time to prepare an image, in ms; default: measured on this machine'),
    **command.MEASURING,
}
_TEXT = """

device            {step_ms:,.0f} ms per step
host              {host_ms:,.0f} ms per step: {host_images:,} images of {cpu_ms_per_image:.2f} CPU-ms on {cores:,} cores
CPU-ms per image  {cpu_ms_source}{texts}
throughput        {images_per_second:,.0f} images/s; hosts: {hosts:,}
balance           with {balancing_cores:,} cores per host or more, the device does not wait
assumed           the host's cores share the work evenly, are as fast as the measured ones, and do nothing else"""
_PURPOSE = (
    'Computes whether a training run waits for its host or for its device, for how long, and how many cores of the\n'
    "host would balance it. The guide's sample trace has 815 ms of TPU time; it names no TPU and no batch."
)


def balance(step_ms: float, host_images: int, cpu_ms_per_image: float, cores: int, hosts: int) -> Dict[str, Any]:
    """Compares the speeds of a host and of the devices that it feeds.

    A host's cores are assumed to share the work of its images evenly, and to do nothing else. Returns the arguments
    and the results: `device_idle` and `host_idle` are the fractions of the time in which the device and the
    host's cores wait, and `balancing_cores` is the minimum number of cores with which the device does not wait.
    """
    host_ms = host_images * cpu_ms_per_image / cores
    # Both sides work at the same time, so the slower one sets the pace.
    period_ms = max(host_ms, step_ms)
    return {
        'step_ms': step_ms,
        'host_images': host_images,
        'cpu_ms_per_image': cpu_ms_per_image,
        'cores': cores,
        'hosts': hosts,
        'host_ms': host_ms,
        'host_bound': host_ms > step_ms,
        'period_ms': period_ms,
        'device_idle': 1 - step_ms / period_ms,
        'host_idle': 1 - host_ms / period_ms,
        'balancing_cores': max(1, math.ceil(host_images * cpu_ms_per_image / step_ms)),
        'images_per_second': 1000 * hosts * host_images / period_ms,
    }


# The CPU time to prepare an image, in milliseconds, the shares of the phases, and the source of these numbers.
Cost = Tuple[float, Dict[str, float], str]


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return command.run(argv, 'balance', _PURPOSE, _OWN_FLAGS, _perform, of_machines=True)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    cores = own['cores'] or usable_cores()
    if own['profile'] is not None:
        cost, step_ms, images, hosts = _profiled(own, command_line)
    else:
        hosts = topology.hosts_of(command_line.config)
        step_ms, batch_size = own['step_ms'], command_line.config.train_batch_size
        if step_ms is None:
            what = 'the time of a training step on the device, in ms; --profile=MODEL_DIR reads it from a profile'
            raise ConfigError(f'--step_ms: is required: {what}.')
        images = batch_size // hosts
        cost = _cost(own, command_line, screen)
        screen.clear()
    cpu_ms, shares, source = cost
    content = {**balance(step_ms, images, cpu_ms, cores, hosts), 'shares': shares, 'cpu_ms_source': source}
    print(json.dumps(content, indent=2) if own['json'] else _text(content))
    return 0


def _profiled(own: Dict[str, Any], command_line: CommandLine) -> Tuple[Cost, float, int, int]:
    """The numbers in a run's profile: the cost, a step's time on the device, images per host, number of hosts."""
    from tools.benchmarks import profiles

    flag = f'--profile={shown(own["profile"])}'
    needless = [name for name in ('step_ms', 'cpu_ms_per_image') if own[name] is not None]
    for name in [*needless, *sorted(command_line.given), *(['preset'] if command_line.preset else [])]:
        raise ConfigError(f'--{name}: leave it out; {flag} has the numbers of its run.')
    profile = profiles.read(own['profile'])
    cpu_ms = profiles.host_cpu_ms_per_image(profile)
    if not profile.device_ms or not cpu_ms:
        idle = 'host' if profile.device_ms else 'device'
        raise ConfigError(
            f'{flag}: the profile shows no work of the {idle}. Profile other steps, with --profile_steps=A,B.'
        )
    where = f'at most; steps {profile.first} to {profile.last} of {shown(own["profile"])}, on {profile.device}'
    return (cpu_ms, profile.shares, where), profile.device_ms, profile.images // profile.hosts, profile.hosts


def _cost(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> Cost:
    from data import records

    if own['cpu_ms_per_image'] is not None:
        return own['cpu_ms_per_image'], {}, 'as given'
    screen.update('reading the data set, or generating it')
    config = command.input_config(command_line, [records.TRAIN])
    pipeline = variant_of('train', False, config, own['images'])
    measured: Dict[Pipeline, List[List[Measurement]]] = {pipeline: []}
    for repeat in range(own['repeats']):
        screen.update(f'round {repeat + 1} of {own["repeats"]}')
        measured[pipeline].append(measurement.measure(pipeline.runs))
    (row,) = rows_of(measured)
    # Noise can make the difference of a small phase negative.
    shares = {phase: max(0.0, row.share(phase)) for phase in PHASES}
    shares = {phase: share / sum(shares.values()) for phase, share in shares.items()}
    where = f'measured here with {config.source}, on {tables.machine()}'
    return row.spread('cpu_ms').median, shares, where


def _text(content: Dict[str, Any]) -> str:
    shares = ', '.join(f'{phase} {share:.0%}' for phase, share in content['shares'].items())
    verdict = (
        'host-bound: a step takes {period_ms:,.0f} ms instead of {step_ms:,.0f}; the device waits {device_idle:.0%} of '
        'the time'
        if content['host_bound']
        else "device-bound: the host's cores wait {host_idle:.0%} of the time"
    )
    return (verdict + _TEXT).format(**content, texts=shares and f': {shares}')


if __name__ == '__main__':
    sys.exit(main(sys.argv))
