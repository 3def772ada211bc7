"""Begins a run from weights: decides about every variable, and assigns the values before step 0."""

import os
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

from compat import tf
from compat.log import logger
from compat.messages import listed, shown
from data.files import write_whole
from inception_v3 import replicas
from inception_v3.config import Config
from inception_v3.model_dir import absolute, differences
from inception_v3.weights.selection import HEAD, Patterns
from inception_v3.weights.sources import AVERAGE, Source, WeightsError

TABLE_FILE = 'init_from.tsv'
LOADED, NEW, UNUSED = 'loaded', 'left new', 'unused'
# The reason for the optimizer's slots and the step.
_OF_RUN = 'not of the network'
# Settings of the source's run that affect its images.
_OF_IMAGES = ('preprocessing', 'height', 'width', 'batch_norm', 'precision')


class Row(NamedTuple):
    """The fate of a variable of the run or of the source: `LOADED`, `NEW` for a reason, or `UNUSED`.

    A variable that is not new has a name in the source.
    """

    fate: str
    name: str
    source: str = ''
    reason: str = ''


class Beginning(NamedTuple):
    """The values with which a run begins, and a row for every variable of run and source."""

    values: Dict[str, np.ndarray]
    rows: List[Row]

    def of(self, fate: str) -> List[Row]:
        """The rows with a fate."""
        return [row for row in self.rows if row.fate == fate]


def plan(network: Dict[str, List[int]], others: Iterable[str], source: Source, config: Config) -> Beginning:
    """Decides with which of the source's values each variable of a run begins.

    If `init_averages` is set and the source has an average of a weight, the weight begins with it; otherwise with the
    source's weight, if there is one. The run's own average of the weight begins with the same value.

    `network` has the shapes of the network's variables by name, including moving statistics. `others` has the names of
    the run's other variables: averages, slots of the optimizer, the step.

    Raises:
      WeightsError: a variable of the network is missing in the source or has another shape there, without being
        excepted; or a value is not finite.
    """
    flag = f'--init_from={config.init_from}'
    excepted, head = Patterns(config.init_except), Patterns(HEAD)
    values: Dict[str, np.ndarray] = {}
    rows: Dict[str, Row] = {}
    problems: Dict[str, str] = {}
    for name, shape in sorted(network.items()):
        origin = _origin(name, source, config)
        value = source.values.get(origin)
        if excepted.match(name):
            rows[name] = Row(NEW, name, '', 'excepted')
        elif value is None:
            problems[name] = 'is missing'
        elif [*value.shape] != shape:
            if head.match(name) and [*value.shape[:-1]] == shape[:-1] and not excepted.names:
                rows[name] = Row(NEW, name, '', f'{[*value.shape]} in the source, {shape} here')
            else:
                problems[name] = f'has the shape {[*value.shape]}, not {shape}'
        elif value.dtype.kind != 'f':
            problems[name] = f'is of the type {value.dtype}, not float32'
        else:
            with np.errstate(over='ignore'):
                values[name] = value.astype(np.float32, copy=False)
            if not np.isfinite(values[name]).all():
                raise WeightsError(
                    f'{flag}: {origin} has values that are not finite. Name weights from before the training diverged.'
                )
            rows[name] = Row(LOADED, name, origin)
    if problems:
        texts = [f'{name} {problem}' for name, problem in problems.items()]
        raise WeightsError(
            f'{flag}: does not fit this run: {listed(texts)}. Give the flags of the run that wrote the weights (its '
            f'config.json), or name the scopes that begin anew, such as --init_except={HEAD}.'
        )
    for name in sorted(others):
        weight = name[: -len(AVERAGE)] if name.endswith(AVERAGE) else ''
        if weight in values:
            values[name] = values[weight]
            rows[name] = Row(LOADED, name, rows[weight].source)
        else:
            rows[name] = Row(NEW, name, '', 'average of a new variable' if weight else _OF_RUN)
    used = {row.source for row in rows.values()}
    unused = [Row(UNUSED, name, name) for name in sorted(source.values) if name not in used]
    return Beginning(values, [*rows.values(), *unused])


def _origin(name: str, source: Source, config: Config) -> str:
    """The name in the source for a variable of the run. A SavedModel may have only the averages."""
    has_average = name + AVERAGE in source.values
    return name + AVERAGE if has_average and (config.init_averages or name not in source.values) else name


