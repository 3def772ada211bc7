"""The input pipeline, in its three phases: storage, preprocessing, transfer."""

import functools
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from data import order, records
from data.formats import FORMATS
from inception_v3 import infeed
from inception_v3.config import Config
from inception_v3.metrics import PADDING_LABEL
from inception_v3.model_dir.bad_records import name_bad_records
from preprocessing import inception_preprocessing, vgg_preprocessing
from preprocessing.decoding import Crop, decode_crop, decode_image, image_shape
from preprocessing.stateless import StatelessUniform, Uniform

# Bytes that all files together are read ahead at most, however many are read at a time.
_READ_AHEAD_AT_MOST = 256 << 20
# Batches that wait for the step: one may come late without the step's noticing, and more would only take memory.
_BATCHES_AHEAD = 2
# Records that are tried together where some may be skipped. Of more, each costs less; three times as many are held.
_TRIED_TOGETHER = 128


class Sample(NamedTuple):
    """An image on its way to the network.

    Attributes:
      whole: uint8 [any height, any width, 3], the decoded image.
      crop: the box of it that is used.
      features: what is sent of it to the device; `transfer.received` makes of a batch of them what the network sees.
      label: int32 scalar.
    """

    whole: tf.Tensor
    crop: Crop
    features: infeed.Features
    label: tf.Tensor


def resize_for_eval(encoded: tf.Tensor, config: Config) -> tf.Tensor:
    """Decodes, crops and resizes an encoded image, a string scalar, as every evaluation and prediction does.

    Returns:
      float32 [height, width, 3] in [0, 255], for `transfer` to go on with.
    """
    shape, size = image_shape(encoded), (config.height, config.width)
    if config.preprocessing == 'vgg':
        window = _central_window(shape, config)
        return vgg_preprocessing.resize_window(decode_crop(encoded, shape, window.crop), window, *size)
    pixels = decode_crop(encoded, shape, inception_preprocessing.central_crop(shape))
    return inception_preprocessing.apply_resize(pixels, *size, inception_preprocessing.BILINEAR)


def _central_window(shape: tf.Tensor, config: Config) -> vgg_preprocessing.Window:
    smaller, _ = vgg_resize_range(config)
    return vgg_preprocessing.central_window(shape, smaller, config.height, config.width)


def preprocess_for_train(
    encoded: tf.Tensor, bbox: tf.Tensor, config: Config, uniform: Uniform = tf.random.uniform
) -> infeed.Features:
    """Distorts an encoded image, a string scalar, for training, with what `uniform` draws.

    Returns:
      What is sent of it to the device; see `transfer.for_training`.
    """
    shape = image_shape(encoded)
    return _distort(encoded, shape, draw_distortion(shape, bbox, config, uniform), config)


def _distort(encoded: tf.Tensor, shape: tf.Tensor, distortion: infeed.Distortion, config: Config) -> infeed.Features:
    size = (config.height, config.width)
    if isinstance(distortion, vgg_preprocessing.Distortion):
        window = vgg_preprocessing.draw_window(shape, distortion, *size)
        resized = vgg_preprocessing.resize_window(decode_crop(encoded, shape, window.crop), window, *size)
    else:
        pixels = decode_crop(encoded, shape, distortion.crop)
        resized = inception_preprocessing.apply_resize(pixels, *size, distortion.resize_method)
    return infeed.for_training(resized, distortion, config)


def _crop_of(shape: tf.Tensor, distortion: infeed.Distortion, config: Config) -> Crop:
    if isinstance(distortion, vgg_preprocessing.Distortion):
        return vgg_preprocessing.draw_window(shape, distortion, config.height, config.width).crop
    return distortion.crop


