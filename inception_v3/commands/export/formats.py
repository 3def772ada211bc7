"""The formats of exports: the conversion of a network to each, and the runtime that runs it."""

import abc
import dataclasses
import os
import re
from typing import Any, Callable, ClassVar, Dict, Sequence, Set, Type

import numpy as np

from console import extras
from console.errors import CommandError
from console.tensorflow_versions import tf
from inception_v3.commands.export import frozen
from inception_v3.commands.export.description import INPUT, LOGITS, PROBABILITIES
from inception_v3.commands.export.frozen import FrozenNetwork
from inception_v3.commands.export.images import Batch
from inception_v3.estimator import make_estimator
from inception_v3.model_fn import EXPORT_SIGNATURE
from inception_v3.run.saved_model import INPUT_FILES, export_saved_model
from inception_v3.weights import sources

# ONNX's set of operations; runtimes since 2021 have it.
_OPSET = 13
# Layers that a message lists.
_NAMED_AT_MOST = 3

# The two versions' messages about operations that TensorFlow Lite lacks.
_LISTS_OF_OPERATIONS = re.compile(r'(?:need custom implementations|Custom ops): (\w+(?:, \w+)*)')

# From a batch to its logits, float32 [batch, num_classes].
Run = Callable[[Batch], np.ndarray]


class ExportError(CommandError):
    """A network cannot be exported to a format."""


