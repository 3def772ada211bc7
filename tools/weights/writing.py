"""Writes the weights of a network: a folder that this program evaluates, or a file of another framework."""

import dataclasses
import io
import os
from typing import List, Sequence, Tuple

import numpy as np

from compat import tf
from compat.messages import listed, shown
from data import dataset_info, remote
from data.files import write_whole
from inception_v3.config import Config
from inception_v3.model_dir import CONFIG_FILE, LIST_FILE, latest_checkpoint
from inception_v3.networks.registry import NETWORKS
from inception_v3.run.checkpoints import PREFIX
from inception_v3.run.starts import append_start, this_start, write_config
from inception_v3.run.trained_data import misplaced_class
from inception_v3.weights.selection import HEAD
from inception_v3.weights.sources import AVERAGE, WeightsError
from tools.weights import keras_files, state_dicts
from tools.weights.architecture import Values, from_ours, inception, of_torch, resnet50
from tools.weights.changes import change_images, without
from tools.weights.choices import TARGETS
from tools.weights.foreign import OURS, Weights

# The last map of Inception v3 that its 8 x 8 pool covers whole, as the pools of other frameworks do at any size.
_LAST_MAP = 8


def export(weights: Weights, path: str, kind: str, images: str = '') -> List[str]:
    """Writes a file, or a checkpoint, for another framework: a name in `TARGETS`.

    The framework gives the network images in a range of `changes.images_of`; empty for its usual one, which for kinds
    of any width is that of `settings_of`. Returns lines about what was written. Raises WeightsError if the framework
    has no such network, or if that cannot be changed to the images. A file that exists is replaced: see
    `check_new_file`.
    """
    target, architecture = TARGETS[kind], weights.architecture
    _check(weights, kind, images)
    if not target.has_auxiliary_head:
        weights = weights._replace(values=without(weights.values, [architecture.auxiliary]))
    values, is_inception = weights.values, architecture.name == 'inception_v3'
    published = 'inception' if is_inception else 'imagenet'
    usual = published if target.is_published else settings_of(weights).preprocessing
    values = change_images(values, architecture, weights.images, images or usual)
    if kind == 'slim':
        write_checkpoint(path, {**values, tf.GraphKeys.GLOBAL_STEP: np.int64(0)})
    elif kind == 'keras':
        write_whole(path, keras_files.write(weights.layers, values))
    elif kind == 'npz':
        content = io.BytesIO()
        np.savez(content, **values)
        write_whole(path, content.getvalue())
    else:
        arrays: Values = {}
        for name, array in from_ours(values, of_torch(weights.layers, architecture.has_scales)).items():
            arrays[name] = array
            if name.endswith('.running_var'):
                # The number of updates.
                arrays[f'{name.rpartition(".")[0]}.num_batches_tracked'] = np.array(0, np.int64)
        write = state_dicts.write_safetensors if path.endswith('.safetensors') else state_dicts.write
        write_whole(path, write(arrays))
    load = target.load.format(
        path=path,
        classes=weights.num_classes,
        model=f'{"tf_" * (kind == "timm" and is_inception)}{architecture.name}',
        options=', aux_logits=False' * (is_inception and not weights.has_auxiliary_head),
        loader='safetensors.torch.load_file' if path.endswith('.safetensors') else 'torch.load',
    )
    pixels = '' if target.is_published else f', for images of --preprocessing={usual}'
    return [f'wrote {path} for {kind}: {len(values):,} variables{pixels}', f'  to load it: {load}']


def check_new_file(path: str, kind: str) -> None:
    """Raises WeightsError if a file for another framework exists, or if its name has another ending."""
    if os.path.splitext(path)[1] not in TARGETS[kind].endings:
        endings = ' or '.join(filter(None, TARGETS[kind].endings))
        raise WeightsError(f'{path}: the name of a file for {kind} ends with {endings}.')
    if remote.exists(path) or remote.exists(f'{path}.index'):
        raise WeightsError(f'{path}: exists. Remove it, or give another name.')