def draw_distortion(
    shape: tf.Tensor, bbox: tf.Tensor, config: Config, uniform: Uniform = tf.random.uniform
) -> infeed.Distortion:
    """Draws all that is random about a training image of a shape, int32 [3], with boxes, float32 [1, boxes, 4]."""
    if config.preprocessing == 'vgg':
        return vgg_preprocessing.draw_distortion(*vgg_resize_range(config), config.random_flip, uniform)
    return inception_preprocessing.draw_distortion(
        shape,
        bbox if config.use_annotated_bbox else inception_preprocessing.whole_image_box(),
        fast_mode=config.fast_mode,
        use_fast_color_distort=config.use_fast_color_distort,
        cb_distortion_range=config.cb_distortion_range,
        cr_distortion_range=config.cr_distortion_range,
        brightness_distortion_range=config.brightness_distortion_range,
        random_flip=config.random_flip,
        crop_area_min=config.crop_area_min,
        crop_aspect_ratio_max=config.crop_aspect_ratio_max,
        uniform=uniform,
    )


def vgg_resize_range(config: Config) -> Tuple[int, int]:
    """The range of the smaller side, in pixels: 300 to 600 for 299-pixel crops, and in proportion for others."""
    scale = max(config.height, config.width) / vgg_preprocessing.CROP_SIZE
    smaller = round(vgg_preprocessing.RESIZE_SIDE_MIN * scale)
    return smaller, round(vgg_preprocessing.RESIZE_SIDE_MAX * scale)


