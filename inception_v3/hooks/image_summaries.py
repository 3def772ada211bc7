"""Images for TensorBoard: what records hold, and what the network sees of them."""

import contextlib
import dataclasses
import struct
from typing import Sequence

import tensorflow as tf

from console.messages import shown
from inception_v3 import infeed, seeding
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline, Sample

# Of larger images, a smaller picture is kept: pixels of the longer side.
LARGEST_SIDE = 1024
# The outline of the crop, as a fraction of the longer side, and its colour: orange, which the colour-blind see, too.
OUTLINE_WIDTH = 0.008
OUTLINE_COLOR = (230, 159, 0)
# Characters of a class's name in a tag: ImageNet's are lists of synonyms.
_LONGEST_NAME = 40


def draw(config: Config, is_training: bool, class_names: Sequence[str], step: int) -> tf.compat.v1.Summary:
    """Pictures of the first `image_summaries` records of training or of evaluation, each before and after.

    They are made by the input pipeline's own functions in a graph of its own, so that training's is what it is without.

    Args:
      config: of the run.
      is_training: as training distorts them at a step; else as they are evaluated.
      class_names: by label; without any, labels are numbers.
      step: the steps done.

    Returns:
      PNG images by tag, `train_images/NUMBER LABEL, before` and `…, distorted`, or `eval_images/…, before` and `…,
      cropped`: the whole image with the outline of its crop, and what the network sees, in pixels of 0 to 255.

    Raises:
      tf.errors.InvalidArgumentError, tf.errors.DataLossError: a record cannot be used, as in the input pipeline.
    """
    if config.seed is None:
        # Any records will do; the buffer would read a thousand to give a few.
        config = dataclasses.replace(config, followup_shuffle_buffer_size=config.image_summaries)
    # Where a process first begins a session decides the threads of all: with those of training, its bits stay the same.
    session_config = seeding.session_config(config)
    # To optimize what is run a few times takes longer than to run it.
    session_config.graph_options.rewrite_options.disable_meta_optimizer = True
    split, after = ('train_images', 'distorted') if is_training else ('eval_images', 'cropped')
    with tf.Graph().as_default(), tf.compat.v1.Session(config=session_config) as session:
        global_step = tf.compat.v1.train.create_global_step()
        samples = InputPipeline(is_training, config).samples(config.image_summaries)
        iterator = tf.compat.v1.data.make_initializable_iterator(samples)
        sample = iterator.get_next()
        fetches = {'label': sample.label, 'whole': _whole(sample), 'seen': _seen(sample, config)}
        global_step.load(step, session)
        session.run(iterator.initializer)
        summary = tf.compat.v1.Summary()
        with contextlib.suppress(tf.errors.OutOfRangeError):
            for number in range(1, config.image_summaries + 1):
                values = session.run(fetches)
                image = f'{number:02d} {tag_name(int(values["label"]), class_names)}'
                _add(summary, f'{split}/{image}, before', values['whole'], 'The whole image; outlined: its crop.')
                _add(summary, f'{split}/{image}, {after}', values['seen'], 'What the network sees.')
    return summary


def _whole(sample: Sample) -> tf.Tensor:
    """The whole image of a sample with the outline of its crop, no larger than `LARGEST_SIDE`, as PNG."""
    size = tf.shape(sample.whole)[:2]
    scale = tf.minimum(1.0, LARGEST_SIDE / tf.cast(tf.reduce_max(size), tf.float32))
    smaller = tf.cast(tf.math.rint(tf.cast(size, tf.float32) * scale), tf.int32)
    resized = tf.compat.v1.image.resize(sample.whole[tf.newaxis], smaller, tf.image.ResizeMethod.AREA)[0]
    top, left, height, width = tf.unstack(tf.cast(tf.stack(sample.crop), tf.float32) * scale)
    line = tf.maximum(1.0, tf.math.rint(OUTLINE_WIDTH * tf.cast(tf.reduce_max(smaller), tf.float32)))
    rows, columns = tf.meshgrid(
        tf.range(tf.cast(smaller[0], tf.float32)), tf.range(tf.cast(smaller[1], tf.float32)), indexing='ij'
    )
    # How far a pixel lies inside the box, in pixels: below 0 outside.
    depth = tf.reduce_min([rows - top, columns - left, top + height - 1 - rows, left + width - 1 - columns], axis=0)
    is_outline = tf.logical_and(depth >= 0, depth < line)[:, :, tf.newaxis]
    pixels = tf.where_v2(is_outline, tf.constant(OUTLINE_COLOR, tf.float32), tf.math.rint(resized))
    return tf.image.encode_png(tf.cast(pixels, tf.uint8))


def _seen(sample: Sample, config: Config) -> tf.Tensor:
    """What the network sees of a sample, as PNG."""
    batch = tf.nest.map_structure(lambda part: part[tf.newaxis], sample.features)
    return tf.image.encode_png(infeed.pixels_of(infeed.received(batch, False, config), config)[0])


def tag_name(label: int, class_names: Sequence[str]) -> str:
    """A label and the name of its class, if it has one, without the slash, which divides tags into groups."""
    name = class_names[label] if label < len(class_names) else ''
    return f'label {label} ({shown(name, _LONGEST_NAME).replace("/", "|")})' if name else f'label {label}'


def _add(summary: tf.compat.v1.Summary, tag: str, png: bytes, description: str) -> None:
    value = summary.value.add(tag=tag)
    value.metadata.summary_description = description
    # Width and height, which the image plugin asks for, stand at bytes 16 to 24 of a PNG file.
    value.image.width, value.image.height = struct.unpack('>II', png[16:24])
    value.image.colorspace = 3
    value.image.encoded_image_string = png
