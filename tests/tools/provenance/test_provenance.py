"""Tests of provenance: the record of a run, the verification of its first steps, comparisons, and RO-Crates."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from compat import tf
from data import dataset_info, records
from data.sources import Source
from inception_v3.config import Config
from inception_v3.model_dir import digest_of_values
from inception_v3.run.evaluations import Evaluation
from inception_v3.run.starts import Start, read_first_steps, read_starts, this_start, write_first_steps
from tests.support import commands
from tests.support.checkpoints import saved_variables
from tests.support.recorded import write_start
from tests.support.runs import all_steps, evaluations, execute, make_small_config, one_layer_run
from tools.datasets import fingerprints
from tools.provenance import __main__ as provenance
from tools.provenance import crate, record, verification
from tools.provenance.record import Checkpoint, Difference, RunRecord
from tools.weights.writing import write_checkpoint


def seeded(photo_dir: str, model_dir: Any, **changes: Any) -> Config:
    """The configuration of a run with a seed, on five photographs."""
    sizes = {'num_train_images': 5, 'num_eval_images': 5, 'num_classes': 6, 'train_batch_size': 4, 'eval_batch_size': 6}
    steps = {'train_steps_per_eval': 2, 'train_steps': 3, 'seed': 7, 'intra_op_threads': 2, 'schedule': 'cosine'}
    return make_small_config(photo_dir, model_dir=str(model_dir), **{**sizes, **steps, **changes})


@pytest.fixture(scope='module')
def trained(photo_dir: str, tmp_path_factory: Any) -> str:
    """The model_dir of a run of three steps in two cycles."""
    config = seeded(photo_dir, '', keep_best=True)
    return str(one_layer_run(tmp_path_factory, 'seeded-run', config).config.model_dir)


@pytest.fixture
def run(trained: str, tmp_path: Any) -> str:
    """A copy of the run that a test may change."""
    return shutil.copytree(trained, str(tmp_path / 'run'))


@pytest.fixture
def in_this_process(one_layer: None, monkeypatch: Any) -> List[List[int]]:
    """Repeats first steps in this process, where the network has one layer; returns the steps of the checkpoints."""
    steps: List[List[int]] = []

    def repeat(config: Config, last: int) -> None:
        execute(config, until_step=last)
        steps.append(all_steps(config))

    monkeypatch.setattr(verification, '_run', repeat)
    return steps


@pytest.fixture
def repeated_exactly(trained: str, photo_dir: str, monkeypatch: Any) -> List[Config]:
    """Takes the records of the run itself for those of its repetition; returns the configurations of repetitions."""
    repetitions: List[Config] = []

    def repeat(config: Config, last: int) -> None:
        repetitions.append(config)
        write_first_steps(str(config.model_dir), [step for step in read_first_steps(trained) if step.step <= last])
        # The data set of the repetition may not exist.
        write_start(dataclasses.replace(config, data_dir=photo_dir), dataset_info.read(photo_dir))

    monkeypatch.setattr(verification, '_run', repeat)
    return repetitions


def run_provenance(*arguments: Any) -> commands.Done:
    return commands.run(provenance.main, *arguments)


def rewrite_start(run: str, change: Callable[[Dict[str, Any]], Any], position: int = 0) -> None:
    path = pathlib.Path(run, 'starts.jsonl')
    starts = [json.loads(line) for line in path.read_text().splitlines()]
    change(starts[position])
    path.write_text(''.join(json.dumps(start) + '\n' for start in starts))


def rewrite_step(run: str, position: int, **values: Any) -> None:
    steps = read_first_steps(run)
    steps[position] = steps[position]._replace(**values)
    write_first_steps(run, steps)


def test_digest__depends_on_names_types_shapes_and_values() -> None:
    base = {'b': np.arange(6, dtype=np.float32), 'a': np.array(3)}
    others = [
        {**base, 'a': np.array(4)},
        {**base, 'a': np.array([3])},
        {**base, 'a': np.array(3, np.int32)},
        {**base, 'b': base['b'].reshape([2, 3])},
        {**base, 'b': base['b'] * np.float32(1 + 2**-23)},
        {'b': base['b'], 'c': base['a']},
        {'b': base['b']},
    ]
    assert digest_of_values(dict(reversed([*base.items()]))) == digest_of_values(base)
    assert len({digest_of_values(values) for values in [base, *others]}) == 1 + len(others)


def test_provenance__shows_origin_and_results_of_a_run(run: str, trained: str, photo_dir: str) -> None:
    config = seeded(photo_dir, trained, keep_best=True)
    # A second start of the same run.
    write_start(dataclasses.replace(config, model_dir=run), None)
    found = record.read(run)
    assert found.config == dataclasses.replace(config, model_dir=run)
    assert [(start.step, start.checkpoint) for start in found.starts] == [(0, ''), (3, 'model.ckpt-3')]
    assert [start.config['model_dir'] for start in found.starts] == [trained, run]
    assert [each.step for each in found.evaluations] == [2, 3]
    checkpoints = {each.checkpoint: each.digest for each in found.checkpoints}
    best = max(evaluations(config), key=lambda evaluation: evaluation.top_1).step
    assert [each.step for each in found.checkpoints] == sorted([0, 2, 3, best])
    kept = f'best/step-{best}/model.ckpt-{best}'
    assert checkpoints.keys() == {*(f'model.ckpt-{step}' for step in (0, 2, 3)), kept}
    assert checkpoints[kept] == checkpoints[f'model.ckpt-{best}']
    assert len({*checkpoints.values()}) == 3
    # The digest recorded during training equals the digest of the checkpoint of the same step.
    recorded = {step.step: step.digest for step in read_first_steps(run)}
    assert recorded.keys() == {1, 2, 3}
    assert all(recorded[step] == checkpoints[f'model.ckpt-{step}'] for step in (2, 3))

    shutil.copy(os.path.join(run, 'model.ckpt-2.index'), os.path.join(run, 'model.ckpt-9.index'))
    code, out, err = run_provenance(run)
    assert (code, err) == (0, '')
    assert 'learning_rate ' not in out
    for part in ('seed  7', 'started at step 0', 'started at step 3', 'photos', 'train_steps', 'cores', kept):
        assert part in out, part
    assert f'step 3, digest {checkpoints["model.ckpt-3"]}' in out
    (damaged,) = [line for line in out.splitlines() if 'model.ckpt-9' in line]
    assert 'digest' not in damaged


@pytest.mark.program
def test_verify__emulated_cores_record_one_step_per_loop(photo_dir: str, tmp_path: Any, in_this_process: None) -> None:
    model_dir = str(tmp_path / 'run')
    cores: Dict[str, Any] = {'tpu': 'emulated:2', 'use_tpu': True, 'num_shards': 2, 'iterations': 4}
    execute(seeded(photo_dir, model_dir, **cores, mode='train', train_steps=8))
    assert [step.step for step in read_first_steps(model_dir)] == [4, 8]
    code, out, _ = run_provenance(model_dir, '--verify')
    assert (code, out) == (0, 'loss and variables are equal bit for bit; compared after step 4, 8\n')


def test_verify__repeats_all_recorded_steps(run: str, in_this_process: List[List[int]]) -> None:
    # The cosine depends on the last step of training, which is recorded only in short runs.
    write_first_steps(run, read_first_steps(run)[:2])
    before = sorted(os.listdir(run))
    code, out, _ = run_provenance(run, '--verify')
    assert (code, out) == (0, 'loss and variables are equal bit for bit; compared after step 1, 2\n')
    assert sorted(os.listdir(run)) == before and in_this_process == [[0, 2]]
    # A recorded configuration with a wrong learning rate.
    rewrite_start(run, lambda start: start['config'].update(learning_rate=0.5))
    code, out, _ = run_provenance(run, '--verify')
    old, new = re.findall(r'  digest  (\w+) -> (\w+)\n', out)[0]
    assert code == 2 and old != new and 'different after step 1; compared after step 1, 2\n' in out


def test_verify__tells_equal_from_different_steps(run: str, repeated_exactly: List[Config]) -> None:
    (digest,) = [step.digest for step in read_first_steps(run) if step.step == 2]
    # The first of two different steps is shown.
    rewrite_step(run, 1, digest='0' * 64)
    rewrite_step(run, 2, digest='1' * 64)
    rewrite_start(run, lambda start: start.update(fingerprint='f' * 64, host={**start['host'], 'cores': 512}))
    code, out, _ = run_provenance(run, '--verify')
    assert code == 2
    for text in (
        'different after step 2; compared after step 1, 2, 3',
        f'digest  {"0" * 64} -> {digest}',
        f'host cores  512 -> {len(os.sched_getaffinity(0))}',
    ):
        assert text in out
    assert re.search(f'fingerprint +{"f" * 64} -> none', out)
    # Another loss, of the same variables.
    rewrite_step(run, 0, loss=0.5)
    code, out, _ = run_provenance(run, '--verify')
    assert code == 2 and 'different after step 1; compared after step 1' in out and 'loss    0.5 -> ' in out


def test_verify__compares_every_image_and_label_of_the_data_set(
    run: str, photo_dir: str, tmp_path: Any, repeated_exactly: List[Config]
) -> None:
    data_dir = shutil.copytree(photo_dir, str(tmp_path / 'data'))
    info = dataset_info.read(data_dir)
    assert info
    fingerprint = fingerprints.fingerprint_of(Source(data_dir), info)
    described = dataclasses.replace(info, fingerprint=fingerprint).write(data_dir)

    def began_here(start: Dict[str, Any]) -> None:
        start['config'].update(data_dir=data_dir)
        start.update(fingerprint=fingerprint, description=dataclasses.asdict(described))

    rewrite_start(run, began_here)
    assert run_provenance(run, '--verify')[:2] == (
        *(0, 'loss and variables are equal bit for bit; compared after step 1, 2, 3\n'),
    )
    # A label of one image, in place; dataset.json stays as it is.
    path = records.find_shards(data_dir, 'validation')[0]
    examples = [tf.train.Example.FromString(each) for each in tf.io.tf_record_iterator(path)]
    examples[0].features.feature['image/class/label'].int64_list.value[0] %= 5
    examples[0].features.feature['image/class/label'].int64_list.value[0] += 1
    with tf.io.TFRecordWriter(path) as writer:
        for example in examples:
            writer.write(example.SerializeToString())
    code, out, _ = run_provenance(run, '--verify')
    assert code == 2 and 'equal bit for bit' in out and 'the data set was changed after the start' in out
    assert f'fingerprint of the images and labels  {fingerprint} -> ' in out and 'validation files  ' in out
    # The steps differ, too.
    rewrite_step(run, 1, digest='0' * 64)
    assert f'{fingerprint} -> ' in run_provenance(run, '--verify').stdout


def test_verify__repeats_the_training_of_the_last_start_from_zero_alone(
    run: str, photo_dir: str, repeated_exactly: List[Config]
) -> None:
    # A second start, which resumes from step 3.
    write_start(seeded(photo_dir, run, learning_rate=0.9), None)

    def first(start: Dict[str, Any]) -> None:
        start['config'].update(data_dir='photos', export_dir='exported', keep_best=True, mode='train_and_eval')
        start['directory'] = '/began/here'

    rewrite_start(run, first)
    run_provenance(run, '--verify')
    (repetition,) = repeated_exactly
    assert repetition.data_dir == '/began/here/photos'
    assert (repetition.mode, repetition.train_steps, repetition.learning_rate) == ('train', 3, 0.165)
    assert (repetition.export_dir, repetition.keep_best) == (None, False)
    assert repetition.model_dir != run and not os.path.exists(str(repetition.model_dir))
    # The second start was at step 0, too: the first was killed before its first checkpoint.
    rewrite_start(run, lambda start: start.update(step=0, checkpoint=''), 1)
    run_provenance(run, '--verify')
    assert repeated_exactly[-1].learning_rate == 0.9


@pytest.mark.parametrize(('path', 'found'), [('w', '/start/w'), ('/w', '/w'), ('s3://b/w', 's3://b/w'), ('', '')])
def test_repetition__finds_data_and_weights_from_the_folder_of_the_start(path: str, found: str) -> None:
    config = Config(use_tpu=False, data_dir=path, init_from=path, train_steps=60, profile_steps='51,55')
    repeated = verification._repetition_of(config, '/start', 'm')
    assert (repeated.data_dir, repeated.init_from) == (found, found)
    assert (repeated.train_steps, repeated.profile_steps) == (60, '')


def test_repetition__has_the_weights_of_many_classes(tmp_path: Any, monkeypatch: Any) -> None:
    # Longer than an argument of a program may be.
    config = Config(class_weights=f'balanced={",".join(["0.123456789"] * 21842)}')
    monkeypatch.setattr(verification.processes, 'module', lambda name, *words: ['tee', str(tmp_path / 'in')])
    verification._run(config, 3)
    assert Config.from_json((tmp_path / 'in').read_text()) == config
    (difference,) = record.differences(run_of(), run_of(config))['configuration']
    for text in (run_of(config).text(), str(difference)):
        assert 'balanced=0.12' in text and len(text) < 1500


# The module, with the network of the recorded run.
OF_ONE_LAYER = """
import sys
from tools.provenance import verification
from tests.support.runs import NETWORKS, ONE_LAYER
NETWORKS['inception_v3'] = ONE_LAYER
sys.exit(verification.main())
"""


@pytest.mark.program
def test_verify__repeats_the_steps_in_a_new_process(run: str, monkeypatch: Any) -> None:
    # Settings that a command line may not have together.
    rewrite_start(run, lambda start: start['config'].update(min_eval_interval=7, warmup_epochs=9))
    for program, expected, part in (
        ([sys.executable, '-c', OF_ONE_LAYER], 0, ''),
        (['false'], 2, 'the program ended with exit code 1'),
    ):
        monkeypatch.setattr(verification.processes, 'module', lambda name, *words, program=program: [*program, *words])
        code, _, err = run_provenance(run, '--verify')
        assert code == expected and part in err


STEPS = [{'step': step, 'loss': 1.0, 'digest': ''} for step in (4, 8)]


@pytest.mark.parametrize(
    ('change', 'steps', 'part'),
    [
        (lambda start: start['config'].pop('seed'), STEPS, 'the run had no --seed'),
        (lambda start: start['config'].update(use_tpu=True, tpu='n', num_shards=2), STEPS, 'the run was on a TPU'),
        (lambda start: start['config'].update(worker_hosts='a:1,b:1', task_index=0), STEPS, 'was on 2 machines'),
        (lambda start: start.update(step=5, checkpoint='step-5/model.ckpt-5'), STEPS, 'at step 5, from step-5/model'),
        (lambda start: start.clear(), STEPS, 'contains no start of training; name the model_dir of a run'),
        (lambda start: None, [], 'first_steps.json contains no steps'),
    ],
)
def test_verify__refuses_what_cannot_be_repeated(change: Callable, steps: List[Any], part: str, tmp_path: Any) -> None:
    start = this_start(Config(use_tpu=False, seed=3, model_dir=str(tmp_path)), None)._asdict()
    change(start)
    (tmp_path / 'starts.jsonl').write_text(json.dumps(start) + '\n')
    (tmp_path / 'first_steps.json').write_text(json.dumps(steps))
    code, out, err = run_provenance(str(tmp_path), '--verify')
    assert (code, out) == (2, '') and part in err and 'error: ' in err


def test_provenance__refuses_wrong_arguments_by_name(tmp_path: Any) -> None:
    for content, part in (('', 'name the model_dir of a run'), ('{"no_such": 1}', 'config.json')):
        (tmp_path / 'config.json').write_text(content)
        for other in ('', f'--diff={tmp_path}'):
            code, out, err = run_provenance(str(tmp_path), *filter(None, [other]))
            assert (code, out) == (2, '') and err.startswith(f'error: {tmp_path}/') and part in err
    code, _, err = run_provenance('m', '--verify', '--diff=m')
    assert code == 2 and '--diff' in err


def test_diff__tells_equal_from_different_runs(run: str, photo_dir: str, tmp_path: Any) -> None:
    same = shutil.copytree(run, str(tmp_path / 'same'))
    # Another folder and another command do not make a run different.
    pathlib.Path(same, 'config.json').write_text(seeded(photo_dir, same).to_json())
    rewrite_start(same, lambda start: start.update(command=['main', '--other']))
    code, out, err = run_provenance(run, f'--diff={same}')
    assert (code, err) == (0, ''), out
    assert 'compared 2 evaluations and 3 checkpoints by step; same configuration, data and results' in out
    assert "-> ['main', '--other']" in out
    rewrite_start(same, lambda start: start.update(fingerprint='f' * 64))
    code, out, _ = run_provenance(run, f'--diff={same}')
    assert code == 2 and out.endswith('different: data\n')

    other = shutil.copytree(run, str(tmp_path / 'other'))
    pathlib.Path(other, 'config.json').write_text(seeded(photo_dir, other, learning_rate=0.1, train_steps=2).to_json())
    values = saved_variables(f'{run}/model.ckpt-2')
    write_checkpoint(f'{other}/model.ckpt-2', {**values, 'Layer/weights': values['Layer/weights'] + 1})
    results = pathlib.Path(other, 'results.jsonl')
    first, last = map(json.loads, results.read_text().splitlines())
    # As of an earlier version, whose lines have no digest.
    del first['check']
    results.write_text(json.dumps({**first, 'cross_entropy': 9.0}) + '\n' + json.dumps(last) + '\n')
    code, out, _ = run_provenance(run, f'--diff={other}')
    assert code == 2 and 'learning_rate  0.165 -> 0.1' in out and '\n\ndata\n    the same\n' in out
    assert out.endswith('compared 2 evaluations and 3 checkpoints by step; different: configuration, results\n')
    for text in ('  3 -> 2\n', '  step 2, average weights, cross_entropy  ', '  checkpoint of step 2'):
        assert text in out


def test_crate__describes_every_file_and_start_and_is_a_model_dir(run: str, photo_dir: str, tmp_path: Any) -> None:
    rocrate = pytest.importorskip('rocrate.rocrate')
    write_start(seeded(photo_dir, run, train_steps=9), dataset_info.read(photo_dir))
    folder = tmp_path / 'crate'
    code, out, err = run_provenance(run, f'--crate={folder}', '--license=CC-BY-4.0')
    assert (code, err) == (0, '')
    opened = rocrate.ROCrate(folder)
    written = json.loads((folder / 'ro-crate-metadata.json').read_text())
    # The library does not read a second context.
    assert 'https://w3id.org/ro/terms/workflow-run/context' in written['@context']
    assert opened.metadata.generate()['@graph'] == written['@graph']

    described = {each.id: each for each in opened.data_entities}
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob('*') if path.is_file()}
    contents.pop('ro-crate-metadata.json')
    assert {name: (each['contentSize'], each['sha256']) for name, each in described.items()} == {
        name: (str(len(content)), hashlib.sha256(content).hexdigest()) for name, content in contents.items()
    }
    assert f'{len(contents)} files, {sum(map(len, contents.values())) / 1e6:,.1f} MB' in out
    # The newest checkpoint and the best; files of the run are as they were.
    (best,) = (each.checkpoint for each in record.read(run).checkpoints if each.checkpoint.startswith('best/'))
    assert {name for name in contents if name.endswith('.index')} == {'model.ckpt-3.index', f'{best}.index'}
    beside_best = (path for path in pathlib.Path(run, 'best').rglob('*') if path.is_file())
    assert {path.relative_to(run).as_posix() for path in beside_best} < {*contents}
    made = {'checkpoint', 'dataset.json'}
    assert all(pathlib.Path(run, name).read_bytes() == contents[name] for name in contents.keys() - made)
    assert contents['dataset.json'] == pathlib.Path(photo_dir, 'dataset.json').read_bytes()

    first, second = opened.root_dataset['mentions']
    starts = read_starts(run)
    assert [action['startTime'] for action in (first, second)] == [start.time for start in starts]
    assert first['description'].split()[-1] == starts[0].command[-1]
    assert first['instrument']['version'] == starts[0].versions['inception_v3']
    assert {each['name']: each['version'] for each in first['instrument']['softwareRequirements']} == {
        name: starts[0].versions[name] for name in ('tensorflow', 'numpy')
    }
    assert [each.id for each in first['object']] == ['config.json', 'dataset.json']
    # The first start made both checkpoints; the evaluations are of the whole run.
    results = [each.id for each in first['result']]
    assert {'model.ckpt-3.index', f'{best}.index'} < {*results} and 'results.jsonl' not in results
    assert [each.id for each in second['result']] == ['results.jsonl']
    assert opened.license.id == 'https://spdx.org/licenses/CC-BY-4.0'
    assert opened.root_dataset['conformsTo'].id == 'https://w3id.org/ro/wfrun/process/0.5'
    assert 'top-1 ' in opened.description and 'photos' in opened.description

    old, new = record.read(run), record.read(str(folder))
    assert (new.starts, new.evaluations) == (old.starts, old.evaluations)
    assert {*new.checkpoints} == {each for each in old.checkpoints if each.step == 3 or 'best' in each.checkpoint}


def test_crate__is_refused_with_a_message_and_leaves_no_folder(run: str, tmp_path: Any, monkeypatch: Any) -> None:
    folder = tmp_path / 'crate'

    def refusal(at: Any = folder, model_dir: str = run) -> str:
        code, out, err = run_provenance(model_dir, f'--crate={at}', '--license=https://example.org/licence')
        assert (code, out) == (2, '')
        return err

    assert f'--crate={run}: is remote or exists already' in refusal(run) and 'gs://b' in refusal('gs://b')
    code, _, err = run_provenance(run, f'--crate={folder}')
    assert code == 2 and 'an RO-Crate must have a licence' in err
    without_start = tmp_path / 'without'
    without_start.mkdir()
    shutil.copy(os.path.join(run, 'config.json'), without_start)
    assert 'contains no start of training' in refusal(model_dir=str(without_start))
    monkeypatch.setitem(sys.modules, 'rocrate.rocrate', None)
    assert "pip install 'inception-v3-tpu[archive]' on Python 3.9 or later" in refusal()

    def full(*_: Any) -> None:
        raise OSError('no space left')

    monkeypatch.setitem(sys.modules, 'rocrate.rocrate', pytest)
    monkeypatch.setattr(pytest, 'ROCrate', None, raising=False)
    monkeypatch.setattr(crate.files, 'sha256', full)
    assert f'--crate={folder}: cannot be written: no space left' in refusal() and not folder.exists()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(crate.files, 'sha256', interrupted)
    assert run_provenance(run, f'--crate={folder}', '--license=https://example.org/licence')[0] == 130
    assert not folder.exists()


def start(**changes: Any) -> Start:
    values: Dict[str, Any] = {
        'step': 0,
        'checkpoint': '',
        'time': 'now',
        'command': ['main', '--seed=1'],
        'directory': '/here',
        'config': {},
        'data_set': 'digits',
        'fingerprint': '12' * 32,
        'versions': {'inception_v3': '1.0', 'source': 'ab' * 32, 'revision': 'cd' * 20, 'modified': True, 'numpy': '1'},
        'host': {'name': 'host', 'cores': 2, 'processor': 'p'},
    }
    return Start(**{**values, **changes})


def evaluation(step: int, **changes: Any) -> Evaluation:
    return Evaluation(step, f'model.ckpt-{step}', 'raw', 0.5, 0.75, 1.25, 359, 1.0, 'now')._replace(**changes)


def run_of(config: Config = Config(), **parts: Any) -> RunRecord:  # noqa: B008
    values: Dict[str, Any] = {'starts': [start()], 'evaluations': [], 'checkpoints': [], **parts}
    return RunRecord('runs/1', config, **values)


def compared(old: RunRecord, new: RunRecord) -> Dict[str, List[str]]:
    """The names of the differences, by section, without empty sections."""
    found = record.differences(old, new)
    return {section: [d.name for d in differences] for section, differences in found.items() if differences}


@pytest.mark.parametrize(
    ('changes', 'fingerprint', 'found'),
    [
        ({'learning_rate': 0.5}, '1', {'configuration': ['learning_rate']}),
        ({'model_dir': 'runs/2', 'export_dir': 'exported', 'keep_best': True}, '1', {}),
        ({'worker_hosts': 'a:1,b:1', 'task_index': 0}, '1', {'configuration': ['machines']}),
        # A fingerprint identifies the data set; without one, its path does.
        ({'data_dir': 'elsewhere'}, '1', {}),
        ({'data_dir': 'elsewhere'}, '', {'configuration': ['data_dir']}),
    ],
)
def test_differences__name_settings_that_affect_training(changes: Any, fingerprint: str, found: Any) -> None:
    starts = [start(fingerprint=fingerprint)]
    assert compared(run_of(starts=starts), run_of(Config(**changes), starts=starts)) == found


def test_differences__compare_the_last_starts() -> None:
    old = run_of(starts=[start(), start(step=5, checkpoint='model.ckpt-5')])
    assert compared(old, old) == {}
    # The first start does not matter.
    assert compared(old, run_of(starts=[start(fingerprint=''), old.starts[1]])) == {}
    assert compared(old, run_of(starts=old.starts[:1])) == {'surroundings': ['starts']}
    last = start(step=5, fingerprint='', data_set='', versions={'numpy': '2'}, host={'name': 'other'}, command=['x'])
    names = compared(run_of(starts=[start(step=5, versions={'numpy': '1'})]), run_of(starts=[last]))
    assert names == {
        'data': ['data_set', 'fingerprint'],
        'surroundings': ['numpy', 'host name', 'host cores', 'host processor', 'command'],
    }
    weights = [{'path': digest, 'step': 1, 'values': 9, 'digest': digest} for digest in 'ab']
    names = compared(*(run_of(starts=[start(weights=each)]) for each in weights))
    assert names == {'data': ['weights']}


def test_differences__compare_results_of_the_same_steps() -> None:
    old = run_of(
        evaluations=[evaluation(1), evaluation(2, top_1=0.1), evaluation(2)],
        checkpoints=[Checkpoint('model.ckpt-1', 1, 'a', ''), Checkpoint('model.ckpt-2', 2, 'b', '')],
    )
    # Evaluations of other weights, of changed settings or of other steps are not compared; of a step, the last one is.
    new = run_of(
        evaluations=[
            evaluation(1, top_1=0.25, weights='average'),
            evaluation(2),
            evaluation(2, top_5=0.25, changed=('height: 299 -> 331',)),
            evaluation(3, top_1=0.25),
        ],
        checkpoints=[Checkpoint('model.ckpt-2', 2, 'b', ''), Checkpoint('model.ckpt-1', 1, None, 'damaged')],
    )
    assert compared(old, new) == {}
    assert record.common(old, new) == (1, 1)
    new = run_of(
        evaluations=[evaluation(1, top_1=0.25, top_5=0.25, cross_entropy=2.5, images=1)],
        checkpoints=[Checkpoint('model.ckpt-2', 2, 'c', '')],
    )
    assert record.differences(old, new)['results'] == [
        Difference('step 1, raw weights, top_1', 0.5, 0.25),
        Difference('step 1, raw weights, top_5', 0.75, 0.25),
        Difference('step 1, raw weights, cross_entropy', 1.25, 2.5),
        Difference('step 1, raw weights, images', 359, 1),
        Difference('checkpoint of step 2', 'b', 'c'),
    ]


def test_text__shows_starts_evaluations_and_checkpoints() -> None:
    evaluations = [evaluation(1000), evaluation(1, changed=('a: 1 -> 2', 'b: 3 -> 4'))]
    checkpoints = [Checkpoint('model.ckpt-1', None, None, 'is damaged'), Checkpoint('model.ckpt-2', 2, 'ab', '')]
    starts = [start(checkpoint='model.ckpt-7'), start(data_set='', config={'use_data': 'fake'})]
    config = Config(num_classes=11, seed=3)
    text = run_of(config, starts=starts, evaluations=evaluations, checkpoints=checkpoints).text()
    rows = [' '.join(line.split()) for line in text.splitlines()]
    scores = 'top-1 50.00%, top-5 75.00%, cross-entropy 1.2500, 359 images, raw weights, now'
    for row in (
        *('seed 3', 'num_classes 11', 'started at step 0, now', 'from model.ckpt-7', 'command main --seed=1'),
        *('host host: 2 cores, p', 'data set digits', f'revision {"cd" * 20}', 'data set synthetic images'),
        *('model.ckpt-1 is damaged', 'model.ckpt-2 step 2, digest ab'),
        *(f'step 1,000 {scores}', f'step 1 {scores}; a: 1 -> 2; b: 3 -> 4'),
    ):
        assert row in rows
    text = run_of(Config(num_classes=4), starts=[], evaluations=evaluations).text()
    assert 'top-5' not in text and 'none: the run cannot be repeated' in text
    assert 'cannot be repeated' not in run_of(Config(seed=0), starts=[]).text()