def _check(weights: Weights, kind: str, images: str) -> None:
    target, architecture = TARGETS[kind], weights.architecture
    if architecture.name not in target.networks:
        raise WeightsError(f'--to={kind}: {weights.path} has the weights of {architecture.name}; {kind} has no such.')
    if images and not target.is_published:
        raise WeightsError(f'--pixels={images}: is not for --to={kind}, whose networks are given our images.')
    published = inception() if architecture.name == 'inception_v3' else resnet50()
    written = architecture.of(weights.has_auxiliary_head and target.has_auxiliary_head)
    differ = [layer for layer in written if layer not in published.layers] if target.is_published else []
    if differ:
        raise WeightsError(
            f'--to={kind}: {weights.path}: {differ[0].scope} has the shape {[*differ[0].shape]}, which {kind} has not. '
            'Leave an auxiliary head out with --no_auxiliary_head; --to=npz and --to=slim take any width.'
        )


def check_new_folder(model_dir: str) -> None:
    """Raises WeightsError if a folder has a checkpoint or a configuration, which `import_into` would replace."""
    if latest_checkpoint(model_dir) or remote.exists(os.path.join(model_dir, f'{PREFIX}-0.index')):
        raise WeightsError(f'{model_dir}: has checkpoints already. Name another folder.')
    # It may describe the weights: that of a run, or of a model of timm.
    if remote.exists(os.path.join(model_dir, CONFIG_FILE)):
        raise WeightsError(f'{model_dir}: has a {CONFIG_FILE} already, which would be replaced. Name another folder.')


def import_into(
    model_dir: str,
    weights: Weights,
    averages: bool,
    data_dir: str = '',
    classifier: bool = True,
    class_names: Sequence[str] = (),
) -> List[str]:
    """Writes a model_dir with a checkpoint of step 0 and a configuration, as a run of this program leaves it.

    With `averages`, the weights are also written as their own averages, so that the default settings evaluate them. The
    data set at `data_dir` has these classes; it names them unless `class_names` does, by class. Weights without a
    classifier are refused unless `classifier` is False; they have no configuration, and are for `--init_from` alone.
    Returns lines about what was written. Raises WeightsError if the weights do not fit these arguments. The folder is
    new: see `check_new_folder`.
    """
    if not weights.num_classes and classifier:
        raise WeightsError(
            f'{weights.path}: has no classifier, so that it cannot be evaluated. --no_classifier imports it as it is, '
            'to begin a run from.'
        )
    info = dataset_info.read(data_dir) if data_dir else None
    if info and info.num_classes != weights.num_classes:
        raise WeightsError(
            f'--data_dir={data_dir}: has {info.num_classes:,} classes with the background; {weights.path} has '
            f'{weights.num_classes:,}. If that has no background, give --class_0=add.'
        )
    if info and class_names:
        _compare_names(info.class_names, class_names, data_dir)
    weights, notes = _fitting_images(weights)
    settings = settings_of(weights)
    config = dataclasses.replace(settings, moving_average=averages, model_dir=model_dir, data_dir=data_dir)
    values = change_images(weights.values, weights.architecture, weights.images, config.preprocessing)
    trained = [name for name in values if '/moving_' not in name] if averages else []
    saved = {**values, **{name + AVERAGE: values[name] for name in trained}, tf.GraphKeys.GLOBAL_STEP: np.int64(0)}
    with remote.explained(model_dir, remote.WRITE):
        tf.io.gfile.makedirs(model_dir)
    write_checkpoint(os.path.join(model_dir, f'{PREFIX}-0'), saved)
    # The data set names the classes of the weights, as it does of weights that a run trains.
    if weights.num_classes:
        append_start(config, this_start(config, info, class_names=class_names))
        write_config(config)
    # The list comes last: with it, the folder is complete.
    write_whole(os.path.join(model_dir, LIST_FILE), f'model_checkpoint_path: "{PREFIX}-0"\n')
    default = dataclasses.asdict(Config(model_dir=model_dir, data_dir=data_dir))
    flags = {name: f'--{name}={value}' for name, value in dataclasses.asdict(config).items() if value != default[name]}
    if not weights.num_classes:
        names = ('network', 'depth_multiplier', 'preprocessing', 'height', 'width')
        network = ' '.join(flags[name] for name in names if name in flags)
        return [
            *notes,
            f'wrote {model_dir}: a checkpoint of step 0 with {len(values):,} variables, without a classifier',
            f'  to begin a run from it: --init_from={shown(model_dir)} --init_except={HEAD} {network}'.rstrip(),
        ]
    if class_names:
        notes.append(f'  {len(class_names):,} names of classes: {listed([shown(name) for name in class_names])}')
    elif not info:
        notes.append('  the classes have no names; --labels=FILE names them')
    return [
        *notes,
        f'wrote {model_dir}: config.json, and a checkpoint of step 0 with {len(values):,} variables and '
        f'{len(trained):,} averages',
        f'  to evaluate it: --mode=eval --eval_timeout=0 --model_dir={shown(model_dir)} --data_dir=DATA '
        + ' '.join(flags.values()),
    ]


