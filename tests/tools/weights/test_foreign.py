"""Tests of reading and writing files of other frameworks, with a narrow network; `test_frameworks.py` has theirs."""

import dataclasses
import functools
import io
import os
import re
from typing import Any, Dict, List, Tuple

import h5py
import numpy as np
import PIL.Image
import pytest

from inception_v3.config import Config
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.checkpoints import saved_variables
from tests.support.spellings import spellings
from tests.support.state_dicts import with_training_state
from tests.support.tiers import further
from tests.support.weights import CLASSES, NARROW, keras_file, narrow
from tools import trained_model
from tools.weights import __main__ as command
from tools.weights import architecture, comparison, foreign, state_dicts, writing

AVERAGE = '/ExponentialMovingAverage'
BETA = 'InceptionV3/Conv2d_1a_3x3/BatchNorm/beta'


def torch_arrays(**changes: np.ndarray) -> Dict[str, np.ndarray]:
    """A state dict of the narrow network; `changes` replace arrays, with two underscores for a point."""
    arrays = {**_torch_arrays(), **{name.replace('__', '.'): array for name, array in changes.items()}}
    return {name: array for name, array in arrays.items() if array is not None}


@functools.lru_cache(maxsize=None)
def _torch_arrays() -> Dict[str, np.ndarray]:
    weights = narrow()
    return architecture.from_ours(weights.values, architecture.of_torch(weights.architecture.layers, False))


def without(values: Dict[str, np.ndarray], *heads: str) -> Dict[str, np.ndarray]:
    return {name: value for name, value in values.items() if not name.startswith(heads)}


