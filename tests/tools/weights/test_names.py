"""Tests of the same networks under other names: wrapped, by index, retrained, packed, and of Keras in TensorFlow 2."""

import json
import os
import tarfile
import tempfile
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
from tensorflow.core.protobuf import trackable_object_graph_pb2

from compat import tf
from inception_v3.weights import sources
from inception_v3.weights.sources import OBJECT_GRAPH, WeightsError
from tests.support.weights import NARROW, keras_file, narrow
from tools.weights import __main__ as command
from tools.weights import architecture, foreign, keras_files, other_networks, state_dicts, torch_names, writing

Arrays = Dict[str, np.ndarray]
INDEX = {'Conv2d_1a_3x3': 0, 'Conv2d_2a_3x3': 1, 'Conv2d_2b_3x3': 2, 'Conv2d_3b_1x1': 4, 'Conv2d_4a_3x3': 5}
INDEX.update(
    {f'Mixed_{name}': number for number, name in enumerate(['5b', '5c', '5d', '6a', '6b', '6c', '6d', '6e'], 7)}
)
INDEX.update({'AuxLogits': 15, 'Mixed_7a': 16, 'Mixed_7b': 17, 'Mixed_7c': 18, 'fc': 21})


def tensors() -> Arrays:
    return architecture.from_ours(narrow().values, architecture.of_torch(narrow().architecture.layers, False))


def renamed(change: Callable[[str], str]) -> Arrays:
    return {change(name): np.ascontiguousarray(array) for name, array in tensors().items()}


def by_index(name: str) -> str:
    module, _, rest = name.partition('.')
    return f'{INDEX[module]}.{rest}'


def read(path: Any, **options: Any) -> foreign.Weights:
    return foreign.read(str(path), foreign.Options(depth_multiplier=NARROW, **options))


@pytest.mark.parametrize(
    'change',
    [
        lambda name: name.replace('fc.', 'last_linear.') if name.startswith('fc.') else name,
        lambda name: name.replace('fc.', 'fc.1.'),
        lambda name: f'model._orig_mod.{name}',
        by_index,
        lambda name: f'head.1.{name[3:]}' if name.startswith('fc.') else f'backbone.{by_index(name)}',
        lambda name: f'classifier.{name[3:]}' if name.startswith('fc.') else f'encoder.{name}',
    ],
    ids=['last_linear', 'fc.1', 'compiled', 'index', 'backbone by index', 'head beside'],
)
def test_torch__names_of_wrapped_networks_are_read(change: Callable[[str], str], tmp_path: Any) -> None:
    (tmp_path / 'a.pth').write_bytes(state_dicts.write(renamed(change)))
    np.testing.assert_equal(read(tmp_path / 'a.pth').values, narrow().values)


def hugging_face(name: str) -> str:
    """The name in Hugging Face's ResNet of a tensor in torchvision's."""
    parts = name.split('.')
    if parts[0] == 'fc':
        return f'classifier.1.{parts[1]}'
    if not parts[0].startswith('layer'):
        return f'resnet.embedder.embedder.{"convolution" if "conv" in parts[0] else "normalization"}.{parts[-1]}'
    begin = f'resnet.encoder.stages.{int(parts[0][-1]) - 1}.layers.{parts[1]}'
    if parts[2] == 'downsample':
        return f'{begin}.shortcut.{["convolution", "normalization"][int(parts[3])]}.{parts[-1]}'
    kind = 'convolution' if 'conv' in parts[2] else 'normalization'
    return f'{begin}.layer.{int(parts[2][-1]) - 1}.{kind}.{parts[-1]}'


