"""Reads the weights of a network from a file of any kind, as variables with the names of this program."""

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from compat import tf
from compat.messages import full, listed, shown
from console import inputs
from data import remote
from inception_v3.config import Config
from inception_v3.networks.registry import NETWORKS
from inception_v3.weights import sources
from inception_v3.weights.sources import AVERAGE, OBJECT_GRAPH, Source, WeightsError
from tools.weights import descriptions, finding, frozen_graphs, keras_files, other_networks, state_dicts, torch_names
from tools.weights.architecture import (
    AUXILIARY_KERNEL,
    Architecture,
    Entry,
    Layer,
    Values,
    inception,
    of_keras,
    of_ours,
    of_torch,
    resnet50,
    to_ours,
)
from tools.weights.changes import fold_scales, images_of, with_images, without
from tools.weights.descriptions import Description
from tools.weights.finding import FOREIGN_ENDINGS, TORCH_ENDINGS, Place
from tools.weights.keras_files import HDF5, KerasFile
from tools.weights.state_dicts import TorchFile

# The beginning of a file of PyTorch before version 1.6: a pickle of protocol 2 of a number.
OLD_TORCH = b'\x80\x02\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19'
# The kinds of files, as messages name them.
OURS, KERAS, TORCH = 'this program or TF-Slim', 'Keras', 'PyTorch'
_AUXILIARY_KERNEL = re.compile(r'InceptionV3/AuxLogits/Conv2d_2a_(\d)x(\d)/weights')
# The first kernel of each network, after the scopes of another program.
_FIRST = re.compile(r'((?:.*/)?)((InceptionV3)/Conv2d_1a_3x3|(ResNet50)/stem)/weights')
# The copies of a variable that a distribution strategy keeps.
_REPLICA = re.compile(r'/replica_\d+$')
# Constants of the graph of December 2015, and of those that TensorFlow's retrain.py made of it.
_OF_2015 = 'mixed_10/tower_1/mixed/conv_1/conv2d_params'
_NETWORKS = 'Inception v3 and ResNet-50'
_KINDS = (
    'a checkpoint, a model_dir, a SavedModel, a frozen graph or an .npz file of this program or TF-Slim; the .h5 or '
    ".keras file, the SavedModel or the checkpoint of keras.applications' InceptionV3; the .pth or .safetensors file "
    'of a state dict of torchvision, timm or Hugging Face; or a folder or tar archive of one of these'
)


class Options(NamedTuple):
    """The parts of a file of weights to read: the averages of a run, the auxiliary head, the classifiers.

    Without classifiers, the file may have a head of another form. `pixels` is the range in `changes.images_of` for
    which weights of another framework were trained, by default the published weights' range. `which` is the key of one
    of several models in a file of PyTorch, or the scope of one of several networks in a checkpoint. A multiplier of 0
    stands for that of the run that wrote the weights, or 1.
    """

    averages: bool = True
    auxiliary_head: bool = True
    pixels: str = ''
    depth_multiplier: float = 0.0
    classifier: bool = True
    which: str = ''


