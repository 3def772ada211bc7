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
from typing import Any, Dict, List, Sequence, Tuple

from benchmarks import arguments, comparison, measurement, program, tables
from benchmarks.comparison import spread
from benchmarks.measurement import TRANSFER, Measurement, Run
from benchmarks.peers import environments
from console.errors import DONE, RETRY
from console.program import raise_on_sigterm
from console.screen import Screen
from console.tensorflow_versions import tf
from data import records, tfrecord
from inception_v3.config import Config
from inception_v3.flags import CommandLine, OwnFlag

# Flags of a run that all pipelines can follow.
_ALLOWED = frozenset({'height', 'width', 'train_batch_size', 'num_shards', 'crop_area_min', 'crop_aspect_ratio_max'})
# The largest changes of brightness, of 1, and of the factor of saturation, as in `distort_color_fast`.
_BRIGHTNESS, _SATURATION = 32 / 255, 0.5
PEERS: Dict[str, environments.Peer] = {
    **environments.with_tensorflow(ours='', ours_tar=''),
    'torchvision_pil': environments.Peer('torchvision', 'torchvision_input'),
    'torchvision_tensors': environments.Peer('torchvision', 'torchvision_input'),
    'webdataset': environments.Peer('webdataset', 'webdataset_input'),
    'dali': environments.Peer('nvidia.dali', 'dali_input'),
    'dali_fast': environments.Peer('nvidia.dali', 'dali_input'),
}
_OWN_FLAGS: Dict[str, OwnFlag] = {
    'peers': OwnFlag(str, None, f'pipelines to measure, comma-separated: {", ".join(PEERS)}; default: all'),
    'pythons': environments.PYTHONS,
    **arguments.MEASURING,
}
# A pipeline, and whether it distorts colours.
Subject = Tuple[str, bool]
Results = Dict[Subject, List[Measurement]]


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'benchmark-peers', str(__doc__).partition('\n\n')[2].strip(), _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> int:
    names = arguments.chosen('peers', own['peers'], [*PEERS])
    environments.check_flags(command_line, _ALLOWED)
    screen.update('generating the photographs')
    config = arguments.input_config(command_line, [records.TRAIN])
    pythons = environments.pythons_of(names, PEERS, own['pythons'])
    spec = _specification(config, own['images'])
    _prepare(config, spec)
    results, failed = environments.interleave(
        [(name, colour) for colour in (True, False) for name in pythons],
        own['repeats'],
        lambda subject: measure(*subject, pythons[subject[0]], config, spec),
        lambda words, subject: screen.update(f'{words}: {subject[0]}, {"with" if subject[1] else "without"} colour'),
    )
    screen.clear()
    missing = {name: PEERS[name].how for name in names if name not in pythons}
    show(names, results, missing, failed, own['json'], config.train_batch_size)
    return RETRY if failed else DONE


def _specification(config: Config, images: int) -> Dict[str, Any]:
    """The specification of a script, but for the library and the colour; see `meter`."""
    prefix = os.path.abspath(config.data_dir)
    return {
        'files': f'{prefix}-files',
        'shards': os.path.abspath(comparison.tar_dir(config)),
        'size': [config.height, config.width],
        'area': [config.crop_area_min, 1.0],
        'aspect': [1 / config.crop_aspect_ratio_max, config.crop_aspect_ratio_max],
        'brightness': _BRIGHTNESS,
        'saturation': _SATURATION,
        'batch_size': config.train_batch_size,
        'images': images,
        'workers': len(os.sched_getaffinity(0)),
    }


def _prepare(config: Config, spec: Dict[str, Any]) -> None:
    """Writes the photographs as tar shards and as JPEG files, unless they exist."""
    arguments.make_tar_shards(config, lambda line: None)
    if not os.path.exists(spec['files']):
        write_files(str(config.data_dir), spec['files'])


def write_files(data_dir: str, folder: str) -> None:
    """Writes the training images of records as files: FOLDER/LABEL/NUMBER.jpg."""
    unfinished = f'{folder}.unfinished'
    for shard, path in enumerate(records.find_shards(data_dir, records.TRAIN)):
        for number, serialized in enumerate(tfrecord.serialized_in(path)):
            features = tf.train.Example.FromString(serialized).features.feature
            label = features['image/class/label'].int64_list.value[0]
            place = pathlib.Path(unfinished, f'{label:04d}')
            place.mkdir(parents=True, exist_ok=True)
            (place / f'{shard:05d}-{number:05d}.jpg').write_bytes(features['image/encoded'].bytes_list.value[0])
    os.replace(unfinished, folder)


def measure(name: str, colour: bool, python: str, config: Config, spec: Dict[str, Any]) -> Measurement:
    """Measures a pipeline in a process of its own.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    peer = PEERS[name]
    if peer.script:
        found = environments.call(python, peer.script, {**spec, 'library': name, 'colour': colour})
        return Measurement(*(found[field] for field in Measurement._fields))
    is_tar = name.startswith('ours_tar')
    config = dataclasses.replace(
        config,
        data_dir=spec['shards'] if is_tar else config.data_dir,
        data_format='tar' if is_tar else 'tfrecord',
        transfer='float' if colour else 'uint8',
    )
    return measurement.measure(Run(False, True, TRANSFER, config, spec['images']), python)


def show(
    names: Sequence[str],
    results: Results,
    missing: Dict[str, str],
    failed: Dict[Subject, str],
    as_json: bool,
    batch_size: int,
) -> None:
    """Prints a row for each pipeline with and without colour; the ratios are to the first measured pipeline of ours."""
    rows: List[Dict[str, Any]] = []
    for colour in (True, False):
        ours: List[Measurement] = next(
            (results[name, colour] for name in names if name.startswith('ours') and (name, colour) in results), []
        )
        for name in names:
            row: Dict[str, Any] = {'pipeline': name, 'colour': colour}
            of_row = results.get((name, colour), [])
            if of_row:
                row.update(
                    {
                        field: spread([getattr(each, field) for each in of_row])._asdict()
                        for field in Measurement._fields[1:]
                    }
                )
                row['over_ours'] = (
                    spread([a.cpu_ms / b.cpu_ms for a, b in zip(of_row, ours)])._asdict() if ours else None
                )
            else:
                row['problem'] = (
                    f'not installed: {missing[name]}' if name in missing else f'failed: {failed[name, colour]}'
                )
            rows.append(row)
    if as_json:
        print(json.dumps({'host': tables.machine(), 'batch_size': batch_size, 'rows': rows}))
        return
    print(f'batches of {batch_size} training images; on {tables.machine()}')
    print('medians (least–greatest); with colour: float32, without: bytes; CPU time of all threads and processes\n')
    measured = [row for row in rows if 'problem' not in row]
    tables.show(
        ('pipeline', 'colour', 'CPU-ms / image', 'images/s', 'peak MB', 'this / ours'),
        [_texts(row) for row in measured],
        names=2,
    )
    for text in dict.fromkeys(f'{row["pipeline"]}: {row["problem"]}' for row in rows if 'problem' in row):
        print(text)


def _texts(row: Dict[str, Any]) -> List[str]:
    numbers = [('cpu_ms', 2), ('images_per_second', 0), ('peak_mb', 0), ('over_ours', 2)]
    return [
        row['pipeline'],
        'with' if row['colour'] else 'without',
        *(
            '{median:,.{d}f} ({least:,.{d}f}–{greatest:,.{d}f})'.format(**row[field], d=digits) if row[field] else '-'
            for field, digits in numbers
        ),
    ]


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