def test_torch__resnet_50_of_hugging_face_is_that_of_torchvision(tmp_path: Any) -> None:
    network = architecture.resnet50(NARROW)
    layers = [layer._replace(shape=(*layer.shape[:3], layer.shape[3] or 5)) for layer in network.layers]
    entries = architecture.of_torch(layers, True)
    random = np.random.RandomState(0)
    own = {e.theirs: random.normal(size=[e.shape[axis] for axis in e.axes]).astype(np.float32) for e in entries}
    for name, change in (('a', lambda each: each), ('b', hugging_face)):
        arrays = {change(each): np.ascontiguousarray(array) for each, array in own.items()}
        (tmp_path / f'{name}.pth').write_bytes(state_dicts.write(arrays))
    np.testing.assert_equal(read(tmp_path / 'b.pth').values, read(tmp_path / 'a.pth').values)
    deeper = {**own, 'layer3.6.conv1.weight': own['layer3.5.conv1.weight']}
    (tmp_path / 'a.pth').write_bytes(state_dicts.write({k: np.ascontiguousarray(v) for k, v in deeper.items()}))
    with pytest.raises(
        WeightsError, match=r'has the weights of resnet of 3, 4, 7, 3 blocks. Only those of Inception v3'
    ):
        read(tmp_path / 'a.pth')


def test_torch__other_name_of_a_classifier_is_noted_if_it_is_read(tmp_path: Any) -> None:
    (tmp_path / 'a.pth').write_bytes(state_dicts.write(renamed(lambda name: name.replace('fc.', 'fc.1.'))))
    notes = [read(tmp_path / 'a.pth', classifier=classifier).notes for classifier in (True, False)]
    assert [[note for note in each if 'called' in note] for each in notes] == [
        ['  its classifiers are called fc.1, AuxLogits.fc.1'],
        [],
    ]


def test_torch__weights_of_another_network_are_named(tmp_path: Any) -> None:
    names = [f'features.{number}.weight' for number in (0, 2, 10)] + ['classifier.6.weight']
    (tmp_path / 'a.pth').write_bytes(state_dicts.write(dict.fromkeys(names, np.zeros(3, np.float32))))
    with pytest.raises(WeightsError, match=r'a.pth: has the weights of vgg. Only those of'):
        read(tmp_path / 'a.pth')


@pytest.mark.parametrize(
    ('names', 'network'),
    [
        ([f'layer{n}.{b}.conv{c}.weight' for n in (1, 2, 3, 4) for b in (0, 1) for c in (1, 2)], 'resnet18'),
        ([f'features.{n}.weight' for n in (0, 2, 10, 12)] + ['classifier.6.weight'], 'vgg'),
        (['cls_token', 'blocks.0.attn.qkv.weight'], 'vision transformer'),
        (['vit.embeddings.position_embeddings', 'vit.encoder.layer.0.attention.query.weight'], 'vision transformer'),
        (['features.denseblock1.denselayer1.norm1.weight'], 'densenet'),
        (['features.0.conv.weight', 'features.21.branch1.0.conv.weight'], 'inception_v4'),
        (['conv2d_1a.conv.weight', 'mixed_5b.branch0.conv.weight'], 'inception_resnet_v2'),
        (['inception3a.branch1.conv.weight'], 'googlenet'),
        (['stem.conv.weight', 'stages.0.blocks.0.norm1.weight'], 'resnetv2'),
        (['layers.0.blocks.0.attn.relative_position_bias_table'], 'swin transformer'),
        (['stages.0.blocks.0.conv_dw.weight'], 'convnext'),
        (['features.1.0.layer_scale'], 'convnext'),
        (['conv_stem.weight', 'blocks.0.0.se.conv_reduce.weight'], 'efficientnet'),
        (['features.0.0.weight', 'features.1.0.block.1.fc1.weight'], 'efficientnet'),
        (['features.0.0.weight', 'features.17.conv.0.0.weight'], 'mobilenet_v2'),
        (['conv_stem.weight', 'blocks.0.0.conv_dw.weight'], 'mobilenet or efficientnet'),
        (['features.0.0.weight', 'features.12.block.0.0.weight'], 'mobilenet_v3'),
        (['features.3.squeeze.weight'], 'squeezenet'),
        (['stage2.0.branch1.0.weight'], 'shufflenet_v2'),
        (['trunk_output.block1.block1-0.proj.0.weight'], 'regnet'),
        (['layers.8.0.layers.0.weight'], 'mnasnet'),
        (['block1.rep.0.conv1.weight'], 'xception'),
        (['features.0.weight', 'features.3.weight', 'classifier.6.weight'], 'alexnet'),
        (['a.weight'], ''),
    ],
)
def test_torch__other_networks_have_their_names(names: Any, network: str) -> None:
    assert other_networks.of_torch(dict.fromkeys(names, (1, 1, 1, 1))) == network


