"""Tests of reading and writing files of other frameworks, with a narrow network; `test_frameworks.py` has theirs."""

import os
import re
import zipfile
from typing import Any, Callable, Dict, List

import h5py
import numpy as np
import pytest

from inception_v3.commands.weights import __main__ as command
from inception_v3.commands.weights import foreign, keras_files, naming, safetensors_files, state_dicts, writing
from inception_v3.config import Config
from inception_v3.run import trained_model
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.checkpoints import saved_variables
from tests.support.state_dicts import with_training_state
from tests.support.weights import CLASSES, NARROW, narrow


def torch_arrays(**changes: np.ndarray) -> Dict[str, np.ndarray]:
    """A state dict of the narrow network; `changes` replace arrays, with two underscores for a point."""
    weights = narrow()
    arrays = naming.from_ours(weights.values, naming.of_torch(weights.architecture.layers, False))
    arrays.update({name.replace('__', '.'): array for name, array in changes.items()})
    return {name: array for name, array in arrays.items() if array is not None}


def write_file(path: Any, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def read(path: str, **options: Any) -> foreign.Weights:
    return foreign.read(path, depth_multiplier=NARROW, **options)


def test_export_to_slim__is_a_checkpoint_of_the_network_alone(tmp_path: Any) -> None:
    # `test_inception_v3_and_slim.py` shows that the names are those of TF-Slim.
    weights = narrow()
    path = str(tmp_path / 'inception_v3.ckpt')
    writing.export(weights, path, 'slim')
    saved = saved_variables(path)
    assert saved.pop('global_step').dtype == np.int64
    np.testing.assert_equal(saved, weights.values)
    again = read(path)
    np.testing.assert_equal(again.values, weights.values)
    assert (again.origin, again.num_classes, again.has_auxiliary_head) == (foreign.OURS, CLASSES, True)


@pytest.mark.parametrize('ending', ['.pth', '.safetensors', '.npz', 'torch.npz'])
def test_read__returns_what_was_written_to_the_bit(ending: str, tmp_path: Any) -> None:
    if ending == '.npz':
        path = str(tmp_path / 'weights.npz')
        writing.export(narrow(), path, 'npz')
    elif ending == 'torch.npz':
        path = str(tmp_path / ending)
        np.savez(path, **torch_arrays())
    else:
        arrays = torch_arrays()
        content = state_dicts.write(arrays) if ending == '.pth' else safetensors_files.write(arrays)
        path = write_file(tmp_path / f'weights{ending}', content)
    weights = read(path)
    np.testing.assert_equal(weights.values, narrow().values)
    assert not weights.folded and weights.images == 'inception'


def test_read__takes_what_training_scripts_of_pytorch_save(tmp_path: Any) -> None:
    # Of DataParallel, with counters, and with the auxiliary head of other classes.
    body = {name: array for name, array in torch_arrays().items() if not name.startswith('AuxLogits')}
    arrays = {f'module.{name}': array for name, array in body.items()}
    arrays['module.AuxLogits.fc.bias'] = np.zeros(1000, np.float32)
    arrays['module.Conv2d_1a_3x3.bn.num_batches_tracked'] = np.array(7, np.int64)
    path = write_file(tmp_path / 'checkpoint.pth.tar', state_dicts.write(arrays))
    weights = read(path, auxiliary_head=False)
    assert not weights.has_auxiliary_head
    values = narrow().values
    np.testing.assert_equal(weights.values, {name: values[name] for name in weights.values})


def test_read__folds_scales_and_names_the_layers(tmp_path: Any) -> None:
    path = write_file(
        tmp_path / 'a.pth', state_dicts.write(torch_arrays(Mixed_6a__branch3x3__bn__weight=2 * np.ones(38)))
    )
    weights = read(path)
    scope = 'InceptionV3/Mixed_6a/Branch_0/Conv2d_1a_1x1'
    assert list(weights.folded) == [scope]
    np.testing.assert_array_equal(weights.values[f'{scope}/weights'], 2 * narrow().values[f'{scope}/weights'])


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
        (['model', 'model_ema'], 'module.', '', 1),
        (['state_dict_ema', 'state_dict'], '', '', 0),
        (['state_dict_ema', 'state_dict'], '_orig_mod.module.', 'state_dict', 1),
        (['student', 'teacher'], '', 'teacher', 1),
        (['model'], 'net.', '', 0),
    ],
)
def test_read__takes_the_averages_of_several_models_or_the_named_one(
    keys: List[str], prefix: str, which: str, expected: int, tmp_path: Any
) -> None:
    weights = read(write_file(tmp_path / 'checkpoint.pth', models(*keys, prefix=prefix)), which=which)
    beta = weights.values['InceptionV3/Conv2d_1a_3x3/BatchNorm/beta']
    np.testing.assert_array_equal(beta, np.full(16, expected, np.float32))
    note = f'  took {keys[expected]} of its models {"; ".join(keys)}; --which=KEY takes another one'
    assert weights.notes == ([note] if len(keys) > 1 else [])


