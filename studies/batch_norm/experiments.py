"""All experiments of the study of batch normalization, and their results."""

from typing import Any, Dict, List, NamedTuple

from studies.batch_norm.comparison import Comparison, Recovery, compare, made_unequal, normal_rows, recover
from studies.batch_norm.decay import Decay, compare_decays
from studies.batch_norm.layer import DECAY
from studies.batch_norm.readings import Reading, readings


class Settings(NamedTuple):
    """The size of the experiments.

    Attributes:
      steps: training batches of the published experiment.
      draws: repetitions of that experiment in NumPy, which show its random variation.
      response_steps: steps of the response to constant rows.
      noise_steps: steps on noisy rows.
      noise_channels: channels of the noisy rows.
      seed: seed of all draws.
    """

    steps: int = 100
    draws: int = 20
    response_steps: int = 400
    noise_steps: int = 200
    noise_channels: int = 1024
    seed: int = 0


class Results(NamedTuple):
    """The results of the study.

    Attributes:
      settings: the size of the experiments.
      equal: the published experiment.
      unequal: the same experiment with rows of mean r on replica r.
      readings: the experiment by its equations, for several decays, with biased and unbiased variance.
      recovery: the recovered variance of the first batch, with equal and with unequal replicas.
      decay: the decay of one replica in eight.
    """

    settings: Settings
    equal: Comparison
    unequal: Comparison
    readings: List[Reading]
    recovery: Dict[str, Recovery]
    decay: Decay


def measure(settings: Settings) -> Results:
    """Runs all experiments; the same settings give the same numbers."""
    equal = normal_rows(settings.steps + 1, settings.seed)
    unequal = made_unequal(equal)
    return Results(
        settings,
        compare(equal),
        compare(unequal),
        readings((0.9, DECAY, 0.999), settings.steps, range(settings.seed, settings.seed + settings.draws)),
        {'equal': recover(equal[0]), 'unequal': recover(unequal[0])},
        compare_decays(settings.response_steps, settings.noise_steps, settings.noise_channels, settings.seed),
    )


def as_dict(value: Any) -> Any:
    """Results, or any part of them, for JSON: named tuples become objects."""
    if isinstance(value, tuple) and hasattr(value, '_asdict'):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: as_dict(part) for key, part in value.items()}
    return [as_dict(part) for part in value] if isinstance(value, list) else value