def resnet(blocks: Any, convs: int, **shapes: Any) -> Dict[str, Any]:
    """Shapes of a ResNet of blocks of so many convolutions; names in `shapes` have underscores for points."""
    names = [
        f'net.layer{stage}.{number}.conv{conv}.weight'
        for stage, count in enumerate(blocks, 1)
        for number in range(count)
        for conv in range(1, convs + 1)
    ]
    return {**dict.fromkeys(names, (64, 64, 3, 3)), **{name.replace('__', '.'): own for name, own in shapes.items()}}


FIRST = 'net__layer1__0__conv2__weight'
OF_50 = resnet((3, 4, 6, 3), 3)


@pytest.mark.parametrize(
    ('shapes', 'network'),
    [
        (resnet((2, 2, 2, 2), 2), 'resnet18'),
        (resnet((3, 4, 6, 3), 2), 'resnet34'),
        (resnet((2, 2, 2, 2), 3), 'resnet26'),
        (OF_50, ''),
        (resnet((3, 4, 23, 3), 3), 'resnet101'),
        (resnet((3, 8, 36, 3), 3), 'resnet152'),
        (resnet((3, 4, 6, 2), 3), 'resnet of 3, 4, 6, 2 blocks'),
        # Three stages are none of these networks.
        (resnet((3, 4, 6), 3), ''),
        ({**OF_50, 'net.conv1.0.weight': ()}, 'resnet50d (a deep stem)'),
        ({**OF_50, 'conv1.0.weight': ()}, 'resnet50d (a deep stem)'),
        ({**OF_50, 'net.layer1.0.se.fc1.weight': ()}, 'seresnet50'),
        ({**resnet((2, 2, 2, 2), 2), 'net.layer1.0.se.conv.weight': ()}, 'ecaresnet18'),
        ({**OF_50, 'net.layer1.0.downsample.1.conv.weight': ()}, 'resnet50t'),
        ({**OF_50, 'net.aconv1.0.weight': ()}, ''),
        # Groups of channels: 32 of 4, and 32 of 8.
        (resnet((3, 4, 6, 3), 3, **{FIRST: (128, 4, 3, 3)}), 'resnext50_32x4d'),
        (resnet((3, 4, 23, 3), 3, **{FIRST: (256, 8, 3, 3)}), 'resnext101_32x8d'),
        # The inner convolutions of a wide network have half of a block's channels, not a quarter.
        (
            {**OF_50, **resnet([1], 3, **{FIRST: (128,) * 4, FIRST.replace('2', '3'): (256, 128, 1, 1)})},
            'wide_resnet50_2',
        ),
        ({**OF_50, FIRST.replace('2', '3').replace('__', '.'): (256, 64, 1, 1)}, ''),
    ],
)
def test_torch__variants_of_resnets_have_their_names(shapes: Any, network: str) -> None:
    assert other_networks.of_torch(shapes) == network


# A ResNet of three-layer blocks has a convolution before them, and one more in each of its four stages; of version 2,
# normalizations begin blocks, and one ends the network.
BLOCKS = {'50': 16, '101': 33, '152': 50}


