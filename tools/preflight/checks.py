"""All checks of a preflight, in their order: flags, folders, data, schedule, graphs, a compiled step."""

import contextlib
import dataclasses
import itertools
import os
import tempfile
import threading
import time
from typing import Any, Container, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from absl import app

from compat import tf
from console.screen import Screen
from data import record_counts, records, remote
from data.dataset_info import FILE_NAME
from data.formats import FORMATS
from data.record_counts import FileRecords
from inception_v3 import class_weights, data_set, flags, rules
from inception_v3.class_weights import with_numbers
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_files, notes_on_files
from inception_v3.fitting import fit_to_data_set, makes_digits, with_class_weights
from inception_v3.input.bad_records import checker_of
from inception_v3.model_dir import check_writable, latest_checkpoint
from inception_v3.run import batch_norm_advice
from inception_v3.tpu import slices, topology
from inception_v3.tpu.slices import images_of_hosts
from inception_v3.tpu.topology import Topology
from tools.datasets import digits
from tools.estimate import weights_of
from tools.preflight import graphs
from tools.preflight.report import Report

_NOT_GIVEN = '--{}: not given, so it was not checked. The run needs it.'
_NOT_CHECKED = (
    'the TPU VM: its existence, type, software version, and the quota, capacity and price in its zone',
    "the rights of the TPU VM's service account; the folders were checked with this machine's credentials",
    'the region of the buckets, which should be that of the TPU VM',
    'data beyond the first file of each split; inception-v3 audit reads all files',
    "the layouts and the memory that the TPU's compiler chooses, and the speed of the run: an estimate of activations "
    'below the memory does not guarantee that the step fits',
)
_NOT_CHECKED_OF_GPUS = (
    'the GPUs: their number, type, driver, CUDA and memory; the graphs were built for devices of a CPU, without the '
    'kernels of GPUs and NCCL',
    'data beyond the first file of each split; inception-v3 audit reads all files',
    'the speed of the run, and its memory beyond the estimate, which was measured on CPUs',
)
_NOT_CHECKED_OF_MACHINES = (
    'the other machines: their ports, versions, data and view of model_dir, which the workers compare before training',
)
_NOT_CHECKED_OF_BALANCED = (
    'the weights of --class_weights=balanced: a run computes them, and reads all training files if dataset.json has no '
    'train_images_per_class for them',
)
# The version of TensorFlow on TPU VMs on which this program runs.
_TENSORFLOW = '2.15'
_LONGEST_MESSAGE = 1000
_NAMED_AT_MOST = 3
# TensorFlow retries requests for many minutes if a store does not answer.
_ANSWER_SECONDS = 60


def check(tpu: Optional[Topology], line: flags.CommandLine, with_xla: bool, screen: Screen) -> Report:
    """Runs every check of a run that needs no TPU and no GPU; on GPUs, `tpu` is None."""
    report = Report(f'preflight of a run on {tpu.name}' if tpu else 'preflight of a run on GPUs')
    if with_xla:
        graphs.compile_fast()
    if tpu:
        _describe(tpu, report)
    config = _configuration(tpu, line, report)
    if not config:
        report.warn('Data and graphs were not checked: they need a valid configuration.')
        return report
    if not tpu:
        tpu = _gpus_of(config, report)
    weights, has_numbers = config.class_weights, config.class_weights != class_weights.given(config)
    if weights == class_weights.BALANCED:
        # Counting the labels may read all files.
        config = dataclasses.replace(config, class_weights='')
    command_line = line._replace(config=config)
    screen.update('checking the folders')
    unchecked = _unchecked_folders(config, report)
    config, shards = _data(command_line, unchecked, report, screen)
    evaluated = _evaluated(config, tpu.hosts, unchecked, report)
    for flag, folder in (('model_dir', config.model_dir), ('export_dir', config.export_dir)):
        if folder and flag not in unchecked:
            with report.noting_errors():
                check_writable(flag, folder)
                report.add('storage', 'written, read and deleted', **{flag: folder})
    checkpoint = None
    with report.noting_errors():
        if config.model_dir and 'model_dir' not in unchecked:
            checkpoint = latest_checkpoint(config.model_dir)
    if checkpoint:
        report.add('storage', 'the run resumes from it', checkpoint=checkpoint)
    if config.mode != 'eval' and 'init_from' not in unchecked:
        _check_weights(config, checkpoint, report)
    if config.mode != 'eval' and not line.chooses_statistics and batch_norm_advice.decay_warning(config):
        report.warn(f'{batch_norm_advice.decay_warning(config)}.')
    _check_iterations(command_line, report)
    report.not_checked += _NOT_CHECKED if config.use_tpu else _NOT_CHECKED_OF_GPUS
    report.not_checked += _NOT_CHECKED_OF_MACHINES if config.machines > 1 else ()
    report.not_checked += _NOT_CHECKED_OF_BALANCED if weights == class_weights.BALANCED else ()
    stand_ins: Dict[str, int] = {}
    if config.use_data == 'real':
        # Missing files, or fewer files than hosts, have been reported; the graphs are built anyway.
        stand_ins = {split: max(n, tpu.hosts) for split, n in {**records.DOCUMENTED_SHARDS, **shards}.items()}
    with _stand_in(config.data_format, stand_ins, config.num_train_images) as (data_dir, model_dir):
        built = dataclasses.replace(config, data_dir=data_dir, train_files='', eval_files='', model_dir=model_dir)
        if weights and not has_numbers:
            # The graph is the same for all weights. A data set that cannot be read here gives no weights.
            built = dataclasses.replace(built, class_weights=with_numbers(weights, [1.0] * config.num_classes))
        for split in config.splits:
            screen.update(f'building the graph that reads the {split} files')
            graphs.check(report, config, built, tpu, split, shards.get(split), checkpoint, evaluated)
        if with_xla:
            screen.update('compiling a training step with XLA for this CPU')
            _try_xla(built, report)
    return report


