"""Any content of a JSON file that a command reads: the command ignores the file, or ends with one message."""

import dataclasses
import json
import os
import pathlib
import sys
import time
from typing import Any, Callable, Dict, Tuple

import pytest

from compat.errors import CommandError
from console.screen import Screen
from data import dataset_info, record_counts, tfrecord
from data.tar import shard
from inception_v3 import flags, model_dir
from inception_v3.config import Config
from inception_v3.estimator import arguments_of
from inception_v3.model_dir import read_config, step_of
from inception_v3.run import profile, trainer_lock
from inception_v3.run.evaluations import read_evaluations
from inception_v3.run.export import origin
from inception_v3.run.starts import read_first_steps, read_starts
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.weights import sources
from tests.support.checkpoints import list_checkpoints
from tests.support.evaluations import DIGITS, EVALUATION
from tests.support.tiers import further
from tools import photo_pictures
from tools.benchmarks import profiles
from tools.datasets import archives, conversion
from tools.datasets.from_folder import image_sets, tables
from tools.datasets.imagenet import pipeline as imagenet_pipeline
from tools.datasets.imagenet import source
from tools.evaluate_report import predictions
from tools.predict import classifier
from tools.weights import foreign

CONTENTS = (
    *('{', 'null', '[]', '{}', '3', '"text"', 'NaN', '[null]', '{"a": null}', '[' * 100_000, '{"a":' * 100_000),
    *('1' + '0' * 5000, '[1, 2]', '[[1], 2, 3, 4, 5]'),
)


def _lock(folder: str) -> None:
    trainer_lock.is_claimed_elsewhere(folder)
    with TrainerLock(folder, 'now'):
        pass


def _counted(folder: str) -> None:
    pathlib.Path(folder, 'file').write_bytes(b'x' * 9)
    assert record_counts.count([os.path.join(folder, 'file')], lambda paths: [7] * len(paths)) == [(9, 7)]


READERS: Dict[str, Callable[[str], Any]] = {
    'trainer.json': _lock,
    'config.json': read_config,
    'starts.jsonl': read_starts,
    'results.jsonl': read_evaluations,
    'first_steps.json': read_first_steps,
    profile.JSON_FILE: profiles.read,
    origin._FILE: origin.read,
    'dataset.json': dataset_info.read,
    '.records.json': _counted,
    'conversion.json': lambda folder: conversion.settings_in(os.path.join(folder, 'conversion.json')),
    imagenet_pipeline.PLAN_NAME: imagenet_pipeline.read_plan,
    's.plan': lambda folder: imagenet_pipeline.read_shard_plan(folder, 's'),
    f's{imagenet_pipeline.REPORT_ENDING}': lambda folder: imagenet_pipeline.read_report(folder, 's'),
    imagenet_pipeline.FAILURE_NAME: imagenet_pipeline.raise_failure,
}


@pytest.mark.parametrize('name', READERS)
def test_damaged_json__is_ignored_or_one_message(name: str, tmp_path: Any) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for content in (*(each.encode() for each in CONTENTS), b'\xff\xfe{', b'\x00'):
        path.write_bytes(content)
        try:
            READERS[name](str(tmp_path))
        except CommandError as error:
            assert 0 < len(str(error)) < 800, content[:20]


VALID: Dict[str, Dict[str, Any]] = {
    'config.json': json.loads(Config().to_json()),
    'dataset.json': dataclasses.asdict(DIGITS),
    'results.jsonl': {**EVALUATION._asdict(), 'changed': ['a: 1 -> 2']},
}
WRONG: Tuple[Any, ...] = (
    *(None, True, -1, 0.5, 10**400, float('nan'), '', 'x\n', '\ud800'),
    *([], [None], ['a'], {}, {'a': None}),
)


def _with_list(folder: str) -> Any:
    list_checkpoints(folder, 1)
    pathlib.Path(folder, 'model.ckpt-1.index').touch()
    return model_dir.latest_checkpoint(folder)


def _with_flags(folder: str) -> Any:
    pathlib.Path(folder, 'flags').write_text(f'--flagfile={folder}/more')
    return flags.read(['', f'--flagfile={folder}/flags'])