@pytest.mark.parametrize(
    ('numbers', 'network'),
    [
        *(((depth - 3, 0, dense), f'VGG{depth}') for depth in (16, 19) for dense in (0, 3)),
        *(((3 * n + 5, 3 * n + 5, dense), f'ResNet{depth}') for depth, n in BLOCKS.items() for dense in (0, 1)),
        *(((3 * n + 5, 3 * n + 1, 1), f'ResNet{depth}V2') for depth, n in BLOCKS.items()),
        # All layers but the classifier are convolutions.
        *(((depth - 1, depth, 1), f'DenseNet{depth}') for depth in (121, 169, 201)),
        # Its 40 blocks end with a convolution that has a bias.
        ((244, 204, 1), 'InceptionResNetV2'),
        ((13, 0, 1), ''),
        ((94, 94, 1), ''),
    ],
)
def test_keras__other_networks_are_known_by_their_layers(numbers: Any, network: str) -> None:
    assert other_networks.of_keras(numbers) == network


@pytest.mark.parametrize(
    ('names', 'network'),
    [
        (['resnet_v2_50/conv1/weights'], 'resnet_v2_50'),
        (['tower/vgg_16/conv1/weights', 'a/b'], 'vgg_16'),
        (['b/InceptionV2/a', 'InceptionV1/a'], 'InceptionV1'),
        (['InceptionV3/a', 'NotInceptionV4/a', 'MobilenetV1'], ''),
    ],
)
def test_checkpoint__other_networks_are_known_by_their_scopes(names: List[str], network: str) -> None:
    assert other_networks.of_scopes(names) == network


def checkpoint(path: Any, values: Arrays) -> str:
    writing.write_checkpoint(str(path), values)
    return str(path)


def scoped(*scopes: str, added: float = 0.0) -> Arrays:
    own = enumerate(scopes)
    return {
        f'{scope}/{name}': value + number * added for number, scope in own for name, value in narrow().values.items()
    }


@pytest.mark.program
def test_checkpoint__scopes_of_other_programs_are_left_out(tmp_path: Any) -> None:
    path = checkpoint(tmp_path / 'a.ckpt', scoped('tower_0', 'tower_1'))
    np.testing.assert_equal(read(path).values, narrow().values)
    # Any of its files names a checkpoint, also for a run that begins from it.
    np.testing.assert_equal(read(f'{path}.index').values, narrow().values)
    assert sources.read(f'{path}.data-00000-of-00001').path == path
    path = checkpoint(tmp_path / 'b.ckpt', scoped('student', 'ema/teacher', added=1.0))
    with pytest.raises(WeightsError, match=r'several models. Name one of them with --which: ema/teacher; student'):
        read(path)
    with pytest.raises(WeightsError, match=r'--which=a: .* has no such model'):
        read(path, which='a')
    np.testing.assert_equal(read(path, which='student').values, narrow().values)
    path = checkpoint(tmp_path / 'c.ckpt', {'InceptionV4/Conv2d_1a_3x3/weights': np.zeros(3, np.float32)})
    with pytest.raises(WeightsError, match=r'has the weights of InceptionV4. Only those of'):
        read(path)


def test_checkpoint__averages_are_read_unless_they_are_refused(tmp_path: Any) -> None:
    averages = {f'{name}/ExponentialMovingAverage': value + 1 for name, value in narrow().values.items()}
    np.savez(str(tmp_path / 'a.npz'), **narrow().values, **averages)
    for are_read in (True, False):
        expected = {name: value + are_read for name, value in narrow().values.items()}
        np.testing.assert_equal(read(tmp_path / 'a.npz', averages=are_read).values, expected)


def graph_of(constants: Arrays) -> bytes:
    graph = tf.GraphDef()
    for name, value in constants.items():
        node = graph.node.add(name=name, op='Const')
        node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(value))
    return bytes(graph.SerializeToString())


