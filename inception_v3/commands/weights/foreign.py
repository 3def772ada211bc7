"""Reads the weights of a network from a file of any kind, as variables with the names of this program."""

import io
import re
import zipfile
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from console.errors import CommandError
from console.messages import shown
from console.tensorflow_versions import tf
from data import remote
from inception_v3.commands.weights import keras_files, state_dicts
from inception_v3.commands.weights.architecture import (
    AUXILIARY_KERNEL,
    Architecture,
    Entry,
    Layer,
    ShapeError,
    Values,
    inception,
    listed,
    of_keras,
    of_ours,
    of_torch,
    resnet50,
    to_ours,
)
from inception_v3.commands.weights.changes import fold_images, fold_scales, without
from inception_v3.commands.weights.keras_files import KerasFile
from inception_v3.config import Config
from inception_v3.weights import sources
from inception_v3.weights.kinds import FOREIGN_ENDINGS, HDF5, OLD_TORCH, TORCH_ENDINGS
from inception_v3.weights.sources import AVERAGE, WeightsError

# The kinds of files, as messages name them.
OURS, KERAS, TORCH = 'this program or TF-Slim', 'Keras', 'PyTorch'
_ASSUMED = '; the order red, green, blue, an average pool, and a softmax: the file has weights alone'
# The rounding of the numbers in a configuration, of pixels in [-1, 1].
_ROUNDING = 1e-6
_AUXILIARY_KERNEL = re.compile(r'InceptionV3/AuxLogits/Conv2d_2a_(\d)x(\d)/weights')
# Names of PyTorch that tell the networks apart.
_OF_INCEPTION, _OF_RESNET = 'Conv2d_1a_3x3.conv.weight', 'layer1.0.conv1.weight'
# Counters of normalizations and of averages.
_COUNTERS = ('.num_batches_tracked', 'n_averaged')
# The beginnings of PyTorch's names of layers below the classifiers.
_BODY = re.compile(r'(Conv2d_|Mixed_|conv\d|bn\d|layer\d)')
# Names that wrappers of PyTorch put before all names, and the names that training scripts give to averages.
_WRAPPERS = ('', 'module', '_orig_mod')
_AVERAGES = re.compile(r'(?<![a-z])(ema|swa|avg|averaged?)(?![a-z])', re.IGNORECASE)
_KINDS = (
    'a checkpoint, a model_dir, a SavedModel or an .npz file of this program or TF-Slim; the .h5 or .keras file of '
    "keras.applications' InceptionV3; or the .pth or .safetensors file of a state dict of torchvision or timm"
)