def _compare_names(of_data: Sequence[str], own: Sequence[str], data_dir: str) -> None:
    """Refuses weights some of whose classes the data set has at other labels."""
    problem = misplaced_class(own, of_data)
    if problem:
        raise WeightsError(
            f'--data_dir={data_dir}: has the classes of the weights in another order: {problem}. Its records would be '
            'evaluated with wrong labels. Make the data set anew with its classes in the order of the weights, or give '
            '--labels=FILE if the names of the weights are wrong.'
        )


def _fitting_images(weights: Weights) -> Tuple[Weights, List[str]]:
    """The weights without an auxiliary head that does not fit the size of the images; lines about it.

    Raises WeightsError if the network cannot be given images of this size, or pools them differently here.
    """
    height, width = weights.size
    least = NETWORKS[weights.architecture.name].min_size
    if min(height, width) < least:
        raise WeightsError(
            f'{weights.path}: is for images of {height} x {width} pixels; {weights.architecture.name} needs {least} x '
            f'{least} at least.'
        )
    if weights.architecture.name != 'inception_v3' or weights.config:
        return weights, []
    maps = [_map_17(size) for size in (height, width)]
    last = max((each - 3) // 2 + 1 for each in maps)
    if weights.num_classes and weights.origin != OURS and last > _LAST_MAP:
        raise WeightsError(
            f'{weights.path}: is for images of {height} x {width} pixels. Its last map, of {last} x {last}, is pooled '
            'otherwise here than in other frameworks, so that the logits would differ. `weights import '
            '--no_classifier` takes the layers below, to begin a run from.'
        )
    kernel = next((layer.shape[:2] for layer in weights.layers if 'AuxLogits/Conv2d_2a' in layer.scope), None)
    if kernel is None or kernel == tuple(min(5, (each - 5) // 3 + 1) for each in maps):
        return weights, []
    note = f'  left the auxiliary head out: it is not for images of {height} x {width}'
    return weights._replace(values=without(weights.values, [weights.architecture.auxiliary])), [note]


def _map_17(size: int) -> int:
    """The size of the map that the auxiliary head is given, 17 for images of 299 pixels."""
    after_stem = (((size - 3) // 2 + 1 - 2 - 3) // 2 + 1 - 2 - 3) // 2 + 1
    return (after_stem - 3) // 2 + 1


def settings_of(weights: Weights) -> Config:
    """The settings with which this program evaluates weights: those of their run, or of the published network."""
    network, run = weights.architecture.name, weights.config
    height, width = weights.size
    usual = 'inception' if network == 'inception_v3' or weights.images == 'inception' else 'vgg'
    return Config(
        use_tpu=False,
        network=network,
        depth_multiplier=weights.depth_multiplier,
        auxiliary_head=weights.has_auxiliary_head or network != 'inception_v3',
        num_classes=weights.num_classes or Config().num_classes,
        preprocessing=run.preprocessing if run else usual,
        height=height,
        width=width,
    )


def write_checkpoint(path: str, values: Values) -> None:
    """Writes a checkpoint of variables, without a list of checkpoints beside it."""
    names = sorted(values)
    arrays = [values[name] for name in names]
    with tf.Graph().as_default(), tf.Session() as session:
        # One operation for all of them, where a placeholder for each takes a second to make.
        tensors = tf.numpy_function(lambda: arrays, [], [tf.as_dtype(array.dtype) for array in arrays])
        save = tf.raw_ops.SaveV2(prefix=path, tensor_names=names, shape_and_slices=[''] * len(names), tensors=tensors)
        with remote.explained(path, remote.WRITE):
            session.run(save)
