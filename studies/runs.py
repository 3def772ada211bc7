"""Runs as a report sees them: what each has left in its model_dir, and the cases that they are repetitions of."""

import os
import re
import shlex
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import tensorflow as tf
from dataclasses import dataclass

from data import remote
from inception_v3 import results, starts
from inception_v3.config import Config
from inception_v3.results import Evaluation
from inception_v3.starts import Start


@dataclass(frozen=True)
class TrainingPoint:
    """What the training summaries tell of a step.

    Attributes:
      step: the global step.
      loss: of the training, weight decay included.
      learning_rate: None if it is left out of the summaries (--skip_host_call).
      images_per_second: of the steps since the point before; None where that is not told.
    """

    step: int
    loss: float
    learning_rate: Optional[float] = None
    images_per_second: Optional[float] = None


@dataclass(frozen=True)
class Run:
    """A run, as far as its model_dir tells.

    Attributes:
      name: what it is called in a report.
      model_dir: the folder.
      command: the command line of the last start of training; None before there is one.
      seed: of the configuration; None if there is none.
      config: of the last start of training; None before there is one, or if it cannot be read.
      evaluations: a step's last one, in the order of the steps; those with other settings than the training's are left
        out.
      training: in the order of the steps.
      environment: by name: versions, revision, host, data.
      failure: why it failed; None if it did not.
    """

    name: str
    model_dir: str
    command: Optional[str]
    seed: Optional[int]
    config: Optional[Config]
    evaluations: Tuple[Evaluation, ...]
    training: Tuple[TrainingPoint, ...]
    environment: Mapping[str, str]
    failure: Optional[str] = None


@dataclass(frozen=True)
class Case:
    """Runs that differ by their seeds alone.

    Attributes:
      name: unique in a comparison.
      settings: the flags that make it another case, as written on a command line.
      runs: a run per seed; those that have not begun are there too.
    """

    name: str
    settings: Mapping[str, str]
    runs: Tuple[Run, ...]


@dataclass(frozen=True)
class Comparison:
    """What a report is of.

    Attributes:
      title: a few words.
      question: what the comparison is to answer, one sentence or more; may be empty.
      cases: in the order in which they are shown.
      notes: what else a reader is to know, such as the cost: a sentence each.
    """

    title: str
    question: str
    cases: Tuple[Case, ...]
    notes: Tuple[str, ...] = ()
