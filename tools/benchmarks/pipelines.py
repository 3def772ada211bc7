"""The pipelines to measure: parts of the program's own, and a naive one in the customary order of operations.

The naive pipeline: record → parse → decode the whole image → convert it to float → crop → resize → flip → colour →
scale, in a parallel map; then batch and prefetch. It does the same work as `inception_v3.input_pipeline` and draws from
the same distributions, with TensorFlow's own functions. The two share only the configuration and the list of files.

Run as a process, this module reads `Run`s as JSON from standard input, and measures them.
"""

import itertools
import json
import sys
from typing import Any, Tuple

from absl import app

from compat import tf
from compat.errors import DONE, RETRY
from data import records
from inception_v3.config import PADDING_LABEL, Config
from inception_v3.input_pipeline import InputPipeline
from tools.benchmarks import measurement
from tools.benchmarks.measurement import Measurement, Run
from tools.benchmarks.peers import meter

_CHANNEL_MEANS = (123.68, 116.78, 103.94)
_RESIZE_METHODS = 4
_COLOR_ORDERINGS = 4


@tf.autograph.experimental.do_not_convert
def build(run: Run) -> tf.data.Dataset:
    """The pipeline of a run, repeated forever.

    The whole pipeline yields batches. A pipeline that ends after an earlier phase yields one of every `batch_size`
    elements, and drops the others inside the data set at no cost. So the differences between these pipelines are the
    costs of the phases.
    """
    if run.is_naive:
        dataset = naive(run)
    else:
        pipeline = InputPipeline(run.is_training, run.config)
        dataset = whole = pipeline({'batch_size': run.batch_size})
        if run.until != measurement.TRANSFER:
            dataset = pipeline.storage()
            dataset = pipeline.preprocessing(dataset) if run.until == measurement.PREPROCESSING else dataset
            # The options include the number of threads.
            dataset = dataset.with_options(whole.options())
    dataset = dataset.repeat()
    return dataset if run.until == measurement.TRANSFER else dataset.shard(run.batch_size, run.batch_size - 1)


def perform(run: Run) -> Measurement:
    """Measures in this process."""

    def images_in(element: Any) -> int:
        # The padding of evaluation's last batch does not count.
        return int((element[1] != PADDING_LABEL).sum()) if run.until == measurement.TRANSFER else run.batch_size

    with tf.Graph().as_default(), tf.Session() as session:
        next_batch = tf.data.make_one_shot_iterator(build(run)).get_next()
        batches = (session.run(next_batch) for _ in itertools.repeat(None))
        found = meter.measure(batches, run.batch_size, run.images, images_in)
        return Measurement(**found, peak_mb=measurement.peak_bytes() / 1e6)


