"""A TPUEstimator for this machine's CPU or GPUs, which builds each of its graphs once.

TPUEstimator builds a graph and a session in every call of `train` and `evaluate`, which takes as long as a hundred
training steps of a small network. On a TPU it must: each session begins by initializing the TPU, which discards the
state of other sessions, and ends by shutting it down (`TPUInfeedOutfeedSessionHook` in tpu_estimator.py).
"""

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from compat import tf
from inception_v3 import replicas
from inception_v3.machines import sums


class ReplicatedEstimator(tf.estimator.tpu.TPUEstimator):
    """A TPUEstimator without a TPU. If a strategy is given, it builds the graphs of training and evaluation.

    The strategy stays out of `RunConfig`, which would read TF_CONFIG for it and copy it for every replica. Batch sizes
    are per replica.
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
        # An input with a seed begins at the global step, but with a strategy, Estimator creates the step only later.
        # With a strategy, Estimator also passes a context, which TPUEstimator does not expect.
        self._create_global_step(tf.get_default_graph())
        # By default, a session checks twice whether each copy of each variable is initialized. All are: the session
        # begins with the initializer, or restores them.
        for key in (tf.GraphKeys.READY_OP, tf.GraphKeys.READY_FOR_LOCAL_INIT_OP):
            tf.add_to_collection(key, tf.constant([], tf.string))
        if replicas.are_several():
            tf.add_to_collection(tf.GraphKeys.SAVERS, replicas.Saver())
        return super()._call_input_fn(input_fn, mode)

    # For replicas, TensorFlow 2 would convert this method by AutoGraph, which costs time and hides the type of errors.
    @tf.autograph.experimental.do_not_convert
    def _call_model_fn(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_model_fn(*args, **kwargs)

    def _train_model_distributed(self, input_fn: Callable[..., Any], hooks: List[Any], saving_listeners: Any) -> Any:
        strategy = self._train_distribution
        assert strategy, 'Estimator calls this with a strategy alone'
        strategy.configure(self._session_config)
        return self._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)


class _Session(tf.train.SessionCreator):
    """A session that hooks can use several times.

    When it is created, it restores the newest checkpoint in `checkpoint_dir`, if there is one; or, before each use,
    `checkpoint`. `master` returns the address of the session's server; empty for this process.
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
        """Creates the session on the first call; later calls restore `checkpoint`. Called by MonitoredSession."""
        if self._session is None:
            if not self._scaffold.init_op:
                # If a session fails to start, another is created in the same graph.
                tf.add_to_collection(tf.GraphKeys.INIT_OP, replicas.initializer())
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
            # Resets the sums of the metrics.
            self._session.run(self._scaffold.local_init_op)
        return self._session

    def close(self) -> None:
        """Closes the session."""
        self._close()


class _BegunOnce(tf.estimator.SessionRunHook):
    """A hook whose `begin`, which may add operations, runs in the graph's first use only: then the graph is final."""

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

    The hooks run at each use of the graph, such as the hook of its host call.
    """

    graph: tf.Graph
    session: _Session
    hooks: List[tf.estimator.SessionRunHook]
    step: tf.Operation
    metrics: Optional[Dict[str, tf.Tensor]] = None
    strategy: Optional[tf.distribute.Strategy] = None

    def run(self, hooks: List[tf.estimator.SessionRunHook]) -> None:
        """Runs steps until the input ends or a hook requests a stop."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.graph.as_default())
            if self.strategy:
                # In the scope, a variable's name and value are those of its first copy.
                stack.enter_context(self.strategy.scope())
            session = stack.enter_context(tf.train.MonitoredSession(self.session, [*self.hooks, *hooks]))
            while not session.should_stop():
                session.run(self.step)


class LocalEstimator(ReplicatedEstimator):
    """A TPUEstimator without a TPU that keeps its graphs and sessions of training and evaluation until `release`.

    `train` continues with the weights and the input of its previous call, which must have saved the weights. `evaluate`
    restores its checkpoint. Each of the two uses the input function of its first call in all later calls. Hooks save
    checkpoints, write summaries and check the loss.
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
        """As `TPUEstimator.export_saved_model`, after releasing the memory of training and evaluation."""
        self.release()
        return super().export_saved_model(*args, **kwargs)

    def _master(self) -> str:
        # A server begins to listen when the first session begins.
        strategy = self._train_distribution
        return strategy.server(self._session_config) if isinstance(strategy, sums.AcrossMachines) else ''

    def _train_model_default(self, input_fn: Callable[..., Any], hooks: List[Any], saving_listeners: Any) -> Any:
        if not self._training:
            # Builds the graph, and calls `_train_with_estimator_spec` in it.
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
        # Only the first run has the hooks that start the input: TensorFlow keeps megabytes per start until the session
        # is closed.
        return self._training.run([*worker_hooks, *hooks])

    def _evaluate_build_graph(
        self, input_fn: Callable[..., Any], hooks: Sequence[Any] = (), checkpoint_path: Optional[str] = None
    ) -> Any:
        if not self._evaluation:
            scaffold, update_op, metrics, own_hooks = super()._evaluate_build_graph(input_fn, [], checkpoint_path)
            config = tf.ConfigProto()
            config.CopyFrom(self._session_config)
            # Rewriting the graph makes an evaluation 3 to 8 % faster, but not a training step.
            config.graph_options.rewrite_options.disable_meta_optimizer = False
            session = _Session(scaffold, config, self._master)
            own_hooks = [_BegunOnce(hook) for hook in own_hooks]
            graph = tf.get_default_graph()
            self._evaluation = _Graph(graph, session, own_hooks, update_op, metrics, self._eval_distribution)
        # Estimator passes these values to `_evaluate_run`; only the hooks are new in each evaluation.
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