def test_graph__retrained_and_frozen_is_read_and_that_of_2015_named(tmp_path: Any) -> None:
    scope = 'InceptionV3/Logits/Conv2d_1c_1x1'
    body = {f'module/{name}': value for name, value in narrow().values.items() if 'Logits' not in name}
    final = 'final_retrain_ops'
    head = {
        f'{final}/weights/final_weights': narrow().values[f'{scope}/weights'][0, 0],
        f'{final}/biases/final_biases': narrow().values[f'{scope}/biases'],
    }
    (tmp_path / 'a.pb').write_bytes(graph_of({**body, **head}))
    weights = read(tmp_path / 'a.pb')
    np.testing.assert_equal(weights.values, {n: v for n, v in narrow().values.items() if 'AuxLogits' not in n})
    # By the name of its kernel.
    of_classifier = [note for note in weights.notes if 'classifier' in note]
    assert of_classifier == [f'  its classifier is called {final}/weights/final_weights']
    assert not [note for note in read(tmp_path / 'a.pb', classifier=False).notes if 'classifier' in note]
    (tmp_path / 'a.pb').write_bytes(graph_of({'mixed_10/tower_1/mixed/conv_1/conv2d_params': np.zeros(3, np.float32)}))
    with pytest.raises(WeightsError, match='is the Inception graph of December 2015'):
        read(tmp_path / 'a.pb')
    # A value that claims 2^40 numbers.
    graph = tf.GraphDef.FromString(graph_of({'a': np.zeros(1, np.float32)}))
    graph.node[0].attr['value'].tensor.tensor_shape.dim[0].size = 1 << 40
    (tmp_path / 'a.pb').write_bytes(graph.SerializeToString())
    with pytest.raises(WeightsError, match=r'its tensors need .* bytes of memory'):
        read(tmp_path / 'a.pb')


def archive_of(path: Any, folder: Any) -> str:
    with tarfile.open(str(path), 'w:gz' if str(path).endswith('gz') else 'w') as archive:
        archive.add(str(folder), 'models')
    return str(path)


@pytest.mark.parametrize('ending', ['.tar.gz', '.TAR'])
def test_archive__of_a_checkpoint_is_read(ending: str, tmp_path: Any) -> None:
    (tmp_path / 'in').mkdir()
    checkpoint(tmp_path / 'in' / 'a.ckpt', narrow().values)
    path = archive_of(tmp_path / f'a{ending}', tmp_path / 'in')
    weights = read(path)
    np.testing.assert_equal(weights.values, narrow().values)
    assert weights.path == os.path.join(path, 'models', 'a.ckpt')


def test_archive__writes_nothing_outside_and_is_bounded(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / 'x').write_bytes(bytes(1 << 16))
    # It is unpacked into a folder in this one.
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    with tarfile.open(str(tmp_path / 'a.tar.gz'), 'w:gz') as archive:
        archive.add(str(tmp_path / 'x'), '../escaped.pth')
        link = tarfile.TarInfo('a.pth')
        link.type, link.linkname = tarfile.SYMTYPE, '/etc/passwd'
        archive.addfile(link)
    with pytest.raises(WeightsError, match=r'a.tar.gz: has no file of weights'):
        read(tmp_path / 'a.tar.gz')
    assert not os.path.exists(str(tmp_path / 'escaped.pth'))
    monkeypatch.setattr(sources, '_SMALL', 1000)
    with pytest.raises(WeightsError, match=r'is not a tar archive, or is damaged .*its tensors need 65,536 bytes'):
        read(tmp_path / 'a.tar.gz')
    whole = (tmp_path / 'a.tar.gz').read_bytes()
    (tmp_path / 'a.tar.gz').write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match='is not a tar archive, or is damaged'):
        read(tmp_path / 'a.tar.gz')


def test_folder__of_several_or_no_files_is_one_message(tmp_path: Any, capsys: Any) -> None:
    # A folder in it is another one.
    (tmp_path / 'inner').mkdir()
    (tmp_path / 'inner' / 'a.pth').write_bytes(b'a')
    assert command.main(['import', str(tmp_path), str(tmp_path / 'run')]) == 2
    error = capsys.readouterr().err
    assert 'has no file of weights' in error and 'weights import' not in error
    for name in ('a.pth', 'b.pth'):
        (tmp_path / name).write_bytes(b'a')
    with pytest.raises(WeightsError, match=r'has several files of weights. Name one of them: a.pth; b.pth'):
        read(tmp_path)


