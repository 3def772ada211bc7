"""The TPUEstimator of a run, for its device: a TPU, an emulated one, or the CPU or GPUs of this machine."""

import contextlib
import os
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence

from compat import tf
from compat.messages import shown
from inception_v3 import distribution, seeding
from inception_v3.config import Config, ConfigError
from inception_v3.local_estimator import LocalEstimator
from inception_v3.machines import sums
from inception_v3.model_fn import inception_model_fn
from inception_v3.tpu import accelerator, addresses, slices, topology

# The beginnings of TPUEstimator's messages about the TPU that a session finds.
_ABOUT_TPU = (
    'Cannot find any TPU cores in the system',
    'TPUConfig.num_shards is not set correctly',
    'train batch size',
    'eval batch size',
    'TPUEstimator.evaluate is only supported',
)


@contextlib.contextmanager
def refusals_explained() -> Iterator[None]:
    """Raises a ConfigError instead of TPUEstimator's error about a TPU that does not fit the run."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        text = str(error).partition(' Available devices')[0]
        if not text.startswith(_ABOUT_TPU):
            raise
        raise ConfigError(f'TPUEstimator refuses the settings of this run: {text}')


@contextlib.contextmanager
def _tf_config_explained() -> Iterator[None]:
    """Raises a ConfigError that names the environment variable TF_CONFIG if TensorFlow cannot use it."""
    try:
        yield
    except Exception as error:
        if 'TF_CONFIG' not in os.environ:
            raise
        raise ConfigError(
            f'TF_CONFIG={shown(os.environ["TF_CONFIG"])}: TensorFlow cannot use this environment variable: '
            f'{shown(str(error))}. This program does not need it: unset it.'
        )


class Device(NamedTuple):
    """The target of a run's sessions: the address of a TPU worker, or a cluster that looks it up.

    The address is empty for this process, and None if there is a cluster: RunConfig accepts only one of the two.
    """

    master: Optional[str]
    cluster: 'Optional[tf.distribute.cluster_resolver.ClusterResolver]' = None


def find_device(config: Config) -> Device:
    """Finds the device of a run, without connecting to a TPU or reading a file.

    Raises:
      ConfigError: no model_dir is given; the run needs a GPU, and none is visible; or it needs a TPU, and no TPU is
        given, or it cannot reach the run's folders.
      CommandError: the run's TPU does not exist, or its address cannot be looked up.
    """
    if not config.model_dir:
        raise ConfigError('--model_dir: name the folder for the checkpoints and results.')
    if config.use_tpu and not (config.tpu or config.master):
        raise ConfigError(
            '--use_tpu=True: name the TPU with --tpu or --master, or run on the CPU with --use_tpu=False. '
            'On a CPU, begin with --preset=digits, own_images or finetune, which fit the sizes to few images.'
        )
    accelerator.check(config)
    places = config.source.places(config.splits) if config.use_data == 'real' else {}
    problems = topology.unreachable_folders(config.tpu, config.master, **places, model_dir=config.model_dir)
    if config.use_tpu and problems:
        raise ConfigError('\n'.join(problems))
    # Without a TPU, a resolver would search for one.
    if not config.use_tpu:
        return Device('')
    if config.is_emulated or config.master:
        return Device(config.master)
    session_config = seeding.session_config(config)
    name = str(config.tpu), config.tpu_zone, config.gcp_project, config.num_shards
    return Device(None, addresses.resolver_of(*name, session_config))


def make_estimator(
    config: Config, class_names: Sequence[str] = (), device: Optional[Device] = None
) -> tf.estimator.tpu.TPUEstimator:
    """Builds the estimator for a device, by default the result of `find_device`.

    `class_names`, by label, appear in printed predictions and exports; without them, these have only numbers. Hooks
    save checkpoints and write summaries; TensorFlow itself does neither.

    Raises:
      ConfigError: TPUEstimator refuses the settings; or as `find_device`.
    """
    master, cluster = device or find_device(config)
    arguments = arguments_of(config, master, cluster, class_names)
    with refusals_explained():
        if config.is_emulated:
            from inception_v3.tpu.emulation import EmulatedTPUEstimator

            estimator = EmulatedTPUEstimator(topology.emulated(str(config.tpu)), **arguments)
        elif not config.use_tpu:
            estimator = LocalEstimator(distribution.strategy_of(config), **arguments)
        else:
            estimator = tf.estimator.tpu.TPUEstimator(**arguments)
    slices.evaluate_on_all_hosts(estimator)
    return estimator


def arguments_of(
    config: Config,
    master: Optional[str],
    cluster: 'Optional[tf.distribute.cluster_resolver.ClusterResolver]' = None,
    class_names: Sequence[str] = (),
) -> Dict[str, Any]:
    """The arguments of a run's TPUEstimator; `class_names` are as for `make_estimator`.

    `master` is the address of the TPU worker, empty for this process, or None if a cluster looks up the address.
    """
    tpu = tf.estimator.tpu
    session_config = seeding.session_config(config)
    sums.set_cluster(session_config, config)
    with _tf_config_explained():
        run_config = tpu.RunConfig(
            cluster=cluster,
            master=master,
            model_dir=config.model_dir,
            save_checkpoints_secs=None,
            save_summary_steps=0,
            log_step_count_steps=config.save_summary_steps,
            session_config=session_config,
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
        # A TPUEstimator without a TPU gives the whole batch to its one replica.
        'train_batch_size': config.train_batch_size // (1 if config.use_tpu else config.replicas),
        'eval_batch_size': config.eval_batch_size // (1 if config.use_tpu else config.replicas),
        'export_to_tpu': False,
    }
