"""Evaluates a checkpoint of a run again, on this machine's CPU, and reports what it gets wrong.

Writes a page, report.html, which needs no other file, with top-1 of every class, the confusion matrix, a reliability
diagram and the worst mistakes with their images; report.json with all numbers; and the pictures as PNG files.

exit codes:
  0    done
  1    failed; it may go well when it is done again
  2    there is something to change first
  130  interrupted by Ctrl-C; nothing was written
"""

import argparse
import dataclasses
import math
import os
import sys
import tempfile
import time
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from absl import app

from console.screen import Screen, set_up_logging
from data import record_checker, records, remote
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.formats import FORMATS
from inception_v3 import infeed
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_files, description_of
from inception_v3.evaluate_report.analysis import ErrorAnalysis
from inception_v3.evaluate_report.report import (
    CONFUSION_FILE,
    JSON_FILE,
    PAGE_FILE,
    RELIABILITY_FILE,
    ErrorReport,
    Place,
)
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import trained_model
from inception_v3.model_dir.bad_records import BadRecords
from inception_v3.model_dir.evaluations import RESULTS_FILE, Evaluation, changed_since_training, read_evaluations
from inception_v3.model_dir.files import check_writable, now
from inception_v3.model_dir.trained_model import TrainedModel
from inception_v3.model_fn import inception_model_fn
from inception_v3.reporting.failures import TrainingError, bad_records_explained

FOLDER = 'evaluation_report'
_FAILED, _MISTAKE, _INTERRUPTED = 1, 2, 130
# A TPU's batches do not fit into the memory of a laptop.
_BATCH_AT_MOST = 64
_PLACES_AT_A_TIME = 10000


