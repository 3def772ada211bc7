"""Tests of the settings of imported weights, and of what cannot be written for another framework."""

from typing import Any

import numpy as np
import pytest

from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.weights.sources import WeightsError
from tests.support.weights import NARROW, narrow
from tools.weights import architecture, foreign, writing
from tools.weights.descriptions import Description
from tools.weights.foreign import KERAS, OURS, TORCH, Weights

RESNET = Weights('r', TORCH, architecture.resnet50(), {}, 'imagenet')
WIDE = Weights('w', TORCH, architecture.inception(), {}, 'inception')


def sized(size: int, **changes: Any) -> Weights:
    described = Description('a file', size=(size, size))
    return narrow()._replace(**{'origin': KERAS, 'description': described, **changes})


# The windows of Inception v3 that fit inside of an image, with their strides: the stem, then Mixed_6a; and Mixed_7a.
TO_17, TO_8 = [(3, 2), (3, 1), (3, 2), (3, 1), (3, 2), (3, 2)], [(3, 2)]


def map_of(size: int, windows: Any) -> int:
    for window, stride in windows:
        size = len(range(0, size - window + 1, stride))
    return size


def test_map_of_the_auxiliary_head__follows_from_the_windows() -> None:
    assert writing._map_17(299) == 17
    for size in range(75, 331):
        assert writing._map_17(size) == map_of(size, TO_17)


def test_fitting_images__are_pooled_as_in_other_frameworks() -> None:
    first = next(size for size in range(75, 999) if map_of(size, TO_17 + TO_8) > 8)
    headless = without(sized(first - 1), 'AuxLogits')
    assert writing._fitting_images(headless) == (headless, [])
    with pytest.raises(WeightsError, match=f'images of {first} x {first} pixels. Its last map, of 9 x 9, is pooled'):
        writing._fitting_images(sized(first))
    # Our own network is pooled as it is, a body without classifier not at all, and ResNet-50 whole.
    for weights in (sized(first, origin=OURS), without(sized(first), 'Logits'), RESNET):
        writing._fitting_images(weights)
    with pytest.raises(WeightsError, match=r'is for images of 74 x 74 pixels; inception_v3 needs 75 x 75 at least'):
        writing._fitting_images(sized(74))
    assert writing._fitting_images(sized(75))


def without(weights: Weights, part: str) -> Weights:
    return weights._replace(values={name: value for name, value in weights.values.items() if part not in name})


@pytest.mark.parametrize(('kernel', 'size', 'fits'), [(5, 299, True), (5, 297, False), (1, 107, True), (2, 150, False)])
def test_auxiliary_head__stays_if_its_kernel_is_that_of_the_size(kernel: int, size: int, fits: bool) -> None:
    network = architecture.inception(NARROW, (kernel, kernel))
    weights, notes = writing._fitting_images(sized(size, architecture=network))
    assert weights.has_auxiliary_head == fits == (not notes)
    assert fits or notes == [f'  left the auxiliary head out: it is not for images of {size} x {size}']


@pytest.mark.parametrize(
    ('weights', 'settings'),
    [
        (narrow(), {'depth_multiplier': NARROW, 'num_classes': 5}),
        (without(narrow(), 'AuxLogits'), {'depth_multiplier': NARROW, 'num_classes': 5, 'auxiliary_head': False}),
        (sized(250), {'depth_multiplier': NARROW, 'num_classes': 5, 'height': 250, 'width': 250}),
        (WIDE, {'auxiliary_head': False}),
        (RESNET, {'network': 'resnet50', 'preprocessing': 'vgg', 'height': 224, 'width': 224}),
        (RESNET._replace(images='inception'), {'network': 'resnet50', 'height': 224, 'width': 224}),
        (
            RESNET._replace(config=Config(network='resnet50', preprocessing='cifar', height=32, width=40)),
            {'network': 'resnet50', 'preprocessing': 'cifar', 'height': 32, 'width': 40},
        ),
    ],
)
def test_settings_of__are_those_of_the_run_or_of_the_published_network(weights: Weights, settings: Any) -> None:
    assert writing.settings_of(weights) == Config(use_tpu=False, **settings)


