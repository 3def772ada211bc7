"""The results of the study: their data, the rows that compare plain and reversible training, and their JSON."""

from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional

from benchmarks.comparison import Spread, spread
from console import json_content
from inception_v3.config import ConfigError
from inception_v3.run import source
from studies.revnet_memory.measurement import Largest, Measurement
from studies.revnet_memory.training import Training

# Additional time of a step, as published for another TensorFlow program of RevNet (not by Gomez et al., the paper).
PUBLISHED_OVERHEAD = 0.25


class Search(NamedTuple):
    """A search for the largest batch.

    Attributes:
      memory_mb: memory limit of the process, in MB.
      units: blocks in each stage.
      is_reversible: whether activations are rebuilt (reversible) or kept (plain).
    """

    memory_mb: float
    units: int
    is_reversible: bool


@dataclass
class Results:
    """All measurements.

    Attributes:
      network: the network whose depth is varied.
      size: height and width of the images, in pixels.
      measured: the measurement of each training.
      largest: the result of each search.
      failed: the measurements that failed, in words, with the reason.
    """

    network: str
    size: int
    measured: Dict[Training, Measurement] = field(default_factory=dict)
    largest: Dict[Search, Largest] = field(default_factory=dict)
    failed: Dict[str, str] = field(default_factory=dict)


class Row(NamedTuple):
    """Plain and reversible training of the same network.

    Attributes:
      batch_size: images in a step.
      units: blocks in each stage.
      plain: with activations kept; None if the measurement failed.
      reversible: with activations rebuilt; None if the measurement failed.
      overhead: CPU time of a reversible step over that of a plain step in the same round, minus 1.
    """

    batch_size: int
    units: int
    plain: Optional[Measurement]
    reversible: Optional[Measurement]
    overhead: Optional[Spread]


class Slope(NamedTuple):
    """Memory per additional block in each stage, in MB, between the smallest and the largest depth."""

    step_mb: float
    held_mb: float


def rows_of(results: Results) -> List[Row]:
    """The rows, sorted by batch size and depth."""
    rows = []
    for batch_size, units in sorted({(training.batch_size, training.units) for training in results.measured}):
        plain, reversible = (
            results.measured.get(Training(results.network, units, batch_size, results.size, is_reversible))
            for is_reversible in (False, True)
        )
        overhead = None
        if plain and reversible:
            overhead = spread([one / other - 1 for one, other in zip(reversible.cpu_seconds, plain.cpu_seconds)])
        rows.append(Row(batch_size, units, plain, reversible, overhead))
    return rows


def slope_of(of_depth: Dict[int, Optional[Measurement]]) -> Optional[Slope]:
    """The slope of memory over depth; None with fewer than two depths.

    Args:
      of_depth: measurements by blocks in each stage.
    """
    known = sorted((depth, measurement) for depth, measurement in of_depth.items() if measurement)
    if len(known) < 2:
        return None
    (least, shallow), (greatest, deep) = known[0], known[-1]
    return Slope(*((getattr(deep, name) - getattr(shallow, name)) / (greatest - least) for name in Slope._fields))


def to_dict(found: Results, settings: Dict[str, Any]) -> Dict[str, Any]:
    """The results for JSON; `from_json` reads them back."""
    return {
        'settings': settings,
        'published_overhead': PUBLISHED_OVERHEAD,
        'measurements': [
            {**training._asdict(), **measurement._asdict()} for training, measurement in found.measured.items()
        ],
        'largest': [
            {**search._asdict(), **largest._asdict(), 'tries': [*largest.tries.items()]}
            for search, largest in found.largest.items()
        ],
        'failed': found.failed,
        'versions': source.versions(),
    }


def from_json(text: str, settings: Dict[str, Any]) -> Results:
    """Reads results back, without those that failed, so that they are measured again.

    Args:
      text: the JSON of `to_dict`.
      settings: the current settings.

    Raises:
      ConfigError: the text is not JSON of this study, or its settings differ from the current ones.
    """
    found = Results(settings['network'], settings['size'])

    def read(content: Any) -> Dict[str, Any]:
        before = {name: content['settings'][name] for name in settings}
        for each in content['measurements']:
            training = Training(*(each[name] for name in Training._fields))
            found.measured[training] = Measurement(*(each[name] for name in Measurement._fields))
        for each in content['largest']:
            search = Search(*(each[name] for name in Search._fields))
            found.largest[search] = Largest(each['fits'], each['too_many'], dict(each['tries']))
        return before

    try:
        before = json_content.from_json(text, read)
    except ValueError:
        raise ConfigError('this study did not write the file')
    for name, value in settings.items():
        if before[name] != value:
            raise ConfigError(f'{name} was {before[name]}, and is {value} now')
    return found
