"""Tests of what model files say about themselves: pixels, sizes and names of classes, and lists of names."""

import argparse
import io
import json
import os
import pickle
import re
import zipfile
from typing import Any, Dict, List

import numpy as np
import pytest

from compat.errors import CommandError
from inception_v3.config import Config
from inception_v3.run.trained_data import misplaced_class, trained_data_of
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.weights import NARROW, narrow
from tools import trained_model
from tools.weights import __main__ as command
from tools.weights import architecture, class_names, descriptions, foreign, state_dicts
from tools.weights.choices import ADD, DROP, KEEP

FIRST = 'InceptionV3/Conv2d_1a_3x3'
NAMES = ['cat', 'cup', 'dog', 'fox', 'owl']
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


def tensors(auxiliary_head: bool = True) -> Dict[str, np.ndarray]:
    network = narrow().architecture
    return architecture.from_ours(narrow().values, architecture.of_torch(network.of(auxiliary_head), False))


def hub(folder: Any, auxiliary_head: bool = True, **files: Any) -> str:
    """A folder of Hugging Face: `model.safetensors` and JSON files by name."""
    (folder / 'model.safetensors').write_bytes(state_dicts.write_safetensors(tensors(auxiliary_head)))
    for name, content in files.items():
        (folder / f'{name}.json').write_text(json.dumps(content))
    return str(folder)


def imported(source: str, folder: Any, *flags: str) -> str:
    run = str(folder / 'run')
    assert command.main(['import', source, run, f'--depth_multiplier={NARROW}', *flags]) == 0
    return run


def first_outputs(values: Dict[str, np.ndarray], pixels: np.ndarray) -> np.ndarray:
    """The definition of the first convolution with its normalization, float64, for a patch of 3 x 3 pixels."""
    own = {name: np.asarray(value, np.float64) for name, value in values.items() if name.startswith(FIRST)}
    outputs = np.einsum('hwi,hwio->o', pixels, own[f'{FIRST}/weights']) - own[f'{FIRST}/BatchNorm/moving_mean']
    return outputs / np.sqrt(own[f'{FIRST}/BatchNorm/moving_variance'] + 1e-3) + own[f'{FIRST}/BatchNorm/beta']


PATCH = np.random.RandomState(0).uniform(size=[3, 3, 3])
HUGGING_FACE = {
    'config': {'model_type': 'timm_wrapper', 'id2label': dict(enumerate(NAMES)), 'num_labels': 5},
    'preprocessor_config': {'image_mean': MEAN, 'image_std': STD, 'size': {'shortest_edge': 250}, 'resample': 3},
}
TIMM = {
    'architecture': 'inception_v3',
    'num_classes': 5,
    'label_names': ['n1', 'n2', 'n3', 'n4', 'n5'],
    'label_descriptions': {f'n{number}': name for number, name in enumerate(NAMES, 1)},
    # Settings of the model itself replace those of the one that it was trained from.
    'pretrained_cfg': {
        'num_classes': 1000,
        'input_size': [3, 250, 250],
        'mean': MEAN,
        'std': STD,
        'crop_pct': 1.0,
        'interpolation': 'bicubic',
    },
}


@pytest.mark.parametrize('files', [{'config': TIMM}, HUGGING_FACE], ids=['timm', 'hugging_face'])
def test_import__of_a_hub_folder_keeps_logits_size_and_names(files: Any, tmp_path: Any, capsys: Any) -> None:
    (tmp_path / 'hub').mkdir()
    run = imported(hub(tmp_path / 'hub', **files), tmp_path)
    out = capsys.readouterr().out
    assert 'images of 250 x 250' in out and 'bicubic resizing, where evaluation resizes bilinearly' in out
    assert 'assumed' not in out and 'left the auxiliary head out' in out
    saved = sources.read(run)
    # The mean goes into the first layer; the others are the file's own, so that the logits are those of the source.
    normalized = (PATCH - MEAN) / STD
    expected = first_outputs(narrow().values, normalized)
    np.testing.assert_allclose(first_outputs(saved.values, 2 * PATCH - 1), expected, rtol=1e-4, atol=1e-4)
    others = {name: value for name, value in narrow().values.items() if 'AuxLogits' not in name and FIRST not in name}
    np.testing.assert_equal({name: saved.values[name] for name in others}, others)
    config = saved.config
    assert config and (config.height, config.width, config.auxiliary_head) == (250, 250, False)
    assert trained_data_of(config, trained_model.find(run).checkpoint).class_names == NAMES


