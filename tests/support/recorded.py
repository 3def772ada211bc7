"""Runs without training: their files, written by the program's own functions, and their values in a report."""

import dataclasses
import os
from typing import Any, Mapping, Optional, Sequence

from compat import tf
from data.dataset_info import DatasetInfo
from data.files import append_line, write_whole
from inception_v3.config import Config
from inception_v3.model_dir import CONFIG_FILE
from inception_v3.run.evaluations import Evaluation, append_evaluation
from inception_v3.run.starts import STARTS_FILE, append_start, this_start, write_config
from tools.studies.report.runs import Case, Run, TrainingPoint

OF_300_STEPS = Config(train_steps=300)


def evaluation(step: int, top_1: float, **changes: Any) -> Evaluation:
    """An evaluation of a step; top-5 and cross-entropy are computed from its top-1."""
    return Evaluation(
        step=step,
        checkpoint=f'model.ckpt-{step}',
        weights='average',
        top_1=top_1,
        top_5=0.5 + top_1 / 2,
        cross_entropy=4 - 3 * top_1,
        images=359,
        seconds=1.5,
        time='2026-01-02T03:04:05+00:00',
    )._replace(**changes)


def run(
    name: str,
    top_1: Sequence[float],
    seed: int = 1,
    config: Config = OF_300_STEPS,
    losses: Optional[Sequence[float]] = None,
    **changes: Any,
) -> Run:
    """A run of a report, with an evaluation every 100 steps, and a loss every 10 steps at 101, 102, … images/s."""
    points = [
        TrainingPoint(10 * index, loss, 100.0 + index if index else None)
        for index, loss in enumerate(losses if losses is not None else [3 - 0.05 * index for index in range(30)])
    ]
    values: Mapping[str, Any] = {
        'name': name,
        'command': f'python -m inception_v3.main --model_dir=/runs/{name} --seed={seed}',
        'config': dataclasses.replace(config, seed=seed),
        'evaluations': tuple(evaluation(100 * index, value) for index, value in enumerate(top_1, start=1)),
        'training': tuple(points),
        'environment': {'tensorflow': '1.15.5', 'directory': '/work'},
        **changes,
    }
    return Run(**values)


def case(name: str, finals: Sequence[float], **changes: Any) -> Case:
    """A case of a report, with one run per final top-1 accuracy."""
    runs = [
        run(f'{name}/seed-{seed}', [0.1, final / 2, final], seed, **changes) for seed, final in enumerate(finals, 1)
    ]
    return Case(name, {'optimizer': name}, tuple(runs))


def write(model_dir: str, config: Config, evaluations: Sequence[Evaluation]) -> None:
    """Writes config.json, starts.jsonl and results.jsonl of a run."""
    tf.io.gfile.makedirs(model_dir)
    write_whole(os.path.join(model_dir, CONFIG_FILE), config.to_json())
    started = this_start(config, None)._asdict()
    append_line(os.path.join(model_dir, STARTS_FILE), started)
    for each in evaluations:
        append_evaluation(model_dir, each)


def write_events(model_dir: str, suffix: str, first: float, steps: Sequence[int], losses: Sequence[float]) -> str:
    """Writes the loss summaries of a training session, one second apart from `first` on; returns the file's path."""
    events = [tf.Event(wall_time=first, step=steps[0], session_log=_START)]
    for index, (step, loss) in enumerate(zip(steps, losses)):
        value = [tf.Summary.Value(tag='loss', simple_value=loss)]
        events.append(tf.Event(wall_time=first + index, step=step, summary=tf.Summary(value=value)))
    path = os.path.join(model_dir, f'events.out.tfevents.{int(first)}.{suffix}')
    with tf.io.TFRecordWriter(path) as writer:
        for event in events:
            writer.write(event.SerializeToString())
    return path


_START = tf.SessionLog(status=tf.SessionLog.START)


def write_start(config: Config, data_set: Optional[DatasetInfo]) -> None:
    """Writes the records of a start of training with a data set, as a run does: `starts.jsonl` and `config.json`."""
    append_start(config, this_start(config, data_set))
    write_config(config)