def evaluate(model: TrainedModel, mistakes: int, screen: Screen) -> Tuple[Dict[str, float], ErrorAnalysis]:
    """Evaluates a checkpoint as the run does, and analyses its errors.

    Args:
      model: the checkpoint, and what to evaluate it on.
      mistakes: how many of the worst mistakes are kept.
      screen: where the progress is shown.

    Returns:
      What `metrics.evaluation_metrics` measures, and the analysis.
    """
    config = model.config
    analysis = ErrorAnalysis(config.num_classes, mistakes)
    batches = -(-config.eval_images // config.eval_batch_size)
    with tf.Graph().as_default() as graph:
        dataset = InputPipeline(False, config)({'batch_size': config.eval_batch_size})
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        features, labels = iterator.get_next()
        spec = inception_model_fn(features, labels, tf.estimator.ModeKeys.EVAL, {'config': config})
        metric_fn, (labels, logits) = spec.eval_metrics
        metrics = metric_fn(labels, logits)
        pixels = infeed.preprocessing_for(config).visible(infeed.received(features, config.transpose_enabled, config))
        step = [labels, logits, pixels, [update for _, update in metrics.values()]]
        with tf.compat.v1.Session(graph=graph) as session:
            session.run([tf.compat.v1.local_variables_initializer(), iterator.initializer])
            model.restore(session)
            start = time.monotonic()
            while True:
                try:
                    batch_labels, batch_logits, batch_pixels, _ = session.run(step)
                except tf.errors.OutOfRangeError:
                    break
                analysis.add(batch_labels, batch_logits, batch_pixels)
                rate = analysis.images / (time.monotonic() - start)
                done = -(-analysis.images // config.eval_batch_size)
                screen.update(f'evaluating: batch {done} of {batches}, {rate:,.1f} images/s')
            return session.run({name: value for name, (value, _) in metrics.items()}), analysis


def places_of(numbers: Sequence[int], config: Config, skipped: Sequence[record_checker.BadRecord]) -> List[Place]:
    """Where the records of an evaluation's images are: their files, and their positions there.

    Args:
      numbers: of the images, in the order of the evaluation, from 0.
      config: that was evaluated.
      skipped: the records that could not be used.
    """
    file_format = FORMATS[config.data_format]
    paths = file_format.find_shards(config.data_dir, records.VALIDATION)
    left_out = {(os.path.basename(record.path), record.position) for record in skipped}
    wanted, number = {*numbers}, 0
    found: Dict[int, Place] = {}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        # The order of `InputPipeline`, with numbers in the place of records.
        files = tf.data.Dataset.from_tensor_slices((np.arange(len(paths)), file_format.count_records(paths)))
        interleave = tf.data.experimental.parallel_interleave(
            lambda file, count: tf.data.Dataset.range(tf.cast(count, tf.int64)).map(lambda position: (file, position)),
            cycle_length=config.num_files_infeed,
            prefetch_input_elements=1,
        )
        batches = files.apply(interleave).batch(_PLACES_AT_A_TIME)
        batch = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
        while len(found) < len(wanted):
            for file, position in zip(*session.run(batch)):
                place = Place(paths[file], int(position))
                if (os.path.basename(place.path), place.position) in left_out:
                    continue
                if number in wanted:
                    found[number] = place
                number += 1
    return [found[number] for number in numbers]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Writes the report that the command line asks for, and returns the exit code."""
    arguments = _parse(argv)
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    try:
        print(_report(arguments, screen))
        return 0
    except KeyboardInterrupt:
        return _fail(screen, 'interrupted; nothing was written', _INTERRUPTED)
    except remote.UnreachableError as error:
        return _fail(screen, str(error), _FAILED)
    except app.UsageError as error:
        return _fail(screen, str(error), _MISTAKE)
    except (OSError, tf.errors.OpError) as error:
        return _fail(screen, error.message if isinstance(error, tf.errors.OpError) else str(error), _FAILED)


def _fail(screen: Screen, message: str, code: int) -> int:
    screen.clear()
    print(f'error: {message}', file=sys.stderr, flush=True)
    return code


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m inception_v3.evaluate_report',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('model_dir', help='the model_dir of a run, which may be at gs:// or s3://')
    parser.add_argument('--checkpoint', metavar='NAME', help='one in model_dir, such as model.ckpt-500, or its path')
    parser.add_argument('--out', metavar='DIR', help=f'folder for the report (default: {FOLDER} in model_dir)')
    parser.add_argument('--data_dir', metavar='DIR', help="folder of the records (default: the run's)")
    parser.add_argument('--data_format', choices=sorted(FORMATS), help="of the records (default: the run's)")
    parser.add_argument(
        '--batch_size',
        type=int,
        metavar='N',
        help=f'images that are evaluated at a time (default: as many as in the run, {_BATCH_AT_MOST} at most)',
    )
    parser.add_argument('--mistakes', type=int, default=48, metavar='N', help='worst mistakes to show (default 48)')
    arguments = parser.parse_args(argv)
    if arguments.batch_size is not None and arguments.batch_size < 1:
        parser.error(f'--batch_size={arguments.batch_size}: must be at least 1.')
    for name, given in (
        ('MODEL_DIR', arguments.model_dir),
        ('--data_dir', arguments.data_dir),
        ('--out', arguments.out),
    ):
        if given == '':
            parser.error(f'{name}: must be the path of a folder; here it is empty.')
    if arguments.mistakes < 0:
        parser.error(f'--mistakes={arguments.mistakes}: must be at least 0.')
    return arguments


def _report(arguments: argparse.Namespace, screen: Screen) -> str:
    """Evaluates, writes the report, and returns what to show."""
    try:
        from inception_v3.evaluate_report import figures, page
    except ImportError as error:
        raise ConfigError(f"The report needs {error.name}, which is not installed: pip install '.[studies]'.")
    start = time.monotonic()
    out = arguments.out or os.path.join(arguments.model_dir, FOLDER)
    model = trained_model.find(arguments.model_dir, arguments.checkpoint)
    info, model = _fit_to_data_set(model, arguments)
    check_writable('out', out)
    screen.update(f'preparing to evaluate {model.checkpoint}')
    # Records that are skipped are named in files below model_dir, which is not to be written to.
    with tempfile.TemporaryDirectory(prefix='evaluate_report_') as folder:
        config = dataclasses.replace(model.config, model_dir=folder)
        bad_records = BadRecords(config, [records.VALIDATION])
        with bad_records_explained(config, [records.VALIDATION], screen):
            metrics, analysis = evaluate(model._replace(config=config), arguments.mistakes, screen)
        skipped = [*bad_records.skipped()]
    screen.update('writing the report')
    if not analysis.images:
        raise records.DataError(f'{model.config.data_dir}: not one validation image could be used.')
    if not math.isfinite(metrics['cross_entropy']):
        raise TrainingError(f'{model.checkpoint}: its cross-entropy is {metrics["cross_entropy"]}; it has diverged.')
    evaluation = _evaluation(model, metrics, info, time.monotonic() - start)
    names = info.class_names if info else []
    places = None
    if config.use_data == 'real':
        numbers = [mistake.number for mistake in analysis.mistakes]
        places = places_of(numbers, config, skipped)
    report = ErrorReport(
        model_dir=arguments.model_dir,
        evaluation=evaluation,
        analysis=analysis,
        names=[*names, *[''] * (config.num_classes - len(names))],
        places=places,
        notes=_notes(model, evaluation, skipped),
    )
    light, dark = (page.figures_of(report, look) for look in (figures.LIGHT, figures.DARK))
    for name, picture in zip((CONFUSION_FILE, RELIABILITY_FILE), light):
        path = os.path.join(out, name)
        with remote.explained(path, remote.WRITE), tf.io.gfile.GFile(path, 'wb') as file:
            file.write(picture)
    write_whole(os.path.join(out, JSON_FILE), report.json())
    page_path = os.path.join(out, PAGE_FILE)
    write_whole(page_path, page.html_of(report, light, dark))
    screen.clear()
    return _summary(report, page_path)


def _fit_to_data_set(model: TrainedModel, arguments: argparse.Namespace) -> Tuple[Optional[DatasetInfo], TrainedModel]:
    """What the data set says of itself, and the model with a configuration to evaluate it on this data set."""
    config = model.config
    config = dataclasses.replace(
        config,
        # A run that was trained on made-up images may be shown real ones.
        use_data='real' if arguments.data_dir or arguments.data_format else config.use_data,
        data_dir=arguments.data_dir or config.data_dir,
        data_format=arguments.data_format or config.data_format,
        eval_batch_size=arguments.batch_size or min(config.eval_batch_size, _BATCH_AT_MOST),
        display_tensors=False,
    )
    info = description_of(config)
    if info and info.num_classes > config.num_classes:
        raise ConfigError(
            f'--data_dir={config.data_dir}: has {info.num_classes} classes, the background included; the network has '
            f'{config.num_classes}.'
        )
    if info and arguments.data_dir:
        config = dataclasses.replace(config, num_eval_images=info.validation_images)
    if config.use_data == 'real':
        paths = FORMATS[config.data_format].find_shards(config.data_dir, records.VALIDATION)
        check_files(config, records.VALIDATION, paths)
    return info, model._replace(config=config)


def _evaluation(
    model: TrainedModel, metrics: Dict[str, float], info: Optional[DatasetInfo], seconds: float
) -> Evaluation:
    return Evaluation(
        step=model.step,
        checkpoint=os.path.basename(model.checkpoint),
        weights=model.weights,
        top_1=float(metrics['top_1']),
        top_5=float(metrics['top_5']),
        cross_entropy=float(metrics['cross_entropy']),
        images=int(metrics['images']),
        seconds=round(seconds, 3),
        time=now(),
        changed=changed_since_training(model.config, model.checkpoint),
        data_set=info.name if info else '',
        fingerprint=info.fingerprint if info else '',
    )


def _notes(model: TrainedModel, evaluation: Evaluation, skipped: Sequence[record_checker.BadRecord]) -> List[str]:
    notes = []
    recorded = [
        e
        for e in read_evaluations(str(model.config.model_dir))
        if (e.step, e.weights, e.images, e.fingerprint, e.changed)
        == (evaluation.step, evaluation.weights, evaluation.images, evaluation.fingerprint, evaluation.changed)
    ]
    if recorded:
        last = recorded[-1]
        notes.append(
            f'The run itself has recorded top-1 {last.top_1:.2%}, top-5 {last.top_5:.2%} and cross-entropy '
            f'{last.cross_entropy:.4f} of this checkpoint, in {RESULTS_FILE}.'
        )
    if evaluation.changed:
        notes.append(f'Evaluated otherwise than it was trained: {"; ".join(evaluation.changed)}.')
    if skipped:
        notes.append(f'Records that could not be used: {len(skipped)}. {"; ".join(map(str, skipped))}')
    return notes


def _summary(report: ErrorReport, page: str) -> str:
    evaluation, analysis = report.evaluation, report.analysis
    rows = [
        ('top-1', f'{evaluation.top_1:.2%}'),
        ('top-5', f'{evaluation.top_5:.2%}'),
        ('cross-entropy', f'{evaluation.cross_entropy:.4f}'),
        ('calibration', f'{analysis.expected_calibration_error:.2%} expected error'),
        ('evaluated', f'{evaluation.images:,} images, {evaluation.weights} weights of step {evaluation.step:,}'),
    ]
    for pair in analysis.confusions[:3]:
        images = f'{pair.images:,} of {analysis.confusion[pair.label].sum():,} images'
        rows.append(('confused', f'{report.name(pair.label)} taken for {report.name(pair.predicted)}: {images}'))
    rows += [('note', note) for note in report.notes]
    rows.append(('report', page))
    return '\n'.join(f'{name:<13}  {value}' for name, value in rows)


if __name__ == '__main__':
    sys.exit(main())
