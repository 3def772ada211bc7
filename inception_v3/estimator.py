"""The TPUEstimator of a run."""

import os
from typing import List

import tensorflow as tf

from inception_v3.config import Config, ConfigError
from inception_v3.model_fn import inception_model_fn
from inception_v3.moving_average import CheckpointError

_NAMED_AT_MOST = 3


def make_estimator(config: Config) -> tf.compat.v1.estimator.tpu.TPUEstimator:
    """Builds the estimator; nothing is connected to, and nothing is read, until it is used.

    Raises:
      ConfigError: the run has no model_dir, or is to use a TPU and names none.
    """
    if not config.model_dir:
        raise ConfigError('--model_dir: name the folder for the checkpoints and results.')
    if config.use_tpu and not (config.tpu or config.master):
        raise ConfigError(
            '--use_tpu=True: name the TPU with --tpu or --master, or run on the CPU with --use_tpu=False.'
        )
    tpu = tf.compat.v1.estimator.tpu
    run_config = tpu.RunConfig(
        cluster=_cluster(config),
        master=config.master if config.use_tpu else '',
        model_dir=config.model_dir,
        save_checkpoints_secs=config.save_checkpoints_secs,
        # The host call writes the loss, too, at the same steps: one of the two is enough.
        save_summary_steps=config.save_summary_steps if config.skip_host_call else 0,
        log_step_count_steps=config.save_summary_steps,
        session_config=tf.compat.v1.ConfigProto(
            allow_soft_placement=True, log_device_placement=config.log_device_placement
        ),
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=config.iterations,
            num_shards=config.num_shards if config.use_tpu else None,
            # Each call of the input pipeline makes the batches of one core, transposed or not.
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    return tpu.TPUEstimator(
        inception_model_fn,
        config=run_config,
        params={'config': config},
        use_tpu=config.use_tpu,
        train_batch_size=config.train_batch_size,
        eval_batch_size=config.eval_batch_size,
        export_to_tpu=False,
    )


def _cluster(config: Config) -> 'tf.distribute.cluster_resolver.ClusterResolver':
    """What finds the TPU; without one it must not be asked, since it would look for one."""
    if not config.use_tpu or config.master:
        return None
    return tf.distribute.cluster_resolver.TPUClusterResolver(
        config.tpu, zone=config.tpu_zone, project=config.gcp_project
    )


class CheckpointFitsHook(tf.estimator.SessionRunHook):
    """Makes sure, before a session restores a checkpoint, that it has the graph's variables in the graph's shapes.

    Args:
      checkpoint: the path of the checkpoint.
    """

    def __init__(self, checkpoint: str):
        self._checkpoint = checkpoint

    def begin(self) -> None:
        """Compares names and shapes.

        Raises:
          CheckpointError: some differ, as another network's or another number of classes' do.
        """
        stored = tf.train.load_checkpoint(self._checkpoint).get_variable_to_shape_map()
        wanted = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
        problems = [f'{name} is missing' for name in sorted(wanted) if name not in stored]
        problems += [
            f'{name} is {stored[name]}, here {shape}'
            for name, shape in sorted(wanted.items())
            if name in stored and stored[name] != shape
        ]
        if problems:
            raise CheckpointError(
                f'{self._checkpoint}: does not fit this run. {_shortened(problems)}. Name another --model_dir, or give '
                f'the flags of the run that made it ({os.path.join(os.path.dirname(self._checkpoint), "config.json")}).'
            )


def _shortened(problems: List[str]) -> str:
    more = len(problems) - _NAMED_AT_MOST
    return '; '.join(problems[:_NAMED_AT_MOST]) + (f'; and {more} more' if more > 0 else '')
