"""The training step of a fine-tuned network: its frozen variables, and the learning rate of its classifiers."""

from typing import Any, Callable, List, Tuple

from compat import tf
from compat.messages import shown
from inception_v3 import replicas
from inception_v3.config import Config, ConfigError
from inception_v3.weights.selection import HEAD, Patterns, scopes_of


class FineTuning:
    """Creates a network's variables for `--freeze` and `--head_learning_rate`, and keeps a list of them.

    It uses the names that the network gives its variables: in the graph, the variables of a second emulated core have
    other names. All of the network's variables are in the collection MODEL_VARIABLES. A frozen weight does not train,
    and has no weight decay.

    Args:
      config: the run's configuration.
      create: the getter that creates the variables, as for `tf.variable_scope`.

    Attributes:
      frozen: the weights that would train without `--freeze`.
    """

    def __init__(self, config: Config, create: Callable):
        self._config = config
        self._create = create
        self._frozen, self._head = Patterns(config.freeze), Patterns(HEAD)
        self._names: List[str] = []
        self._names_of_head: List[str] = []
        self.frozen: List[tf.Variable] = []

    def get(self, getter: Callable, name: str, *arguments: Any, **options: Any) -> tf.Variable:
        """Creates or finds a variable; the custom getter of the network's `tf.variable_scope`."""
        is_frozen = options.get('trainable') is not False and self._frozen.match(name)
        if is_frozen:
            collections = [each for each in options.get('collections') or () if each != tf.GraphKeys.WEIGHTS]
            options = {**options, 'trainable': False, 'collections': collections or None}
        variable = self._create(getter, name, *arguments, **options)
        # Dropout with a seed reads the global step. A reversible block gets its variables again.
        if name in self._names or name == tf.GraphKeys.GLOBAL_STEP:
            return variable
        self._names.append(name)
        # Each replica gets the same variable.
        if not any(each is variable for each in tf.get_collection_ref(tf.GraphKeys.MODEL_VARIABLES)):
            tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, variable)
        if is_frozen:
            self.frozen.append(variable)
        if self._head.match(name):
            self._names_of_head.append(variable.name)
        return variable

    def has_fixed_statistics(self, layer: str) -> bool:
        """Whether the batch normalization of this name is frozen, so that it normalizes with its moving statistics."""
        return self._config.freeze_batch_norm and self._frozen.match(f'{layer}/moving_mean')

    def check(self) -> None:
        """Checks the patterns of `--freeze`, when the network is built.

        Raises:
          ConfigError: a pattern matches no variable of the network, or nothing is left to train.
        """
        flag = f'--freeze={shown(self._config.freeze)}'
        unmatched = self._frozen.unmatched(self._names)
        if unmatched:
            raise ConfigError(
                f'{flag}: no variable of the network matches {shown(", ".join(unmatched))}. There are '
                f'{", ".join(scopes_of(self._names))}. Names and shell patterns of these are allowed, separated '
                'by commas.'
            )
        if self._frozen.names and not tf.trainable_variables():
            raise ConfigError(f'{flag}: matches all weights of the network; none is left to train.')

    def optimizer(self, make: Callable[[tf.Tensor, Config], tf.train.Optimizer], rate: tf.Tensor) -> tf.train.Optimizer:
        """Makes the optimizer of a network whose classifiers may have a learning rate of their own.

        `make` makes an optimizer from a learning rate, a float32 scalar; `rate` is the rate of the other layers.
        """
        config = self._config
        if config.head_learning_rate is None:
            return make(rate, config)
        # The schedule's factors are the same for both rates.
        head_rate = rate * (config.head_learning_rate / config.learning_rate)
        return _TwoRates(make(rate, config), make(head_rate, config), self._names_of_head)


class _TwoRates(tf.train.Optimizer):
    """Two optimizers of the same kind: one for the classifiers of the network, one for its other layers."""

    def __init__(self, body: tf.train.Optimizer, head: tf.train.Optimizer, names_of_head: List[str]):
        super().__init__(use_locking=False, name='TwoRates')
        self._body = body
        self._head = head
        self._names_of_head = {*names_of_head}

    def compute_gradients(self, *arguments: Any, **options: Any) -> List[Tuple[tf.Tensor, tf.Variable]]:
        """Like `tf.train.Optimizer.compute_gradients`."""
        return self._body.compute_gradients(*arguments, **options)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> tf.Operation:
        """Like `tf.train.Optimizer.apply_gradients`."""
        pairs = [*grads_and_vars]
        updates = []
        for optimizer, of_head in ((self._body, False), (self._head, True)):
            own = [pair for pair in pairs if (pair[1].name in self._names_of_head) == of_head]
            # An optimizer refuses variables without any gradient, for example if all of them are frozen.
            if any(gradient is not None for gradient, _ in own):
                updates.append(optimizer.apply_gradients(own))
        if global_step is None:
            return tf.group(*updates, name=name)
        with tf.control_dependencies(updates):
            return replicas.add_one(global_step, name)
