"""The input pipeline, in its three phases: storage, preprocessing, transfer."""

import functools
from typing import Any, Dict, Tuple

import tensorflow as tf

from data import records
from data.formats import FORMATS
from inception_v3.bad_records import name_bad_record
from inception_v3.config import Config
from inception_v3.metrics import PADDING_LABEL
from preprocessing import inception_preprocessing, vgg_preprocessing
from preprocessing.decoding import decode_image


def preprocess_for_eval(image: tf.Tensor, config: Config) -> tf.Tensor:
    """Prepares a decoded image, uint8 [any height, any width, 3], as every evaluation and prediction does.

    Returns:
      float32 [height, width, 3].
    """
    if config.preprocessing == 'vgg':
        smaller, _ = vgg_resize_range(config)
        return vgg_preprocessing.preprocess_image(
            image, config.height, config.width, is_training=False, resize_side_min=smaller
        )
    return inception_preprocessing.preprocess_for_eval(image, config.height, config.width)


def preprocess_for_train(image: tf.Tensor, bbox: tf.Tensor, config: Config) -> tf.Tensor:
    """Distorts a decoded image, uint8 [any height, any width, 3], for training.

    Returns:
      float32 [height, width, 3].
    """
    if config.preprocessing == 'vgg':
        smaller, larger = vgg_resize_range(config)
        return vgg_preprocessing.preprocess_image(
            image,
            config.height,
            config.width,
            is_training=True,
            resize_side_min=smaller,
            resize_side_max=larger,
            random_flip=config.random_flip,
        )
    return inception_preprocessing.preprocess_for_train(
        image,
        config.height,
        config.width,
        bbox if config.use_annotated_bbox else inception_preprocessing.whole_image_box(),
        fast_mode=config.fast_mode,
        use_fast_color_distort=config.use_fast_color_distort,
        cb_distortion_range=config.cb_distortion_range,
        cr_distortion_range=config.cr_distortion_range,
        random_flip=config.random_flip,
        crop_area_min=config.crop_area_min,
        crop_aspect_ratio_max=config.crop_aspect_ratio_max,
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
          A data set of batches (images, labels). Images are [batch, height, width, 3], or [height, width, 3,
          batch] with `transpose_enabled` (one such after the other for the cores, if they share a batch); float32 or
          bfloat16, as `precision` says; in [-1, 1], or as `vgg_preprocessing` leaves them. Labels are int32 [batch].
          In evaluation the last batch is filled up with examples labelled -1; on a TPU, which is told how many steps
          to take, such batches go on for ever.

        Raises:
          records.DataError: `data_dir` has no usable files of this split.
        """
        return self._build(params)

    # AutoGraph has nothing to convert here, and takes seconds to find that out.
    @tf.autograph.experimental.do_not_convert
    def _build(self, params: Dict[str, Any]) -> tf.data.Dataset:
        dataset = self._fake_images() if self._config.use_data == 'fake' else self._preprocessing(self._storage(params))
        dataset = self._transfer(dataset, params['batch_size'], self._slices(params))
        options = tf.data.Options()
        # Training takes whichever image is ready; evaluation keeps to the order of the files.
        options.experimental_deterministic = not self._is_training
        return dataset.with_options(options)

    def _slices(self, params: Dict[str, Any]) -> int:
        """Parts that have to be transposed apart, because TPUEstimator cuts the batch for the cores along axis 0."""
        config = self._config
        is_cut = 'context' in params and not self._is_training and config.hosts > 1
        return config.replicas if is_cut and config.transpose_enabled else 1

    def _storage(self, params: Dict[str, Any]) -> tf.data.Dataset:
        """Phase 1, storage: files to records, as (path, position in the file, serialized Example)."""
        config = self._config
        paths = self._format.find_shards(config.data_dir, self._split)
        files = tf.data.Dataset.from_tensor_slices((paths, records.sizes_to_reach(paths)))
        if 'context' in params:
            _, host, hosts, _ = params['context'].current_input_fn_deployment()
            records.check_enough_for(hosts, config.data_dir, self._split, len(paths))
            files = files.shard(hosts, host)
        if self._is_training:
            files = files.shuffle(config.initial_shuffle_buffer_size).repeat()
        # Not Dataset.interleave: in TensorFlow 1.15 its threads outlive it, and crash a session that closes.
        interleave = tf.data.experimental.parallel_interleave(
            self._read_file, cycle_length=config.num_files_infeed, sloppy=self._is_training
        )
        dataset = files.apply(interleave)
        if self._is_training:
            dataset = dataset.shuffle(config.followup_shuffle_buffer_size)
        elif config.eval_total_size:
            dataset = dataset.take(config.eval_total_size)
        return dataset

    def _read_file(self, path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        read = self._format.reader(self._config.data_dir, self._config.prefetch_dataset_buffer_size)
        return read(path, size).enumerate().map(lambda position, serialized: (path, position, serialized))

    def _preprocessing(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Phase 2, preprocessing: records to (image, label), many at a time."""
        parallel = self._config.num_parallel_calls
        if not self._config.max_bad_records:
            return dataset.map(lambda path, position, serialized: self._preprocess(serialized), parallel)
        dataset = dataset.map(self._preprocess_or_skip, parallel)
        dataset = dataset.filter(lambda usable, image, label: usable)
        return dataset.map(lambda usable, image, label: (image, label))

    def _preprocess(self, serialized: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        """One record to its image, [height, width, 3], and its label."""
        config = self._config
        record = self._format.parse(serialized)
        in_range = tf.logical_and(record.label >= 0, record.label < config.num_classes)
        with tf.control_dependencies([tf.Assert(in_range, ['label out of range:', record.label])]):
            image, label = decode_image(record.encoded), tf.cast(record.label, tf.int32)
        if self._is_training:
            image = preprocess_for_train(image, record.bbox, config)
        else:
            image = preprocess_for_eval(image, config)
        return self._as_sent(image), label

    def _preprocess_or_skip(
        self, path: tf.Tensor, position: tf.Tensor, serialized: tf.Tensor
    ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `_preprocess`, with whether the record could be used; if not, it is named, and counted.

        An operation that fails cannot be caught in a graph; a data set that ignores errors can hold it. That costs
        half a millisecond per image, which is why it is not done unless records may be skipped.
        """
        attempt = tf.data.Dataset.from_tensors(serialized).map(lambda s: (True, *self._preprocess(s)))
        nothing = (False, self._as_sent(tf.zeros([self._config.height, self._config.width, 3])), PADDING_LABEL)
        attempt = attempt.apply(tf.data.experimental.ignore_errors()).concatenate(tf.data.Dataset.from_tensors(nothing))
        usable, image, label = tf.data.experimental.get_single_element(attempt.take(1))
        name = functools.partial(name_bad_record, self._config, self._split, path, position)
        with tf.control_dependencies([tf.cond(usable, tf.no_op, name)]):
            return tf.identity(usable), image, label

    def _fake_images(self) -> tf.data.Dataset:
        """Made-up images, each another, labelled with all classes in turn: for measuring and for dry runs."""
        config = self._config

        def make(index: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
            seed = tf.stack([index, tf.constant(0, tf.int64)])
            pixels = tf.random.stateless_uniform([config.height, config.width, 3], seed, maxval=255.0)
            if config.preprocessing == 'vgg':
                image = pixels - vgg_preprocessing.CHANNEL_MEANS
            else:
                image = inception_preprocessing.scale_to_network(pixels / 255.0)
            return self._as_sent(image), tf.cast(index % config.num_classes, tf.int32)

        count = config.num_train_images if self._is_training else config.eval_images
        dataset = tf.data.Dataset.range(count)
        return (dataset.repeat() if self._is_training else dataset).map(make, config.num_parallel_calls)

    def _as_sent(self, image: tf.Tensor) -> tf.Tensor:
        return tf.cast(image, tf.bfloat16 if self._config.precision == 'bfloat16' else tf.float32)

    def _transfer(self, dataset: tf.data.Dataset, batch_size: int, slices: int) -> tf.data.Dataset:
        """Phase 3, transfer: batches, ready when the step asks for them."""
        config = self._config
        batch_size //= slices
        if self._is_training:
            dataset = dataset.batch(batch_size, drop_remainder=True)
        else:
            dataset = dataset.batch(batch_size).map(functools.partial(self._fill_up, batch_size))
            if config.use_tpu:
                filling = (self._as_sent(tf.zeros([0, config.height, config.width, 3])), tf.zeros([0], tf.int32))
                padding = tf.data.Dataset.from_tensors(filling).map(functools.partial(self._fill_up, batch_size))
                dataset = dataset.concatenate(padding.repeat())
        if config.transpose_enabled:
            dataset = dataset.map(lambda images, labels: (tf.transpose(images, [1, 2, 3, 0]), labels))
        if slices > 1:
            dataset = dataset.batch(slices, drop_remainder=True).map(lambda *tensors: tuple(map(_join, tensors)))
        return dataset.prefetch(tf.data.experimental.AUTOTUNE) if config.prefetch_enabled else dataset

    def _fill_up(self, batch_size: int, images: tf.Tensor, labels: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        """Pads a batch to its full size with black images that have no weight."""
        missing = batch_size - tf.shape(labels)[0]
        images = tf.pad(images, [[0, missing], [0, 0], [0, 0], [0, 0]])
        labels = tf.pad(labels, [[0, missing]], constant_values=PADDING_LABEL)
        images.set_shape([batch_size, self._config.height, self._config.width, 3])
        labels.set_shape([batch_size])
        return images, labels


def _join(tensor: tf.Tensor) -> tf.Tensor:
    """[slices, length, ...] to [slices * length, ...]."""
    slices, length, *rest = tensor.shape.as_list()
    return tf.reshape(tensor, [slices * length, *rest])
