"""The TPUEstimator of a run, and that of the CPU or a GPU of this machine, which builds each of its graphs once.

TPUEstimator builds a graph and a session in every call of `train` and `evaluate`, which takes as long as a hundred
training steps of a small network. On a TPU it must: each session begins by initializing the TPU, which discards what
another session holds there, and ends by shutting it down (`TPUInfeedOutfeedSessionHook` in tpu_estimator.py).
"""

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from compat import tf
from compat.messages import shown
from inception_v3 import distribution, seeding
from inception_v3.config import Config, ConfigError
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


def make_estimator(
    config: Config, class_names: Sequence[str] = (), writes: bool = True
) -> tf.estimator.tpu.TPUEstimator:
    """Builds the estimator. It connects to no TPU, and reads no file, until it is used.

    Printed predictions and exports have the class names by label, or numbers only. Without `writes`, hooks save the
    checkpoints and write the summaries, instead of TensorFlow.

    Raises:
      ConfigError: no model_dir is given; the run needs a GPU, and none is visible; or it needs a TPU, and no TPU is
        given, or it cannot reach the run's folders.
      CommandError: the run's TPU is not there, or its address cannot be looked up.
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
            from inception_v3.tpu.emulation import EmulatedTPUEstimator

            estimator = EmulatedTPUEstimator(topology.emulated(str(config.tpu)), **arguments)
        elif not config.use_tpu:
            kind = ReplicatedEstimator if writes else LocalEstimator
            estimator = kind(distribution.strategy_of(config), **arguments)
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
    """The arguments of a run's TPUEstimator; `class_names` and `writes` are as for `make_estimator`.

    `master` is the address of the TPU worker, empty for this process; or it is None, and a cluster looks it up.
    """
    tpu = tf.estimator.tpu
    session_config = seeding.session_config(config)
    sums.set_cluster(session_config, config)
    with _tf_config_explained():
        run_config = tpu.RunConfig(
            cluster=cluster,
            master=master,
            model_dir=config.model_dir,
            save_checkpoints_secs=config.save_checkpoints_secs if writes else None,
            # A host call writes the same values at the same steps.
            save_summary_steps=config.save_summary_steps if writes and config.skip_host_call else 0,
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


class ReplicatedEstimator(tf.estimator.tpu.TPUEstimator):
    """A TPUEstimator without a TPU, whose graphs a strategy builds, if one is given: those of training and evaluation.

    The strategy stays out of `RunConfig`, which would read TF_CONFIG for it and copy it for every replica. The batch
    sizes are those of one replica.
    """

    def __init__(self, strategy: Optional[tf.distribute.Strategy] = None, **arguments: Any):
        super().__init__(**arguments)
        self._train_distribution = self._eval_distribution = strategy

    @staticmethod
    def _assert_members_are_not_overridden(estimator: Any) -> None:
        """Allows this subclass to override methods of Estimator."""

    def _create_global_step(self, graph: tf.Graph) -> tf.Variable:
        step = tf.train.get_global_step(graph)
        return super()._create_global_step(graph) if step is None else step

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str, *input_context: Any) -> Any:
        # An input with a seed begins at the global step, which Estimator creates later if there is a strategy. It then
        # passes a context, which TPUEstimator does not expect.
        self._create_global_step(tf.get_default_graph())
        return super()._call_input_fn(input_fn, mode)

    def _train_model_distributed(self, input_fn: Callable[..., Any], hooks: List[Any], saving_listeners: Any) -> Any:
        strategy = self._train_distribution
        assert strategy, 'Estimator calls this with a strategy alone'
        strategy.configure(self._session_config)
        return self._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)


class _Session(tf.train.SessionCreator):
    """A session that hooks can begin to use several times.

    In the beginning, it restores the newest checkpoint in `checkpoint_dir`, if there is one; or each time `checkpoint`.
    `master` gives the server of the session; empty for this process alone.
    """

    def __init__(
        self,
        scaffold: Optional[tf.train.Scaffold],
        config: Any,
        master: Callable[[], str],
        checkpoint_dir: Optional[str] = None,
    ):
        self._scaffold = scaffold or tf.train.Scaffold()
        self._config = config
        self._master = master
        self._checkpoint_dir = checkpoint_dir
        self._session: Optional[tf.Session] = None
        self._close: Callable[[], None] = lambda: None
        self.checkpoint: Optional[str] = None

    def create_session(self) -> tf.Session:
        """Creates the session the first time, and restores it at other times; called by MonitoredSession."""
        if self._session is None:
            session = tf.train.ChiefSessionCreator(
                self._scaffold,
                master=self._master(),
                config=self._config,
                checkpoint_dir=self._checkpoint_dir,
                checkpoint_filename_with_path=self.checkpoint,
            ).create_session()
            # MonitoredSession closes its session after the last step.
            self._close, session.close = session.close, lambda: None
            self._session = session
        elif self.checkpoint:
            self._scaffold.saver.restore(self._session, self.checkpoint)
            # The sums of the metrics begin again.
            self._session.run(self._scaffold.local_init_op)
        return self._session

    def close(self) -> None:
        """Closes the session."""
        self._close()


class _BegunOnce(tf.estimator.SessionRunHook):
    """A hook that may add operations to the graph only in its first use, after which the graph is final."""

    def __init__(self, hook: tf.estimator.SessionRunHook):
        self._hook = hook
        self._has_begun = False
        self.after_create_session = hook.after_create_session
        self.before_run = hook.before_run
        self.after_run = hook.after_run
        self.end = hook.end

    def begin(self) -> None:
        """Begins the hook the first time."""
        if not self._has_begun:
            self._hook.begin()
        self._has_begun = True


class _Graph(NamedTuple):
    """A graph with its session, the operation of a step, and the metrics to read after the last step.

    The hooks are for each use of the graph, such as that of its host call.
    """

    graph: tf.Graph
    session: _Session
    hooks: List[tf.estimator.SessionRunHook]
    step: tf.Operation
    metrics: Optional[Dict[str, tf.Tensor]] = None
    strategy: Optional[tf.distribute.Strategy] = None

    def run(self, hooks: List[tf.estimator.SessionRunHook]) -> None:
        """Performs steps until the input ends or a hook requests a stop."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.graph.as_default())
            if self.strategy:
                # Names and values of variables are those of their first copies.
                stack.enter_context(self.strategy.scope())
            session = stack.enter_context(tf.train.MonitoredSession(self.session, [*self.hooks, *hooks]))
            while not session.should_stop():
                session.run(self.step)