def _describe(tpu: Topology, report: Report) -> None:
    """Reports the cores and hosts, what one can rent today, and how the run is started there."""
    memory = f'{tpu.memory // topology.GIB} GiB each' if tpu.memory else "emulated, sharing this machine's memory"
    report.add('cluster', topology=tpu.name)
    report.add('cluster', memory, cores=tpu.cores)
    report.add('cluster', f'each with {tpu.cores_per_host} cores', hosts=tpu.hosts)
    if not tpu.memory:
        return
    built_with, of_image = '.'.join(tf.__version__.split('.')[:2]), 'that of the image'
    if built_with != _TENSORFLOW:
        of_image += f'; {built_with} built the graphs below: check again with that (in a checkout, ./run --tf=2.15)'
    machines = '1 TPU VM' if tpu.hosts == 1 else f'{tpu.hosts} TPU VMs'
    report.add('software', f'{machines}; TPU nodes ended in April 2025', architecture='TPU VM')
    report.add('software', software_version=topology.software_version(tpu))
    report.add('software', of_image, tensorflow=_TENSORFLOW)
    command, where = './run --tf=image python -m inception_v3.main --tpu=local', 'in a checkout on the TPU VM'
    if tpu.hosts > 1:
        # On a slice, the program leaves its machine's TPU to the TensorFlow server there.
        run = 'TPU_LOAD_LIBRARY=0 ./run --tf=image python -m inception_v3.main'
        command, where = f'{run} --tpu=NAME --num_shards={tpu.cores}', 'in a checkout on the first TPU VM only'
    report.add('software', where, command=command)


def _gpus_of(config: Config, report: Report) -> Topology:
    """Reports the GPUs and machines of a run, and returns them as cores and hosts."""
    each = ' of each machine' if config.machines > 1 else ''
    report.add('cluster', f'GPUs{each}, each with a replica of the network', num_gpus=config.num_gpus)
    report.add('cluster', machines=config.machines, replicas=config.replicas)
    report.add('software', 'of this machine; the run needs one that is built for GPUs', tensorflow=tf.__version__)
    return Topology('GPUs', config.replicas, config.machines)


def _configuration(tpu: Optional[Topology], line: flags.CommandLine, report: Report) -> Optional[Config]:
    """Returns the run's configuration on this TPU. If it is not valid, reports every problem and returns None."""
    fields = flags.with_preset(line)
    if tpu:
        _settle_topology(tpu, line, fields, report)
    are_named = (
        fields.get('use_data', Config.use_data) == 'fake' or fields.get('train_files') or fields.get('eval_files')
    )
    folders = {flag: fields.get(flag) for flag in (*(() if are_named else ('data_dir',)), 'model_dir')}
    problems = topology.unreachable_folders(fields.get('tpu'), fields.get('master', ''), **folders) if tpu else []
    config = None
    try:
        config = Config(**fields)
        if tpu and are_named:
            problems += topology.unreachable_folders(config.tpu, config.master, **_places(config))
        # A wrong number of cores has been reported.
        contradictions = [*rules.contradictions(config, {*line.fields} - {'use_tpu', 'num_shards'})]
        config = None if contradictions else config
    except ConfigError as error:
        contradictions = str(error).splitlines()
    report.errors += [*problems, *contradictions]
    return config