def test_unit_pixels__go_into_the_first_layer(tmp_path: Any) -> None:
    source = os.path.join(hub(tmp_path), 'model.safetensors')
    flags = ['--pixels=unit', f'--depth_multiplier={NARROW}']
    expected = first_outputs(narrow().values, PATCH)
    files = {kind: str(tmp_path / f'unit{ending}') for kind, ending in (('npz', '.npz'), ('slim', '.ckpt'))}
    for kind, path in files.items():
        assert command.main(['export', source, path, f'--to={kind}', *flags]) == 0
    for path in (*files.values(), imported(source, tmp_path, '--pixels=unit')):
        outputs = first_outputs(sources.read(path).values, 2 * PATCH - 1)
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_import__without_a_classifier_ignores_the_described_classes(tmp_path: Any) -> None:
    imported(hub(tmp_path, config={'architecture': 'inception_v3', 'num_classes': 7}), tmp_path, '--no_classifier')


def test_import__prints_what_is_assumed(tmp_path: Any, capsys: Any) -> None:
    imported(hub(tmp_path, config={'learning_rate': 3}), tmp_path)
    out = capsys.readouterr().out
    assert '  assumed: pixels in [-1, 1] (--pixels=inception); images of 299 x 299\n' in out
    assert 'the classes have no names; --labels=FILE names them' in out


@pytest.mark.parametrize(
    ('config', 'message'),
    [
        ({'architecture': 'resnetblur50'}, 'describes another network .*resnetblur50'),
        ({'architecture': 'inception_v3', 'model_args': {'output_stride': 8}}, 'model_args: output_stride=8'),
        ({'mean': [0.5, 0.5, 0.5]}, 'has a mean or a standard deviation of pixels, and not both'),
        ({'mean': 'a', 'std': [1, 1, 1]}, r"mean is 'a', not a number for each"),
        ({'mean': [0, 0, 0], 'std': [1, 0, 1]}, 'not above 0'),
        ({'input_size': [3, -1, 5]}, r'input_size is \[3, -1, 5\], not a height and a width'),
        ({'input_size': [3, 60, 60]}, 'is for images of 60 x 60 pixels; inception_v3 needs 75 x 75'),
        ({'input_size': [3, 512, 512]}, 'its last map, of 14 x 14, is pooled otherwise.*--no_classifier'),
        ({'architecture': 'inception_v3', 'num_classes': 7}, r'is of 7 classes, and .* has 5'),
        ({'architecture': 'inception_v3', 'num_classes': 3}, r'is of 3 classes, and .* has 5'),
        ({'id2label': {'0': 'a', '2': 'b'}}, 'id2label: has 2 names, but none of class 1'),
        ({'label_names': ['a', 'b']}, 'has 2 names; the weights have 5 classes.*--labels=FILE'),
        ({'mean': [0, 0, 0], 'std': [1, 1, 1], 'input_space': 'BGR'}, 'input_space is BGR'),
    ],
)
def test_import__refuses_descriptions_of_other_models(config: Any, message: str, tmp_path: Any, capsys: Any) -> None:
    source = hub(tmp_path, config=config)
    assert command.main(['import', source, str(tmp_path / 'run'), f'--depth_multiplier={NARROW}']) == 2
    error = capsys.readouterr().err
    assert len([line for line in error.splitlines() if line.startswith('error: ')]) == 1
    assert re.search(message, error, re.IGNORECASE), error


SETTINGS = [
    *(({'input_size': size}, (200, 250)) for size in ([3, 200, 250], [1, 200, 250], [200, 250, 3], [200, 250])),
    *(({'image_size': size}, tuple(size)) for size in ([65535, 1], [1, 65535])),
    ({'crop_size': {'height': 200, 'width': 250}, 'size': {'shortest_edge': 299}}, (200, 250)),
    ({'crop_size': {'height': 200, 'width': 250}, 'size': {'shortest_edge': 299}, 'do_center_crop': False}, (299, 299)),
    ({'img_size': 299, 'pretrained_cfg': {'input_size': [3, 250, 250]}}, (250, 250)),
    ({'input_size': None, 'pretrained_cfg': {'input_size': [3, 250, 250]}}, (250, 250)),
    ({'learning_rate': 3}, None),
    *(({'size': wrong}, 'size is .*, not a height') for wrong in (0, 65536, True, [299], [3, 3, 3, 3], {'width': 9})),
]


