"""Reads the weights of a network from a file of any kind, as variables with the names of this program."""

import re
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from compat import tf
from compat.messages import listed, shown
from console import inputs
from data import remote
from inception_v3.config import Config
from inception_v3.weights import sources
from inception_v3.weights.sources import AVERAGE, WeightsError
from tools.weights import keras_files, state_dicts
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
from tools.weights.changes import fold_scales, without
from tools.weights.keras_files import HDF5, KerasFile

# Endings of files of other frameworks, with `.tar` for the archives that PyTorch's examples once wrote.
TORCH_ENDINGS = ('.pth', '.pt', '.bin', '.tar')
FOREIGN_ENDINGS = (*TORCH_ENDINGS, '.safetensors', '.h5', '.hdf5', '.keras')
# The beginning of a file of PyTorch before version 1.6: a pickle of protocol 2 of a number.
OLD_TORCH = b'\x80\x02\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19'
# The kinds of files, as messages name them.
OURS, KERAS, TORCH = 'this program or TF-Slim', 'Keras', 'PyTorch'
_AUXILIARY_KERNEL = re.compile(r'InceptionV3/AuxLogits/Conv2d_2a_(\d)x(\d)/weights')
# Names of PyTorch that tell the networks apart.
_OF_INCEPTION, _OF_RESNET = 'Conv2d_1a_3x3.conv.weight', 'layer1.0.conv1.weight'
# Counters of normalizations and of averages.
_COUNTERS = ('.num_batches_tracked', 'n_averaged')
# The beginnings of PyTorch's names of layers below the classifiers.
_BODY = re.compile(r'(Conv2d_|Mixed_|conv\d|bn\d|layer\d)')
_KINDS = (
    'a checkpoint, a model_dir, a SavedModel or an .npz file of this program or TF-Slim; the .h5 or .keras file of '
    "keras.applications' InceptionV3; or the .pth or .safetensors file of a state dict of torchvision or timm"
)


class Options(NamedTuple):
    """The choice of what to read from a file of weights: the averages of a run, the auxiliary head, the classifiers.

    Without classifiers, the file may have a head of another form. `pixels` is the range in `changes.IMAGES` that
    weights of another framework are for, by default that of the published weights; `which` the key of one of several
    models in a file of PyTorch. A multiplier of 0 is that of the run that wrote the weights,
    or 1.
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
    `changes.IMAGES`. Notes say what is assumed, and which scales were folded. The configuration is that of the run that
    wrote them, if there is one.
    """

    path: str
    origin: str
    architecture: Architecture
    values: Values
    images: str
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


# Every file.
WHOLE = Options()


def read(path: str, options: Options = WHOLE) -> Weights:
    """Reads weights of Inception v3 or ResNet-50 from a local or remote file or folder.

    Raises:
      WeightsError: there is no such file, it is damaged, or its weights are those of another network or do not fit it.
      RemoteError: access is denied, or the store cannot be reached.
    """
    options = options._replace(auxiliary_head=options.auxiliary_head and options.classifier)
    content = None if tf.io.gfile.isdir(path) else remote.read(path, inputs.WEIGHTS_BYTES)
    if content is None and path.endswith(FOREIGN_ENDINGS) and not remote.exists(f'{path}.index'):
        raise WeightsError(f'{path}: no such file. Name {_KINDS}.')
    with sources.damage_explained(path, 'file of weights', f' Name {_KINDS}.'):
        found = None if content is None else _contained(content, path)
    if isinstance(found, dict):
        return _of_torch(found, path, options)
    if options.which:
        raise WeightsError(f'--which={shown(options.which)}: is for files of PyTorch with several models.')
    if found:
        return _of_keras(found, path, options)
    return _of_ours(sources.read(path, shown(path)), options)


def _contained(content: bytes, path: str) -> Union[KerasFile, Dict[str, Values], None]:
    """The weights in a file of Keras, or the state dicts by key in one of PyTorch; None if it is of another kind."""
    if path.endswith(('.h5', '.hdf5', '.keras')) or content.startswith(HDF5):
        return keras_files.read(content)
    if path.endswith('.safetensors'):
        return {'': state_dicts.read_safetensors(content)}
    is_zip = content.startswith(b'PK\x03\x04') and not path.endswith('.npz')
    if path.endswith(TORCH_ENDINGS) or is_zip or content.startswith(OLD_TORCH):
        return state_dicts.read(content)
    return None