def _settle_topology(tpu: Topology, line: flags.CommandLine, fields: Dict[str, Any], report: Report) -> None:
    """Sets the fields that a TPU determines, and reports flags that contradict it."""
    fields.update(use_tpu=True, num_shards=tpu.cores)
    for name, why in (
        ('use_tpu', 'a run on the CPU needs no preflight; for one on GPUs, give --num_gpus instead of a topology'),
        ('num_shards', f'--topology={tpu.name} has {tpu.cores} cores. Omit --num_shards, or set it to {tpu.cores}'),
    ):
        if line.fields.get(name, fields[name]) != fields[name]:
            report.error(f'--{name}={line.fields[name]}: {why}.')
    if topology.is_emulated(fields.get('tpu')) and fields['tpu'] != tpu.name:
        report.error(f'--tpu={fields["tpu"]}: contradicts --topology={tpu.name}. Give one of them.')
        fields['tpu'] = None


def _places(config: Config) -> Dict[str, str]:
    return config.source.places(config.splits) if config.use_data == 'real' else {}


def _are_checked(config: Config, unchecked: Container[str]) -> bool:
    """Whether the records have a location, and none of their locations is unchecked."""
    return config.source.is_named(config.splits) and not any(flag in unchecked for flag in _places(config))


def _unchecked_folders(config: Config, report: Report) -> List[str]:
    """Returns the flags of folders that cannot or need not be checked; reports remote folders that do not answer."""
    places = _places(config)
    used = {**places, 'model_dir': config.model_dir}
    # `_configuration` has reported folders that the TPU cannot reach.
    unchecked = [
        flag
        for flag, folder in used.items()
        if config.use_tpu
        and topology.unreachable_folders(config.tpu, config.master, **{flag: folder})
        # The description and the files of a data set on this machine are read; the same files belong in a bucket.
        and not (os.path.isdir(str(folder)) if flag == 'data_dir' else flag in places and '://' not in str(folder))
    ]
    remaining = {flag: folder for flag, folder in used.items() if flag not in unchecked}
    unchecked += _unanswered({**remaining, 'export_dir': config.export_dir, 'init_from': config.init_from}, report)
    if not config.model_dir:
        report.warn(_NOT_GIVEN.format('model_dir'))
    if config.use_tpu and not config.tpu and not config.master:
        report.warn('--tpu: no TPU is named, and without one the run does not start. Name it.')
    return unchecked


def _unanswered(folders: Mapping[str, Optional[str]], report: Report) -> Set[str]:
    """Reports remote folders, by flag, that do not answer in time, not even with an error, and returns their flags."""
    remotes = {flag: folder for flag, folder in folders.items() if folder and '://' in folder}
    # A request cannot be cancelled; a daemon thread does not keep the command from ending.
    looks = {flag: threading.Thread(target=_look_up, args=(folder,), daemon=True) for flag, folder in remotes.items()}
    for look in looks.values():
        look.start()
    deadline = time.monotonic() + _ANSWER_SECONDS
    silent = set()
    for flag, look in looks.items():
        look.join(max(0, deadline - time.monotonic()))
        if look.is_alive():
            silent.add(flag)
            report.error(
                f'--{flag}={folders[flag]}: no answer within {_ANSWER_SECONDS} seconds. Check the network and the '
                'credentials.'
            )
    return silent


def _look_up(folder: str) -> None:
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.exists(folder)


def _data(
    command_line: flags.CommandLine, unchecked: Container[str], report: Report, screen: Screen
) -> Tuple[Config, Dict[str, int]]:
    """Returns the configuration, fitted to its data set, and the number of record files per split."""
    config = command_line.config
    if config.use_data == 'fake':
        report.add('storage', 'synthetic images (--use_data=fake)', data_dir=None)
        with report.noting_errors():
            config = with_class_weights(config, None)
        return config, {}
    if makes_digits(command_line):
        report.add('storage', 'the run creates the digits there', data_dir=config.data_dir)
        return config, {records.TRAIN: digits.TRAIN_SHARDS, records.VALIDATION: digits.VALIDATION_SHARDS}
    if not _are_checked(config, unchecked):
        if not config.source.is_named(config.splits):
            report.warn(_NOT_GIVEN.format('data_dir'))
        layout = ' and '.join(f'{split}-*-of-{count:05d}' for split, count in records.DOCUMENTED_SHARDS.items())
        words = f"assuming ImageNet's layout, {layout}"
        report.add('storage', f'{config.source if _places(config) else "not given"}: {words}', data_dir=None)
        return config, records.DOCUMENTED_SHARDS
    try:
        config = fit_to_data_set(command_line)
        described = data_set.description_of(config)
    except app.UsageError as error:
        report.error(str(error))
    else:
        sizes = f'{config.num_train_images:,} training and {config.num_eval_images:,} validation images'
        missing = '' if described else f'no {FILE_NAME}; '
        note = f'{missing}{sizes}, {config.num_classes:,} classes'
        report.add('storage', note, data_set=described.name if described else None)
    counts = _count_shards(config, report, screen)
    found = ', '.join(f'{count:,} {split} files' for split, count in counts.items()) or 'no files'
    report.add('storage', found, data_dir=str(config.source))
    return config, counts