class LocalEstimator(ReplicatedEstimator):
    """A TPUEstimator without a TPU, whose graphs and sessions of training and of evaluation live until `release`.

    A call of `train` continues with the weights and the input of the call before, which must have saved the weights. A
    call of `evaluate` restores its checkpoint. The input function of the first call of each serves all later ones.
    Saving, summaries and the check of the loss are up to the hooks.
    """

    def __init__(self, strategy: Optional[tf.distribute.Strategy] = None, **arguments: Any):
        self._training: Optional[_Graph] = None
        self._evaluation: Optional[_Graph] = None
        super().__init__(strategy, **arguments)

    def release(self) -> None:
        """Closes the sessions, and frees the memory of the graphs."""
        for kept in (self._training, self._evaluation):
            if kept:
                kept.session.close()
        self._training = self._evaluation = None

    def export_saved_model(self, *args: Any, **kwargs: Any) -> bytes:
        """As `TPUEstimator.export_saved_model`, in the memory of training and evaluation, which are released."""
        self.release()
        return super().export_saved_model(*args, **kwargs)

    def _master(self) -> str:
        # A server begins to listen when the first session begins.
        strategy = self._train_distribution
        return strategy.server(self._session_config) if isinstance(strategy, sums.AcrossMachines) else ''

    def _train_model_default(self, input_fn: Callable[..., Any], hooks: List[Any], saving_listeners: Any) -> Any:
        if not self._training:
            # Builds the graph, in which it calls the method below.
            return super()._train_model_default(input_fn, hooks, saving_listeners)
        return self._training.run(hooks)

    def _train_model_distributed(self, input_fn: Callable[..., Any], hooks: List[Any], saving_listeners: Any) -> Any:
        if not self._training:
            return super()._train_model_distributed(input_fn, hooks, saving_listeners)
        return self._training.run(hooks)

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: Sequence[Any], hooks: List[Any], *unused: Any
    ) -> Any:
        # Hooks look for the training loss here.
        tf.add_to_collection(tf.GraphKeys.LOSSES, estimator_spec.loss)
        session = _Session(estimator_spec.scaffold, self._session_config, self._master, self.model_dir)
        self._training = _Graph(
            tf.get_default_graph(),
            session,
            [*estimator_spec.training_hooks],
            estimator_spec.train_op,
            strategy=self._train_distribution,
        )
        # The hooks of the input start it: TensorFlow keeps megabytes of each start until the session is closed.
        return self._training.run([*worker_hooks, *hooks])

    def _evaluate_build_graph(
        self, input_fn: Callable[..., Any], hooks: Sequence[Any] = (), checkpoint_path: Optional[str] = None
    ) -> Any:
        if not self._evaluation:
            scaffold, update_op, metrics, own_hooks = super()._evaluate_build_graph(input_fn, [], checkpoint_path)
            config = tf.ConfigProto()
            config.CopyFrom(self._session_config)
            # Unlike a training step, an evaluation becomes faster, by 3 to 8 %.
            config.graph_options.rewrite_options.disable_meta_optimizer = False
            session = _Session(scaffold, config, self._master)
            own_hooks = [_BegunOnce(hook) for hook in own_hooks]
            graph = tf.get_default_graph()
            self._evaluation = _Graph(graph, session, own_hooks, update_op, metrics, self._eval_distribution)
        # Estimator hands these on to the method below; only the hooks are new in each evaluation.
        return None, None, None, hooks

    def _evaluate_run(
        self, checkpoint_path: str, scaffold: Any, update_op: Any, eval_dict: Any, all_hooks: List[Any], output_dir: str
    ) -> Dict[str, Any]:
        evaluation = self._evaluation
        assert evaluation, '_evaluate_build_graph comes first'
        evaluation.session.checkpoint = checkpoint_path
        final = tf.train.FinalOpsHook(evaluation.metrics)
        evaluation.run([*all_hooks, final])
        return final.final_ops_values