@pytest.mark.parametrize(
    ('weights', 'path', 'kind', 'images', 'message'),
    [
        (RESNET, 'a.h5', 'keras', '', '--to=keras: r has the weights of resnet50; keras has no such.'),
        (WIDE, 'a.pth', 'keras', '', 'a.pth: the name of a file for keras ends with .h5.'),
        (WIDE, 'a.h5', 'slim', '', 'a.h5: the name of a file for slim ends with .ckpt.'),
        (WIDE, 'a.h5', 'timm', '', 'a.h5: the name of a file for timm ends with .pth or .pt or .bin or .safetensors.'),
        (WIDE, 'a.npz', 'npz', 'unit', '--pixels=unit: is not for --to=npz, whose networks are given our images.'),
        (
            narrow(),
            'a.pth',
            'torchvision',
            '',
            '--to=torchvision: a run: InceptionV3/Conv2d_1a_3x3 has the shape [3, 3, 3, 16], which torchvision has not'
            '. Leave an auxiliary head out with --no_auxiliary_head; --to=npz and --to=slim take any width.',
        ),
    ],
)
def test_export__names_what_the_framework_has_not(
    weights: Weights, path: str, kind: str, images: str, message: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError) as error:
        writing.check_new_file(path, kind)
        writing.export(weights, path, kind, images)
    assert str(error.value) == message and not [*tmp_path.iterdir()]


def test_export__of_another_auxiliary_head_is_for_frameworks_without_one() -> None:
    other = WIDE._replace(architecture=architecture.inception(1.0, (3, 3)))
    head = 'InceptionV3/AuxLogits/Conv2d_2b_1x1/biases'
    weights = other._replace(values={head: np.zeros(5)})
    with pytest.raises(WeightsError, match='AuxLogits/Conv2d_2a_3x3 has the shape'):
        writing._check(weights, 'torchvision', '')
    writing._check(weights, 'timm', '')
    writing._check(other, 'torchvision', 'unit')


@pytest.mark.parametrize(
    ('kind', 'path', 'head', 'expression'),
    [
        ('npz', 'a.npz', True, '--init_from={path}, or numpy.load({path!r})'),
        ('slim', 'a.ckpt', True, "tf.train.Saver(slim.get_model_variables()).restore(session, '{path}')"),
        ('keras', 'a.h5', False, 'tf.keras.applications.InceptionV3(weights={path!r}, classes=5)'),
        (
            'torchvision',
            *('a.pth', True, 'torchvision.models.inception_v3(num_classes=5).load_state_dict(torch.load({path!r}))'),
        ),
        (
            'torchvision',
            *('a.safetensors', False),
            'torchvision.models.inception_v3(num_classes=5, aux_logits=False).load_state_dict('
            'safetensors.torch.load_file({path!r}))',
        ),
        (
            'timm',
            *('a.bin', False, "timm.create_model('tf_inception_v3', num_classes=5, checkpoint_path={path!r})"),
        ),
    ],
)
def test_export__says_how_to_load_the_file(
    kind: str, path: str, head: bool, expression: str, tmp_path: Any, monkeypatch: Any
) -> None:
    # As if the frameworks had the narrow network.
    monkeypatch.setattr(writing, 'inception', lambda: architecture.inception(NARROW))
    path, weights = str(tmp_path / path), narrow() if head else without(narrow(), 'AuxLogits')
    variables = len(weights.values)
    pixels = ', for images of --preprocessing=inception' if kind in ('npz', 'slim') else ''
    assert writing.export(weights, path, kind) == [
        f'wrote {path} for {kind}: {variables} variables{pixels}',
        f'  to load it: {expression.format(path=path)}',
    ]
    if kind in ('torchvision', 'timm'):
        read = foreign.read(path, foreign.Options(depth_multiplier=NARROW))
        assert read.values.keys() == weights.values.keys()


def test_weights__in_words_have_classes_head_and_parameters() -> None:
    parameters = sum(value.size for name, value in narrow().values.items() if '/moving_' not in name)
    whole = narrow()._replace(path='p', origin=KERAS)
    assert str(whole) == f'p: inception_v3 of Keras, 5 classes, with auxiliary head, {parameters:,} parameters'
    body = without(without(whole, 'AuxLogits'), '/Logits')
    own = sum(value.size for name, value in body.values.items() if '/moving_' not in name)
    assert str(body) == f'p: inception_v3 of Keras, no classifier, without auxiliary head, {own:,} parameters'
    many = RESNET._replace(values={'ResNet50/logits/biases': np.zeros(1000)})
    assert str(many) == 'r: resnet50 of PyTorch, 1,000 classes, 1,000 parameters'


@pytest.mark.parametrize('classes', [4, 6])
def test_import_into__refuses_a_data_set_of_fewer_or_more_classes(classes: int, tmp_path: Any) -> None:
    data_dir = str(tmp_path / 'data')
    (tmp_path / 'data').mkdir()
    DatasetInfo('d', '', 1, 1, classes, ['background', *'abcde'[: classes - 1]], '').write(data_dir)
    message = (
        f'^--data_dir={data_dir}: has {classes} classes with the background; a run has 5. If that has no background, '
        'give --class_0=add.$'
    )
    with pytest.raises(WeightsError, match=message):
        writing.import_into(str(tmp_path / 'run'), narrow(), averages=True, data_dir=data_dir)
    assert not (tmp_path / 'run').exists()
