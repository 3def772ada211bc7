"""Observations of the input pipeline: its graph, batches, and the draws of a training image."""

import dataclasses
import functools
import os
import shutil
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.input import record_preprocessing
from inception_v3.input_pipeline import InputPipeline
from preprocessing.preprocessings import preprocessing_for
from tests.support.graphs import evaluate, type_in_1_15
from tests.support.tar_files import write_tar

FAST_COLOR_DRAWS = ('brightness', 'cb', 'cr')


@functools.lru_cache(maxsize=None)
def pipeline(config: Config) -> tf.GraphDef:
    """The graph of the training pipeline."""
    with tf.Graph().as_default() as graph:
        tf.data.make_initializable_iterator(InputPipeline(True, config)({'batch_size': 4}))
        return graph.as_graph_def()


def nodes(config: Config, kind: str) -> List[Tuple[Any, List[Any]]]:
    """The operations of a kind, as 1.15 names it, in the training pipeline and its functions, with constant inputs."""
    definition = pipeline(config)
    found = []
    for scope in [definition.node, *[function.node_def for function in definition.library.function]]:
        constants = {node.name: tf.make_ndarray(node.attr['value'].tensor) for node in scope if node.op == 'Const'}
        for node in scope:
            if type_in_1_15(node.op) == kind:
                inputs = [constants.get(name.split(':')[0]) for name in node.input]
                found.append((node, [value.tolist() for value in inputs if value is not None]))
    return found


def operations(kind: str) -> Callable[..., Any]:
    """The constants of all operations of a kind in the training pipeline."""
    return lambda config, patch: [constants for _, constants in nodes(config, kind)]


def has_operation(kind: str) -> Callable[..., bool]:
    """Whether the training pipeline has an operation of a kind."""
    return lambda config, patch: bool(nodes(config, kind))


def operations_on_tpu(kind: str) -> Callable[..., Any]:
    """Like `operations`, on the host of a TPU, where the number of this machine's cores does not matter."""
    on_cpu = operations(kind)
    return lambda config, patch: on_cpu(dataclasses.replace(config, use_tpu=True, num_shards=1), patch)


def read_ahead(config: Config, patch: Any) -> int:
    """The bytes that the training pipeline reads ahead of a file that is larger."""
    found: List[Any] = []
    patch.setattr(tf.data, 'TFRecordDataset', lambda path, buffer_size: found.append(buffer_size))
    with tf.Graph().as_default(), tf.Session() as session:
        files = config.num_files_infeed
        InputPipeline(True, config)._read_file(files, tf.constant(''), tf.constant(1 << 40, tf.int64))
        return int(session.run(found[0]))


def random_draws(config: Config, patch: Any) -> int:
    """The number of operations that draw random numbers for a training image."""
    return len(nodes(config, 'RandomUniform'))


def files_at_once(config: Config, patch: Any) -> int:
    return nodes(config, 'ParallelInterleaveDataset')[0][1][0]


def shuffle_buffers(config: Config, patch: Any) -> List[int]:
    return [constants[0] for _, constants in nodes(config, 'ShuffleDataset')]


def crop_range(name: str) -> Callable[..., Any]:
    """A range from which random crops are drawn."""

    def observe(config: Config, patch: Any) -> List[float]:
        ranges = {tuple(node.attr[name].list.f) for node, _ in nodes(config, 'SampleDistortedBoundingBoxV2')}
        (bounds,) = ranges
        return [round(bound, 4) for bound in bounds]

    return observe


def batch(config: Config, is_training: bool, size: int = 4) -> Tuple[Any, np.ndarray]:
    with tf.Graph().as_default():
        dataset = InputPipeline(is_training, config)({'batch_size': size})
        features, labels = tf.data.make_one_shot_iterator(dataset).get_next()
        with tf.Session() as session:
            return session.run([features, labels])


def training_batch_layout(config: Config, patch: Any) -> Any:
    images, _ = batch(config, True, size=3)
    return images.shape, images.dtype


def sent_types(config: Config, patch: Any) -> Any:
    """The dtypes of the tensors sent to the device for a training batch."""
    with tf.Graph().as_default():
        features, _ = InputPipeline(True, config)({'batch_size': 4}).element_spec
    return tf.nest.map_structure(lambda spec: spec.dtype.name, features)