def _of_keras(found: KerasFile, path: str, options: Options) -> Weights:
    architecture, arrays = inception(), found.arrays
    with sources.damage_explained(path, 'model of Keras'):
        if found.config is not None:
            is_scaled = keras_files.check_config(found.config, options.classifier, path)
            if is_scaled and options.pixels not in ('', 'inception'):
                raise WeightsError(f'{path}: its model scales pixels itself; leave --pixels={options.pixels} out.')
    keras_files.check_network(found, architecture.of(auxiliary_head=False), options.classifier, path)
    has_classifier = options.classifier and 'dense_0/kernel' in arrays
    arrays = arrays if has_classifier else without(arrays, ['dense_'])
    entries = of_keras(architecture.of(auxiliary_head=False, classifier=has_classifier), found.is_by_order)
    values, usual = _converted(arrays, entries, path), options.pixels or 'inception'
    alone = '; the order red, green, blue, an average pool, and a softmax: the file has weights alone'
    note = f'  assumed: pixels of {usual}, as --pixels has it{"" if found.config else alone}'
    return _finished(Weights(path, KERAS, architecture, values, usual, notes=[note]))


def _of_torch(found: Mapping[str, Values], path: str, options: Options) -> Weights:
    # By the key of the state dict and the prefix of names there: the network's mark, and the arrays without the prefix.
    models: Dict[str, Tuple[str, Values]] = {}
    for key, arrays in found.items():
        for name in arrays:
            for mark in (_OF_INCEPTION, _OF_RESNET):
                if f'.{name}'.endswith(f'.{mark}'):
                    prefix = name[: -len(mark)]
                    own = {n[len(prefix) :]: array for n, array in arrays.items() if n.startswith(prefix)}
                    models[f'{key}.{prefix}'.strip('.')] = mark, own
    which = options.which
    if not models:
        raise _another(path, sorted(found.values(), key=len)[-1])
    if which and which not in models:
        raise WeightsError(f'--which={shown(which)}: {path} has no such model. Its models: {listed([*models])}.')
    if not which and len(models) > 1:
        raise WeightsError(f'{path}: has several models. Name one of them with --which: {listed([*models])}.')
    mark, own = models[which or next(iter(models))]
    own = {name: array for name, array in own.items() if not name.endswith(_COUNTERS)}
    multiplier = options.depth_multiplier or 1.0
    is_inception = mark == _OF_INCEPTION
    architecture = inception(multiplier) if is_inception else resnet50(multiplier)
    if not options.auxiliary_head:
        own = without(own, ['AuxLogits.'])
    if not options.classifier:
        own = {name: array for name, array in own.items() if _BODY.match(name)}
    layers = architecture.of(*_heads(own, 'AuxLogits.', 'fc.weight'))
    values = _converted(own, of_torch(layers, architecture.has_scales), path)
    images = options.pixels or ('inception' if is_inception else 'imagenet')
    return _finished(Weights(path, TORCH, architecture, values, images, depth_multiplier=multiplier))


def _of_ours(source: sources.Source, options: Options) -> Weights:
    names = {name[: -len(AVERAGE)] if name.endswith(AVERAGE) else name for name in source.values}
    multiplier = options.depth_multiplier or (source.config.depth_multiplier if source.config else 1.0)
    if any(name.startswith('InceptionV3/') for name in names):
        kernels = [match for match in map(_AUXILIARY_KERNEL.fullmatch, names) if match]
        kernel = (int(kernels[0].group(1)), int(kernels[0].group(2))) if kernels else AUXILIARY_KERNEL
        architecture = inception(multiplier, kernel)
    elif any(name.startswith('ResNet50/') for name in names):
        architecture = resnet50(multiplier)
    else:
        raise _another(source.path, names)
    values = {
        name: source.values[name + AVERAGE if name + AVERAGE in source.values and options.averages else name]
        for name in names
        if name.startswith(f'{architecture.scope}/') and (name in source.values or options.averages)
    }
    heads = (architecture.auxiliary, f'{architecture.classifier}/')
    is_read = (options.auxiliary_head, options.classifier)
    values = without(values, [head for head, is_own in zip(heads, is_read) if not is_own])
    layers = architecture.of(*_heads(values, *heads))
    values = to_ours(values, of_ours(layers, architecture.has_scales), source.path)
    images = source.config.preprocessing if source.config else 'inception'
    return _finished(Weights(source.path, OURS, architecture, values, images, source.config, multiplier))


def _heads(names: Iterable[str], auxiliary: str, classifier: str) -> Tuple[bool, bool]:
    known = [*names]
    return any(n.startswith(auxiliary) for n in known), any(n.startswith(classifier) for n in known)


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
        f'  folded the scales of {len(folded)} layers into their kernels: evaluation computes the same; '
        'batch normalization in training removes them'
    )
    return weights._replace(values=values, notes=[*weights.notes, note] if folded else weights.notes)


def _another(path: str, names: Iterable[str]) -> WeightsError:
    has = listed(sorted(names)) or 'no variables'
    return WeightsError(f'{path}: has the weights of another network: it has {has}. Name {_KINDS}.')