def object_checkpoint(path: Any, prefix: str) -> str:
    """A checkpoint of TensorFlow 2 with the narrow network of Keras, whose keys are numbers."""
    found = keras_files.read(keras_file())
    graph, values = trackable_object_graph_pb2.TrackableObjectGraph(), {}
    for number, (name, array) in enumerate(found.arrays.items()):
        key = f'{prefix}/{number}/.ATTRIBUTES/VARIABLE_VALUE'
        graph.nodes.add().attributes.add(name='VARIABLE_VALUE', full_name=name, checkpoint_key=key)
        slot = f'{prefix}/{number}/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE'
        graph.nodes.add().attributes.add(name='VARIABLE_VALUE', full_name=name, checkpoint_key=slot)
        values.update({key: array, slot: 0 * array})
    # The message ends with a zero, which NumPy drops from bytes.
    graph.nodes[-1].children.add(local_name='a\0')
    return checkpoint(path, {**values, OBJECT_GRAPH: np.array(graph.SerializeToString(), object)})


def sized(content: bytes) -> bytes:
    """A field of a protocol buffer, of 128 to 16,383 bytes, after its length."""
    return bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content


@pytest.mark.program
def test_keras__checkpoints_and_saved_models_of_tensorflow_2_are_read(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign, 'inception', lambda *_: architecture.inception(NARROW))
    expected = {name: value for name, value in narrow().values.items() if 'AuxLogits' not in name}
    path = object_checkpoint(tmp_path / 'ck', 'model')
    weights = foreign.read(path)
    np.testing.assert_equal(weights.values, expected)
    assert weights.origin == foreign.KERAS and 'because the file has weights alone' in weights.notes[0]
    with pytest.raises(WeightsError, match=r'is of Keras or another program .* weights import \S*ck MODEL_DIR'):
        sources.read(path)
    (tmp_path / 'saved' / 'variables').mkdir(parents=True)
    object_checkpoint(tmp_path / 'saved' / 'variables' / 'variables', 'variables')
    (tmp_path / 'saved' / 'saved_model.pb').write_bytes(b'no graph')
    np.testing.assert_equal(foreign.read(str(tmp_path / 'saved' / 'saved_model.pb')).values, expected)
    # The configuration of the model is in a file of its own: it has another layer.
    shape = {'class_name': '__tuple__', 'items': [None, 150, 150, 3]}
    layers: List[Any] = [{'class_name': 'InputLayer', 'config': {'batch_input_shape': shape}}]
    layers.append({'class_name': 'Lambda', 'config': {'name': 'a'}})
    metadata = json.dumps({'class_name': 'Sequential', 'config': {'layers': layers}}).encode()
    node = b'\x1a\x04root' + b'\x2a' + sized(metadata)
    (tmp_path / 'saved' / 'keras_metadata.pb').write_bytes(b'\x0a' + sized(node))
    with pytest.raises(WeightsError, match=r'saved: its configuration has the layer Lambda \(a\)'):
        foreign.read(str(tmp_path / 'saved'))


@pytest.mark.parametrize(
    ('change', 'is_found'),
    [
        ({}, True),
        # Convolutions of the stem and blocks, fewer and more than Inception v3 has.
        ({'5.': None}, False),
        ({'999.conv.weight': 0}, False),
        ({'18.': None}, False),
        ({'998.branch1x1.conv.weight': 0}, False),
        # No index of a child.
        ({'1000.conv.weight': 0, 'x.conv.weight': 0}, True),
    ],
)
def test_children_by_index__are_inception_v3_with_all_its_blocks(change: Dict[str, Any], is_found: bool) -> None:
    arrays = renamed(by_index)
    for name, value in change.items():
        if value is None:
            arrays = {each: array for each, array in arrays.items() if not each.startswith(name)}
        else:
            arrays[name] = np.zeros(1)
    found = torch_names.find(arrays)
    assert [*found] == [''] * is_found
    if not change:
        assert {*found[''].arrays} == {*tensors()} and found[''].mark == torch_names.OF_INCEPTION
