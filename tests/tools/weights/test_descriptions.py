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
from inception_v3.run import trained_model
from inception_v3.run.trained_data import misplaced_class, trained_data_of
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.weights import NARROW, narrow
from tools.weights import __main__ as command
from tools.weights import architecture, class_names, foreign, state_dicts
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
    'pretrained_cfg': {
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


def test_import__prints_what_is_assumed_and_takes_unit_pixels(tmp_path: Any, capsys: Any) -> None:
    run = imported(hub(tmp_path, config={'learning_rate': 3}), tmp_path)
    out = capsys.readouterr().out
    assert '  assumed: pixels in [-1, 1] (--pixels=inception); images of 299 x 299\n' in out
    assert 'the classes have no names; --labels=FILE names them' in out
    (tmp_path / 'unit').mkdir()
    unit = imported(str(tmp_path / 'model.safetensors'), tmp_path / 'unit', '--pixels=unit')
    expected = first_outputs(sources.read(run).values, PATCH)
    np.testing.assert_allclose(first_outputs(sources.read(unit).values, 2 * PATCH - 1), expected, rtol=1e-4, atol=1e-4)


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


def test_labels__keep_the_words_of_kaggles_list(tmp_path: Any) -> None:
    path = tmp_path / 'LOC_synset_mapping.txt'
    path.write_text('n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n')
    assert class_names.read(str(path)) == ['tench, Tinca tinca', 'goldfish, Carassius auratus']


BAD_LISTS: Dict[str, Any] = {
    'empty.txt': (b'\n', 'is empty'),
    'image.txt': (b'\xff\xd8\xff', 'is no text in UTF-8'),
    'broken.json': (b'{"0": ', 'is no JSON'),
    'gap.json': (b'{"0": "a", "2": "b"}', 'none of class 1'),
    'numbers.json': (b'[1, 2]', 'has no names of classes'),
    'table.csv': (b'file,label\na.jpg,cat\n', 'is the header of a table'),
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
