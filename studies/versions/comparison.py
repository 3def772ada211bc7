"""The comparisons: batches, training with checkpoints and SavedModels, accuracy, and CPU time.

Each returns its numbers as a dict that JSON holds.
"""

import dataclasses
import os
import pathlib
import shutil
import statistics
import subprocess
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from benchmarks.measurement import MeasurementError
from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.model_dir import first_steps
from inception_v3.model_dir.evaluations import read_evaluations
from studies.versions import environments, part
from studies.versions.environments import VERSIONS

Say = Callable[[str], None]
Numbers = Dict[str, Any]

_FULL_COLOUR: Dict[str, Any] = {'use_fast_color_distort': False}
# Variants of the pipeline: whether it is that of training, and settings. Evaluation has no colours.
PIPELINES: Dict[str, Tuple[bool, Dict[str, Any]]] = {
    'train': (True, {}),
    'train, colours by hue, fast': (True, _FULL_COLOUR),
    'train, colours by hue, full': (True, {**_FULL_COLOUR, 'fast_mode': False}),
    'train, vgg': (True, {'preprocessing': 'vgg'}),
    'train, uint8': (True, {'transfer': 'uint8'}),
    'train, colours by hue, uint8': (True, {**_FULL_COLOUR, 'transfer': 'uint8'}),
    'train, vgg, uint8': (True, {'preprocessing': 'vgg', 'transfer': 'uint8'}),
    'eval': (False, {}),
    'eval, vgg': (False, {'preprocessing': 'vgg'}),
    'eval, uint8': (False, {'transfer': 'uint8'}),
    'eval, vgg, uint8': (False, {'preprocessing': 'vgg', 'transfer': 'uint8'}),
}
_SLOTS = ('ExponentialMovingAverage', 'RMSProp', 'RMSProp_1', 'Momentum')
_CONFIDENCE = 0.95


