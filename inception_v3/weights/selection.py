"""Selects variables of a network by name, as in `--freeze` and `--init_except`; marks them when they are created."""

import fnmatch
from typing import Any, Callable, Iterable, List

from console.messages import shown
from console.tensorflow_versions import tf
from inception_v3.config import Config, ConfigError

# The classifiers of all networks. Their shapes follow from the number of classes.
HEAD = 'Logits,AuxLogits'
# Collections of the graph of a training step: the weights that would train without `--freeze`, and the classifiers'.
FROZEN = 'frozen_variables'
_HEAD = 'head_variables'


class Patterns:
    """A list of patterns, separated by commas.

    A pattern is a name or a shell pattern of the outer scopes of a variable, separated by slashes, with or without the
    scope of the network: `Mixed_5b`, `InceptionV3/Mixed_5b`, `Mixed_[56]*` or `Mixed_5b/Branch_0`. It matches all
    variables in these scopes. `*` matches no slash. Upper and lower case are the same.
    """

    def __init__(self, text: str):
        self.names = [name.strip() for name in text.split(',')] if text.strip() else []

    def match(self, variable: str) -> bool:
        """Whether a pattern matches the name of a variable."""
        return any(_matches(name, variable) for name in self.names)

    def unmatched(self, variables: Iterable[str]) -> List[str]:
        """The patterns that match none of the variables."""
        known = [*variables]
        return [name for name in self.names if not any(_matches(name, variable) for variable in known)]


# Matches no variable.
NOTHING = Patterns('')


def _matches(pattern: str, variable: str) -> bool:
    wanted, scopes = pattern.lower().strip('/').split('/'), variable.lower().split('/')
    return any(
        len(outer) >= len(wanted) and all(fnmatch.fnmatchcase(scope, part) for scope, part in zip(outer, wanted))
        for outer in (scopes, scopes[1:])
    )


def scopes_of(variables: Iterable[str]) -> List[str]:
    """The two outer scopes of each variable, once each, in the order of the variables."""
    return [*dict.fromkeys('/'.join(name.split('/')[:-1][:2]) or name for name in variables)]


class Selection:
    """Marks the variables that a network creates, by collections of the graph.

    It goes by the names that the network gives to them: in the graph, those of a second emulated core are others. All
    of the network's variables are put into the collection MODEL_VARIABLES, and frozen ones are made not trainable.
    """

    def __init__(self, config: Config):
        self._text = config.freeze
        self._frozen, self._head = Patterns(config.freeze), Patterns(HEAD)
        self._names: List[str] = []

    def get(self, getter: Callable, name: str, *arguments: Any, **options: Any) -> tf.Variable:
        """Creates or finds a variable; the custom getter of the network's `tf.variable_scope`."""
        is_weight = options.get('trainable') is not False
        if is_weight and self._frozen.match(name):
            options['trainable'] = False
        variable = getter(name, *arguments, **options)
        # Dropout with a seed reads the global step. A reversible block gets its variables again.
        if name in self._names or name == tf.GraphKeys.GLOBAL_STEP:
            return variable
        self._names.append(name)
        _add(tf.GraphKeys.MODEL_VARIABLES, variable)
        if is_weight and self._frozen.match(name):
            _add(FROZEN, variable)
        if self._head.match(name):
            _add(_HEAD, variable)
        return variable

    def check(self) -> None:
        """Checks the patterns of `--freeze`, when the network is built.

        Raises:
          ConfigError: a pattern matches no variable of the network, or nothing is left to train.
        """
        flag = f'--freeze={shown(self._text)}'
        unmatched = self._frozen.unmatched(self._names)
        if unmatched:
            raise ConfigError(
                f'{flag}: no variable of the network matches {shown(", ".join(unmatched))}. There are '
                f'{", ".join(scopes_of(self._names))}. Names and shell patterns of these are allowed, separated '
                'by commas.'
            )
        if self._frozen.names and not tf.trainable_variables():
            raise ConfigError(f'{flag}: matches all weights of the network; none is left to train.')


def _add(collection: str, variable: tf.Variable) -> None:
    """Adds a variable to a collection once; each replica gets it."""
    if not any(each is variable for each in tf.get_collection_ref(collection)):
        tf.add_to_collection(collection, variable)


def without_frozen(variables: List[tf.Variable]) -> List[tf.Variable]:
    """The variables that are not frozen."""
    frozen = {variable.name for variable in tf.get_collection(FROZEN)}
    return [variable for variable in variables if variable.name not in frozen]


def is_head(variable: tf.Variable) -> bool:
    """Whether a variable of the current graph belongs to a classifier of its network."""
    return variable.name in {each.name for each in tf.get_collection(_HEAD)}
