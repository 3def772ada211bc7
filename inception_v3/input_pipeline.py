"""The input pipeline of a host, in three phases: storage, preprocessing, transfer.

On a Cloud TPU node the graph of the pipeline runs on the TPU's host, which has no Python: all of it must be TensorFlow
operations.
"""

import functools
from typing import Any, Dict, Optional, Sequence, Tuple

from compat import tf
from compat.tensorflow import switch_autotuning_off, threads_of
from console.processes import usable_cores
from data import records
from data.sources import Source
from inception_v3.config import Config
from inception_v3.input import infeed
from inception_v3.input.fake_data import fake_images
from inception_v3.input.ordered_records import completed_steps, ordered_records
from inception_v3.input.padding import Label, pad_batch, zeros_like
from inception_v3.input.record_preprocessing import RecordPreprocessing

# Upper limit of the bytes that are read ahead, over all files.
_READ_AHEAD_LIMIT = 256 << 20
BATCHES_AHEAD = 2  # One batch may be late without delaying a step.
_THREADS_PER_CORE = 4
# Records whose headers are parsed and whose crops are drawn by the same operations.
_GROUP_RECORDS = 16
# Images that are decoded in parallel for each group that is prepared in parallel.
_IMAGES_PER_GROUP = 4

# AutoGraph has nothing to convert here, and takes seconds to find that out.
_no_autograph = tf.autograph.experimental.do_not_convert