class Place(NamedTuple):
    """A folder for the runs and arrays of the comparison, and the module that does its jobs."""

    folder: str
    module: str = environments.PART

    def path(self, *parts: str) -> str:
        """A path in the folder; the folder above it is created."""
        path = pathlib.Path(self.folder, *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def perform(self, version: str, jobs: Sequence[part.Job]) -> List[Any]:
        """Does jobs with a version; see `environments.perform`."""
        return environments.perform(version, jobs, self.module)


def compare_batches(configs: Dict[str, Config], names: Sequence[str], count: int, place: Place, say: Say) -> Numbers:
    """Compares the first batches of the input pipeline bit by bit.

    Args:
      configs: configurations with a seed, by the names of their data sets.
      names: of `PIPELINES`.
      count: the number of batches.
      place: for the arrays.
      say: shows the progress.

    Returns:
      For each data set and pipeline, each array's number of values, how many differ, and the greatest difference.
    """
    cases = [(data_set, name) for data_set in configs for name in names]

    def path(version: str, case: int) -> str:
        return place.path('batches', f'{version}-{case}.npz')

    for version in VERSIONS:
        say(f'batches of {len(cases)} pipelines with TensorFlow {version}')
        jobs = []
        for index, (data_set, name) in enumerate(cases):
            is_training, changes = PIPELINES[name]
            config = dataclasses.replace(configs[data_set], **changes)
            saved = path(version, index)
            jobs.append(part.job(part.batches, config=config, is_training=is_training, count=count, path=saved))
        place.perform(version, jobs)
    found: Numbers = {}
    for index, (data_set, name) in enumerate(cases):
        one, other = (np.load(path(version, index)) for version in VERSIONS)
        found[f'{data_set}: {name}'] = {array: difference_of(one[array], other[array]) for array in one.files}
    return found


def difference_of(one: np.ndarray, other: np.ndarray) -> Numbers:
    """The number of values of two arrays, how many differ in any bit, and the greatest difference of numbers."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    size = one.dtype.itemsize
    differing = np.frombuffer(one.tobytes(), f'V{size}') != np.frombuffer(other.tobytes(), f'V{size}')
    is_text = one.dtype.kind in 'SU'
    greatest = None if is_text else float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())
    return {'values': one.size, 'differing': int(differing.sum()), 'greatest': greatest}


def compare_training(
    config: Config, steps: int, images: int, place: Place, say: Say, has_one_thread: bool = True
) -> Numbers:
    """Trains with each version, resumes the checkpoints of each in the other, and serves the SavedModels of each.

    Args:
      config: of the run, with a seed and `intra_op_threads` of 2 or more.
      steps: the number of steps; a version takes over the checkpoint of the other after half of them.
      images: the number of images to classify with the SavedModels.
      place: for the model_dirs, which are replaced.
      say: shows the progress.
      has_one_thread: also train with one thread, to compare with the rounding within a version.
    """
    half = max(1, steps // 2)

    def run(name: str, **changes: Any) -> part.Job:
        changed = dataclasses.replace(config, mode='train', model_dir=place.path('training', name), **changes)
        return part.job(part.train, config=changed)

    def export(version: str) -> str:
        return place.path('training', f'export-{version}')

    shutil.rmtree(place.path('training'), ignore_errors=True)
    for version in VERSIONS:
        say(f'training for {half} steps with TensorFlow {version}')
        place.perform(version, [run(version, train_steps=half, export_dir=export(version))])
    for version in VERSIONS:
        shutil.copytree(place.path('training', version), place.path('training', f'{version}-resumed'))
    probabilities = {}
    for version, other in (VERSIONS, VERSIONS[::-1]):
        say(f'resuming both runs with TensorFlow {version}')
        serving, probabilities[version] = _serving(version, export, config.data_dir, images, place)
        resumed = [run(name, train_steps=steps) for name in (version, f'{other}-resumed')]
        place.perform(version, resumed + serving)
        if has_one_thread:
            say(f'training with one thread with TensorFlow {version}')
            # In a new process: TensorFlow has one pool of threads for all sessions of a process.
            place.perform(version, [run(f'{version}-one-thread', train_steps=steps, intra_op_threads=1)])
    pairs = {
        'initial weights': ((VERSIONS[0], 0), (VERSIONS[1], 0)),
        'both versions': ((VERSIONS[0], steps), (VERSIONS[1], steps)),
    }
    for version, other in (VERSIONS, VERSIONS[::-1]):
        pairs[f'{version}, and resumed in {other}'] = ((version, steps), (f'{version}-resumed', steps))
        if has_one_thread:
            pairs[f'{version}, and with one thread'] = ((version, steps), (f'{version}-one-thread', steps))
    initial = values_of(place.path('training', VERSIONS[0]), 0)
    first = {version: first_steps.read(place.path('training', version))[0].loss for version in VERSIONS}

    def values(name: str, step: int) -> Dict[str, np.ndarray]:
        return values_of(place.path('training', name), step)

    return {
        'steps': steps,
        'loss_of_step_1': first,
        'variables': {name: distance(values(*one), values(*other), initial) for name, (one, other) in pairs.items()},
        'served': served(probabilities),
    }


def _serving(
    version: str, export: Callable[[str], str], data_dir: str, images: int, place: Place
) -> Tuple[List[part.Job], Dict[str, str]]:
    """The jobs of a version that serve the SavedModels of both, and the paths of their probabilities."""
    paths = {of: place.path('served', f'{of}-in-{version}.npy') for of in VERSIONS}
    jobs = []
    for of in VERSIONS:
        (saved_model,) = pathlib.Path(export(of)).glob('[0-9]*')
        jobs.append(part.job(part.serve, saved_model=str(saved_model), data_dir=data_dir, count=images, path=paths[of]))
    return jobs, paths


def compare_serving(exports: Dict[str, str], data_dir: str, images: int, place: Place, say: Say) -> Numbers:
    """Serves the SavedModels of both versions in both versions; see `served`.

    Args:
      exports: the `export_dir` of a run with each version.
      data_dir: of the images.
      images: their number.
      place: for the arrays.
      say: shows the progress.
    """
    paths = {}
    for version in VERSIONS:
        say(f'serving SavedModels with TensorFlow {version}')
        jobs, paths[version] = _serving(version, exports.__getitem__, data_dir, images, place)
        place.perform(version, jobs)
    return served(paths)


def served(paths: Dict[str, Dict[str, str]]) -> Numbers:
    """For the SavedModel of each version: images, equal top-1 in both, and the greatest difference of probabilities.

    Args:
      paths: of the probabilities, by the version that served, and the version that exported.
    """
    found = {}
    for of in VERSIONS:
        one, other = (np.load(paths[version][of]) for version in VERSIONS)
        found[of] = {
            'images': len(one),
            'same_top_1': int((one.argmax(-1) == other.argmax(-1)).sum()),
            'greatest': float(np.abs(one - other).max()),
        }
    return found


def values_of(model_dir: str, step: int) -> Dict[str, np.ndarray]:
    """The float variables after a step of the run in a model_dir, without averages and the sums of the optimizer."""
    reader = tf.train.load_checkpoint(os.path.join(model_dir, f'model.ckpt-{step}'))
    names = [name for name in reader.get_variable_to_shape_map() if name.rpartition('/')[2] not in _SLOTS]
    values = {name: reader.get_tensor(name) for name in sorted(names)}
    return {name: value for name, value in values.items() if value.dtype.kind == 'f'}


def distance(one: Dict[str, np.ndarray], other: Dict[str, np.ndarray], initial: Dict[str, np.ndarray]) -> Numbers:
    """Distances of two sets of variables.

    Returns:
      `absolute`: the greatest difference of two values; `relative`: the greatest difference within a variable,
      relative to its largest value; `of_the_change`: the norm of all differences, relative to the norm of the change
      since the initial values.
    """
    assert one.keys() == other.keys() == initial.keys()
    differences = {name: np.abs(one[name].astype(np.float64) - other[name]) for name in one}
    largest = {name: float(np.abs(one[name]).max()) for name in one}
    change = sum(float(np.square(one[name].astype(np.float64) - initial[name]).sum()) for name in one)
    squares = sum(float(np.square(difference).sum()) for difference in differences.values())
    return {
        'absolute': max(float(difference.max()) for difference in differences.values()),
        'relative': max(float(differences[name].max()) / largest[name] for name in one if largest[name]),
        'of_the_change': float(np.sqrt(squares / change)) if change else float(np.sqrt(squares)),
    }


def compare_accuracy(seeds: int, steps: int, place: Place, say: Say) -> Numbers:
    """Trains the digits with each version and the seeds 1, 2, …; finished runs in `place` are kept.

    Returns:
      `top_1`: percentages after the last step, by version; and what `difference_of_means` returns.
    """
    top_1: Dict[str, List[float]] = {version: [] for version in VERSIONS}
    for seed in range(1, seeds + 1):
        for version in VERSIONS:
            say(f'digits with TensorFlow {version}, seed {seed} of {seeds}')
            model_dir = digits_dir(version, seed, place)
            flags = ['--preset=digits', f'--seed={seed}', '--intra_op_threads=2', f'--train_steps={steps}']
            flags += [f'--model_dir={model_dir}', f'--export_dir={model_dir}/export']
            if not any(each.step == steps for each in read_evaluations(model_dir)):
                command = environments.command(version, 'inception_v3.main', *flags)
                done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                if done.returncode:
                    reason = (done.stderr.decode(errors='replace').splitlines() or [''])[-1]
                    raise MeasurementError(f'TensorFlow {version}, seed {seed}: exit code {done.returncode}: {reason}')
            (top,) = {each.top_1 for each in read_evaluations(model_dir) if each.step == steps}
            top_1[version].append(100 * top)
    return {'steps': steps, 'top_1': top_1, **difference_of_means(*(top_1[version] for version in VERSIONS))}


def digits_dir(version: str, seed: int, place: Place) -> str:
    """The model_dir of a run of the digits."""
    return place.path(f'digits-{version}-{seed}')


def difference_of_means(one: Sequence[float], other: Sequence[float]) -> Numbers:
    """Student's paired test of two sequences, whose values belong together by their places.

    Returns:
      `difference`: the mean of `other` minus `one`; `low` and `high`: its interval of 95 %; `p`: the probability of a
      difference at least as large between equal versions. With fewer than 2 pairs, the last three are None.
    """
    from scipy import stats  # Only this comparison needs it.

    pairs = np.array(other) - np.array(one)
    found: Numbers = {'difference': float(pairs.mean()), 'low': None, 'high': None, 'p': None}
    error = float(stats.sem(pairs)) if len(pairs) > 1 else 0.0
    if error:
        low, high = stats.t.interval(_CONFIDENCE, len(pairs) - 1, found['difference'], error)
        found.update(low=float(low), high=float(high), p=float(stats.ttest_1samp(pairs, 0).pvalue))
    return found


def compare_cost(jobs: Dict[str, part.Job], rounds: int, place: Place, say: Say) -> Numbers:
    """Measures each job with both versions in turn, each time in a new process.

    Returns:
      For each job, its values by version, and the median of 2.15 divided by that of 1.15.
    """
    values: Dict[str, Dict[str, List[float]]] = {name: {version: [] for version in VERSIONS} for name in jobs}
    for number in range(rounds):
        for name, job in jobs.items():
            for version in VERSIONS:
                say(f'round {number + 1} of {rounds}: {name}, TensorFlow {version}')
                values[name][version] += place.perform(version, [job])
    one, other = VERSIONS
    return {
        name: {**of, 'ratio': statistics.median(of[other]) / statistics.median(of[one])} for name, of in values.items()
    }
