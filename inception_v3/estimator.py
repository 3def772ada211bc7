"""The TPUEstimator of a run."""

from typing import Any, Dict, Optional, Sequence

from console.tensorflow_versions import tf
from data.sources import source_of
from inception_v3 import seeding
from inception_v3.config import Config, ConfigError
from inception_v3.fitting import splits_of
from inception_v3.local_estimator import LocalEstimator
from inception_v3.model_fn import inception_model_fn
from inception_v3.tpu import accelerator, addresses, slices, topology
from inception_v3.tpu.emulation.estimator import EmulatedTPUEstimator
from inception_v3.tpu.refusals import refusals_explained, tf_config_explained


def make_estimator(
    config: Config, class_names: Sequence[str] = (), writes: bool = True
) -> tf.estimator.tpu.TPUEstimator:
    """Builds the estimator. It connects to no TPU, and reads no file, until it is used.

    Args:
      config: of the run.
      class_names: the class names by label, for printed predictions and exports; if empty, these have numbers only.
      writes: let TensorFlow save checkpoints and write summaries; False: hooks do this.

    Raises:
      ConfigError: no model_dir is given; the run needs a GPU, and none is visible; or it needs a TPU, and no TPU is
        given, or it cannot reach the run's folders.
      TpuError: the run's TPU is not there, or its address cannot be looked up.
    """
    if not config.model_dir:
        raise ConfigError('--model_dir: name the folder for the checkpoints and results.')
    if config.use_tpu and not (config.tpu or config.master):
        raise ConfigError(
            '--use_tpu=True: name the TPU with --tpu or --master, or run on the CPU with --use_tpu=False.'
        )
    accelerator.check(config)
    places = source_of(config).places(splits_of(config)) if config.use_data == 'real' else {}
    problems = topology.unreachable_folders(config.tpu, config.master, **places, model_dir=config.model_dir)
    if config.use_tpu and problems:
        raise ConfigError('\n'.join(problems))
    cluster = None
    # Without a TPU, a resolver would search for one.
    if config.use_tpu and not config.is_emulated and not config.master:
        session_config = seeding.session_config(config)
        cluster = addresses.resolver_of(
            str(config.tpu), config.tpu_zone, config.gcp_project, config.num_shards, session_config
        )
    # RunConfig takes one of the two: a cluster knows its address.
    master = None if cluster else config.master if config.use_tpu else ''
    arguments = arguments_of(config, master, cluster, class_names, writes)
    with refusals_explained():
        if config.is_emulated:
            estimator = EmulatedTPUEstimator(topology.emulated(str(config.tpu)), **arguments)
        elif not (config.use_tpu or writes):
            estimator = LocalEstimator(**arguments)
        else:
            estimator = tf.estimator.tpu.TPUEstimator(**arguments)
    slices.evaluate_on_all_hosts(estimator)
    return estimator


def arguments_of(
    config: Config,
    master: Optional[str],
    cluster: 'Optional[tf.distribute.cluster_resolver.ClusterResolver]' = None,
    class_names: Sequence[str] = (),
    writes: bool = True,
) -> Dict[str, Any]:
    """The arguments of a run's TPUEstimator.

    Args:
      config: of the run.
      master: the address of the TPU worker; empty for this process, None with a cluster.
      cluster: looks up the TPU's address, in place of `master`.
      class_names: as for `make_estimator`.
      writes: as for `make_estimator`.
    """
    tpu = tf.estimator.tpu
    with tf_config_explained():
        run_config = tpu.RunConfig(
            cluster=cluster,
            master=master,
            model_dir=config.model_dir,
            save_checkpoints_secs=config.save_checkpoints_secs if writes else None,
            # A host call writes the same values at the same steps.
            save_summary_steps=config.save_summary_steps if writes and config.skip_host_call else 0,
            log_step_count_steps=config.save_summary_steps,
            session_config=seeding.session_config(config),
            tpu_config=tpu.TPUConfig(
                iterations_per_loop=config.iterations,
                num_shards=config.num_shards if config.use_tpu else None,
                # Each host builds the input pipeline once, and feeds each of its batches to one core.
                per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
            ),
        )
    return {
        'model_fn': inception_model_fn,
        'config': run_config,
        'params': {'config': config, 'class_names': [*class_names]},
        'use_tpu': config.use_tpu,
        'train_batch_size': config.train_batch_size,
        'eval_batch_size': config.eval_batch_size,
        'export_to_tpu': False,
    }