class InputPipeline:
    """The `input_fn` of training or of evaluation.

    Args:
      is_training: training records, shuffled, repeated and distorted; else every validation record once.
      config: the run's configuration.
    """

    def __init__(self, is_training: bool, config: Config):
        self._is_training = is_training
        self._config = config
        self._split = records.TRAIN if is_training else records.VALIDATION
        self._format = FORMATS[config.data_format]

    def __call__(self, params: Dict[str, Any]) -> tf.data.Dataset:
        """Builds the data set.

        Args:
          params: `batch_size` is the number of images in a batch: on a TPU, that of one core, or that of all cores in
            evaluation on several hosts. `context`, which TPUEstimator adds on a TPU, says which share of the files is
            this host's.

        Returns:
          A data set of batches (features, labels). Features are images, [batch, height, width, 3], or [height, width,
          3, batch] with `transpose_enabled` (one such after the other for the cores, if they share a batch); float32 or
          bfloat16, as `precision` says; in [-1, 1], or as `vgg_preprocessing` leaves them. Or they are what
          `transfer.received` makes such images of: with `--transfer=uint8`, uint8 images, of which a TPU gets int32
          words, [batch, words]; in training a dict of these and of the distortions, float32 [batch, numbers]. Labels
          are int32 [batch].
          In evaluation the last batch is filled up with examples labelled -1; on a TPU, which is told how many steps
          to take, such batches go on for ever.

        Raises:
          records.DataError: `data_dir` has no usable files of this split.
        """
        return self._build(params)

    # AutoGraph has nothing to convert here, and takes seconds to find that out.
    @tf.autograph.experimental.do_not_convert
    def _build(self, params: Dict[str, Any]) -> tf.data.Dataset:
        host, hosts = 0, 1
        if 'context' in params:
            _, host, hosts, _ = params['context'].current_input_fn_deployment()
        if self._config.use_data == 'fake':
            dataset = self._fake_images(hosts)
        else:
            dataset = self._preprocessing(self._storage(host, hosts))
        dataset = self._transfer(dataset, params['batch_size'], self._slices(params))
        options = tf.data.Options()
        # Training takes whichever image is ready, unless it has an order; evaluation keeps to that of the files.
        options.experimental_deterministic = not self._is_training or self._config.seed is not None
        # The images are many: to divide the work on one among threads costs more than it brings.
        options.experimental_threading.max_intra_op_parallelism = 1
        return dataset.with_options(options)

    def _slices(self, params: Dict[str, Any]) -> int:
        """Parts that have to be transposed apart, because TPUEstimator cuts the batch for the cores along axis 0."""
        config = self._config
        is_cut = 'context' in params and not self._is_training and config.hosts > 1
        return config.replicas if is_cut and config.transpose_enabled else 1

    def _storage(self, host: int = 0, hosts: int = 1) -> tf.data.Dataset:
        """Phase 1, storage: files to records; if some may be skipped, each with its path and its position there.

        What it holds in memory: `num_files_infeed` files and one more, each read ahead, or as many whole ones as there
        is room for and one more; and the buffer of records. With a seed, in training, each record comes with its key,
        and there are a group of files more, and its buffer.
        """
        config = self._config
        paths = self._format.find_shards(config.data_dir, self._split)
        sizes = records.sizes_of(paths) if self._format.is_read_whole else records.sizes_to_reach(paths)
        records.check_enough_for(hosts, config.data_dir, self._split, len(paths))
        if self._is_training and config.seed is not None:
            return order.ordered(
                order.files_of(paths, sizes, self._format.count_records(paths))[host::hosts],
                self._read_file,
                config.seed,
                self._taken(hosts),
                config.initial_shuffle_buffer_size,
                config.followup_shuffle_buffer_size,
                self._files_at_a_time(sizes),
            )
        files = tf.data.Dataset.from_tensor_slices((paths, sizes)).shard(hosts, host)
        if self._is_training:
            files = files.shuffle(config.initial_shuffle_buffer_size).repeat()
        # Not Dataset.interleave: in TensorFlow 1.15 its threads outlive it, and crash a session that closes.
        interleave = tf.data.experimental.parallel_interleave(
            self._read_file,
            cycle_length=self._files_at_a_time(sizes),
            sloppy=self._is_training,
            prefetch_input_elements=1,
        )
        dataset = files.apply(interleave)
        if self._is_training:
            dataset = dataset.shuffle(config.followup_shuffle_buffer_size)
        elif config.eval_total_size:
            dataset = dataset.take(config.eval_total_size)
        return dataset

    def _files_at_a_time(self, sizes: Sequence[int]) -> int:
        """As many as the flag says; of those that are in memory whole, no more than there is room for."""
        wanted = self._config.num_files_infeed
        if not self._format.is_read_whole:
            return wanted
        return max(1, min(wanted, _READ_AHEAD_AT_MOST // max(1, *sizes)))

    def _taken(self, hosts: int) -> tf.Tensor:
        """How many records one of `hosts` has given to the steps done, int64: the place in the order to begin at.

        The step is that of the checkpoint, which a session restores before it initializes its iterators.
        """
        step = tf.compat.v1.train.get_global_step() if self._config.seed is not None else None
        taken = tf.constant(0, tf.int64) if step is None else tf.cast(step, tf.int64)
        return taken * (self._config.train_batch_size // hosts)

    def _read_file(self, path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        ahead = min(self._config.prefetch_dataset_buffer_size, _READ_AHEAD_AT_MOST // self._config.num_files_infeed)
        read = self._format.reader(self._config.data_dir, ahead)
        if not self._config.max_bad_records:
            return read(path, size)
        return read(path, size).enumerate().map(lambda position, serialized: (path, position, serialized))

    def _preprocessing(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Phase 2, preprocessing: records to (what is sent of the image, label), many at a time."""
        if not self._config.max_bad_records:
            return dataset.map(self._preprocess, self._parallel_calls)
        return dataset.batch(_TRIED_TOGETHER).map(self._preprocess_or_skip).prefetch(1).unbatch()

    @property
    def _parallel_calls(self) -> int:
        """Images at a time. Of more than there are cores, some wait in memory, and drive the others from the caches."""
        config = self._config
        is_here = not config.use_tpu or config.is_emulated
        return min(config.num_parallel_calls, len(os.sched_getaffinity(0))) if is_here else config.num_parallel_calls

    def _preprocess(self, serialized: tf.Tensor, key: Optional[tf.Tensor] = None) -> Tuple[infeed.Features, tf.Tensor]:
        """One record, and the key of what is random about it, to what is sent of its image, and its label."""
        config = self._config
        encoded, bbox, label = self._parse(serialized)
        if self._is_training:
            return preprocess_for_train(encoded, bbox, config, _uniform(key)), label
        return infeed.for_evaluation(resize_for_eval(encoded, config), config), label

    def _parse(self, serialized: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One record to its encoded image, its boxes and its label."""
        config = self._config
        record = self._format.parse(serialized, self._is_training and config.use_annotated_bbox)
        in_range = tf.logical_and(record.label >= 0, record.label < config.num_classes)
        with tf.control_dependencies([tf.Assert(in_range, ['label out of range:', record.label])]):
            return tf.identity(record.encoded), record.bbox, tf.cast(record.label, tf.int32)

    @tf.autograph.experimental.do_not_convert
    def samples(self, count: int) -> tf.data.Dataset:
        """A data set of `Sample`s: the records that the first host's pipeline begins with, and what it makes of them.

        With a seed these are the images of the step that the graph's global step is at, distorted as they are there.
        Records that cannot be used, and may be skipped, are left out.

        Args:
          count: how many there are, unless the data set has fewer.
        """
        config = self._config
        dataset = self._storage(hosts=config.hosts if self._is_training else 1)
        if not config.max_bad_records:
            return dataset.take(count).map(self._sample)
        dataset = dataset.take(count + config.max_bad_records)
        dataset = dataset.map(lambda path, position, serialized: self._sample(serialized))
        return dataset.apply(tf.data.experimental.ignore_errors()).take(count)

    def _sample(self, serialized: tf.Tensor, key: Optional[tf.Tensor] = None) -> Sample:
        """As `_preprocess`, with what the image was before."""
        config = self._config
        encoded, bbox, label = self._parse(serialized)
        shape = image_shape(encoded)
        if self._is_training:
            distortion = draw_distortion(shape, bbox, config, _uniform(key))
            crop, features = _crop_of(shape, distortion, config), _distort(encoded, shape, distortion, config)
        else:
            is_vgg = config.preprocessing == 'vgg'
            crop = _central_window(shape, config).crop if is_vgg else inception_preprocessing.central_crop(shape)
            features = infeed.for_evaluation(resize_for_eval(encoded, config), config)
        return Sample(decode_image(encoded), crop, features, label)

    def _preprocess_or_skip(
        self, paths: tf.Tensor, positions: tf.Tensor, serialized: tf.Tensor
    ) -> Tuple[infeed.Features, tf.Tensor]:
        """As `_preprocess`, of several records; those that cannot be used are left out, named, and counted.

        An operation that fails cannot be caught in a graph; a data set that ignores errors can hold it. That takes
        TensorFlow the time of several images to set up, each time, and does only one at a time.
        """
        tries = tf.data.Dataset.from_tensor_slices(serialized).enumerate()
        tries = tries.map(lambda index, record: (index, *self._preprocess(record)), self._parallel_calls)
        usable = tries.apply(tf.data.experimental.ignore_errors()).batch(_TRIED_TOGETHER)
        # There may be none.
        usable = usable.concatenate(_zeros_like(usable)).take(1)
        indices, features, labels = tf.data.experimental.get_single_element(usable)
        bad, _ = tf.compat.v1.setdiff1d(tf.range(tf.size(positions, out_type=tf.int64)), indices)

        def name_them() -> tf.Operation:
            return name_bad_records(self._config, self._split, tf.gather(paths, bad), tf.gather(positions, bad))

        with tf.control_dependencies([tf.cond(tf.size(bad) > 0, name_them, tf.no_op)]):
            return features, tf.identity(labels)

    def _fake_images(self, hosts: int) -> tf.data.Dataset:
        """Made-up images, each another, labelled with all classes in turn: for measuring and for dry runs."""
        config = self._config

        def make(epoch: tf.Tensor, index: tf.Tensor) -> Tuple[infeed.Features, tf.Tensor]:
            seed = tf.stack([index, tf.constant(0, tf.int64)])
            pixels = tf.random.stateless_uniform([config.height, config.width, 3], seed, maxval=255.0)
            label = tf.cast(index % config.num_classes, tf.int32)
            if not self._is_training:
                return infeed.for_evaluation(pixels, config), label
            shape, box = tf.constant([config.height, config.width, 3]), inception_preprocessing.whole_image_box()
            key = None if config.seed is None else order.key_of(config.seed, epoch, index)
            return infeed.for_training(pixels, draw_distortion(shape, box, config, _uniform(key)), config), label

        count, begin, end = config.eval_images, tf.constant(0, tf.int64), config.eval_images
        if self._is_training:
            count, begin, end = config.num_train_images, self._taken(hosts), tf.int64.max
        dataset = tf.data.Dataset.range(begin, end)
        return dataset.map(lambda number: make(number // count, number % count), self._parallel_calls)

    def _transfer(self, dataset: tf.data.Dataset, batch_size: int, slices: int) -> tf.data.Dataset:
        """Phase 3, transfer: batches, ready when the step asks for them.

        In memory are the batches that are ready, one that is being filled and one that is being used.
        """
        config = self._config
        batch_size //= slices
        if self._is_training:
            # TensorFlow makes one of this and the map before: an image is put in its place in the batch at once.
            dataset = dataset.batch(batch_size, drop_remainder=True)
        else:
            fill_up = functools.partial(_fill_up, batch_size)
            dataset = dataset.batch(batch_size)
            nothing = _zeros_like(dataset)
            dataset = dataset.map(fill_up)
            if config.use_tpu:
                dataset = dataset.concatenate(nothing.map(fill_up).repeat())
        if config.transpose_enabled:
            dataset = dataset.map(lambda features, labels: (_with_batch_last(features), labels))
        if slices > 1:
            dataset = dataset.batch(slices, drop_remainder=True).map(lambda *tensors: tuple(map(_join, tensors)))
        return dataset.prefetch(_BATCHES_AHEAD) if config.prefetch_enabled else dataset


def _uniform(key: Optional[tf.Tensor]) -> Uniform:
    return tf.random.uniform if key is None else StatelessUniform(key)


def _fill_up(batch_size: int, images: tf.Tensor, labels: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Pads a batch to its full size with black images that have no weight."""
    missing = batch_size - tf.shape(labels)[0]

    def pad() -> Tuple[tf.Tensor, tf.Tensor]:
        sides = [[0, missing], *[[0, 0]] * (images.shape.ndims - 1)]
        return tf.pad(images, sides), tf.pad(labels, [[0, missing]], constant_values=PADDING_LABEL)

    # Padding copies the batch, which only the last one needs.
    full_images, full_labels = tf.cond(missing > 0, pad, lambda: (images, labels))
    full_images.set_shape([batch_size, *images.shape[1:]])
    full_labels.set_shape([batch_size])
    return full_images, full_labels


def _zeros_like(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """One element like those of a data set, of zeros; without any where a size is not known."""

    def zeros(shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
        return tf.zeros([size or 0 for size in shape.as_list()], dtype)

    shapes = tf.compat.v1.data.get_output_shapes(dataset)
    types = tf.compat.v1.data.get_output_types(dataset)
    return tf.data.Dataset.from_tensors(tf.nest.map_structure(zeros, shapes, types))


def _with_batch_last(features: infeed.Features) -> infeed.Features:
    """Images [batch, ...] to [..., batch]; the numbers of their distortions stay as they are."""
    if isinstance(features, dict):
        return {**features, infeed.IMAGES: _with_batch_last(features[infeed.IMAGES])}
    return tf.transpose(features, [*range(1, features.shape.ndims), 0])


def _join(tensor: tf.Tensor) -> tf.Tensor:
    """[slices, length, ...] to [slices * length, ...]."""
    slices, length, *rest = tensor.shape.as_list()
    return tf.reshape(tensor, [slices * length, *rest])