@pytest.mark.parametrize(
    ('keys', 'which', 'message'),
    [
        (['student', 'teacher'], '', 'has several models. Name one of them with --which: student; teacher.'),
        (['model', 'model_ema'], 'ema', 'has no such model. Its models: model; model_ema.'),
    ],
)
def test_read__of_several_models_names_their_keys(keys: List[str], which: str, message: str, tmp_path: Any) -> None:
    path = write_file(tmp_path / 'checkpoint.pth', models(*keys))
    with pytest.raises(WeightsError, match=re.escape(message)):
        read(path, which=which)
    with pytest.raises(WeightsError, match='is for files of PyTorch with several models'):
        writing.export(narrow(), str(tmp_path / 'a.npz'), 'npz')
        read(str(tmp_path / 'a.npz'), which='model')


HEADS: Dict[str, Dict[str, np.ndarray]] = {
    'two layers': {'fc.0.weight': np.zeros([9, 203]), 'fc.0.bias': np.zeros(9), 'fc.2.weight': np.zeros([5, 9])},
    'dropout': {'fc.1.weight': np.zeros([5, 203]), 'fc.1.bias': np.zeros(5)},
    'one output': {'fc.weight': np.zeros([1, 203]), 'fc.bias': np.zeros(1)},
    'own name': {'head.weight': np.zeros([5, 203])},
    'none': {},
}


def body_of(values: Dict[str, np.ndarray], *heads: str) -> Dict[str, np.ndarray]:
    return {name: value for name, value in values.items() if not name.startswith(heads)}


@pytest.mark.parametrize('head', [*HEADS])
def test_read__without_classifier_takes_the_layers_below_any_head(head: str, tmp_path: Any) -> None:
    body = body_of(torch_arrays(), 'fc.', 'AuxLogits.')
    path = write_file(tmp_path / 'own.pth', state_dicts.write({**body, **HEADS[head]}))
    weights = read(path, classifier=False)
    np.testing.assert_equal(weights.values, body_of(narrow().values, 'InceptionV3/Logits', 'InceptionV3/AuxLogits'))
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
    assert '  took model of its models model; model_ema; --which=KEY' in out
    assert f'--init_from={run} --init_except=Logits,AuxLogits {width}' in out
    values = body_of(narrow().values, 'InceptionV3/Logits', 'InceptionV3/AuxLogits')
    values['InceptionV3/Conv2d_1a_3x3/BatchNorm/beta'] = np.zeros(16, np.float32)
    saved = sources.read(run).values
    np.testing.assert_equal({name: saved[name] for name in values}, values)
    assert not any('Logits' in name for name in saved) and not os.path.exists(os.path.join(run, 'config.json'))


@pytest.mark.parametrize('averages', [True, False])
def test_read__takes_the_averages_of_a_run_or_its_weights(averages: bool, tmp_path: Any) -> None:
    values = narrow().values
    trained = [name for name in values if '/moving_' not in name]
    own = {name: values[name] + 1 for name in trained}
    saved = {**values, **{f'{name}/ExponentialMovingAverage': own[name] for name in trained}}
    slots = {f'{name}/RMSProp': values[name] for name in trained}
    writing.write_checkpoint(str(tmp_path / 'model.ckpt-7'), {**saved, **slots, 'global_step': np.int64(7)})
    weights = read(str(tmp_path / 'model.ckpt-7'), averages=averages)
    np.testing.assert_equal(weights.values, {**values, **own} if averages else values)


@pytest.mark.parametrize('averages', [True, False])
def test_import_into__leaves_a_model_dir_of_a_run(averages: bool, tmp_path: Any) -> None:
    model_dir = str(tmp_path / 'run')
    weights = narrow()
    lines = writing.import_into(model_dir, weights, averages)
    found = trained_model.find(model_dir)
    assert (found.step, found.weights) == (0, 'average' if averages else 'raw')
    expected = Config(use_tpu=False, num_classes=CLASSES, depth_multiplier=NARROW, moving_average=averages)
    assert found.config.to_json() == trained_model.find(model_dir).config.to_json()
    for name in ('use_tpu', 'num_classes', 'depth_multiplier', 'moving_average', 'network', 'height', 'preprocessing'):
        assert getattr(found.config, name) == getattr(expected, name), name
    saved = saved_variables(model_dir)
    assert saved.pop('global_step') == 0
    of_averages = {name: value for name, value in saved.items() if name.endswith('/ExponentialMovingAverage')}
    np.testing.assert_equal({name: saved[name] for name in saved.keys() - of_averages.keys()}, weights.values)
    trained = {name for name in weights.values if '/moving_' not in name} if averages else set()
    assert {name.rpartition('/')[0] for name in of_averages} == trained
    assert all((value == saved[name.rpartition('/')[0]]).all() for name, value in of_averages.items())
    assert f'--num_classes={CLASSES}' in lines[-1] and f'--depth_multiplier={NARROW}' in lines[-1]
    with pytest.raises(WeightsError, match=r'has checkpoints already\. Name another folder'):
        writing.import_into(model_dir, weights, averages)


