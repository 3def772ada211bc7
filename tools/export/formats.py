"""The formats of exports: the conversion of a network to each, and the runtime that runs it."""

import dataclasses
import functools
import io
import os
import sys
from typing import Any, Callable, Dict, NamedTuple, Sequence, Tuple

import numpy as np

from compat import tf
from compat.errors import CommandError
from compat.messages import listed, shown
from inception_v3.estimator import make_estimator
from inception_v3.model_fn import EXPORT_SIGNATURE
from inception_v3.run.export.saved_model import INPUT_FILES, export_saved_model
from inception_v3.weights import sources
from tools.export import prepare
from tools.export.network import INPUT, LOGITS, PROBABILITIES, Batch, FrozenNetwork, build

# The version of ONNX's operations; runtimes since 2021 have it.
_OPSET = 13
_ANOTHER = 'Export to another format.'
# The axes of a channels-last batch in the order of channels first.
_NCHW = 0, 3, 1, 2
# The reason is at the end of TensorFlow Lite's messages.
_LONGEST = 3000

# From a batch to its logits, float32 [batch, num_classes].
Run = Callable[[Batch], np.ndarray]


class Format(NamedTuple):
    """A format: the name of the file, or folder, in the export's folder; its runtime and its input, in words.

    `write` converts the network, and raises CommandError if the format lacks one of its operations. Its images are
    prepared training images, float32 [height, width, 3]; there are none unless `is_calibrated`. `open` loads the file
    into its runtime. Both need the packages. An export may lose `loses_at_most` points of top-1.
    `describe` adapts the content of `preprocessing.json` to the input and the outputs of the file.
    """

    file: str
    purpose: str
    write: Callable[[FrozenNetwork, Sequence[np.ndarray], str], None]
    open: Callable[[str, FrozenNetwork], Run]
    packages: Tuple[str, ...] = ()
    loses_at_most: float = 0.0
    is_calibrated: bool = False
    describe: Callable[[Dict[str, Any], str], None] = lambda description, path: None


def _write_saved_model(network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
    config = dataclasses.replace(network.model.config, export_dir=os.path.join(os.path.dirname(path), 'unfinished'))
    estimator = make_estimator(config, network.learned.class_names)
    made = export_saved_model(estimator, config, network.model.checkpoint, network.learned)
    os.rename(made, path)
    os.rmdir(str(config.export_dir))


def _open_saved_model(path: str, network: FrozenNetwork) -> Run:
    with tf.Graph().as_default() as graph:
        session = tf.Session(graph=graph)
        loaded = tf.saved_model.load(session, [tf.saved_model.SERVING], path)
    signature = loaded.signature_def[EXPORT_SIGNATURE]
    encoded = signature.inputs[EXPORT_SIGNATURE].name
    # The input of the softmax is the logits.
    logits = graph.get_tensor_by_name(signature.outputs[PROBABILITIES].name).op.inputs[0]
    return lambda batch: session.run(logits, {encoded: batch.encoded})


def _write_onnx(network: FrozenNetwork, images: Sequence[np.ndarray], path: str, channels_first: bool = False) -> None:
    """Converts with tf2onnx, which folds batch normalization into the convolutions."""
    import onnx
    from tf2onnx import convert

    # Names without TensorFlow's output numbers.
    names = {f'{name}:0': name for name in (INPUT, LOGITS, PROBABILITIES)}
    sides = {'input_names': [*names][:1], 'output_names': [*names][1:], 'tensors_to_rename': names}
    first = [*names][:1] if channels_first else None
    model, _ = convert.from_graph_def(network.graph_def, opset=_OPSET, inputs_as_nchw=first, **sides)
    # tf2onnx leaves unknown operations as they are.
    unknown = {node.op_type for node in model.graph.node if not onnx.defs.has(node.op_type)}
    if unknown:
        raise CommandError(f'onnx: has no operation for {listed(sorted(unknown))}. {_ANOTHER}')
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = 'batch'
    with open(path, 'wb') as file:
        file.write(model.SerializeToString())


def _open_onnx(path: str, network: FrozenNetwork, channels_first: bool = False) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    axes = _NCHW if channels_first else range(len(_NCHW))
    return lambda batch: session.run([LOGITS], {INPUT: batch.images.transpose([*axes])})[0]


def _describe_nchw(description: Dict[str, Any], path: str) -> None:
    # The axes of one image, without the batch.
    axes = [axis - 1 for axis in _NCHW[1:]]
    description['input']['shape'] = [description['input']['shape'][axis] for axis in _NCHW]
    description['steps'].append({'transpose': axes})


def _write_tflite(
    network: FrozenNetwork, images: Sequence[np.ndarray], path: str, has_integer_ends: bool = False
) -> None:
    """Converts for one image at a time; with images, to 8-bit weights and activations, in the ranges of these images.

    With `has_integer_ends`, input and outputs also have 8 bits.
    """
    config = network.model.config
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        one = tf.placeholder(tf.float32, [1, config.height, config.width, 3], INPUT)
        outputs = tf.import_graph_def(network.graph_def, {INPUT: one}, [f'{LOGITS}:0', f'{PROBABILITIES}:0'], name='')
        converter = tf.lite.TFLiteConverter.from_session(session, [one], outputs)
        if images:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([image[np.newaxis]] for image in images)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        if has_integer_ends:
            converter.inference_input_type = converter.inference_output_type = tf.int8
        # TensorFlow 1.15 looks for its converter, a program beside Python, in PATH.
        os.environ['PATH'] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get('PATH', os.defpath)])
        try:
            content = converter.convert()
        # TensorFlow's versions raise different errors for an operation that the converter lacks.
        except Exception as error:
            raise CommandError(f'tflite: the network cannot be converted: {shown(error, _LONGEST)}. {_ANOTHER}')
    with open(path, 'wb') as file:
        file.write(content)


