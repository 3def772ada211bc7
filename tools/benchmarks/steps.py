"""Measures training steps in this process, which `tools.benchmarks.training` starts.

Run as `python -m tools.benchmarks.steps`, it reads {"config": …, "kind": …} as JSON from standard input, and prints a
`Training` as JSON.
"""

import dataclasses
import json
import sys
import tempfile
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
from tensorflow.python.client import device_lib

from compat import tf
from data import remote
from inception_v3 import seeding
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.run.hooks.watchers import Step, StepHook, Watcher
from inception_v3.tpu import accelerator
from tools.benchmarks import tables
from tools.benchmarks.measurement import cpu_seconds
from tools.benchmarks.training import REAL, Training, warm_up_calls


class _Meter(Watcher):
    """Records the number of steps, the time and the CPU time, in milliseconds, after each session call."""

    def __init__(self) -> None:
        self.readings: List[Tuple[int, float, float]] = []
        self.parameters = 0

    def graph_built(self) -> None:
        self.parameters = sum(variable.shape.num_elements() for variable in tf.trainable_variables())

    def step_done(self, session: tf.Session, done: Step) -> None:
        self.readings.append((done.step, 1000 * done.time, 1000 * cpu_seconds()))


def repeated_batch(config: Config) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
    """An input function that repeats one batch of random pixels, with the run's types and order of axes."""
    pipeline = InputPipeline(is_training=True, config=dataclasses.replace(config, use_data='fake', max_bad_records=0))
    return lambda params: pipeline(params).take(1).cache().repeat()


def measure_here(config: Config, kind: str) -> Training:
    """Trains in this process, in a folder of its own, with the input REAL or REPEATED."""
    meter = _Meter()
    with tempfile.TemporaryDirectory() as folder:
        # A TPU in another machine needs a folder in a bucket. Nothing is written there.
        here = f'{config.model_dir}/{folder.strip("/")}' if remote.is_remote(str(config.model_dir)) else folder
        config = dataclasses.replace(config, model_dir=here)
        input_fn = InputPipeline(is_training=True, config=config) if kind == REAL else repeated_batch(config)
        make_estimator(config).train(input_fn, hooks=[StepHook([meter])], max_steps=config.train_steps)
    readings = np.array(meter.readings[warm_up_calls(config) - 1 :])
    steps, times, cpu_times = np.diff(readings, axis=0).T
    return Training(_device(config), meter.parameters, list(times / steps), list(cpu_times / steps))


def _device(config: Config) -> str:
    if config.is_emulated:
        return f'{config.num_shards} emulated cores on {tables.machine()}'
    if config.use_tpu:
        return f'TPU with {config.num_shards} cores'
    if accelerator.on_gpu(config):
        listed = device_lib.list_local_devices(seeding.session_config(config))
        found = [each.physical_device_desc for each in listed if each.device_type == 'GPU']
        name = found[0] if found else 'GPU'
        return name if config.num_gpus == 1 else f'{config.num_gpus} GPUs: {name}'
    return tables.machine()


if __name__ == '__main__':
    asked = json.loads(sys.stdin.read())
    print(json.dumps(measure_here(Config(**asked['config']), asked['kind'])._asdict()))