def of_keras(convs: int, dense: int = 1, name: str = 'conv2d') -> Callable[[Any], str]:
    def make(path: Any) -> str:
        with h5py.File(str(path), 'w') as file:
            names = [name] + [f'conv2d_{n}' for n in range(1, convs)] + [f'dense_{n}' for n in range(dense)]
            file.attrs['layer_names'] = [layer.encode() for layer in names]
            for layer in names:
                group = file.create_group(layer)
                group.attrs['weight_names'] = [f'{layer}/kernel:0'.encode()]
                group[f'{layer}/kernel:0'] = np.zeros([1] * (4 if 'conv' in layer else 2))
        return str(path)

    return make


def of_torch(**changes: Any) -> Callable[[Any], str]:
    return lambda path: write_file(path, state_dicts.write(torch_arrays(**changes)))


NAN = np.full(16, np.nan, np.float32)
BAD = {
    'missing.pth': (lambda path: str(path), 'no such file'),
    'text.pth': (lambda path: write_file(path, b'hello'), 'is no state dict of PyTorch'),
    'short.pth': (
        lambda path: write_file(path, state_dicts.write(torch_arrays())[:5000]),
        'is no state dict of PyTorch, or is damaged .*the file is truncated',
    ),
    'other.pth': (
        lambda path: write_file(path, state_dicts.write({'a.weight': NAN})),
        'the weights of another network',
    ),
    'nan.pth': (of_torch(Conv2d_1a_3x3__bn__bias=NAN), r'Conv2d_1a_3x3\.bn\.bias has values that are not finite'),
    'lacks.pth': (of_torch(Conv2d_2a_3x3__bn__bias=None), r'Conv2d_2a_3x3\.bn\.bias is missing'),
    'int.pth': (of_torch(Conv2d_1a_3x3__bn__bias=np.zeros(16, np.int64)), 'is of the type int64, not float32'),
    'extra.pth': (of_torch(Mixed_9a__conv__weight=NAN), r'Mixed_9a\.conv\.weight have no counterpart'),
    'grey.pth': (
        of_torch(Conv2d_1a_3x3__conv__weight=np.zeros([16, 1, 3, 3], np.float32)),
        r'Conv2d_1a_3x3\.conv\.weight has the shape \[16, 1, 3, 3\], not \[16, 3, 3, 3\]',
    ),
    'heads.pth': (
        of_torch(AuxLogits__fc__weight=np.zeros([9, 76], np.float32), AuxLogits__fc__bias=np.zeros(9, np.float32)),
        'different numbers of classes, 5 and 9.*--no_auxiliary_head',
    ),
    'wide.pth': (
        of_torch(fc__weight=np.zeros([5, 9], np.float32)),
        r'fc\.weight has the shape \[5, 9\], not \[classes, 203\]',
    ),
    'text.safetensors': (lambda path: write_file(path, b'hello, hello, hello'), 'cannot be read, or is damaged'),
    'short.safetensors': (
        lambda path: write_file(path, safetensors_files.write(torch_arrays())[:-9]),
        'cannot be read, or is damaged .it ends before the values of',
    ),
    'text.h5': (lambda path: write_file(path, b'hello'), 'does not begin as a file of Keras does'),
    'short.h5': (
        lambda path: write_file(path, keras_files.write(narrow().architecture.of(False), narrow().values)[:9000]),
        'cannot be read, or is damaged',
    ),
    'vgg16.h5': (of_keras(13, 3), 'it has 13 convolutions, 0 normalizations and 3 dense layers, not 94, 94 and one'),
    # The first convolution of Keras' ResNet-50.
    'resnet50.h5': (of_keras(52, name='conv1_conv'), "has the weights of Keras' ResNet.*version 1.5"),
    'narrow.h5': (
        lambda path: write_file(path, keras_files.write(narrow().architecture.of(False), narrow().values)),
        r'conv2d_0/kernel has the shape \[3, 3, 3, 16\], not \[3, 3, 3, 32\]',
    ),
    'zip.keras': (lambda path: write_zip(path), 'cannot be read, or is damaged|does not begin as'),
}


def write_zip(path: Any) -> str:
    with zipfile.ZipFile(str(path), 'w') as archive:
        archive.writestr('a', 'b')
    return str(path)


@pytest.mark.parametrize('name', [*BAD])
def test_import__of_a_bad_file_is_one_message(name: str, tmp_path: Any, capsys: Any) -> None:
    make, message = BAD[name]
    path = make(tmp_path / name)
    assert command.main(['import', path, str(tmp_path / 'run'), f'--depth_multiplier={NARROW}']) == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith('error: ')]
    assert not out and len(errors) == 1 and path in errors[0]
    assert re.search(message, errors[0]), errors[0]
    assert not os.path.exists(str(tmp_path / 'run'))
