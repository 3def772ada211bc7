"""Compares the time of host and device per step: inception-v3 balance --step_ms=815 --cores=96 [any flags]."""

import json
import math
import os
import sys
from typing import Any, Dict, NamedTuple, Sequence

from benchmarks import arguments, comparison, program, tables
from benchmarks.measurement import PHASES, Failed, Measured, MeasurementError, interleave
from console.messages import shown
from console.screen import Screen
from data import records
from data.sources import source_of
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine, OwnFlag
from inception_v3.run.profiling import profile as profiles
from inception_v3.run.profiling.profile import Profile
from inception_v3.tpu import topology

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'profile': OwnFlag(str, None, 'model_dir of a run with --profile_steps, whose profile has all numbers of the run'),
    'step_ms': OwnFlag(float, None, 'time of a training step on the device for this batch, in ms, from a profile'),
    'cores': OwnFlag(int, None, "number of a host's cores; default: this machine's"),
    'hosts': OwnFlag(int, None, 'number of hosts that feed the run; default: one for every 8 of --num_shards'),
    'cpu_ms_per_image': OwnFlag(float, None, 'CPU time to prepare an image, in ms; default: measured on this machine'),
    **arguments.MEASURING,
}
_PURPOSE = (
    'Computes whether a training run waits for its host or for its device, for how long, and how many cores of the\n'
    'host would balance it. The published trace of a v2-8 with batches of 1,024 has steps of 815 ms.'
)


class Balance(NamedTuple):
    """The speeds of a host and of the devices that it feeds.

    A host's cores are assumed to share the work of a batch evenly, and to do nothing else.

    Attributes:
      step_ms: time of a training step on the device, in milliseconds.
      host_images: images that one host prepares for a step.
      cpu_ms_per_image: CPU time to prepare an image, in milliseconds of one core.
      cores: cores of the host.
      hosts: hosts of the run.
    """

    step_ms: float
    host_images: int
    cpu_ms_per_image: float
    cores: int
    hosts: int

    @property
    def host_ms(self) -> float:
        """Time in which the host prepares its share of a batch, in milliseconds."""
        return self.host_images * self.cpu_ms_per_image / self.cores

    @property
    def is_host_bound(self) -> bool:
        """Whether the device waits for the host."""
        return self.host_ms > self.step_ms

    @property
    def period_ms(self) -> float:
        """Time from step to step, in milliseconds: that of the slower side, because both work at the same time."""
        return max(self.host_ms, self.step_ms)

    @property
    def device_idle(self) -> float:
        """The fraction of the time in which the device waits."""
        return 1 - self.step_ms / self.period_ms

    @property
    def host_idle(self) -> float:
        """The fraction of the time in which the host's cores wait."""
        return 1 - self.host_ms / self.period_ms

    @property
    def balancing_cores(self) -> int:
        """The minimum number of cores with which the device does not wait."""
        return max(1, math.ceil(self.host_images * self.cpu_ms_per_image / self.step_ms))

    @property
    def images_per_second(self) -> float:
        """Throughput of the whole run."""
        return 1000 * self.hosts * self.host_images / self.period_ms


class Cost(NamedTuple):
    """The CPU time to prepare an image, in milliseconds, the shares of the phases, and the source of these numbers."""

    cpu_ms_per_image: float
    shares: Dict[str, float]
    source: str


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'balance', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    cores = own['cores'] or len(os.sched_getaffinity(0))
    if own['profile'] is not None:
        _check_profiled(own, command_line)
        profile = profiles.read(own['profile'])
        cost = _profiled_cost(own['profile'], profile)
        images = profile.images // profile.hosts
        balance = Balance(profile.device_ms, images, cost.cpu_ms_per_image, cores, profile.hosts)
    else:
        _check(own, command_line)
        cost = _cost(own, command_line, screen)
        screen.clear()
        hosts = own['hosts'] or topology.hosts_of(command_line.config)
        images = command_line.config.train_batch_size // hosts
        balance = Balance(own['step_ms'], images, cost.cpu_ms_per_image, cores, hosts)
    print(_json(balance, cost) if own['json'] else _text(balance, cost))
    return 0