class Weights(NamedTuple):
    """The weights of a network, from a kind of file: `OURS`, `KERAS` or `TORCH`.

    The values are float32 variables by our names, without scales in Inception v3. They are for images in a range of
    `changes.images_of`. Notes name assumptions and folded scales. The configuration is that of the run that wrote the
    weights, and the description is from the model's files about images and classes; either may be missing.
    """

    path: str
    origin: str
    architecture: Architecture
    values: Values
    images: str
    config: Optional[Config] = None
    depth_multiplier: float = 1.0
    notes: Sequence[str] = ()
    description: Optional[Description] = None

    @property
    def size(self) -> Tuple[int, int]:
        """The height and width of the images: of the run, of the description, or of the published network."""
        if self.config:
            return self.config.height, self.config.width
        usual = NETWORKS[self.architecture.name].size
        return (self.description and self.description.size) or (usual, usual)

    @property
    def has_auxiliary_head(self) -> bool:
        """Whether there are weights of the auxiliary head."""
        return any(name.startswith(self.architecture.auxiliary) for name in self.values)

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 without a classifier."""
        return len(self.values.get(f'{self.architecture.classifier}/biases', ()))

    @property
    def layers(self) -> List[Layer]:
        """The layers that have weights."""
        return self.architecture.of(self.has_auxiliary_head, self.num_classes > 0)

    def __str__(self) -> str:
        parameters = sum(value.size for name, value in self.values.items() if '/moving_' not in name)
        head = f', {"with" if self.has_auxiliary_head else "without"} auxiliary head'
        return (
            f'{self.path}: {self.architecture.name} of {self.origin}, '
            + (f'{self.num_classes:,} classes' if self.num_classes else 'no classifier')
            + f'{head if self.architecture.name == "inception_v3" else ""}, {parameters:,} parameters'
        )


class OneModelError(WeightsError):
    """A file has only one model, and `--which` names another."""


# Options that read all of a file.
WHOLE = Options()


def read(path: str, options: Options = WHOLE) -> Weights:
    """Reads weights of Inception v3 or ResNet-50 from a local or remote file or folder.

    Raises:
      WeightsError: there is no such file, it is damaged, or its weights are those of another network or do not fit it.
      RemoteError: access is denied, or the store cannot be reached.
    """
    options = options._replace(auxiliary_head=options.auxiliary_head and options.classifier)
    with finding.found(path) as place:
        weights = _read(place, options)
    if options.which and weights.origin == KERAS:
        raise _one_model(options.which)
    return weights


def _read(place: Place, options: Options) -> Weights:
    path = place.name
    content = None if tf.io.gfile.isdir(place.path) else remote.read(place.path, inputs.WEIGHTS_BYTES)
    if content is None and path.endswith(FOREIGN_ENDINGS) and not remote.exists(f'{place.path}.index'):
        raise WeightsError(f'{path}: no such file. Name {_KINDS}.')
    with sources.damage_explained(path, 'file of weights', f' Name {_KINDS}.'):
        found = None if content is None else _contained(content, path)
    if isinstance(found, TorchFile):
        return _of_torch(found, place, options)
    if isinstance(found, KerasFile):
        return _of_keras(found, path, options)
    source = found or sources.read(place.path, full(path))
    if OBJECT_GRAPH in source.values:
        with sources.damage_explained(path, 'checkpoint of TensorFlow 2'):
            source = source._replace(values=keras_files.by_full_name(source.values))
            if not any(map(_FIRST.fullmatch, source.values)):
                metadata = remote.read(os.path.join(place.path, keras_files.METADATA))
                found = keras_files.of_variables(source.values, metadata)
    if isinstance(found, KerasFile):
        return _of_keras(found, path, options)
    return _of_ours(source._replace(path=source.path if place.path == path else path), options)


def _contained(content: bytes, path: str) -> Union[KerasFile, TorchFile, Source, None]:
    """The weights in a file of Keras or PyTorch, or in a frozen graph; None if it is of another kind."""
    if path.endswith(('.h5', '.hdf5', '.keras')) or content.startswith(HDF5):
        return keras_files.read(content)
    if path.endswith('.safetensors'):
        return TorchFile({'': state_dicts.read_safetensors(content)}, {})
    is_zip = content.startswith(b'PK\x03\x04') and not path.endswith('.npz')
    if path.endswith(TORCH_ENDINGS) or is_zip or content.startswith(OLD_TORCH):
        return state_dicts.read(content)
    if path.endswith('.pb'):
        return _of_graph(frozen_graphs.constants_in(content), path)
    return None


def _of_graph(constants: Values, path: str) -> Union[KerasFile, Source]:
    if any(f'/{name}'.endswith(f'/{_OF_2015}') for name in constants):
        raise WeightsError(
            f'{path}: is the Inception graph of December 2015, or one that was retrained from it. Its last block '
            'differs from Inception v3, and its weights cannot be imported; `inception-v3 features` and `inception-v3 '
            'fid` read the graph of 2015 itself.'
        )
    if not any(map(_FIRST.fullmatch, constants)):
        found = keras_files.of_variables(constants)
        if found.numbers:
            return found
    return Source(path, 'frozen graph', constants, '', None)


def _of_keras(found: KerasFile, path: str, options: Options) -> Weights:
    architecture, arrays, description = inception(), found.arrays, None
    with sources.damage_explained(path, 'model of Keras'):
        if found.config is not None:
            description = keras_files.check_config(found.config, options.classifier, path)
            if description.images and options.pixels not in ('', description.images.name):
                raise WeightsError(f'{path}: its model scales pixels itself; leave --pixels={options.pixels} out.')
    keras_files.check_network(found, architecture.of(auxiliary_head=False), options.classifier, path)
    has_classifier = options.classifier and 'dense_0/kernel' in arrays
    arrays = arrays if has_classifier else without(arrays, ['dense_'])
    entries = of_keras(architecture.of(auxiliary_head=False, classifier=has_classifier), found.is_by_order)
    weights = Weights(path, KERAS, architecture, _converted(arrays, entries, path), 'inception')
    alone = ['the order red, green, blue, an average pool, and a softmax, because the file has weights alone']
    return _described(_finished(weights), description, options, [] if found.config else alone)


def _of_torch(found: TorchFile, place: Place, options: Options) -> Weights:
    path, which = place.name, options.which
    models = {
        f'{key}.{prefix}'.strip('.'): model
        for key, arrays in found.models.items()
        for prefix, model in torch_names.find(arrays).items()
    }
    if not models:
        raise _another(path, sorted(found.models.values(), key=len)[-1])
    if which and which not in models:
        kind = WeightsError if len(models) > 1 else OneModelError
        raise kind(f'--which={shown(which)}: {path} has no such model. Its models: {listed([*models])}.')
    if not which and len(models) > 1:
        raise WeightsError(f'{path}: has several models. Name one of them with --which: {listed([*models])}.')
    mark, own, heads = models[which or next(iter(models))]
    variant = other_networks.of_torch(other_networks.shapes_of(own))
    if variant:
        raise WeightsError(f'{path}: has the weights of {variant}. Only those of {_NETWORKS} can be imported.')
    multiplier = options.depth_multiplier or 1.0
    is_inception = mark == torch_names.OF_INCEPTION
    architecture = inception(multiplier) if is_inception else resnet50(multiplier)
    if not options.auxiliary_head:
        own = without(own, ['AuxLogits.'])
    if not options.classifier:
        own = {name: array for name, array in own.items() if torch_names.BODY.match(name)}
    layers = architecture.of(*_heads(own, 'AuxLogits.', 'fc.weight'))
    values = _converted(own, of_torch(layers, architecture.has_scales), path)
    usual, is_read = 'inception' if is_inception else 'imagenet', options.classifier and heads
    notes = [f'  its classifiers are called {", ".join(map(shown, heads))}'] if is_read else []
    weights = Weights(path, TORCH, architecture, values, usual, depth_multiplier=multiplier, notes=notes)
    weights = _finished(weights)
    said, problems = _said_in(found.settings, path)
    beside = descriptions.beside(place.path)
    for each in beside:
        if each.num_classes and weights.num_classes and each.num_classes != weights.num_classes:
            raise WeightsError(
                f'{each.origin}: is of {each.num_classes:,} classes, and {path} has {weights.num_classes:,}. Mend the '
                'file, or move the weights to a folder of their own.'
            )
    weights = _described(weights, descriptions.joined([*beside, *said]), options)
    return weights._replace(notes=[*weights.notes, *problems])


def _said_in(settings: Mapping[str, Dict[str, Any]], path: str) -> Tuple[List[Description], List[str]]:
    """The descriptions in the settings of a training script, and lines about settings that make no sense."""
    found: List[Description] = []
    problems = []
    for key, values in settings.items():
        # A dict of names by number is not a dict of settings.
        if key.rpartition('.')[2] not in descriptions.class_names.KEYS:
            try:
                own = descriptions.of_settings(values, f'{path}{f" ({shown(key)})" if key else ""}')
                found += [own._replace(num_classes=0)] if str(own) else []
            except WeightsError as error:
                problems.append(f'  not read: {error}')
    return found, problems


def _described(
    weights: Weights, description: Optional[Description], options: Options, assumed: Sequence[str] = ()
) -> Weights:
    """The weights for images in the given or described range, with lines about it and about assumptions."""
    said = description.images if description else None
    notes = [f'  described: {description} ({description.origin})'] if description and str(description) else []
    unsaid: List[str] = []
    if options.pixels:
        weights = weights._replace(images=options.pixels)
        if said and said.name != options.pixels:
            notes.append(f'  instead of these pixels, as --pixels={options.pixels} has it: {images_of(options.pixels)}')
    elif said and said.name:
        weights = weights._replace(images=said.name)
    elif said:
        values = with_images(weights.values, weights.architecture, said, images_of(weights.images))
        weights = weights._replace(values=values)
    else:
        unsaid.append(f'{images_of(weights.images)} (--pixels={weights.images})')
    if not (description and description.size):
        unsaid.append('images of {} x {}'.format(*weights.size))
    unsaid += assumed
    notes += [f'  assumed: {"; ".join(unsaid)}'] if unsaid else []
    notes += description.notes if description else []
    return weights._replace(description=description, notes=[*weights.notes, *notes])


def _of_ours(source: Source, options: Options) -> Weights:
    names = {_REPLICA.sub('', name[: -len(AVERAGE)] if name.endswith(AVERAGE) else name) for name in source.values}
    prefix = _scope_of(source, names, options)
    stored = {name[len(prefix) :]: value for name, value in source.values.items() if name.startswith(prefix)}
    names = {name[len(prefix) :] for name in names if name.startswith(prefix)}
    multiplier = options.depth_multiplier or (source.config.depth_multiplier if source.config else 1.0)
    if any(name.startswith('InceptionV3/') for name in names):
        kernels = [match for match in map(_AUXILIARY_KERNEL.fullmatch, names) if match]
        kernel = (int(kernels[0].group(1)), int(kernels[0].group(2))) if kernels else AUXILIARY_KERNEL
        architecture = inception(multiplier, kernel)
    else:
        architecture = resnet50(multiplier)
    values = {
        name: stored[name + AVERAGE if name + AVERAGE in stored and options.averages else name]
        for name in names
        if name.startswith(f'{architecture.scope}/') and (name in stored or options.averages)
    }
    heads = (architecture.auxiliary, f'{architecture.classifier}/')
    notes = []
    if not any(name.startswith(heads[1]) for name in values) and options.classifier:
        found = _retrained(source.values, prefix + architecture.scope, values, architecture)
        notes = [f'  its classifier is called {shown(name)}' for name in found[:1]]
        for name, last in zip(found, ('weights', 'biases')):
            own = source.values[name]
            values[heads[1] + last] = own.reshape([1, 1, *own.shape]) if own.ndim == 2 else own
    is_read = (options.auxiliary_head, options.classifier)
    values = without(values, [head for head, is_own in zip(heads, is_read) if not is_own])
    layers = architecture.of(*_heads(values, *heads))
    values = to_ours(values, of_ours(layers, architecture.has_scales), source.path)
    images = options.pixels if options.pixels and not source.config else 'inception'
    images = source.config.preprocessing if source.config else images
    weights = Weights(source.path, OURS, architecture, values, images, source.config, multiplier, notes)
    weights = _finished(weights)
    return weights if source.config else _described(weights, None, options)


def _scope_of(source: Source, names: Iterable[str], options: Options) -> str:
    """The scopes of another program around a network, such as `tower_0/`; empty if there are none.

    Raises WeightsError if there is no network, or several with different weights and `which` names none of them.
    """
    scopes = sorted({match.group(1) for match in map(_FIRST.fullmatch, names) if match})
    # Copies of one network, such as a program's replicas, count as one.
    distinct = [
        scope for number, scope in enumerate(scopes) if not number or not _are_equal(source.values, scopes[0], scope)
    ]
    if not scopes:
        raise _another(source.path, names)
    which = options.which
    if which and scopes == ['']:
        raise _one_model(which)
    if which and f'{which.rstrip("/")}/' not in scopes:
        known = listed([scope.rstrip('/') or 'one without a scope' for scope in scopes])
        kind = WeightsError if len(distinct) > 1 else OneModelError
        raise kind(f'--which={shown(which)}: {source.path} has no such model. Its models: {known}.')
    if len(distinct) > 1 and not which:
        known = listed([scope.rstrip('/') for scope in scopes if scope])
        raise WeightsError(f'{source.path}: has several models. Name one of them with --which: {known}.')
    return f'{which.rstrip("/")}/' if which else scopes[0]


def _are_equal(values: Mapping[str, np.ndarray], one: str, other: str) -> bool:
    pairs = [(name, f'{other}{name[len(one) :]}') for name in values if name.startswith(one)]
    own = [(name, again) for name, again in pairs if again in values and _FIRST.fullmatch(name) is not None]
    common = [(name, again) for name, again in pairs if again in values]
    return bool(own) and all(np.array_equal(values[name], values[again]) for name, again in common)


def _retrained(stored: Mapping[str, np.ndarray], scope: str, values: Values, architecture: Architecture) -> List[str]:
    """The names of kernel and biases of the only other classifier in a graph or checkpoint; none if ambiguous."""
    features = architecture.of(auxiliary_head=False)[-1].shape[2]
    others = {name: each for name, each in stored.items() if not name.startswith(f'{scope}/')}
    # Slots of optimizers have the names of their variables, and one more.
    own = [name for name in others if name.rpartition('/')[0] not in others]
    kernels = [name for name in own if others[name].ndim == 2 and others[name].shape[0] == features]
    if len(kernels) != 1:
        return []
    biases = [name for name in own if others[name].shape == others[kernels[0]].shape[1:]]
    return [kernels[0], biases[0]] if len(biases) == 1 else []


def _heads(names: Iterable[str], auxiliary: str, classifier: str) -> Tuple[bool, bool]:
    known = [*names]
    return any(n.startswith(auxiliary) for n in known), any(n.startswith(classifier) for n in known)


def _converted(arrays: Values, entries: Sequence[Entry], path: str) -> Values:
    """Converts arrays of another framework; the network must have a place for each."""
    values = to_ours(arrays, entries, path)
    unknown = sorted(arrays.keys() - {entry.theirs for entry in entries})
    if unknown:
        raise WeightsError(
            f'{path}: has the weights of another network: {listed(unknown)} have no counterpart. If '
            'they are a head of your own, leave it out with `weights import --no_classifier`.'
        )
    return values


def _finished(weights: Weights) -> Weights:
    path, values, architecture = weights.path, weights.values, weights.architecture
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
    if architecture.has_scales:
        return weights
    values, folded = fold_scales(values, architecture)
    note = (
        f'  folded the scales of {len(folded):,} layers into their kernels: evaluation computes the same; '
        'batch normalization in training removes them'
    )
    return weights._replace(values=values, notes=[*weights.notes, note] if folded else weights.notes)


def _one_model(which: str) -> OneModelError:
    return OneModelError(
        f'--which={shown(which)}: is for files of PyTorch with several models, or checkpoints with scopes.'
    )


def _another(path: str, names: Iterable[str]) -> WeightsError:
    known = other_networks.of_scopes(names)
    if isinstance(names, dict):
        known = other_networks.of_torch(other_networks.shapes_of(names))
    if known:
        return WeightsError(f'{path}: has the weights of {known}. Only those of {_NETWORKS} can be imported.')
    has = listed(sorted(names)) or 'no variables'
    return WeightsError(f'{path}: has the weights of another network: it has {has}. Name {_KINDS}.')
