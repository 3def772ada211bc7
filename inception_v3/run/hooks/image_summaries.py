"""Images for TensorBoard: the records' images, and the network's inputs made from them."""

import contextlib
import dataclasses
import struct
from typing import NamedTuple, Sequence

from compat import tf
from compat.messages import shown
from data.records import Record
from inception_v3 import seeding
from inception_v3.config import Config
from inception_v3.input.infeed import Features, Infeed
from inception_v3.input.record_preprocessing import RecordPreprocessing
from inception_v3.input_pipeline import InputPipeline
from inception_v3.tpu import topology
from preprocessing.decoding import Crop, decode_image

# The longer side of a picture of a whole image, in pixels; larger images are reduced to this.
LARGEST_SIDE = 1024
# The outline of the crop: its width as a fraction of the longer side, and its colour, an orange that is also visible to
# colour-blind people.
OUTLINE_WIDTH = 0.008
OUTLINE_COLOR = (230, 159, 0)
# Characters of a class's name in a tag: ImageNet's names are lists of synonyms.
_LONGEST_NAME = 40


def draw(config: Config, is_training: bool, class_names: Sequence[str], step: int) -> tf.Summary:
    """Draws the first `image_summaries` records of training or of evaluation, each before and after preprocessing.

    The input pipeline's own functions make them in a separate graph, so the training graph stays the same. The tags are
    `train_images/NUMBER LABEL, before` and `…, distorted`, or `eval_images/…, before` and `…, cropped`.

    In training, the images are distorted as after `step` completed steps. A record that cannot be used is an error, as
    in the input pipeline.
    """
    if config.seed is None:
        # Any records will do. Filling the usual shuffle buffer would read a thousand records to show a few.
        config = dataclasses.replace(config, followup_shuffle_buffer_size=config.image_summaries)
    # The first session of a process fixes the number of threads for all sessions. This one uses the training's number,
    # so that the results of a training that starts later keep their bits.
    session_config = seeding.session_config(config)
    # Optimizing a graph takes longer than running it a few times, even on a TPU's host and beside a GPU.
    session_config.graph_options.rewrite_options.disable_meta_optimizer = True
    split, after = ('train_images', 'distorted') if is_training else ('eval_images', 'cropped')
    with tf.Graph().as_default(), tf.Session(config=session_config) as session:
        global_step = tf.train.create_global_step()
        preprocessing = RecordPreprocessing(is_training, config)
        iterator = tf.data.make_initializable_iterator(_samples(is_training, config, preprocessing))
        sample = iterator.get_next()
        fetches = {'label': sample.label, 'whole': _whole(sample), 'seen': _seen(sample, preprocessing.infeed)}
        global_step.load(step, session)
        session.run(iterator.initializer)
        summary = tf.Summary()
        with contextlib.suppress(tf.errors.OutOfRangeError):
            for number in range(1, config.image_summaries + 1):
                values = session.run(fetches)
                tag = f'{split}/{number:02d} {tag_name(int(values["label"]), class_names)}'
                _add(summary, f'{tag}, before', values['whole'], 'The whole image, with the outline of its crop.')
                _add(summary, f'{tag}, {after}', values['seen'], "The network's input.")
    return summary


class _Sample(NamedTuple):
    """A record's decoded image, its crop, the data to send for it (see `infeed`), and its label."""

    whole: tf.Tensor
    crop: Crop
    features: Features
    label: tf.Tensor


@tf.autograph.experimental.do_not_convert
def _samples(is_training: bool, config: Config, preprocessing: RecordPreprocessing) -> tf.data.Dataset:
    """The first records of the first host's pipeline, without bad records that may be skipped.

    With a seed, these are the images of the step given by the graph's global step, with the same distortions.
    """
    # Without max_bad_records, records come in the same order, but not in the groups that the run tries together.
    pipeline = InputPipeline(is_training, dataclasses.replace(config, max_bad_records=0))

    def sample_of(record: Record) -> _Sample:
        drawn = preprocessing.draw(record)
        window = preprocessing.infeed.preprocessing.crop(drawn.shape, drawn.distortion or None)
        return _Sample(decode_image(drawn.encoded, drawn.shape), window.crop, *preprocessing.finish(drawn))

    count = config.image_summaries
    dataset = pipeline.storage(hosts=topology.hosts_of(config) if is_training else 1)
    if not config.max_bad_records:
        return dataset.take(count).map(sample_of)
    samples = dataset.take(count + config.max_bad_records).map(sample_of)
    return samples.apply(tf.data.experimental.ignore_errors()).take(count)


def _whole(sample: _Sample) -> tf.Tensor:
    """Draws the whole image of a sample with the outline of its crop, at most `LARGEST_SIDE` pixels a side, as PNG."""
    size = tf.shape(sample.whole)[:2]
    scale = tf.minimum(1.0, LARGEST_SIDE / tf.cast(tf.reduce_max(size), tf.float32))
    smaller = tf.maximum(tf.cast(tf.math.rint(tf.cast(size, tf.float32) * scale), tf.int32), 1)
    resized = tf.image.resize(sample.whole[tf.newaxis], smaller, tf.image.ResizeMethod.AREA)[0]
    top, left, height, width = tf.unstack(tf.cast(tf.stack(sample.crop), tf.float32) * scale)
    line = tf.maximum(1.0, tf.math.rint(OUTLINE_WIDTH * tf.cast(tf.reduce_max(smaller), tf.float32)))
    rows, columns = tf.meshgrid(
        tf.range(tf.cast(smaller[0], tf.float32)), tf.range(tf.cast(smaller[1], tf.float32)), indexing='ij'
    )
    # The distance of a pixel from the edge of the box, in pixels: negative outside the box.
    depth = tf.reduce_min([rows - top, columns - left, top + height - 1 - rows, left + width - 1 - columns], axis=0)
    is_outline = tf.logical_and(depth >= 0, depth < line)[:, :, tf.newaxis]
    pixels = tf.where_v2(is_outline, tf.constant(OUTLINE_COLOR, tf.float32), tf.math.rint(resized))
    return tf.image.encode_png(tf.cast(pixels, tf.uint8))


def _seen(sample: _Sample, infeed: Infeed) -> tf.Tensor:
    batch = tf.nest.map_structure(lambda part: part[tf.newaxis], sample.features)
    return tf.image.encode_png(infeed.preprocessing.visible(infeed.received(batch, is_batch_last=False))[0])


def tag_name(label: int, class_names: Sequence[str]) -> str:
    """Names a label and its class, if it has a name; slashes are replaced, because they divide tags into groups."""
    name = class_names[label] if label < len(class_names) else ''
    return f'label {label} ({shown(name, _LONGEST_NAME).replace("/", "|")})' if name else f'label {label}'


def _add(summary: tf.Summary, tag: str, png: bytes, description: str) -> None:
    value = summary.value.add(tag=tag)
    value.metadata.summary_description = description
    # TensorBoard's image plugin needs width and height: bytes 16 to 24 of a PNG file.
    value.image.width, value.image.height = struct.unpack('>II', png[16:24])
    value.image.colorspace = 3
    value.image.encoded_image_string = png