@pytest.mark.parametrize(('settings', 'size'), SETTINGS)
def test_of_settings__reads_sizes_in_all_forms(settings: Dict[str, Any], size: Any) -> None:
    if isinstance(size, str):
        with pytest.raises(WeightsError, match=f'^file: {size}'):
            descriptions.of_settings(settings, 'file')
    else:
        found = descriptions.of_settings(settings, 'file')
        assert found.size == size
        assert str(found) == (f'images of {size[0]} x {size[1]}' if size else '')


HALF = {'mean': [0.5] * 3, 'std': [0.25] * 3}
# The normalized values of black and of white pixels.
ENDS = [
    (HALF, (-2, 2)),
    ({'image_mean': 0.5, 'image_std': [0.25]}, (-2, 2)),
    ({**HALF, 'do_rescale': True}, (-2, 2)),
    ({**HALF, 'do_rescale': False}, (-2, 1018)),
    ({**HALF, 'input_range': [0, 255]}, (-2, 1018)),
    ({**HALF, 'rescale_factor': 1 / 51}, (-2, 18)),
    ({'mean': [102.0] * 3, 'std': [51.0] * 3}, (-2, 3)),
    ({'mean': [1.0] * 3, 'std': [1.0] * 3}, (-1, 0)),
    ({'mean': [102.0] * 3, 'std': [51.0] * 3, 'do_rescale': True, 'rescale_factor': 1}, (-2, 3)),
    ({'mean': [2.0] * 3, 'std': [0.5] * 3, 'do_rescale': True}, (-4, -2)),
    ({'do_normalize': False}, (0, 1)),
    ({'do_normalize': False, 'do_rescale': False}, (0, 255)),
    ({'do_normalize': True}, None),
    ({'mean': [999999.0] * 3, 'std': [1] * 3, 'input_space': 'RGB'}, (-999999, 255 - 999999)),
    *(({**HALF, 'rescale_factor': wrong}, 'rescale_factor is') for wrong in (0, -1, '1', True, float('inf'))),
    *(({**HALF, 'mean': wrong}, 'mean is') for wrong in ([0.5] * 2, [], [1e6] * 3, [-1e6] * 3, [True] * 3)),
]


@pytest.mark.parametrize(('settings', 'ends'), ENDS)
def test_of_settings__reads_the_range_of_pixels(settings: Dict[str, Any], ends: Any) -> None:
    if isinstance(ends, str):
        with pytest.raises(WeightsError, match=f'^file: {ends}'):
            descriptions.of_settings(settings, 'file')
        return
    images = descriptions.of_settings(settings, 'file').images
    assert (images is None) == (ends is None)
    if images:
        np.testing.assert_allclose([images.shift, images.shift + images.scale], np.repeat(ends, 3).reshape(2, 3))
        assert str(images) == f'pixels in [{ends[0]:.4g}, {ends[1]:.4g}]'


@pytest.mark.parametrize(
    ('settings', 'note'),
    [
        ({'crop_pct': 0.875, 'interpolation': 'bilinear'}, ''),
        ({'crop_pct': 0.8755, 'resample': 2}, ''),
        ({'crop_pct': None, 'interpolation': 'random'}, ''),
        ({'crop_pct': 0.9}, 'crop_pct=0.9, where evaluation crops the central 87.5%'),
        ({'crop_pct': 0.85, 'interpolation': ''}, 'crop_pct=0.85, where evaluation crops the central 87.5%'),
        *(
            ({'resample': number}, f'{name} resizing, where evaluation resizes bilinearly')
            for number, name in {0: 'nearest', 1: 'lanczos', 3: 'bicubic', 4: 'box', 5: 'hamming', 9: '9'}.items()
        ),
    ],
)
def test_of_settings__notes_what_evaluation_does_otherwise(settings: Dict[str, Any], note: str) -> None:
    found = descriptions.of_settings(settings, 'file').notes
    assert found == ([f'  not the same here: {note} (file)'] if note else [])


