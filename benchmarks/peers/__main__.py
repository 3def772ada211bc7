"""Compares the input pipeline with those of other libraries: inception-v3 benchmark-peers [--peers=ours_1.15,dali].

Every pipeline prepares the same generated photographs for training: read, decode, crop at random, resize, flip; and
with colour, distort brightness and saturation and finish as float32, else finish as bytes. Each measurement has a
process of its own, in the environment that has the library. A library that is not installed has a row that says how to
get it. Of the flags of a run, only sizes and the ranges of the crops are allowed.
"""

import dataclasses
import json
import os
import pathlib
import sys
from typing import Any, Dict, List, Sequence

from benchmarks import command, comparison, measurement, tables
from benchmarks.comparison import Spread, spread
from benchmarks.measurement import TRANSFER, Measurement, Run
from benchmarks.peers import environments
from benchmarks.peers.environments import Peer, Subject
from console.errors import DONE, RETRY
from console.program import raise_on_sigterm
from console.screen import Screen
from inception_v3.config import Config
from inception_v3.flags import CommandLine, OwnFlag

# Flags of a run that all pipelines can follow.
_ALLOWED = frozenset({'height', 'width', 'train_batch_size', 'num_shards', 'crop_area_min', 'crop_aspect_ratio_max'})
# The largest changes of brightness, of 1, and of the factor of saturation, as in `distort_color_fast`.
_BRIGHTNESS, _SATURATION = 32 / 255, 0.5
PEERS: Dict[str, Peer] = {
    **environments.with_tensorflow(ours='', ours_tar=''),
    'torchvision_pil': Peer('torchvision', 'torchvision'),
    'torchvision_tensors': Peer('torchvision', 'torchvision'),
    'webdataset': Peer('webdataset', 'webdataset'),
    'dali': Peer('nvidia.dali', 'dali'),
    'dali_fast': Peer('nvidia.dali', 'dali'),
}
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'peers': OwnFlag(str, None, f'pipelines to measure, comma-separated: {", ".join(PEERS)}; default: all'),
    'pythons': environments.PYTHONS,
    **command.MEASURING,
}
# Whether a pipeline distorts colours: the kinds of its measurements.
WITH, WITHOUT = 'with colour', 'without colour'


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return command.run(argv, 'benchmark-peers', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    names = command.chosen('peers', own['peers'], [*PEERS])
    environments.check_flags(command_line, _ALLOWED)
    screen.update('generating the photographs')
    config = command.input_config(command_line, ['train'])
    files, shards = f'{os.path.abspath(config.data_dir)}-files', os.path.abspath(comparison.tar_dir(config))
    command.make_tar_shards(config, shards)
    if not os.path.exists(files):
        write_files(str(config.data_dir), files)
    specification = {
        'task': 'input',
        'files': files,
        'shards': shards,
        'size': [config.height, config.width],
        'area': [config.crop_area_min, 1.0],
        'aspect': [1 / config.crop_aspect_ratio_max, config.crop_aspect_ratio_max],
        'brightness': _BRIGHTNESS,
        'saturation': _SATURATION,
        'batch_size': config.train_batch_size,
        'images': own['images'],
        'workers': len(os.sched_getaffinity(0)),
    }
    measured, problems, failed = environments.measure_installed(
        names, [WITH, WITHOUT], PEERS, own, lambda each, python: measure(each, python, config, specification), screen
    )
    show(names, measured, problems, own['json'], config.train_batch_size)
    return RETRY if failed else DONE


def write_files(data_dir: str, folder: str) -> None:
    """Writes the training images of records as files: FOLDER/LABEL/NUMBER.jpg."""
    from console.tensorflow_versions import tf
    from data import records, tfrecord_files

    unfinished = f'{folder}.unfinished'
    for shard, path in enumerate(records.find_shards(data_dir, records.TRAIN)):
        for number, serialized in enumerate(tfrecord_files.serialized_in(path)):
            features = tf.train.Example.FromString(serialized).features.feature
            label = features['image/class/label'].int64_list.value[0]
            place = pathlib.Path(unfinished, f'{label:04d}')
            place.mkdir(parents=True, exist_ok=True)
            (place / f'{shard:05d}-{number:05d}.jpg').write_bytes(features['image/encoded'].bytes_list.value[0])
    os.replace(unfinished, folder)


def measure(subject: Subject, python: str, config: Config, specification: Dict[str, Any]) -> Measurement:
    """Measures a pipeline in a process of its own.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    peer, has_colour = PEERS[subject.name], subject.kind == WITH
    if peer.script:
        content = {**specification, 'library': subject.name, 'colour': has_colour}
        found = environments.call(python, peer.script, json.dumps(content))
        return Measurement(*(found[field] for field in Measurement._fields))
    changes = {'transfer': 'float' if has_colour else 'uint8'}
    if subject.name.startswith('ours_tar'):
        changes.update(data_dir=specification['shards'], data_format='tar')
    run = Run(False, True, TRANSFER, dataclasses.replace(config, **changes), specification['images'])
    return measurement.measure(run, python)


def show(
    names: Sequence[str],
    measured: Dict[Subject, List[Measurement]],
    problems: Dict[Subject, str],
    as_json: bool,
    batch_size: int,
) -> None:
    """Prints a row for each pipeline with and without colour; the ratios are to the first measured pipeline of ours."""
    rows: List[Dict[str, Any]] = []
    for kind in (WITH, WITHOUT):
        ours = next((found for (name, its), found in measured.items() if its == kind and name.startswith('ours')), None)
        for name in names:
            rows.append({'pipeline': name, 'colour': kind == WITH})
            found = measured.get(Subject(name, kind), [])
            if found:
                for field in Measurement._fields[1:]:
                    rows[-1][field] = spread([getattr(each, field) for each in found])._asdict()
                ratios = [a.cpu_ms / b.cpu_ms for a, b in zip(found, ours or [])]
                rows[-1]['over_ours'] = spread(ratios)._asdict() if ratios else None
            else:
                rows[-1]['problem'] = problems[Subject(name, kind)]
    if as_json:
        print(json.dumps({'host': tables.machine(), 'batch_size': batch_size, 'rows': rows}))
        return
    print(f'batches of {batch_size} training images; on {tables.machine()}')
    print('medians (least–greatest); with colour: float32, without: bytes; CPU time of all threads and processes\n')
    digits = {'cpu_ms': 2, 'images_per_second': 0, 'peak_mb': 0, 'over_ours': 2}
    cells = [
        [
            row['pipeline'],
            'with' if row['colour'] else 'without',
            *(Spread(**row[field]).text(number) if row[field] else '-' for field, number in digits.items()),
        ]
        for row in rows
        if 'problem' not in row
    ]
    tables.show(('pipeline', 'colour', 'CPU-ms / image', 'images/s', 'peak MB', 'this / ours'), cells, names=2)
    for text in dict.fromkeys(f'{row["pipeline"]}: {row["problem"]}' for row in rows if 'problem' in row):
        print(text)


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