def _count_shards(config: Config, report: Report, screen: Screen) -> Dict[str, int]:
    """Reads the first file of each split, and returns the number of files per split that can be listed."""
    counts = {}
    for split in config.splits:
        with report.noting_errors():
            paths = config.source.find(split)
            counts[split] = len(paths)
            report.warnings += notes_on_files(config, split, paths)
            report.warnings += check_files(config, split, paths)
            with contextlib.closing(checker_of(config, split)) as checker:
                at_most = max(config.max_bad_records + 1, _NAMED_AT_MOST)
                bad = [*itertools.islice(checker.search(paths[:1], screen.update), at_most)]
            add = report.error if len(bad) > config.max_bad_records else report.warn
            skips = f'A run skips at most {config.max_bad_records} records (--max_bad_records).'
            for record in bad[:_NAMED_AT_MOST]:
                add(f'{record} Repair the data. {skips}')
    return counts


def _evaluated(config: Config, hosts: int, unchecked: Container[str], report: Report) -> List[int]:
    """Returns the validation images of each host; if the records cannot be counted, all files are taken as equal."""
    if config.mode == 'train':
        return []
    # Errors are reported where the files are checked.
    with contextlib.suppress(app.UsageError):
        if config.use_data == 'fake' or _are_checked(config, unchecked):
            described = data_set.description_of(config)
            is_remote = config.use_data == 'real' and remote.is_remote(config.source.place(records.VALIDATION))
            # Without the numbers in the description, all remote files would be read.
            if is_remote and not (described and described.validation_records_per_file):
                report.not_checked.append(
                    f'the images of each host, computed as if all files were equal: {FILE_NAME} lacks '
                    'validation_records_per_file'
                )
            else:
                counted = images_of_hosts(config, hosts)
                if sum(counted):
                    return counted
    total, files = config.eval_images, records.DOCUMENTED_SHARDS[records.VALIDATION]
    return slices.shares_of([*map(len, records.shares(total, files))], hosts)


@contextlib.contextmanager
def _stand_in(data_format: str, counts: Dict[str, int], train_images: int) -> Iterator[Tuple[str, str]]:
    """Makes temporary folders for building graphs, and yields their paths: a data_dir and an empty model_dir.

    Building a graph lists the files of each split, as many as `counts`, but does not read them. With a seed, it divides
    the `train_images` among the hosts.
    """
    with tempfile.TemporaryDirectory() as data_dir, tempfile.TemporaryDirectory() as model_dir:
        counted = {}
        for split, count in counts.items():
            for shard in range(count):
                # All records are in the first file: only their sum counts. A record has at least a byte.
                images = 0 if shard or split != records.TRAIN else train_images
                path = FORMATS[data_format].shard_path(data_dir, split, shard, count)
                with open(path, 'wb') as file:
                    file.truncate(images)
                if split == records.TRAIN:
                    counted[os.path.basename(path)] = FileRecords(images, images)
        record_counts.write(f'{data_dir}/', counted)
        yield data_dir, model_dir


def _check_weights(config: Config, checkpoint: Optional[str], report: Report) -> None:
    with report.noting_errors():
        rows, warnings = weights_of(config, checkpoint)
        for name, text in rows:
            report.add('weights', **{name.replace(' ', '_'): text})
        report.warnings += [f'{text}.' for text in warnings]


def _check_iterations(command_line: flags.CommandLine, report: Report) -> None:
    """Reports loops that are longer than the steps between checkpoints; the default is shortened silently."""
    config = command_line.config
    if not config.use_tpu:
        return
    cycle = {'train': config.train_steps, 'train_and_eval': config.train_steps_per_eval}.get(config.mode)
    if 'iterations' in command_line.given and cycle and config.iterations > min(cycle, config.train_steps):
        flag = 'train_steps' if config.mode == 'train' or config.train_steps < cycle else 'train_steps_per_eval'
        report.error(
            f'--iterations={config.iterations}: longer than --{flag}={getattr(config, flag)}, the steps up to a '
            'checkpoint: no checkpoint is written inside a loop, so --save_checkpoints_secs has no effect. Set '
            '--iterations to 100, the default.'
        )


def _try_xla(config: Config, report: Report) -> None:
    try:
        loss, seconds = graphs.run_compiled(config)
    except Exception as error:
        # The report must name any error: an operation that XLA lacks, or another fault of the graph.
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        report.error(f'XLA cannot compile the training step: {" ".join(message.split())[:_LONGEST_MESSAGE]}')
        return
    report.add('xla_step', 'random images, a training step of one core, on this CPU', batch=graphs.COMPILED_BATCH)
    report.add('xla_step', size=[config.height, config.width], loss=loss)
    report.add('xla_step', 'to compile and run once', seconds=seconds)