def evaluation_pixels(config: Config, patch: Any) -> bytes:
    return batch(config, False)[0].tobytes()


def evaluated_labels(config: Config, patch: Any) -> int:
    return int((batch(config, False, size=5)[1] >= 0).sum())


def sum_of_labels(config: Config, patch: Any) -> int:
    return int(batch(config, False, size=5)[1].sum())


def parsed_keys(config: Config, patch: Any) -> List[str]:
    """The keys of the image and the label."""
    found: List[str] = []
    parse = tf.io.parse_example

    def recorded(serialized: tf.Tensor, features: Dict[str, Any]) -> Any:
        found.extend(sorted(features))
        return parse(serialized, features)

    patch.setattr(tf.io, 'parse_example', recorded)
    # Not a graph that was kept.
    pipeline.__wrapped__(config)
    return found


def evaluated_fake_images(config: Config, patch: Any) -> int:
    return evaluated_labels(dataclasses.replace(config, use_data='fake'), patch)


def evaluated_with_a_bad_record(config: Config, patch: Any) -> Any:
    """The number of images in a data set with one bad record, or the kind of error that it causes."""
    folder = f'{config.model_dir}-bad-{config.max_bad_records}'
    shutil.copytree(config.data_dir, folder)
    bad = tf.train.Example().SerializeToString()
    with tf.io.TFRecordWriter(os.path.join(folder, 'validation-00001-of-00002')) as writer:
        writer.write(bad)
    try:
        return evaluated_labels(dataclasses.replace(config, data_dir=folder), patch)
    except tf.errors.OpError as error:
        return type(error).__name__


def evaluated_beside_tar_files(config: Config, patch: Any) -> int:
    """The number of images read from a folder with 5 images in TFRecord files and 2 in tar files."""
    folder = f'{config.model_dir}-{config.data_format}'
    shutil.copytree(config.data_dir, folder)
    with tf.Graph().as_default():
        jpeg = evaluate(tf.image.encode_jpeg(tf.zeros([80, 80, 3], tf.uint8)))
    files = [
        (f'{number}.{extension}', content) for number in '12' for extension, content in (('jpg', jpeg), ('cls', b'1'))
    ]
    write_tar(os.path.join(folder, 'validation-000000.tar'), files)
    return evaluated_labels(dataclasses.replace(config, data_dir=folder), patch)


def uniform_ranges(config: Config, patch: Any) -> Dict[str, float]:
    """The ranges of the fast colour distortion, recognized as the only symmetric ones."""
    ranges: List[float] = []

    def uniform(shape: Any, minval: Any = 0, maxval: Any = None, *rest: Any, **options: Any) -> tf.Tensor:
        if maxval is not None and minval == -maxval:
            ranges.append(maxval)
        return tf.random.uniform(shape, minval, maxval, *rest, **options)

    record_preprocessing.training_image(tf.constant(''), tf.zeros([1, 0, 4]), config, uniform)
    return dict(zip(FAST_COLOR_DRAWS, ranges))


def shifts(config: Config, patch: Any) -> int:
    """The number of rows at which the crop of the CIFAR preprocessing may begin."""
    bounds: List[int] = []

    def uniform(shape: Any, minval: Any = 0, maxval: Any = None, *rest: Any, **options: Any) -> tf.Tensor:
        bounds.append(maxval)
        return tf.random.uniform(shape, minval, maxval, *rest, **options)

    preprocessing_for(config).draw(tf.constant([9, 9, 3]), tf.zeros([1, 0, 4]), uniform)
    return bounds[0]


def crop_boxes(config: Config, patch: Any) -> Any:
    """The shape of the boxes passed to the random crop, for an image with seven annotated boxes."""
    shapes: List[Any] = []
    original = tf.image.sample_distorted_bounding_box

    def sample(image_shape: tf.Tensor, bounding_boxes: tf.Tensor, **options: Any) -> Any:
        shapes.append(bounding_boxes.shape.as_list())
        return original(image_shape, bounding_boxes, **options)

    patch.setattr(tf.image, 'sample_distorted_bounding_box', sample)
    record_preprocessing.training_image(tf.constant(''), tf.zeros([1, 7, 4]), config)
    return shapes