def test_of_settings__has_names_and_numbers_of_classes() -> None:
    default = descriptions.of_settings({'id2label': {str(n): f'LABEL_{n}' for n in range(3)}, 'num_labels': 3}, 'file')
    assert (default.names, default.num_classes, str(default)) == ((), 3, '')
    named = descriptions.of_settings({'id2label': {'0': 'LABEL_0', '1': 'b'}, 'num_classes': -1}, 'file')
    assert (named.names, named.num_classes, str(named)) == (['LABEL_0', 'b'], 0, '2 names of classes')


RESNET_50 = {
    **{'depths': [3, 4, 6, 3], 'hidden_sizes': [256, 512, 1024, 2048], 'embedding_size': 64, 'hidden_act': 'relu'},
    **{'layer_type': 'bottleneck', 'downsample_in_first_stage': False, 'downsample_in_bottleneck': False},
}


@pytest.mark.parametrize(
    ('settings', 'problem'),
    [
        *(
            ({'architecture': name}, '')
            for name in ('tf_inception_v3', 'inception_v3.tv_in1k', 'InceptionV3', 'resnet50_clip', 'a1_resnet-50')
        ),
        ({'architectures': ['ResNetForImageClassification'], 'model_type': 'resnet', **RESNET_50}, ''),
        ({'architectures': ['a'], 'architecture': 'resnet50d'}, 'resnet50d; a'),
        ({'model_type': 'resnet', **RESNET_50, 'depths': [2, 2, 2, 2]}, r'depths=\[2, 2, 2, 2\]'),
        ({'model_type': 'resnet', **RESNET_50, 'embedding_size': 32}, 'embedding_size=32'),
        (
            {'model_type': 'resnet', **RESNET_50, 'layer_type': 'basic', 'depths': [9]},
            r'depths=\[9\]; layer_type=basic',
        ),
        ({'model_type': 'resnet', 'downsample_in_bottleneck': True}, 'downsample_in_bottleneck=True'),
        ({'model_args': {'num_classes': 5, 'in_chans': 3, 'global_pool': 'avg'}, 'architecture': 'resnet50'}, ''),
        ({'model_type': 'timm_wrapper', 'model_args': {'global_pool': 'max'}}, 'global_pool=max'),
        ({'model_type': 'timm_wrapper', 'global_pool': 'catavgmax'}, 'global_pool=catavgmax'),
    ],
)
def test_beside__describes_these_two_networks_alone(settings: Any, problem: str, tmp_path: Any) -> None:
    (tmp_path / 'config.json').write_text(json.dumps(settings))
    if problem:
        with pytest.raises(WeightsError, match=f'/config.json: describes another network than .*: {problem}\\. If it'):
            descriptions.beside(str(tmp_path / 'a.pth'))
    else:
        assert descriptions.beside(str(tmp_path / 'a.pth')) == [
            descriptions.Description(str(tmp_path / 'config.json'), notes=[])
        ]


@pytest.mark.parametrize('content', ['{"learning_rate": 3}', '["mean", "architecture"]', '"mean"'])
def test_beside__leaves_files_of_other_programs_alone(content: str, tmp_path: Any) -> None:
    (tmp_path / 'config.json').write_text(content)
    assert descriptions.beside(str(tmp_path / 'a.pth')) == []
    (tmp_path / 'preprocessor_config.json').write_text('{')
    with pytest.raises(WeightsError, match=r'preprocessor_config.json: is not JSON .*\. Mend the file'):
        descriptions.beside(str(tmp_path / 'a.pth'))


def test_joined__takes_the_first_of_each_and_refuses_contradictions() -> None:
    one = descriptions.Description('one', size=(299, 299), names=['a', 'b'], notes=['x'])
    other = descriptions.Description('other', size=(299, 299), names=('c',), num_classes=2, notes=['y'])
    silent = descriptions.Description('silent')
    assert descriptions.joined([silent]) is None
    assert descriptions.joined([one, silent, other]) == descriptions.Description(
        'one, other', size=(299, 299), names=['a', 'b'], num_classes=2, notes=['x', 'y']
    )
    for another in (other._replace(size=(299, 300)), other._replace(num_classes=3, origin='another')):
        with pytest.raises(WeightsError, match=r' and .* has .* Mend one of the files'):
            descriptions.joined([other, another])