def write_file(path: Any, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def read(path: str, **options: Any) -> foreign.Weights:
    return foreign.read(path, foreign.Options(depth_multiplier=NARROW, **options))


# A checkpoint may have any name.
@pytest.mark.parametrize('ending', ['.ckpt', '.bin', '.pth', '.safetensors', '.npz'])
def test_read__returns_what_was_written_to_the_bit(ending: str, tmp_path: Any) -> None:
    path = str(tmp_path / f'weights{ending}')
    if ending in ('.ckpt', '.bin', '.npz'):
        kind = 'npz' if ending == '.npz' else 'slim'
        writing.export(narrow(), path, kind)
        with pytest.raises(WeightsError, match=r'the name of a file' if ending == '.bin' else r'exists\. Remove it'):
            writing.check_new_file(path, kind)
    else:
        write = state_dicts.write if ending == '.pth' else state_dicts.write_safetensors
        write_file(tmp_path / f'weights{ending}', write(torch_arrays()))
    weights = read(path)
    np.testing.assert_equal(weights.values, narrow().values)
    assert weights.notes == ['  assumed: pixels in [-1, 1] (--pixels=inception); images of 299 x 299']
    assert weights.images == 'inception'
    assert (weights.num_classes, weights.has_auxiliary_head) == (CLASSES, True)
    if ending == '.ckpt':
        # `tests/networks/test_inception_v3.py` shows that the names are those of TF-Slim.
        saved = saved_variables(path)
        assert saved.pop('global_step').dtype == np.int64
        np.testing.assert_equal(saved, weights.values)


def test_read__takes_what_training_scripts_of_pytorch_save(tmp_path: Any) -> None:
    # A state dict of DataParallel, with counters, a scale, and the auxiliary head of other classes.
    body = without(torch_arrays(Mixed_6a__branch3x3__bn__weight=2 * np.ones(38)), 'AuxLogits')
    arrays = {f'module.{name}': array for name, array in body.items()}
    arrays['module.AuxLogits.fc.bias'] = np.zeros(1000, np.float32)
    arrays['module.Conv2d_1a_3x3.bn.num_batches_tracked'] = np.array(7, np.int64)
    weights = read(write_file(tmp_path / 'a.pth.tar', state_dicts.write(arrays)), auxiliary_head=False)
    scope = 'InceptionV3/Mixed_6a/Branch_0/Conv2d_1a_1x1'
    expected = without(narrow().values, 'InceptionV3/AuxLogits')
    for name in ('weights', 'BatchNorm/moving_mean'):
        expected[f'{scope}/{name}'] = 2 * expected[f'{scope}/{name}']
    np.testing.assert_equal(weights.values, expected)
    assert 'folded the scales of 1 layers' in weights.notes[0] and not weights.has_auxiliary_head


def test_retrained_classifier__has_the_channels_of_the_last_layer() -> None:
    # In ResNet-50, those of the classifier are not those of the layer before.
    network = architecture.resnet50()
    arrays = {'final/weights': np.zeros([2048, 7]), 'final/biases': np.zeros(7), 'final/weights/Momentum': np.zeros(7)}
    arrays['ResNet50/logits/weights'] = np.zeros([2048, 7])
    assert foreign._retrained(arrays, 'ResNet50', {}, network) == ['final/weights', 'final/biases']
    assert foreign._retrained({**arrays, 'a/weights': np.zeros([512, 3])}, 'ResNet50', {}, network)
    for other in (np.zeros([2048, 3]), np.zeros(7)):
        assert foreign._retrained({**arrays, 'other': other}, 'ResNet50', {}, network) == []


def scope_of(scopes: Dict[str, int], which: str = '') -> str:
    values = {f'{scope}InceptionV3/Conv2d_1a_3x3/weights': np.full(2, value) for scope, value in scopes.items()}
    source = sources.Source('a.ckpt', 'checkpoint', values, 'digest', None)
    return foreign._scope_of(source, values, foreign.Options(which=which))


def test_scopes_of_several_networks__are_named_unless_they_are_copies() -> None:
    assert scope_of({'': 1}) == ''
    assert scope_of({'tower_1/': 1, 'tower_0/': 1}) == 'tower_0/'
    different = {'tower_0/': 1, 'tower_1/': 1, 'ema/teacher/': 2, '': 3}
    assert [scope_of(different, which) for which in ('ema/teacher', 'tower_1/')] == ['ema/teacher/', 'tower_1/']
    refused: List[Tuple[Dict[str, int], str, str]] = [
        (different, '', 'a.ckpt: has several models. Name one of them with --which: ema/teacher; tower_0; tower_1.'),
        ({'a/': 1, 'b/': 2}, '', 'has several models. Name one of them with --which: a; b.'),
        ({'a/': 1, 'b/': 2}, 'c', '--which=c: a.ckpt has no such model. Its models: a; b.'),
        (different, 'a', 'Its models: one without a scope; ema/teacher; tower_0; and 1 more.'),
        ({'': 1}, 'a', '--which=a: is for files of PyTorch with several models, or checkpoints with scopes.'),
        ({'a/': 1, 'b/': 1}, 'c', '--which=c: a.ckpt has no such model. Its models: a; b.'),
        ({}, '', 'a.ckpt: has the weights of another network: it has no variables. Name '),
    ]
    for scopes, which, message in refused:
        with pytest.raises(WeightsError, match=re.escape(message)) as error:
            scope_of(scopes, which)
        # A key that is not of this file may be of another one.
        assert isinstance(error.value, foreign.OneModelError) == (bool(which) and len({*scopes.values()}) == 1)


@functools.lru_cache(maxsize=None)
def models(*keys: str, prefix: str = '') -> bytes:
    """A training script's file of several models; each has its number in one value."""
    scaled = {
        key: {
            **{f'{prefix}{name}': np.ascontiguousarray(array) for name, array in torch_arrays().items()},
            f'{prefix}Conv2d_1a_3x3.bn.bias': np.full(16, number, np.float32),
            'n_averaged': np.array(7, np.int64),
        }
        for number, key in enumerate(keys)
    }
    return with_training_state(scaled)


@pytest.mark.parametrize(
    ('keys', 'prefix', 'which', 'expected'),
    [
        (['model'], 'net.', '', 0),
        (['student', 'teacher'], '', 'teacher', 1),
        (['model', 'model_ema'], 'module.', 'model_ema.module', 1),
        (['student', 'teacher'], '', '', 'has several models. Name one of them with --which: student; teacher.'),
        (['model', 'model_ema'], '', 'ema', 'has no such model. Its models: model; model_ema.'),
    ],
)
def test_read__takes_the_only_model_or_the_named_one(
    keys: List[str], prefix: str, which: str, expected: Any, tmp_path: Any
) -> None:
    path = write_file(tmp_path / 'checkpoint.pth', models(*keys, prefix=prefix))
    if isinstance(expected, str):
        with pytest.raises(WeightsError, match=re.escape(expected)) as error:
            read(path, which=which)
        assert not isinstance(error.value, foreign.OneModelError)
        return
    np.testing.assert_array_equal(read(path, which=which).values[BETA], np.full(16, expected, np.float32))


def test_compare__applies_which_to_the_file_with_several_models(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    several, one = write_file(tmp_path / 'checkpoint.pth', models('student', 'teacher')), str(tmp_path / 'a.npz')
    writing.export(narrow(), one, 'npz')
    PIL.Image.new('RGB', (8, 8)).save(str(tmp_path / 'x.png'))
    compared: List[Any] = []

    def compare(models: List[Any], paths: List[str]) -> List[str]:
        compared.extend(models)
        return []

    monkeypatch.setattr(comparison, 'compare', compare)
    words = [f'{tmp_path}/x.png', '--which=teacher', f'--depth_multiplier={NARROW}']
    for pair in ([several, one], [one, several]):
        compared.clear()
        assert command.main(['compare', *pair, *words]) == 0, capsys.readouterr().err
        assert [weights.path for weights in compared] == pair
        np.testing.assert_array_equal(compared[pair.index(several)].values[BETA], np.ones(16, np.float32))
    assert command.main(['compare', one, one, *words]) == 2
    assert '--which=teacher: is for files of PyTorch with several models' in capsys.readouterr().err


HEADS: Dict[str, Dict[str, np.ndarray]] = {
    'two layers': {'fc.0.weight': np.zeros([9, 203]), 'fc.0.bias': np.zeros(9), 'fc.2.weight': np.zeros([5, 9])},
    'one output': {'fc.weight': np.zeros([1, 203]), 'fc.bias': np.zeros(1)},
    'own name': {'head.weight': np.zeros([5, 203])},
}


@pytest.mark.parametrize('head', [*HEADS])
def test_read__without_classifier_takes_the_layers_below_any_head(head: str, tmp_path: Any) -> None:
    body = without(torch_arrays(), 'fc.', 'AuxLogits.')
    path = write_file(tmp_path / 'own.pth', state_dicts.write({**body, **HEADS[head]}))
    weights = read(path, classifier=False)
    np.testing.assert_equal(weights.values, without(narrow().values, 'InceptionV3/Logits', 'InceptionV3/AuxLogits'))
    with pytest.raises(WeightsError, match='--no_classifier'):
        writing.import_into(str(tmp_path / 'run'), read(path), averages=True)
    # Other layers below the head are another network.
    write_file(tmp_path / 'own.pth', state_dicts.write({**body, 'Mixed_9a.conv.weight': NAN}))
    with pytest.raises(WeightsError, match='the weights of another network'):
        read(path, classifier=False)


def test_import__without_classifier_is_for_init_from(tmp_path: Any, capsys: Any) -> None:
    path = write_file(tmp_path / 'several.pth', models('model', 'model_ema'))
    run, width = str(tmp_path / 'run'), f'--depth_multiplier={NARROW}'
    assert command.main(['import', path, run, width, '--no_classifier', '--which=model']) == 0
    out = capsys.readouterr().out
    assert f'--init_from={run} --init_except=Logits,AuxLogits {width}' in out
    values = without(narrow().values, 'InceptionV3/Logits', 'InceptionV3/AuxLogits')
    values[BETA] = np.zeros(16, np.float32)
    saved = sources.read(run).values
    np.testing.assert_equal({name: saved[name] for name in values}, values)
    assert not any('Logits' in name for name in saved) and not os.path.exists(os.path.join(run, 'config.json'))


@pytest.mark.parametrize('averages', [True, further(False)])
def test_import_into__leaves_a_model_dir_of_a_run(averages: bool, tmp_path: Any, capsys: Any) -> None:
    path, model_dir = str(tmp_path / 'model.ckpt-7'), str(tmp_path / 'run')
    values = narrow().values
    trained = [name for name in values if '/moving_' not in name]
    # A run whose averages differ from its weights.
    own = {name: values[name] + 1 for name in trained}
    saved = {**values, **{f'{name}{AVERAGE}': own[name] for name in trained}}
    slots = {f'{name}/RMSProp': values[name] for name in trained}
    writing.write_checkpoint(path, {**saved, **slots, 'global_step': np.int64(7)})
    flags = [f'--depth_multiplier={NARROW}', *([] if averages else ['--no_averages', '--no_auxiliary_head'])]
    assert command.main(['import', path, model_dir, *flags]) == 0
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert f'--num_classes={CLASSES}' in last_line and f'--depth_multiplier={NARROW}' in last_line
    found = trained_model.find(model_dir)
    assert (found.step, found.config.evaluated_weights) == (0, 'average' if averages else 'raw')
    changes = {'num_classes': CLASSES, 'depth_multiplier': NARROW, 'auxiliary_head': averages}
    expected = dataclasses.replace(Config(use_tpu=False, moving_average=averages), **changes)
    for name in (*changes, 'use_tpu', 'moving_average', 'network', 'height', 'preprocessing'):
        assert getattr(found.config, name) == getattr(expected, name), name
    imported = {**values, **own} if averages else without(values, 'InceptionV3/AuxLogits')
    kept = {f'{name}{AVERAGE}': imported[name] for name in trained} if averages else {}
    np.testing.assert_equal(saved_variables(model_dir), {**imported, **kept, 'global_step': np.int64(0)})
    assert command.main(['import', path, model_dir, *flags]) == 2
    assert 'has checkpoints already. Name another folder' in capsys.readouterr().err


def test_import__leaves_the_folder_of_its_source_alone(tmp_path: Any, capsys: Any) -> None:
    # A published checkpoint has no list of checkpoints beside it; a model of timm has a config.json.
    published, timm = tmp_path / 'published', tmp_path / 'timm'
    published.mkdir()
    writing.write_checkpoint(str(published / 'model.ckpt-0'), narrow().values)
    timm.mkdir()
    write_file(timm / 'model.safetensors', state_dicts.write_safetensors(torch_arrays()))
    (timm / 'config.json').write_text('{"architecture": "inception_v3"}')
    for source, name, part in (
        (published, 'model.ckpt-0', 'has checkpoints already'),
        (timm, 'model.safetensors', 'has a config.json already, which would be replaced'),
    ):
        before = {path.name: path.read_bytes() for path in source.iterdir()}
        names = tmp_path / f'names-{source.name}'
        names.mkdir()
        for folder in (str(source), *spellings(str(source), names)):
            flags = [f'--depth_multiplier={NARROW}', '--no_auxiliary_head']
            assert command.main(['import', str(source / name), folder, *flags]) == 2
            assert f'{folder}: {part}' in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_export__replaces_no_file_under_any_name(tmp_path: Any, capsys: Any) -> None:
    source = str(tmp_path / 'weights.npz')
    writing.export(narrow(), source, 'npz')
    os.link(source, str(tmp_path / 'hard.npz'))
    content = (tmp_path / 'weights.npz').read_bytes()
    for path in (source, str(tmp_path / 'hard.npz'), *spellings(source, tmp_path)):
        assert command.main(['export', source, path, '--to=npz', f'--depth_multiplier={NARROW}']) == 2
        assert f'{path}: exists. Remove it' in capsys.readouterr().err
    assert (tmp_path / 'weights.npz').read_bytes() == content


def of_keras(convs: int, dense: int) -> bytes:
    content = io.BytesIO()
    with h5py.File(content, 'w') as file:
        names = [f'conv2d_{n}' for n in range(convs)] + [f'dense_{n}' for n in range(dense)]
        file.attrs['layer_names'] = [layer.encode() for layer in names]
        for layer in names:
            group = file.create_group(layer)
            group.attrs['weight_names'] = [f'{layer}/kernel:0'.encode()]
            group[f'{layer}/kernel:0'] = np.zeros([1] * (4 if 'conv' in layer else 2))
    return content.getvalue()


def of_torch(**changes: Any) -> bytes:
    return state_dicts.write(torch_arrays(**changes))


NAN = np.full(16, np.nan, np.float32)
FLOATS = np.zeros([9, 76], np.float32)
# The content of each, of which there is no file if it is empty.
BAD: Dict[str, Any] = {
    'missing.pth': (lambda: b'', 'no such file'),
    'short.pth': (lambda: of_torch()[:5000], 'is not a file of weights, or is damaged'),
    'other.pth': (lambda: state_dicts.write({'a.weight': NAN}), 'the weights of another network'),
    'nan.pth': (lambda: of_torch(Conv2d_1a_3x3__bn__bias=NAN), r'3x3\.bn\.bias has values that are not finite'),
    'lacks.pth': (lambda: of_torch(Conv2d_2a_3x3__bn__bias=None), r'Conv2d_2a_3x3\.bn\.bias is missing'),
    'int.pth': (lambda: of_torch(Conv2d_1a_3x3__bn__bias=np.zeros(16, np.int64)), 'type int64, not float32'),
    'extra.pth': (lambda: of_torch(Mixed_9a__conv__weight=NAN), r'Mixed_9a\.conv\.weight have no counterpart'),
    'grey.pth': (
        lambda: of_torch(Conv2d_1a_3x3__conv__weight=np.zeros([16, 1, 3, 3], np.float32)),
        r'Conv2d_1a_3x3\.conv\.weight has the shape \[16, 1, 3, 3\], not \[16, 3, 3, 3\]',
    ),
    'heads.pth': (
        lambda: of_torch(AuxLogits__fc__weight=FLOATS, AuxLogits__fc__bias=FLOATS[:, 0]),
        'different numbers of classes, 5 and 9.*--no_auxiliary_head',
    ),
    'text.safetensors': (
        lambda: b'hello, hello, hello',
        'is not a file of weights, or is damaged .*Name a checkpoint, a model_dir',
    ),
    'short.safetensors': (
        lambda: state_dicts.write_safetensors(torch_arrays())[:-9],
        'is not a file of weights, or is damaged .*[Ii]ncomplete',
    ),
    'text.h5': (lambda: b'hello', 'is not a file of weights, or is damaged'),
    'short.h5': (lambda: keras_file()[:9000], 'is not a file of weights, or is damaged'),
    'vgg16.h5': (
        lambda: of_keras(13, 3),
        'it has 13 convolutions, 0 normalizations and 3 dense layers, not 94, 94 and one',
    ),
    'narrow.h5': (lambda: keras_file(), r'conv2d_0/kernel has the shape \[3, 3, 3, 16\], not \[3, 3, 3, 32\]'),
}


@pytest.mark.parametrize('name', [*BAD])
def test_import__of_a_bad_file_is_one_message(name: str, tmp_path: Any, capsys: Any) -> None:
    content, message = BAD[name][0](), BAD[name][1]
    path = write_file(tmp_path / name, content) if content else str(tmp_path / name)
    assert command.main(['import', path, str(tmp_path / 'run'), f'--depth_multiplier={NARROW}']) == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith('error: ')]
    assert not out and len(errors) == 1 and path in errors[0]
    assert re.search(message, errors[0]), errors[0]
    assert not os.path.exists(str(tmp_path / 'run'))