def origin_of(source: Source, config: Config) -> Dict[str, Any]:
    """The origin of the weights that a run begins from, for the record of its start."""
    weights = [name[: -len(AVERAGE)] for name in source.values if name.endswith(AVERAGE)]
    is_average = any(_origin(name, source, config) != name for name in weights)
    origin = {'path': absolute(source.path), 'kind': source.kind, 'step': source.step}
    return {**origin, 'values': 'average' if is_average else 'raw', 'digest': source.digest}


def origin_text(beginning: Beginning, source: Source, config: Config) -> str:
    """The source, and whether its averages are used."""
    from_averages = any(row.source.endswith(AVERAGE) for row in beginning.of(LOADED))
    averages = 'averages of the weights' if from_averages else 'weights, not averages'
    if config.init_averages and not source.has_averages:
        averages = 'weights; it has no averages of them'
    return f'{source}: {averages}'


def account(beginning: Beginning) -> Dict[str, str]:
    """The numbers of variables by fate, and the names of the network's new variables, as texts."""
    loaded, new = beginning.of(LOADED), beginning.of(NEW)
    own = [row for row in loaded if not row.name.endswith(AVERAGE)]
    count = sum(beginning.values[row.name].size for row in own)
    texts = [f'{row.name} ({row.reason})' for row in new if row.reason != _OF_RUN and not row.name.endswith(AVERAGE)]
    averages, others = len(loaded) - len(own), len(new) - len(texts)
    if others:
        texts.append(f'{others} variables of optimizer, averages and step')
    return {
        LOADED: f'{len(own):,} variables of the network with {count:,} values'
        + (f', and {averages} averages' if averages else ''),
        NEW: ', '.join(texts) or 'none',
        UNUSED: f'{len(beginning.of(UNUSED))} variables of the source',
    }


def warnings_of(beginning: Beginning, source: Source, config: Config) -> List[str]:
    """Sentences about patterns of `--init_except` without a variable, and about other settings of the images."""
    patterns = Patterns(config.init_except).unmatched([row.name for row in beginning.rows])
    texts = [f'--init_except: no variable matches {shown(", ".join(patterns))}'] if patterns else []
    changed = (
        [each for each in differences(source.config, config) if each.split(':')[0] in _OF_IMAGES]
        if source.config
        else []
    )
    return texts + ([f'the run that wrote the weights had other settings: {"; ".join(changed)}'] if changed else [])


class BeginHook(tf.estimator.SessionRunHook):
    """Assigns a source's values to the variables of a session that has restored no checkpoint.

    This process sends the values, so that a TPU's worker need not reach the source. A run that is killed before its
    first checkpoint begins in the same way again.
    """

    def __init__(self, config: Config, source: Source, has_checkpoint: Callable[[], bool]):
        self._config = config
        self._source = source
        self._has_checkpoint = has_checkpoint
        self._beginning: Optional[Beginning] = None
        self._assignments: List[Tuple[tf.Variable, np.ndarray]] = []

    def begin(self) -> None:
        """Decides about every variable of the complete graph."""
        network = {v.op.name: v.shape.as_list() for v in tf.get_collection(tf.GraphKeys.MODEL_VARIABLES)}
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        beginning = plan(network, variables.keys() - network.keys(), self._source, self._config)
        self._assignments = [(variables[name], value) for name, value in beginning.values.items()]
        logger.info('beginning from %s', origin_text(beginning, self._source, self._config))
        for fate, text in account(beginning).items():
            logger.info(f'  {fate:<8}  {text}')
        for text in warnings_of(beginning, self._source, self._config):
            logger.info('warning: %s', text)
        self._beginning = beginning

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """Assigns the values, and writes the table of all variables into model_dir."""
        assert self._beginning is not None, 'begin() comes first'
        if self._has_checkpoint():
            return
        # The initializers exist already; new operations would have to be placed on the variables' devices. There is one
        # call for all, because a session prepares its graph anew for each call.
        initializers = [
            (copy.initializer, value) for variable, value in self._assignments for copy in replicas.copies(variable)
        ]
        session.run(
            [initializer for initializer, _ in initializers], {each.inputs[1]: value for each, value in initializers}
        )
        path = os.path.join(str(self._config.model_dir), TABLE_FILE)
        lines = ['\t'.join(Row._fields), *('\t'.join(row) for row in self._beginning.rows)]
        write_whole(path, '\n'.join(lines) + '\n')
        logger.info('  each variable: %s', path)