def _interpreter(path: str) -> Tuple[Any, Dict[str, Any], Dict[str, Dict[str, Any]]]:
    """The interpreter of a file, and the details of its input and of its outputs, by name."""
    interpreter = tf.lite.Interpreter(model_path=path)
    interpreter.allocate_tensors()
    (source,) = interpreter.get_input_details()
    found = interpreter.get_output_details()
    outputs = {name: next(each for each in found if name in each['name']) for name in (LOGITS, PROBABILITIES)}
    return interpreter, source, outputs


def _quantization(details: Dict[str, Any]) -> Dict[str, Any]:
    """The arguments of `prepare.quantize` for an integer tensor."""
    scale, zero_point = details['quantization']
    return {'scale': float(scale), 'zero_point': int(zero_point)}


def _open_tflite(path: str, network: FrozenNetwork) -> Run:
    interpreter, source, outputs = _interpreter(path)
    target = outputs[LOGITS]

    def one(image: np.ndarray) -> np.ndarray:
        is_integer = source['dtype'] == np.int8
        given = prepare.quantize(image, **_quantization(source)) if is_integer else image
        interpreter.set_tensor(source['index'], given[np.newaxis])
        interpreter.invoke()
        (logits,) = interpreter.get_tensor(target['index'])
        return prepare.dequantize(logits, **_quantization(target)) if is_integer else logits

    return lambda batch: np.stack([one(image) for image in batch.images])


def _describe_integers(description: Dict[str, Any], path: str) -> None:
    _, source, outputs = _interpreter(path)
    description['input'].update(type='int8', quantization=_quantization(source))
    description['output_quantization'] = {name: _quantization(each) for name, each in outputs.items()}
    description['steps'].append({'quantize': _quantization(source)})


def _write_npz(network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
    content = io.BytesIO()
    np.savez(content, **network.variables)
    # On a full disk, a ZipFile opened by path fails again when it is garbage-collected.
    with open(path, 'wb') as file:
        file.write(content.getbuffer())


def _open_npz(path: str, network: FrozenNetwork) -> Run:
    values = sources.read(path).values

    def restore(session: tf.Session) -> None:
        for variable in tf.global_variables():
            variable.load(values[variable.op.name], session)

    return of_variables(network, restore)


def of_variables(network: FrozenNetwork, restore: Callable[[tf.Session], Any]) -> Run:
    """The network in TensorFlow; `restore` gives its variables their values in a session."""
    with tf.Graph().as_default() as graph:
        build(network.model.config)
        session = tf.Session(graph=graph)
        restore(session)
    return lambda batch: session.run(f'{LOGITS}:0', {f'{INPUT}:0': batch.images})


_ONNX_PACKAGES = ('tf2onnx', 'onnx', 'onnxruntime')
_TENSORFLOW = f'TensorFlow, TensorFlow Serving; {INPUT_FILES}'
FORMATS: Dict[str, Format] = {
    'saved_model': Format('saved_model', _TENSORFLOW, _write_saved_model, _open_saved_model),
    'onnx': Format('model.onnx', 'onnxruntime', _write_onnx, _open_onnx, _ONNX_PACKAGES),
    'onnx_nchw': Format(
        'model_nchw.onnx',
        'onnxruntime, with channels first',
        functools.partial(_write_onnx, channels_first=True),
        functools.partial(_open_onnx, channels_first=True),
        _ONNX_PACKAGES,
        describe=_describe_nchw,
    ),
    'tflite': Format('model.tflite', 'TensorFlow Lite', _write_tflite, _open_tflite),
    # Input and outputs stay float32.
    'tflite_int8': Format(
        'model_int8.tflite', 'TensorFlow Lite', _write_tflite, _open_tflite, loses_at_most=1.0, is_calibrated=True
    ),
    'tflite_full_int8': Format(
        'model_full_int8.tflite',
        'TensorFlow Lite on integer processors, and the compiler of the Edge TPU',
        functools.partial(_write_tflite, has_integer_ends=True),
        _open_tflite,
        loses_at_most=1.0,
        is_calibrated=True,
        describe=_describe_integers,
    ),
    # The variables as arrays by name, which `--init_from` and NumPy read.
    'npz': Format('weights.npz', 'this program', _write_npz, _open_npz),
}