class Format(abc.ABC):
    """A format.

    Attributes:
      file: the name of the file, or folder, in the export's folder.
      purpose: its runtime, and an input that is no prepared image, in words.
      loses_at_most: points of top-1 accuracy that an export may lose, compared with the checkpoint.
      is_calibrated: whether the conversion needs images.
    """

    file: ClassVar[str]
    purpose: ClassVar[str]
    loses_at_most: ClassVar[float] = 0.0
    is_calibrated: ClassVar[bool] = False

    @abc.abstractmethod
    def check(self) -> None:
        """Checks that the packages of the format are installed.

        Raises:
          ExportError: one is not.
        """

    @abc.abstractmethod
    def write(self, network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
        """Converts a network.

        Args:
          network: the network.
          images: prepared training images, float32 [height, width, 3]; empty unless `is_calibrated`.
          path: of the new file.

        Raises:
          ExportError: the format lacks an operation of the network.
        """

    @abc.abstractmethod
    def open(self, path: str, network: FrozenNetwork) -> Run:
        """Loads a file into its runtime."""


class SavedModel(Format):
    """A SavedModel, which contains its preprocessing, as `--export_dir` writes it."""

    file, purpose = 'saved_model', f'TensorFlow, TensorFlow Serving; {INPUT_FILES}'

    def check(self) -> None:
        """TensorFlow is a package of the core."""

    def write(self, network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
        """Exports the checkpoint."""
        config = dataclasses.replace(network.config, export_dir=os.path.join(os.path.dirname(path), 'unfinished'))
        estimator = make_estimator(config, network.class_names)
        made = export_saved_model(estimator, config, network.model.checkpoint, network.class_names)
        os.rename(made, path)
        os.rmdir(str(config.export_dir))

    def open(self, path: str, network: FrozenNetwork) -> Run:
        """Loads the SavedModel into TensorFlow; it gets the image files."""
        with tf.Graph().as_default() as graph:
            session = tf.Session(graph=graph)
            loaded = tf.saved_model.load(session, [tf.saved_model.SERVING], path)
        signature = loaded.signature_def[EXPORT_SIGNATURE]
        encoded = signature.inputs[EXPORT_SIGNATURE].name
        # The softmax takes the logits.
        logits = graph.get_tensor_by_name(signature.outputs[PROBABILITIES].name).op.inputs[0]
        return lambda batch: session.run(logits, {encoded: batch.encoded})


class Onnx(Format):
    """ONNX, for onnxruntime and many others."""

    file, purpose = 'model.onnx', 'onnxruntime'

    def check(self) -> None:
        """Checks that tf2onnx and onnxruntime are installed."""
        _require('export', 'tf2onnx', 'onnx', 'onnxruntime')

    def write(self, network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
        """Converts by tf2onnx, which folds batch normalization into the convolutions."""
        import onnx
        import tf2onnx
        from tf2onnx import optimizer, tf_loader

        inputs, outputs = [f'{INPUT}:0'], [f'{name}:0' for name in (LOGITS, PROBABILITIES)]
        folded = tf_loader.tf_optimize(inputs, outputs, network.graph_def)
        with tf.Graph().as_default() as graph, tf.Session(graph=graph):
            tf.import_graph_def(folded, name='')
            converted = tf2onnx.tfonnx.process_tf_graph(graph, opset=_OPSET, input_names=inputs, output_names=outputs)
        model = optimizer.optimize_graph(converted).make_model('inception_v3')
        # tf2onnx leaves operations that it does not know as they are.
        unknown = {node.op_type for node in model.graph.node if not onnx.defs.has(node.op_type)}
        if unknown:
            raise _lacking('ONNX', unknown, network)
        _rename(model)
        with open(path, 'wb') as file:
            file.write(model.SerializeToString())

    def open(self, path: str, network: FrozenNetwork) -> Run:
        """Loads the file into onnxruntime, on the CPU."""
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
        return lambda batch: session.run([LOGITS], {INPUT: batch.images})[0]


def _rename(model: Any) -> None:
    """Gives input and outputs of an ONNX model their names without TensorFlow's number, and the free axis its name."""
    names = {f'{name}:0': name for name in (INPUT, LOGITS, PROBABILITIES)}
    for value in [*model.graph.input, *model.graph.output]:
        value.name = names[value.name]
        value.type.tensor_type.shape.dim[0].dim_param = 'batch'
    for node in model.graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]


class TfLite(Format):
    """TensorFlow Lite in float32, one image at a time."""

    file, purpose = 'model.tflite', 'TensorFlow Lite'

    def check(self) -> None:
        """TensorFlow has the converter and the interpreter."""

    def write(self, network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
        """Converts by TensorFlow's converter."""
        config = network.config
        with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
            one = tf.placeholder(tf.float32, [1, config.height, config.width, 3], INPUT)
            outputs = tf.import_graph_def(
                network.graph_def, {INPUT: one}, [f'{LOGITS}:0', f'{PROBABILITIES}:0'], name=''
            )
            converter = tf.lite.TFLiteConverter.from_session(session, [one], outputs)
            self._configure(converter, images)
            try:
                content = converter.convert()
            # The converters of the two versions raise different errors for an operation that they lack.
            except Exception as error:
                lists = _LISTS_OF_OPERATIONS.findall(str(error))
                if not lists:
                    raise
                raise _lacking('TensorFlow Lite', set(', '.join(lists).split(', ')), network)
        with open(path, 'wb') as file:
            file.write(content)

    def _configure(self, converter: Any, images: Sequence[np.ndarray]) -> None:
        """Sets the options of the converter."""

    def open(self, path: str, network: FrozenNetwork) -> Run:
        """Loads the file into TensorFlow Lite's interpreter."""
        interpreter = tf.lite.Interpreter(model_path=path)
        interpreter.allocate_tensors()
        (source,) = interpreter.get_input_details()
        (target,) = [output for output in interpreter.get_output_details() if LOGITS in output['name']]

        def one(image: np.ndarray) -> np.ndarray:
            interpreter.set_tensor(source['index'], image[np.newaxis])
            interpreter.invoke()
            return interpreter.get_tensor(target['index'])[0]

        return lambda batch: np.stack([one(image) for image in batch.images])


class TfLiteInt8(TfLite):
    """TensorFlow Lite with weights and activations of 8 bits; input and outputs stay float32."""

    file, loses_at_most, is_calibrated = 'model_int8.tflite', 1.0, True

    def _configure(self, converter: Any, images: Sequence[np.ndarray]) -> None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        # The ranges of the activations are measured on these images.
        converter.representative_dataset = lambda: ([image[np.newaxis]] for image in images)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]


class Npz(Format):
    """The variables as arrays by name, which `--init_from` and NumPy read."""

    file, purpose = 'weights.npz', 'this program'

    def check(self) -> None:
        """NumPy is a package of the core."""

    def write(self, network: FrozenNetwork, images: Sequence[np.ndarray], path: str) -> None:
        """Writes the variables."""
        np.savez(path, **network.variables)

    def open(self, path: str, network: FrozenNetwork) -> Run:
        """Assigns the arrays to the variables of a new graph."""
        values = sources.read(path).values
        with tf.Graph().as_default() as graph:
            frozen.build(network.config)
            session = tf.Session(graph=graph)
            for variable in tf.global_variables():
                variable.load(values[variable.op.name], session)
        return lambda batch: session.run(f'{LOGITS}:0', {f'{INPUT}:0': batch.images})


def _lacking(name: str, operations: Set[str], network: FrozenNetwork) -> ExportError:
    """The error about operations that a format lacks; it names the layers that they are of."""
    layers = [f'{node.op} of {node.name}' for node in network.graph_def.node if node.op in operations]
    more = len(layers) - _NAMED_AT_MOST
    listed = ', '.join(layers[:_NAMED_AT_MOST]) + (f' and {more} more' if more > 0 else '')
    return ExportError(
        f'{name} has no operation for {listed or ", ".join(sorted(operations))}. Export to another format: '
        f'{", ".join(FORMATS)}.'
    )


def _require(extra: str, *packages: str) -> None:
    for package in packages:
        try:
            __import__(package)
        except ImportError:
            raise ExportError(f'The export needs {package}, which is not installed: {extras.command(extra)}.')


FORMATS: Dict[str, Type[Format]] = {
    'saved_model': SavedModel,
    'onnx': Onnx,
    'tflite': TfLite,
    'tflite_int8': TfLiteInt8,
    'npz': Npz,
}
