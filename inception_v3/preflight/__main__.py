"""Says whether a run may start on a TPU, without one: python -m inception_v3.preflight --topology=v2-8 [any flags]."""

import dataclasses
import sys
from typing import Container, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf
from absl import app

from console.screen import Screen, failure, set_up_logging
from data import digits, records
from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import fit_to_data_set, makes_digits, splits_of
from inception_v3.preflight import graph_report, storage, tpu_memory, xla_step
from inception_v3.preflight.report import Report
from inception_v3.tpu import topology
from inception_v3.tpu.topology import CLOUD_TPUS, Topology

_FAILED = 1
_INTERRUPTED = 130
_GIB = 1 << 30
# TPUs lay the images of a batch out in groups of as many, at least.
_SUBLANES = 8
_NOT_GIVEN = '--{}: not given. The run needs it; it was not tried here.'
# Batches that the warm-up is for, from this size on.
_LARGE_BATCH = 4096

_OWN_FLAGS = {
    'topology': flags.OwnFlag(
        str,
        '',
        f'the Cloud TPU that the run is for: {", ".join(CLOUD_TPUS)}; default: the emulated one that --tpu names',
    ),
    'xla': flags.OwnFlag(
        bool, False, 'compile a training step of two images with XLA for this CPU, too, and run it once'
    ),
    'json': flags.OwnFlag(bool, False, 'print the report as a JSON object'),
}


def main(argv: Sequence[str]) -> int:
    """Examines a command line, prints the report, and returns 0 if the run may start."""
    screen = Screen(sys.stderr)
    verbose = False
    try:
        given = flags.read(argv, _OWN_FLAGS)
        own = given.own
        if given.help:
            purpose = 'Says whether a run may start on a TPU, without one: exit code 0, else 1.'
            print(flags.help_text('inception_v3.preflight', purpose, given, _OWN_FLAGS))
            return 0
        verbose = given.verbose
        set_up_logging(screen, verbose)
        if own['xla']:
            xla_step.compile_fast()
        report = examine(_topology(own['topology'], given), given, own['xla'], screen)
    except app.UsageError as error:
        screen.clear()
        print(f'error: {error}', file=sys.stderr)
        return error.exitcode
    except KeyboardInterrupt:
        screen.clear()
        return _INTERRUPTED
    except (OSError, tf.errors.OpError) as error:
        if verbose:
            raise
        screen.clear()
        print(f'error: {failure(error)}', file=sys.stderr)
        return _FAILED
    screen.clear()
    print(report.json() if own['json'] else report.text())
    return 0 if report.may_start else 1


def _topology(name: str, given: flags.Given) -> Topology:
    tpu = given.fields.get('tpu')
    if name in CLOUD_TPUS:
        return CLOUD_TPUS[name]
    if name or not topology.is_emulated(tpu):
        problem = f'--topology={name}: no such Cloud TPU' if name else '--topology: name the TPU that the run is for'
        raise ConfigError(f'{problem}: {", ".join(CLOUD_TPUS)}; or emulate one with --tpu=emulated:CORES.')
    try:
        return topology.emulated(str(tpu))
    except ValueError as error:
        raise ConfigError(f'--tpu={tpu}: {error}.')


def examine(tpu: Topology, given: flags.Given, with_xla: bool, screen: Screen) -> Report:
    """Checks everything about a run that can be checked without a TPU.

    Args:
      tpu: the TPU that the run is for.
      given: the run's flags.
      with_xla: compile and run a step on this CPU, too.
      screen: where the progress is shown.
    """
    report = Report(f'preflight of a run on {tpu.name}')
    _describe(tpu, report)
    config = _configuration(tpu, given, report)
    if not config:
        report.warn('Data and graphs were left out: they need values that fit together.')
        return report
    command_line = flags.CommandLine(config, frozenset(given.fields), given.preset)
    screen.update('trying out the folders')
    # What the TPU cannot reach was reported with the flags.
    read = _folders(config.use_data)
    untried = {'data_dir'} - {*read}
    untried |= {
        flag for flag in read if topology.out_of_reach(config.tpu, config.master, **{flag: getattr(config, flag)})
    }
    untried |= storage.unanswered(config, untried, report)
    if not config.model_dir:
        report.warn(_NOT_GIVEN.format('model_dir'))
    config, shards = _data(command_line, untried, report)
    storage.check_folders(config, untried, report)
    checkpoint = None if 'model_dir' in untried else storage.find_checkpoint(config, report)
    _check_schedule(config, report)
    if config.use_data == 'real':
        # Fewer than hosts, or none that can be listed, are reported; the graphs still have something to tell.
        listed = {split: max(count, tpu.hosts) for split, count in {**records.DOCUMENTED_SHARDS, **shards}.items()}
    else:
        listed = {}
    with storage.stand_in(config.data_format, listed) as (data_dir, model_dir):
        built = dataclasses.replace(config, data_dir=data_dir, model_dir=model_dir)
        for split in splits_of(config):
            screen.update(f'building the graph that reads the {split} files')
            graph_report.add(report, config, built, tpu, split, shards.get(split), checkpoint)
        report.add('estimate', 'of_activations', tpu_memory.ESTIMATE, tpu_memory.ESTIMATE)
        if with_xla:
            screen.update('compiling a training step with XLA for this CPU')
            _try_xla(built, report)
    return report


def _describe(tpu: Topology, report: Report) -> None:
    memory = f'{tpu.memory // _GIB} GiB each' if tpu.memory else "emulated, in this machine's memory"
    report.add('cluster', 'topology', tpu.name, tpu.name)
    report.add('cluster', 'cores', tpu.cores, f'{tpu.cores:,}, {memory}')
    report.add('cluster', 'hosts', tpu.hosts, f'{tpu.hosts:,}, each with {tpu.cores_per_host} cores')