def script_file(settings: Dict[str, Any]) -> bytes:
    """The file of a training script with a state dict and plain settings."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(state_dicts.write(tensors()))) as own, zipfile.ZipFile(file, 'w') as archive:
        for name in own.namelist():
            content = own.read(name)
            if name.endswith('data.pkl'):
                key = b'X\x05\0\0\0model'
                content = pickle.dumps(settings, 2)[:-1] + b'(' + key + content[2:-1] + b'u.'
            archive.writestr(name, content)
    return file.getvalue()


def test_import__takes_class_to_idx_and_arguments_of_a_training_script(tmp_path: Any, capsys: Any) -> None:
    order = {name: number for number, name in enumerate(NAMES)}
    arguments = argparse.Namespace(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], lr=0.1, img_size='big')
    (tmp_path / 'a.pth').write_bytes(script_file({'class_to_idx': dict(reversed([*order.items()])), 'args': arguments}))
    weights = foreign.read(str(tmp_path / 'a.pth'), foreign.Options(depth_multiplier=NARROW))
    assert any('not read: ' in note and "img_size is 'big'" in note for note in weights.notes)
    del arguments.img_size
    (tmp_path / 'a.pth').write_bytes(script_file({'class_to_idx': order, 'args': arguments}))
    weights = foreign.read(str(tmp_path / 'a.pth'), foreign.Options(depth_multiplier=NARROW))
    assert weights.images == 'imagenet'
    run = imported(str(tmp_path / 'a.pth'), tmp_path, '--class_0=add')
    names = trained_data_of(Config(), os.path.join(run, 'model.ckpt-0')).class_names
    assert names == ['background', *NAMES]


LISTS: Dict[str, str] = {
    'plain.txt': '\ufeffcat\r\ncup\r\ndog\r\nfox\r\nowl\r\n',
    'synset_words.txt': ''.join(f'n0144076{n} {name}\n' for n, name in enumerate(NAMES)),
    'imagenet_class_index.json': json.dumps({str(n): [f'n0144076{n}', name] for n, name in enumerate(NAMES)}),
    'list.json': json.dumps(NAMES),
    'class_indices.json': json.dumps({name: n for n, name in enumerate(NAMES)}),
    'id2label.json': json.dumps({'id2label': {str(n): name for n, name in enumerate(NAMES)}}),
    'teachable.txt': ''.join(f'{n} {name}\n' for n, name in enumerate(NAMES)),
    'dict.txt': '{' + ',\n '.join(f"{n}: '{name}'" for n, name in enumerate(NAMES)) + '}\n',
}


@pytest.mark.parametrize('name', [*LISTS])
def test_labels__are_read_in_the_forms_of_published_lists(name: str, tmp_path: Any) -> None:
    (tmp_path / name).write_bytes(LISTS[name].encode())
    assert class_names.read(str(tmp_path / name)) == NAMES


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('1: a\n2: b\n', ['a', 'b']),
        ('1 b\n0 a\n', ['a', 'b']),
        # A name per line: the numbers are not those of classes.
        ('5 a\n', ['5 a']),
        ('0 a\n', ['0 a']),
        ('2 a\n3 b\n', ['2 a', '3 b']),
        ('0 a\n2 b\n', ['0 a', '2 b']),
        ('0 a\nb\n', ['0 a', 'b']),
        ('[not json', None),
    ],
)
def test_labels__of_lines_have_numbers_if_these_are_of_all_classes(text: str, names: Any, tmp_path: Any) -> None:
    (tmp_path / 'a.txt').write_text(text)
    if names is None:
        with pytest.raises(WeightsError, match='is not JSON'):
            class_names.read(str(tmp_path / 'a.txt'))
    else:
        assert class_names.read(str(tmp_path / 'a.txt')) == names


@pytest.mark.parametrize(
    ('value', 'names'),
    [
        ([], None),
        (['a', 1], None),
        ({}, None),
        ({'a': 1, 'b': 0}, ['b', 'a']),
        ({'0': ['n01', 'a'], '1': 'b'}, ['a', 'b']),
        ({'0': ['n01', 'x', 'a']}, None),
        ({'0': 'a', 'x': 'b'}, None),
        ({'0': 5}, 'has 1 name, but none of class 0'),
        ({'0123456789': 'a'}, None),
        ({'000000000': 'a'}, ['a']),
        ({0: 'a', 1: 'b'}, ['a', 'b']),
        ({'a': 0, 'b': 0}, 'has 2 names, but none of class 1'),
        ({'0': 'a', '3': 'b', '4': 'c'}, 'has 3 names, but none of class 1, 2'),
    ],
)
def test_names__are_those_of_lists_and_dicts_of_either_direction(value: Any, names: Any) -> None:
    if isinstance(names, str):
        with pytest.raises(WeightsError, match=f'^file: {names}'):
            class_names.of_value(value, 'file')
    else:
        assert class_names.of_value(value, 'file') == names


def test_labels__keep_the_words_of_kaggles_list(tmp_path: Any) -> None:
    path = tmp_path / 'LOC_synset_mapping.txt'
    path.write_text('n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n')
    assert class_names.read(str(path)) == ['tench, Tinca tinca', 'goldfish, Carassius auratus']


BAD_LISTS: Dict[str, Any] = {
    'empty.txt': (b'\n', 'is empty'),
    'image.txt': (b'\xff\xd8\xff', 'is not text in UTF-8'),
    'broken.json': (b'{"0": ', 'is not JSON'),
    'gap.json': (b'{"0": "a", "2": "b"}', 'none of class 1'),
    'numbers.json': (b'[1, 2]', 'has no names of classes'),
    'table.csv': (b'file,label\na.jpg,cat\n', 'its first line, file,label, is the header of a table'),
}


@pytest.mark.parametrize('name', [*BAD_LISTS])
def test_labels__of_another_form_are_refused(name: str, tmp_path: Any) -> None:
    (tmp_path / name).write_bytes(BAD_LISTS[name][0])
    with pytest.raises(WeightsError, match=f'^--labels=.*{name}: .*{BAD_LISTS[name][1]}'):
        class_names.read(str(tmp_path / name))


def test_labels__of_endless_files_are_refused(tmp_path: Any) -> None:
    os.mkfifo(str(tmp_path / 'pipe'))
    for path in ('/dev/zero', str(tmp_path / 'pipe')):
        with pytest.raises(CommandError, match='only regular files are read'):
            class_names.read(path)


B = 'background'


@pytest.mark.parametrize(
    ('names', 'classes', 'change', 'is_ours', 'expected'),
    [
        (['a', 'b'], 2, KEEP, False, ['a', 'b']),
        (['a', 'b'], 3, ADD, False, [B, 'a', 'b']),
        (['dummy', 'a', 'b'], 3, ADD, False, [B, 'a', 'b']),
        (['background', 'a', 'b'], 2, KEEP, False, ['a', 'b']),
        (['a', 'b'], 3, KEEP, True, [B, 'a', 'b']),
        (['a', 'b'], 2, DROP, True, ['a', 'b']),
        ([B, 'a', 'b'], 2, DROP, True, ['a', 'b']),
        *(
            ([unused, 'a'], 2, KEEP, False, [B, 'a'])
            for unused in ('', '__background__', 'Unused', 'N/A', '???', ' dummy ')
        ),
        # ImageNet's 1,000 names for 1,001 classes.
        (['a'] * 1000, 1001, KEEP, False, [B, *['a'] * 1000]),
        (['a'] * 1001, 1000, DROP, False, ['a'] * 1000),
        (['a', 'b'], 4, KEEP, False, r'the weights have 4 classes\. Give the list of these classes with'),
        (['a', 'b'], 3, KEEP, False, 'begin the list with the line `background`'),
        (['a', 'b', 'c'], 3, ADD, False, 'has 3 names; the weights have 2 classes, and 3 with --class_0=add'),
        ([B, 'a'], 2, DROP, True, 'has 2 names; the weights have 3 classes'),
    ],
)
def test_labels__fit_with_and_without_the_background(
    names: List[str], classes: int, change: str, is_ours: bool, expected: Any
) -> None:
    if isinstance(expected, str):
        with pytest.raises(WeightsError, match=f'^--labels=a: .*{expected}'):
            class_names.for_classes(names, '--labels=a', classes, change, is_ours)
    else:
        assert class_names.for_classes(names, '--labels=a', classes, change, is_ours) == expected


def test_misplaced_class__is_found_and_other_names_are_not() -> None:
    assert misplaced_class(['a', 'b'], ['b', 'a']) == 'a is class 0 of the weights and class 1 of the data set'
    assert not misplaced_class(['a', 'b', 'crane', 'crane'], ['a', 'c', 'd', 'crane'])