def naive(run: Run) -> tf.data.Dataset:
    """The naive pipeline. For training, records are shuffled, repeated and distorted; otherwise they are read in order.

    Its elements after each phase:
      STORAGE: serialized records, string scalars.
      PARSING: (encoded image, label).
      DECODING: (pixels, label); pixels are uint8 [height, width, 3].
      PREPROCESSING: (image, label).
      TRANSFER: prefetched batches, float32 or bfloat16 [batch, height, width, 3] and int32 [batch].
    """
    config = run.config
    files = tf.data.Dataset.from_tensor_slices(
        config.source.find(records.TRAIN if run.is_training else records.VALIDATION)
    )
    if run.is_training:
        files = files.shuffle(config.initial_shuffle_buffer_size).repeat()
    interleave = tf.data.experimental.parallel_interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=config.prefetch_dataset_buffer_size),
        cycle_length=config.num_files_infeed,
        sloppy=run.is_training,
    )
    dataset = files.apply(interleave)
    if run.is_training:
        dataset = dataset.shuffle(config.followup_shuffle_buffer_size)
    if run.until == measurement.STORAGE:
        return dataset

    def preprocess(serialized: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        encoded, label, bbox = _parse(serialized, config)
        if run.until == measurement.PARSING:
            return encoded, label
        decoded = tf.image.decode_jpeg(encoded, channels=3)
        if run.until == measurement.DECODING:
            return decoded, label
        prepared = _PREPARE[config.preprocessing](decoded, bbox, run)
        return tf.cast(prepared, tf.as_dtype(config.precision)), tf.cast(label, tf.int32)

    dataset = dataset.map(preprocess, config.num_parallel_calls)
    if run.until != measurement.TRANSFER:
        return dataset
    dataset = dataset.batch(run.batch_size, drop_remainder=run.is_training)
    return dataset.prefetch(tf.data.experimental.AUTOTUNE) if config.prefetch_enabled else dataset


def _parse(serialized: tf.Tensor, config: Config) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The encoded image, label and boxes [1, boxes, 4] of a record."""
    fields = config.source.fields
    corners = [f'image/object/bbox/{corner}' for corner in ('ymin', 'xmin', 'ymax', 'xmax')]
    features = {
        fields.image: tf.io.FixedLenFeature([], tf.string),
        fields.label: tf.io.FixedLenFeature([], tf.int64),
        **{corner: tf.io.VarLenFeature(tf.float32) for corner in corners},
    }
    parsed = tf.io.parse_single_example(serialized, features)
    boxes = tf.stack([parsed[corner].values for corner in corners], axis=-1)
    return parsed[fields.image], parsed[fields.label] + fields.label_offset, boxes[tf.newaxis]


def _inception(decoded: tf.Tensor, bbox: tf.Tensor, run: Run) -> tf.Tensor:
    whole = tf.image.convert_image_dtype(decoded, tf.float32)
    if run.is_training:
        image = _distort(whole, bbox, run.config)
    else:
        image = _resize(tf.image.central_crop(whole, 0.875), tf.image.ResizeMethod.BILINEAR, run.config)
    return (image - 0.5) * 2.0


def _distort(image: tf.Tensor, bbox: tf.Tensor, config: Config) -> tf.Tensor:
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=bbox if config.use_annotated_bbox else [[[0.0, 0.0, 1.0, 1.0]]],
        min_object_covered=0.1,
        aspect_ratio_range=(1 / config.crop_aspect_ratio_max, config.crop_aspect_ratio_max),
        area_range=(config.crop_area_min, 1.0),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    image = tf.slice(image, begin, size)
    image.set_shape([None, None, 3])
    if config.fast_mode:
        image = _resize(image, tf.image.ResizeMethod.BILINEAR, config)
    else:
        drawn = tf.random.uniform([], maxval=_RESIZE_METHODS, dtype=tf.int32)
        image = tf.switch_case(drawn, [lambda m=m: _resize(image, m, config) for m in range(_RESIZE_METHODS)])
    image.set_shape([config.height, config.width, 3])
    if config.random_flip:
        image = tf.image.random_flip_left_right(image)
    if config.use_fast_color_distort:
        return _fast_color(image, config)
    if config.fast_mode:
        return _full_color(image, 'bs')
    drawn = tf.random.uniform([], maxval=_COLOR_ORDERINGS, dtype=tf.int32)
    orderings = ['bshc', 'sbch', 'chbs', 'hscb']
    return tf.switch_case(drawn, [lambda ordering=o: _full_color(image, ordering) for o in orderings])


def _resize(image: tf.Tensor, method: int, config: Config) -> tf.Tensor:
    return tf.image.resize(image, [config.height, config.width], method)


def _fast_color(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Shifts brightness and chroma in YCbCr; https://www.w3.org/Graphics/JPEG/jfif3.pdf, page 3."""
    ranges = (config.brightness_distortion_range, config.cb_distortion_range, config.cr_distortion_range)
    y, cb, cr = (tf.random.uniform([], -largest, largest) for largest in ranges)
    red, green, blue = tf.unstack(image, axis=-1)
    shifted = [red + y + 1.402 * cr, green + y - 0.344136 * cb - 0.714136 * cr, blue + y + 1.772 * cb]
    return tf.clip_by_value(tf.stack(shifted, axis=-1), 0.0, 1.0)


def _vgg(decoded: tf.Tensor, bbox: tf.Tensor, run: Run) -> tf.Tensor:
    config = run.config
    image = tf.cast(decoded, tf.float32)
    scale = max(config.height, config.width) / 299
    smallest, largest = round(300 * scale), round(600 * scale)
    side = tf.random.uniform([], smallest, largest + 1, tf.int32) if run.is_training else smallest
    shape = tf.shape(image)[:2]
    size = shape * side // tf.reduce_min(shape)
    image = tf.image.resize(image, size, tf.image.ResizeMethod.BILINEAR)
    if run.is_training:
        image = tf.image.random_crop(image, [config.height, config.width, 3])
        image = tf.image.random_flip_left_right(image) if config.random_flip else image
    else:
        top, left = tf.unstack((size - [config.height, config.width]) // 2)
        image = tf.image.crop_to_bounding_box(image, top, left, config.height, config.width)
    return image - _CHANNEL_MEANS


def _full_color(image: tf.Tensor, ordering: str) -> tf.Tensor:
    """Adjusts brightness (b), saturation (s), hue (h) and contrast (c) at random, in the order of the letters."""
    adjust = {
        'b': lambda x: tf.image.random_brightness(x, 32 / 255),
        's': lambda x: tf.image.random_saturation(x, 0.5, 1.5),
        'h': lambda x: tf.image.random_hue(x, 0.2),
        'c': lambda x: tf.image.random_contrast(x, 0.5, 1.5),
    }
    for letter in ordering:
        image = adjust[letter](image)
    return tf.clip_by_value(image, 0.0, 1.0)


# By name of the preprocessing.
_PREPARE = dict(zip(measurement.NAIVE, (_inception, _vgg)))


def main() -> int:
    """Prints the measurements of the runs that standard input describes; returns the exit code of the process."""
    measurement.be_killed_first()
    runs = [Run(**{**fields, 'config': Config(**fields['config'])}) for fields in json.load(sys.stdin)]
    try:
        print(json.dumps([perform(run)._asdict() for run in runs]))
    except (app.UsageError, tf.errors.OpError) as error:
        print(measurement.reason_of(error), file=sys.stderr)
        return RETRY
    return DONE


if __name__ == '__main__':
    sys.exit(main())