def _folders(use_data: str) -> List[str]:
    """The flags of what the TPU's hosts read and write."""
    return [*(['data_dir'] if use_data == 'real' else []), 'model_dir']


def _configuration(tpu: Topology, given: flags.Given, report: Report) -> Optional[Config]:
    """The run's configuration on this TPU; None if it is none. What contradicts is reported, all of it."""
    fields = {**flags.with_preset(given), 'use_tpu': True, 'num_shards': tpu.cores}
    for name, why in (
        ('use_tpu', 'a run on the CPU needs no TPU, and no preflight'),
        ('num_shards', f'--topology={tpu.name} has {tpu.cores} cores. Leave --num_shards out, or say {tpu.cores}'),
    ):
        if given.fields.get(name, fields[name]) != fields[name]:
            report.error(f'--{name}={given.fields[name]}: {why}.')
    if topology.is_emulated(fields.get('tpu')) and fields['tpu'] != tpu.name:
        report.error(
            f'--tpu={fields["tpu"]}: the run cannot be on this and on --topology={tpu.name}. Give one of them.'
        )
        fields['tpu'] = None
    folders = {flag: fields.get(flag) for flag in _folders(fields.get('use_data', Config.use_data))}
    for problem in topology.out_of_reach(fields.get('tpu'), fields.get('master', ''), **folders):
        report.error(problem)
    try:
        return Config(**fields)
    except ConfigError as error:
        for problem in str(error).splitlines():
            report.error(problem)
        return None


def _data(command_line: flags.CommandLine, untried: Container[str], report: Report) -> Tuple[Config, Dict[str, int]]:
    """The configuration, fitted to its data set, and the number of record files by split."""
    config = command_line.config
    counts: Dict[str, int] = {}
    if config.use_data == 'fake':
        report.add('storage', 'data_dir', None, 'images are made up (--use_data=fake)')
        return config, counts
    if makes_digits(command_line):
        report.add('storage', 'data_dir', config.data_dir, f'{config.data_dir}: the run itself makes the digits there')
        return config, {records.TRAIN: digits.TRAIN_SHARDS, records.VALIDATION: digits.VALIDATION_SHARDS}
    if not config.data_dir or 'data_dir' in untried:
        if not config.data_dir:
            report.warn(_NOT_GIVEN.format('data_dir'))
        layout = ' and '.join(f'{split}-*-of-{count:05d}' for split, count in records.DOCUMENTED_SHARDS.items())
        words = f"ImageNet's layout is assumed, {layout}"
        report.add('storage', 'data_dir', None, f'{config.data_dir or "not given"}: {words}')
        return config, records.DOCUMENTED_SHARDS
    try:
        config = fit_to_data_set(command_line)
    except app.UsageError as error:
        report.error(str(error))
    counts = storage.count_shards(config, report)
    found = ', '.join(f'{count:,} {split} files' for split, count in counts.items()) or 'no files'
    report.add('storage', 'data_dir', config.data_dir, f'{config.data_dir}: {found}')
    return config, counts


def _check_schedule(config: Config, report: Report) -> None:
    """Values that no rule forbids, and that are seldom meant so."""
    trains = config.mode != 'eval'
    epochs = config.train_steps * config.train_batch_size / config.num_train_images
    start = config.cold_epochs + config.warmup_epochs
    if trains and config.use_learning_rate_warmup and epochs <= start:
        report.warn(
            f'--train_steps={config.train_steps}: {epochs:.1f} epochs end within the warm-up (--cold_epochs='
            f'{config.cold_epochs}, --warmup_epochs={config.warmup_epochs}).'
        )
    if trains and not config.use_learning_rate_warmup and config.train_batch_size >= _LARGE_BATCH:
        report.warn(
            f'--train_batch_size={config.train_batch_size}: batches of {_LARGE_BATCH} images and more are documented '
            'with --use_learning_rate_warmup.'
        )
    for name in ('train_batch_size', 'eval_batch_size'):
        share = getattr(config, name) // config.num_shards
        if share % _SUBLANES and (trains if name == 'train_batch_size' else config.mode != 'train'):
            report.warn(
                f'--{name}={getattr(config, name)}: {share} images per core; a TPU computes on multiples of '
                f'{_SUBLANES}, and what fills them up is wasted.'
            )
    if config.mode != 'train' and config.eval_total_size > config.num_eval_images:
        report.warn(
            f'--eval_total_size={config.eval_total_size}: there are {config.num_eval_images} validation images '
            '(--num_eval_images).'
        )


def _try_xla(config: Config, report: Report) -> None:
    section = 'xla_step'
    try:
        step = xla_step.run_once(config)
    except Exception as error:
        # Operations that XLA lacks, or anything that the graph is wrong by.
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        report.error(f'XLA cannot compile the training step: {_first_lines(message)}')
        return
    report.add(
        section, 'batch', step.batch_size, f'{step.batch_size} random images, a training step of one core, on this CPU'
    )
    report.add(section, 'size', [config.height, config.width], f'{config.height} x {config.width} pixels')
    report.add(section, 'seconds', step.seconds, f'{step.seconds:.1f} to compile and run once')
    report.add(section, 'loss', step.loss, f'{step.loss:.4f}')


def _first_lines(message: str) -> str:
    return ' '.join(message.split())[:1000]


if __name__ == '__main__':
    sys.exit(main(sys.argv))