def _check_profiled(own: Dict[str, Any], command_line: CommandLine) -> None:
    given = [name for name in ('step_ms', 'hosts', 'cpu_ms_per_image') if own[name] is not None]
    given += sorted(command_line.given)
    if given or command_line.preset is not None:
        name = given[0] if given else 'preset'
        raise ConfigError(f'--{name}: leave it out; --profile={shown(own["profile"])} has the numbers of its run.')


def _profiled_cost(model_dir: str, profile: Profile) -> Cost:
    if not profile.device_ms or not profile.host_cpu_ms_per_image:
        idle = 'host' if profile.device_ms else 'device'
        raise ConfigError(
            f'--profile={shown(model_dir)}: the profile shows no work of the {idle}. Profile other steps, with '
            '--profile_steps=A,B.'
        )
    where = f'at most; steps {profile.first} to {profile.last} of {shown(model_dir)}, on {profile.device}'
    return Cost(profile.host_cpu_ms_per_image, profile.shares, where)


def _check(own: Dict[str, Any], command_line: CommandLine) -> None:
    if own['step_ms'] is None:
        raise ConfigError(
            '--step_ms: is required: the time of a training step on the device, in ms. The published trace has 815 for '
            '1,024 images on a v2-8. --profile=MODEL_DIR reads it from a profile.'
        )
    hosts, batch_size = own['hosts'] or topology.hosts_of(command_line.config), command_line.config.train_batch_size
    if batch_size % hosts:
        raise ConfigError(f'--hosts={hosts}: must divide --train_batch_size={batch_size}. All hosts take equal shares.')


def _cost(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> Cost:
    if own['cpu_ms_per_image'] is not None:
        return Cost(own['cpu_ms_per_image'], {}, 'as given')
    screen.update('reading the data set, or generating it')
    config = arguments.input_config(command_line, [records.TRAIN])
    subject = comparison.ours('train', config, own['images'])
    measured: Measured = {}
    failed: Failed = {}
    interleave(comparison.runs_of([subject]), own['repeats'], screen.update, measured, failed)
    for problem in tables.failures(failed):
        raise MeasurementError(problem)
    (row,) = comparison.rows_of([subject], measured)
    # Noise can make the difference of a small phase negative.
    shares = {phase: max(0.0, row.share(phase)) for phase in PHASES}
    shares = {phase: share / sum(shares.values()) for phase, share in shares.items()}
    where = f'measured here with {source_of(config)}, on {tables.machine()}'
    return Cost(row.cpu_ms.median, shares, where)


def _verdict(balance: Balance) -> str:
    if balance.is_host_bound:
        return (
            f'host-bound: a step takes {balance.period_ms:,.0f} ms instead of {balance.step_ms:,.0f}; the device waits '
            f'{balance.device_idle:.0%} of the time'
        )
    return f"device-bound: the host's cores wait {balance.host_idle:.0%} of the time"


def _text(balance: Balance, cost: Cost) -> str:
    shares = ', '.join(f'{phase} {share:.0%}' for phase, share in cost.shares.items())
    rows = [
        ('device', f'{balance.step_ms:,.0f} ms per step'),
        (
            'host',
            f'{balance.host_ms:,.0f} ms per step: {balance.host_images:,} images with '
            f'{cost.cpu_ms_per_image:.2f} CPU-ms on {balance.cores:,} cores',
        ),
        ('CPU-ms per image', f'{cost.source}{": " if shares else ""}{shares}'),
        (
            'throughput',
            f'{balance.images_per_second:,.0f} images/s; hosts: {balance.hosts:,}',
        ),
        ('balance', f'with {balance.balancing_cores:,} cores per host or more, the device does not wait'),
        ('assumed', "the host's cores share the work evenly, are as fast as the measured ones, and do nothing else"),
    ]
    width = max(len(name) for name, _ in rows)
    return '\n'.join([_verdict(balance), '', *(f'{name:<{width}}  {text}' for name, text in rows)])


def _json(balance: Balance, cost: Cost) -> str:
    content = {
        **balance._asdict(),
        'host_ms': balance.host_ms,
        'host_bound': balance.is_host_bound,
        'period_ms': balance.period_ms,
        'device_idle': balance.device_idle,
        'host_idle': balance.host_idle,
        'balancing_cores': balance.balancing_cores,
        'images_per_second': balance.images_per_second,
        'shares': cost.shares,
        'cpu_ms_source': cost.source,
    }
    return json.dumps(content, indent=2)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