class InputPipeline:
    """The `input_fn` of training or of evaluation.

    Args:
      is_training: training records, shuffled, repeated and distorted; False: every validation record once.
      config: the run's configuration; None: `params['config']` of the call or, without it, the documented defaults,
        with a data set in the working folder, on the device of the call.
      with_places: return (labels, paths, positions) instead of labels, to locate records; for evaluation on the CPU.
    """

    def __init__(self, is_training: bool, config: Optional[Config] = None, with_places: bool = False):
        self._is_training = is_training
        self._is_configured = config is not None
        self._config = config = config or Config()
        self._with_places = with_places
        self._split = records.TRAIN if is_training else records.VALIDATION
        self._source = config.source
        self._is_seeded = is_training and config.seed is not None
        self._images_at_a_time = images_at_a_time(config)
        self._record_preprocessing = RecordPreprocessing(is_training, config)

    def __call__(self, params: Dict[str, Any]) -> tf.data.Dataset:
        """Builds the data set.

        Args:
          params: `batch_size` is the number of images in a batch; on a TPU, in the batch of one core. `context`, which
            TPUEstimator adds on a TPU, gives the index of this host and the number of hosts. `config`, optional, is
            the `Config` of a pipeline that was made without one.

        Returns:
          A data set of batches (features, labels).

          With `--transfer=float`, features are finished images, float32 or bfloat16 as `--precision` says. Their shape
          is [batch, height, width, 3], or [height, width, 3, batch] with `--transpose_enabled`. With
          `--transfer=uint8`, images are uint8, or int32 words [batch, words] for a TPU; in training, features are a
          dict of these and of the distortions, float32 [batch, numbers]. `infeed.Infeed.received` turns both forms
          into finished images.

          Labels are int32 [batch]. In evaluation the last batch is padded with images of zeros, labelled -1. On a TPU,
          batches of padding follow endlessly, because all hosts perform the same, fixed number of evaluation steps.
        """
        if not self._is_configured:
            # TPUEstimator adds the context only on a TPU.
            config = params.get('config') or Config(use_tpu='context' in params)
            return InputPipeline(self._is_training, config, self._with_places)(params)
        config = self._config
        host, hosts = config.task_index or 0, config.machines
        if 'context' in params:
            _, host, hosts, _ = params['context'].current_input_fn_deployment()
        if config.use_data == 'fake':
            step = completed_steps(config)
            own = self._record_preprocessing.infeed
            dataset = fake_images(own, self._is_training, config, step, self._images_at_a_time, host, hosts)
        else:
            dataset = self.storage(host, hosts)
            dataset = self.preprocessing(dataset)
        dataset = self.transfer(dataset, params['batch_size'])
        return dataset.with_options(self._options())

    def _options(self) -> tf.data.Options:
        options = tf.data.Options()
        # Training takes whichever image is ready first, unless a seed fixes the order, or records are not shuffled;
        # evaluation keeps file order.
        is_unordered = self._is_training and not self._is_seeded and self._config.followup_shuffle_buffer_size
        options.experimental_deterministic = not is_unordered
        switch_autotuning_off(options)
        # With many images at a time, dividing the work on a single image among threads costs more than it saves.
        threads_of(options).max_intra_op_parallelism = 1
        if _is_here(self._config):
            threads_of(options).private_threadpool_size = self._images_at_a_time
        return options

    # ---- Phase 1, storage: list files, shuffle files, repeat, interleave readers, shuffle records.

    @_no_autograph
    def storage(self, host: int = 0, hosts: int = 1) -> tf.data.Dataset:
        """Reads the records of a host's share of the files.

        Memory: the read-ahead buffers of `num_files_infeed` + 1 files, plus the shuffle buffer of records. Files that
        are loaded whole take at most `_READ_AHEAD_LIMIT` bytes, plus one file. Training with a seed reads the host's
        lanes (see `data.order`) instead of `num_files_infeed` files, and holds twice its share of the shuffle buffer
        and of a global batch.

        Returns:
          A data set of `data.records.Record`, with places if records may be skipped or are to be located, and with keys
          in training with a seed. With both, its elements are groups of records, for `usable_records.map_or_replace`.

        Raises:
          records.DataError: there are no usable files of this split.
        """
        config, source = self._config, self._source
        paths = source.find(self._split)
        if self._is_seeded:
            return ordered_records(config, paths, host, hosts, functools.partial(self._read_file, paths=paths))
        sizes = source.format.sizes_for_reader(paths)
        if self._is_training:
            # In evaluation, a host without files feeds padding.
            records.check_enough_for(hosts, source.flag(self._split), self._split, len(paths))
        files = tf.data.Dataset.from_tensor_slices((paths, sizes)).shard(hosts, host)
        read = functools.partial(self._read_file, config.num_files_infeed, paths=paths[host::hosts])
        if host >= len(paths):
            # A host without files feeds only padding. Interleaving no files crashes TensorFlow 1.15.
            return files.flat_map(read)
        if self._is_training and config.initial_shuffle_buffer_size:
            files = files.shuffle(config.initial_shuffle_buffer_size)
        if self._is_training:
            files = files.repeat()
        # Not Dataset.interleave: in TensorFlow 1.15 its threads outlive it, and crash a session that closes.
        interleave = tf.data.experimental.parallel_interleave(
            read,
            cycle_length=_files_at_a_time(config, source, paths, sizes),
            # Without a shuffle buffer, records keep the round-robin order of the files.
            sloppy=self._is_training and bool(config.followup_shuffle_buffer_size),
            prefetch_input_elements=1,
        )
        dataset = files.apply(interleave)
        if self._is_training:
            if config.followup_shuffle_buffer_size:
                dataset = dataset.shuffle(config.followup_shuffle_buffer_size)
        elif config.eval_total_size and hosts == 1:
            dataset = dataset.take(config.eval_total_size)
        elif config.eval_total_size:
            # Records are counted only for evaluations of part of the validation images on several hosts.
            from inception_v3.tpu.slices import images_of_hosts

            dataset = dataset.take(images_of_hosts(config, hosts)[host])
        return dataset

    def _read_file(
        self, at_a_time: int, path: tf.Tensor, size: tf.Tensor, paths: Sequence[str] = ()
    ) -> tf.data.Dataset:
        buffer = self._config.prefetch_dataset_buffer_size
        limit = min(_READ_AHEAD_LIMIT, buffer * self._config.num_files_infeed)
        ahead = min(buffer, max(1, limit // at_a_time))
        source = self._source
        read = source.format.reader(source.place(self._split), ahead, paths, source.fields)
        has_places = self._config.max_bad_records or self._with_places
        return records.as_records(read(path, size), path if has_places else None)

    # ---- Phase 2, preprocessing: parse, decode, crop, resize, distort, many images at a time.

    @_no_autograph
    def preprocessing(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Converts records, as `storage` returns them, to a data set of (features, label)."""
        config, parallel_calls = self._config, self._images_at_a_time
        if not config.max_bad_records:
            # One by one, because images have different numbers of boxes, or to locate records.
            if self._with_places or (self._is_training and config.use_annotated_bbox):
                return dataset.map(self._preprocess, parallel_calls)
            groups = dataset.batch(_GROUP_RECORDS, drop_remainder=self._is_training)
            drawn = groups.map(self._record_preprocessing.draw, -(-parallel_calls // _IMAGES_PER_GROUP)).unbatch()
            return drawn.map(self._record_preprocessing.finish, parallel_calls)
        # Only for runs that may skip records.
        from inception_v3.input import usable_records

        name_bad = functools.partial(usable_records.name_bad_records, config, self._split)
        if self._is_seeded:
            step = completed_steps(config)
            return usable_records.map_or_replace(dataset, self._preprocess, parallel_calls, name_bad, step)
        return usable_records.map_or_skip(dataset, self._preprocess, parallel_calls, name_bad)

    def _preprocess(self, record: records.Record) -> Tuple[infeed.Features, Label]:
        features, label = self._record_preprocessing.preprocess(record)
        return features, (label, record.path, record.position) if self._with_places else label

    # ---- Phase 3, transfer: batch, pad, transpose, prefetch.

    @_no_autograph
    def transfer(self, dataset: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """Batches preprocessed images, and prefetches batches so that infeed overlaps the step.

        Memory: the prefetched batches, one being filled and one in use.
        """
        config = self._config
        if self._is_training:
            # TensorFlow fuses this with the preceding map: each image is written directly to its place in the batch.
            dataset = dataset.batch(batch_size, drop_remainder=True)
        else:
            pad = functools.partial(pad_batch, batch_size)
            dataset = dataset.batch(batch_size)
            padding = zeros_like(dataset)
            dataset = dataset.map(pad)
            if config.use_tpu or config.machines > 1:
                dataset = dataset.concatenate(padding.map(pad).repeat())
            elif config.replicas > 1:
                # The last step needs a batch for each replica; TensorFlow skips a step that lacks one.
                dataset = dataset.concatenate(padding.map(pad).repeat(config.replicas - 1))
        if config.transpose_enabled:
            dataset = dataset.map(lambda features, labels: (_with_batch_last(features), labels))
        # A TPU's infeed holds further batches of each core.
        ahead = BATCHES_AHEAD if config.use_tpu else BATCHES_AHEAD * config.num_gpus
        return dataset.prefetch(ahead) if config.prefetch_enabled else dataset


# ---- Functions of phase 1


def _files_at_a_time(config: Config, source: Source, paths: Sequence[str], sizes: Sequence[int]) -> int:
    """Returns `num_files_infeed`, or fewer if files are loaded whole and would exceed `_READ_AHEAD_LIMIT`."""
    if not source.format.is_read_whole(paths[0]):
        return config.num_files_infeed
    return max(1, min(config.num_files_infeed, _READ_AHEAD_LIMIT // max(1, *sizes)))


# ---- Functions of phase 2


def _is_here(config: Config) -> bool:
    """Whether this machine runs the pipeline, rather than the hosts of a TPU."""
    return not config.use_tpu or config.is_emulated


def images_at_a_time(config: Config) -> int:
    """Returns the number of images to preprocess in parallel; on this machine, each has a thread of its own.

    A few threads per core secure the pipeline's share of a machine that other programs also use. More images would only
    wait, and evict others from the CPU's caches.
    """
    if not _is_here(config):
        return config.num_parallel_calls
    return min(config.num_parallel_calls, _THREADS_PER_CORE * usable_cores())


# ---- Functions of phase 3


def _with_batch_last(features: infeed.Features) -> infeed.Features:
    """Transposes images [batch, ...] to [..., batch]; the numbers of their distortions stay as they are."""
    if isinstance(features, dict):
        return {**features, infeed.IMAGES: _with_batch_last(features[infeed.IMAGES])}
    with tf.name_scope('transfer'):  # A profile finds the phase by this name.
        return tf.transpose(features, [*range(1, features.shape.ndims), 0])