class Weights(NamedTuple):
    """The weights of a network.

    Attributes:
      path: of their file.
      origin: the kind of file, of `OURS`, `KERAS` and `TORCH`.
      architecture: the network.
      values: float32 variables by our names; no scales in Inception v3.
      images: the range of the images that they are for: a name in `changes.IMAGES`.
      folded: the scopes of layers whose scales were folded.
      config: of the run that wrote them; None if there is none.
      depth_multiplier: of the network.
      notes: lines about what was taken of the file, and what is assumed.
    """

    path: str
    origin: str
    architecture: Architecture
    values: Values
    images: str
    folded: Sequence[str] = ()
    config: Optional[Config] = None
    depth_multiplier: float = 1.0
    notes: Sequence[str] = ()

    @property
    def has_auxiliary_head(self) -> bool:
        """Whether there are weights of the auxiliary head."""
        return any(name.startswith(self.architecture.auxiliary) for name in self.values)

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 without a classifier."""
        biases = self.values.get(f'{self.architecture.classifier}/biases')
        return 0 if biases is None else len(biases)

    @property
    def layers(self) -> List[Layer]:
        """The layers that have weights."""
        return self.architecture.of(self.has_auxiliary_head, self.num_classes > 0)

    def __str__(self) -> str:
        parameters = sum(value.size for name, value in self.values.items() if '/moving_' not in name)
        head = 'with' if self.has_auxiliary_head else 'without'
        auxiliary = '' if self.architecture.name == 'resnet50' else f', {head} auxiliary head'
        classes = f'{self.num_classes:,} classes' if self.num_classes else 'no classifier'
        return (
            f'{self.path}: {self.architecture.name} of {self.origin}, {classes}{auxiliary}, {parameters:,} parameters'
        )


class _Model(NamedTuple):
    """The place of a network's weights in a file of PyTorch: the key of the state dict, and the prefix of names there.

    The mark is that of the network, `_OF_INCEPTION` or `_OF_RESNET`; notes are those of `Weights`.
    """

    key: str
    prefix: str
    mark: str
    notes: Sequence[str] = ()


def read(
    path: str,
    averages: bool = True,
    auxiliary_head: bool = True,
    images: str = '',
    depth_multiplier: float = 0.0,
    classifier: bool = True,
    which: str = '',
) -> Weights:
    """Reads weights of Inception v3 or ResNet-50.

    Args:
      path: of the file or folder, local or remote.
      averages: take the moving averages of a run's weights, if there are any.
      auxiliary_head: read the auxiliary head, if there is one.
      images: the range of the images that weights of another framework are for, of `changes.IMAGES`; empty for that of
        the published weights.
      depth_multiplier: of the network; 0 for that of the run that wrote the weights, or 1.
      classifier: read the classifiers; without them, the file may have a head of another form.
      which: the key of one of several models in a file of PyTorch; empty for the averages.

    Raises:
      WeightsError: there is no such file, it is damaged, or its weights are those of another network.
      ShapeError: they do not fit the network.
      RemoteError: access is denied, or the store cannot be reached.
    """
    auxiliary_head = auxiliary_head and classifier
    content = None if tf.io.gfile.isdir(path) else remote.read(path)
    if content is None and path.endswith(FOREIGN_ENDINGS) and not remote.exists(f'{path}.index'):
        raise WeightsError(f'{path}: no such file. Name {_KINDS}.')
    models: List[_Model] = []

    def choose(names_of: Mapping[str, Sequence[str]]) -> str:
        models.append(_choose(names_of, which, path))
        return models[0].key

    try:
        found = _contained(content, path, choose) if content is not None else None
    except CommandError:
        raise
    # The libraries raise many errors about damaged files.
    except Exception as error:
        raise WeightsError(f'{path}: cannot be read, or is damaged ({sources.reason_of(error)}). Name {_KINDS}.')
    source = sources.read(path, shown(path)) if found is None else None
    if source and source.kind == 'npz' and not any('/' in name for name in source.values):
        # Arrays by the names of PyTorch.
        found, source = source.values, None
    if which and not isinstance(found, dict):
        raise WeightsError(f'--which={shown(which)}: is for files of PyTorch with several models; {path} has one.')
    if source:
        return _of_ours(source, averages, auxiliary_head, depth_multiplier, classifier)
    if isinstance(found, KerasFile):
        return _of_keras(found, path, classifier, images)
    assert found is not None, 'without a source'
    model = models[0] if models else _choose({'': [*found]}, which, path)
    return _of_torch(found, model, path, auxiliary_head, images, depth_multiplier or 1.0, classifier)


def _contained(content: bytes, path: str, choose: state_dicts.Choice) -> Union[KerasFile, Values, None]:
    """The weights in a file of Keras or PyTorch; None if it is of another kind."""
    if content.startswith(HDF5):
        return keras_files.read(content)
    if path.endswith('.safetensors'):
        return state_dicts.read_safetensors(content)
    names: List[str] = []
    if content.startswith(b'PK\x03\x04') and not path.endswith(TORCH_ENDINGS):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
    if keras_files.ARCHIVE_MEMBER in names:
        return keras_files.read(content)
    is_torch = content.startswith(OLD_TORCH) or any(name.endswith('/data.pkl') for name in names)
    if is_torch or path.endswith(TORCH_ENDINGS):
        return state_dicts.read(path, path, choose)
    if path.endswith(('.h5', '.hdf5', '.keras')):
        raise ValueError('it does not begin as a file of Keras does')
    return None


def _choose(names_of: Mapping[str, Sequence[str]], which: str, path: str) -> _Model:
    """Finds the networks in state dicts by key, and chooses the one of a key, or the averages if there are several.

    Raises:
      WeightsError: there is none, or no such, or several without averages.
    """
    models: Dict[str, _Model] = {}
    for key, names in names_of.items():
        for name in names:
            for mark in (_OF_INCEPTION, _OF_RESNET):
                if f'.{name}'.endswith(f'.{mark}'):
                    place = f'{key}.{name[: -len(mark)]}'
                    short = '.'.join(part for part in place.split('.') if part not in _WRAPPERS)
                    models[place.strip('.') if short in models else short] = _Model(key, name[: -len(mark)], mark)
    if not models:
        largest = max(names_of.values(), key=len)
        raise _another(path, largest)
    keys = listed([*models])
    averages = [key for key in models if _AVERAGES.search(key)]
    if which and which not in models:
        raise WeightsError(f'--which={shown(which)}: {path} has no such model. Its models: {keys}.')
    if not which and len(models) > 1 and len(averages) != 1:
        raise WeightsError(f'{path}: has several models. Name one of them with --which: {keys}.')
    taken = which or (averages if len(models) > 1 else [*models])[0]
    note = f'  took {shown(taken)} of its models {keys}; --which=KEY takes another one'
    return models[taken]._replace(notes=[note] if len(models) > 1 else [])


def _of_keras(found: KerasFile, path: str, classifier: bool, images: str) -> Weights:
    architecture = inception()
    try:
        form = None if found.config is None else keras_files.read_config(found.config, classifier)
        keras_files.check_network(found, architecture.of(auxiliary_head=False), classifier)
    except keras_files.KerasError as error:
        raise WeightsError(f'{path}: {error}')
    except keras_files.FORM_ERRORS as error:
        raise WeightsError(f'{path}: its configuration is damaged ({shown(repr(error))}).')
    dense = found.dense if classifier else []
    notes = []
    if dense and form and form.activation == keras_files.SIGMOID:
        # The softmax of (0, x) is the sigmoid of x.
        dense = [{name: np.insert(array, 0, 0, -1) for name, array in layer.items()} for layer in dense]
        notes.append('  its sigmoid of one output is imported as a softmax of two classes, of which the first is the 0')
    arrays = {
        f'{kind.format(number)}/{name}': array
        for kind, layers in (('conv2d_{}', found.convs), ('batch_normalization_{}', found.norms), ('dense', dense))
        for number, layer in enumerate(layers)
        for name, array in layer.items()
    }
    entries = of_keras(architecture.of(auxiliary_head=False, classifier=bool(dense)), found.is_by_order)
    values = _converted(arrays, entries, path)
    usual = images or 'inception'
    if form and form.is_scaled:
        if images:
            raise WeightsError(f'{path}: its configuration scales pixels itself; leave --pixels={images} out.')
        notes.append('  the pixels are those of its configuration, which scales them from [0, 255]')
    else:
        notes.append(f'  assumed: pixels of {usual}, as --pixels has it' + _ASSUMED * (form is None))
    if form:
        scale, shift = np.ones(3), np.zeros(3)
        if form.is_scaled:
            # Pixels in [0, 255] of those in [-1, 1].
            scale, shift = form.scale * 127.5, form.shift + form.scale * 127.5
        if max(np.abs(scale - 1).max(), np.abs(shift).max()) > _ROUNDING or form.order != [0, 1, 2]:
            values = fold_images(values, architecture, scale, shift, form.order)
            notes.append('  carried its scaling or order of channels into the first layer')
    return _finished(path, KERAS, architecture, values, usual)._replace(notes=notes)


def _of_torch(
    arrays: Values,
    model: _Model,
    path: str,
    auxiliary_head: bool,
    images: str,
    depth_multiplier: float,
    classifier: bool,
) -> Weights:
    own = {name[len(model.prefix) :]: array for name, array in arrays.items() if name.startswith(model.prefix)}
    own = {name: array for name, array in own.items() if not name.endswith(_COUNTERS)}
    is_inception = model.mark == _OF_INCEPTION
    architecture = inception(depth_multiplier) if is_inception else resnet50(depth_multiplier)
    if not auxiliary_head:
        own = without(own, ['AuxLogits.'])
    if not classifier:
        own = {name: array for name, array in own.items() if _BODY.match(name)}
    others = sorted(name for name in own if name.startswith('fc.') and name not in ('fc.weight', 'fc.bias'))
    if others:
        raise WeightsError(
            f'{path}: its classifier is not one dense layer: it has {listed(others)}. {keras_files.WITHOUT_CLASSIFIER}.'
        )
    has_auxiliary_head, has_classifier = (any(n.startswith(begin) for n in own) for begin in ('AuxLogits.', 'fc.'))
    layers = architecture.of(has_auxiliary_head, has_classifier)
    values = _converted(own, of_torch(layers, architecture.has_scales), path)
    weights = _finished(path, TORCH, architecture, values, images or ('inception' if is_inception else 'imagenet'))
    return weights._replace(depth_multiplier=depth_multiplier, notes=model.notes)


def _of_ours(
    source: sources.Source, averages: bool, auxiliary_head: bool, depth_multiplier: float, classifier: bool
) -> Weights:
    names = {name[: -len(AVERAGE)] if name.endswith(AVERAGE) else name for name in source.values}
    multiplier = depth_multiplier or (source.config.depth_multiplier if source.config else 1.0)
    if any(name.startswith('InceptionV3/') for name in names):
        kernels = [match for match in map(_AUXILIARY_KERNEL.fullmatch, names) if match]
        kernel = (int(kernels[0].group(1)), int(kernels[0].group(2))) if kernels else AUXILIARY_KERNEL
        architecture = inception(multiplier, kernel)
    elif any(name.startswith('ResNet50/') for name in names):
        architecture = resnet50(multiplier)
    else:
        raise _another(source.path, names)
    values = {
        name: source.values[name + AVERAGE if name + AVERAGE in source.values and averages else name]
        for name in names
        if name.startswith(f'{architecture.scope}/') and (name in source.values or averages)
    }
    if not auxiliary_head:
        values = without(values, [architecture.auxiliary])
    if not classifier:
        values = without(values, [f'{architecture.classifier}/'])
    heads = (architecture.auxiliary, f'{architecture.classifier}/')
    layers = architecture.of(*(any(name.startswith(head) for name in values) for head in heads))
    try:
        values = to_ours(values, of_ours(layers, architecture.has_scales), source.path)
    except ShapeError as error:
        if multiplier != 1 or depth_multiplier:
            raise
        raise WeightsError(f'{error} If the network is narrower than the paper, give its --depth_multiplier.')
    images = source.config.preprocessing if source.config else 'inception'
    weights = _finished(source.path, OURS, architecture, values, images)
    return weights._replace(config=source.config, depth_multiplier=multiplier)


def _converted(arrays: Values, entries: Sequence[Entry], path: str) -> Values:
    """The values of arrays of another framework, all of which the network must have."""
    values = to_ours(arrays, entries, path)
    unknown = sorted(arrays.keys() - {entry.theirs for entry in entries})
    if unknown:
        raise WeightsError(
            f'{path}: has the weights of another network: {listed(unknown)} have no counterpart. If '
            'they are a head of your own, leave it out with `weights import --no_classifier`.'
        )
    return values


def _finished(path: str, origin: str, architecture: Architecture, values: Values, images: str) -> Weights:
    folded: List[str] = []
    if not architecture.has_scales:
        values, folded = fold_scales(values, architecture)
    heads = [layer.scope for layer in architecture.layers if layer.is_classifier and f'{layer.scope}/biases' in values]
    counts = {values[f'{head}/{name}'].shape[-1] for head in heads for name in ('weights', 'biases')}
    if len(counts) > 1:
        raise WeightsError(
            f'{path}: its classifiers have different numbers of classes, {" and ".join(map(str, sorted(counts)))}. If '
            'the auxiliary head is that of other classes, leave it out with --no_auxiliary_head.'
        )
    if counts == {1}:
        raise WeightsError(
            f'{path}: its classifier has one output, not one of each class. {keras_files.WITHOUT_CLASSIFIER}.'
        )
    return Weights(path, origin, architecture, values, images, folded)


def _another(path: str, names: Iterable[str]) -> WeightsError:
    has = listed(sorted(names)) or 'no variables'
    return WeightsError(f'{path}: has the weights of another network: it has {has}. Name {_KINDS}.')