# Readers of files that a user names, by the name of the file in a folder.
OF_USERS: Dict[str, Callable[[str], Any]] = {
    **{name: READERS[name] for name in ('config.json', 'dataset.json', 'results.jsonl', 'starts.jsonl')},
    'flags': lambda folder: flags.read(['', f'--flagfile={folder}/flags']),
    'more': _with_flags,
    'labels.csv': lambda folder: image_sets.find(folder, labels=tables.LabelFile(f'{folder}/labels.csv')),
    'a.jpg': lambda folder: photo_pictures.show([f'{folder}/a.jpg'], f'{folder}/out', 32, 0, Screen(sys.stderr)),
    'n01440764.tar': lambda folder: [*source.find_images(folder, [])],
    'a.xml': lambda folder: archives.read_file(f'{folder}/a.xml'),
    'weights.npz': lambda folder: sources.arrays(f'{folder}/weights.npz', '--init_from'),
    'weights.pth': lambda folder: foreign.read(f'{folder}/weights.pth'),
    'predictions.csv': predictions.read,
    'checkpoint': model_dir.list_of_checkpoints,
    'model.ckpt-1.index': lambda folder: step_of(f'{folder}/model.ckpt-1'),
    'model.ckpt-1.data-00000-of-00001': _with_list,
    'old.ckpt': lambda folder: sources.read(f'{folder}/old.ckpt'),
    'saved_model.pb': classifier.of_saved_model,
    'train-00000-of-00001': lambda folder: tfrecord.compression_of(f'{folder}/train-00000-of-00001'),
    'train-00000.tar': lambda folder: shard.Shard(f'{folder}/train-00000.tar'),
}


@pytest.mark.parametrize('name', [further(name) if name == 'a.jpg' else name for name in OF_USERS])
def test_what_is_no_regular_file__is_not_waited_for(name: str, tmp_path: Any) -> None:
    path = tmp_path / name
    os.mkfifo(str(path))
    with pytest.raises(CommandError, match=f'{name}.*is a named pipe'):
        OF_USERS[name](str(tmp_path))


@pytest.mark.parametrize('name', VALID)
def test_json__with_a_bad_field_is_ignored_or_one_message(name: str, tmp_path: Any) -> None:
    for field in VALID[name]:
        others = {key: value for key, value in VALID[name].items() if key != field}
        for values in (others, *({**others, field: wrong} for wrong in WRONG)):
            # A new file, because ext4 waits for the disk when a file's content is overwritten.
            if (tmp_path / name).exists():
                (tmp_path / name).unlink()
            (tmp_path / name).write_text(json.dumps(values))
            try:
                found = READERS[name](str(tmp_path))
            except CommandError as error:
                assert all(0 < len(line) < 800 and line.isprintable() for line in str(error).splitlines()), values
                continue
            if name == 'dataset.json':
                assert len(found.class_names) == found.num_classes and type(found.train_images) is int
            for evaluation in found if name == 'results.jsonl' else ():
                assert [type(value) for value in evaluation][:3] == [int, str, str]


@pytest.mark.parametrize(
    'wrong', [{'renewed': None}, {'renewed': 'now'}, {'process': '1/../self'}, {'birth': 5}, {'host': ['a']}]
)
def test_damaged_claim__is_named_and_replaced(wrong: Any, tmp_path: Any, caplog: Any) -> None:
    claim = {'host': 'far', 'process': 1, 'since': 's', 'machine': 'm', 'birth': None, 'renewed': time.time(), **wrong}
    (tmp_path / 'trainer.json').write_text(json.dumps(claim))
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    with TrainerLock(str(tmp_path), 'now'):
        assert json.loads((tmp_path / 'trainer.json').read_text())['process'] == os.getpid()
    assert f'trainer.json: is damaged, and names no process that trains here: {next(iter(wrong))} is ' in caplog.text


@pytest.mark.parametrize('value', ['{{', '[]', '{"cluster": 5}', '[' * 100_000])
def test_tf_config__is_named_if_tensorflow_cannot_use_it(value: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv('TF_CONFIG', value)
    with pytest.raises(CommandError, match=r'^TF_CONFIG=.*unset it'):
        arguments_of(Config(model_dir=str(tmp_path)), '')
