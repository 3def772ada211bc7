"""Evaluates a checkpoint of a run on this machine's CPU, and reports its errors.

Writes a self-contained page, report.html, with the top-1 accuracy of every class, the confusion matrix, a reliability
diagram and the worst mistakes with their images; report.json with all numbers; and the figures as PNG files.
"""

import argparse
import dataclasses
import math
import os
import sys
import tempfile
import time
from typing import Dict, List, Optional, Sequence, Tuple

from console import extras, program
from console.command_line import new_parser
from console.paths import expanded
from console.screen import Screen
from console.tensorflow_versions import tf
from data import record_checker, records
from data.braces import check_given_once
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.formats import FORMATS
from data.sources import source_of
from inception_v3.commands.evaluate_report.analysis import ErrorAnalysis, Place
from inception_v3.commands.evaluate_report.report import (
    CONFUSION_FILE,
    JSON_FILE,
    PAGE_FILE,
    RELIABILITY_FILE,
    ErrorReport,
)
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_files, description_of, is_counted
from inception_v3.input import device_images
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.run import digests, trained_data, trained_model
from inception_v3.run.evaluations import RESULTS_FILE, Evaluation, read_evaluations
from inception_v3.run.failures import TrainingError, bad_records_explained
from inception_v3.run.files import check_writable
from inception_v3.run.memory.estimate import check_fits
from inception_v3.run.skipped_records import BadRecords
from inception_v3.run.trained_model import TrainedModel
from inception_v3.train_and_evaluate import evaluation_of
from preprocessing.preprocessings import preprocessing_for

FOLDER = 'evaluation_report'
# The batches of a TPU run do not fit into the memory of a laptop.
_BATCH_AT_MOST = 64


def evaluate(model: TrainedModel, mistakes: int, screen: Screen) -> Tuple[Dict[str, float], ErrorAnalysis]:
    """Evaluates a checkpoint as the run does, and analyses its errors.

    Args:
      model: the checkpoint, with the configuration of the evaluation.
      mistakes: number of worst mistakes to keep.
      screen: shows the progress.

    Returns:
      The values of `metrics.evaluation_metrics`, and the analysis.
    """
    config = model.config
    analysis = ErrorAnalysis(config.num_classes, mistakes)
    batches = -(-config.eval_images // config.eval_batch_size)
    with_places = config.use_data == 'real'
    with tf.Graph().as_default() as graph:
        dataset = InputPipeline(False, config, with_places)({'batch_size': config.eval_batch_size})
        iterator = tf.data.make_initializable_iterator(dataset)
        features, labels = iterator.get_next()
        labels, *places = tf.nest.flatten(labels)
        spec = inception_model_fn(features, labels, tf.estimator.ModeKeys.EVAL, {'config': config})
        metric_fn, (labels, logits) = spec.eval_metrics
        metrics = metric_fn(labels, logits)
        pixels = preprocessing_for(config).visible(device_images.received(features, config.transpose_enabled, config))
        step = [labels, logits, pixels, places, [update for _, update in metrics.values()]]
        with tf.Session(graph=graph) as session:
            session.run([tf.local_variables_initializer(), iterator.initializer])
            model.restore(session)
            start = time.monotonic()
            while True:
                try:
                    batch_labels, batch_logits, batch_pixels, batch_places, _ = session.run(step)
                except tf.errors.OutOfRangeError:
                    break
                located = [Place(os.fsdecode(path), int(position)) for path, position in zip(*batch_places)]
                analysis.add(batch_labels, batch_logits, batch_pixels, located if with_places else None)
                rate = analysis.images / (time.monotonic() - start)
                done = -(-analysis.images // config.eval_batch_size)
                screen.update(f'evaluating: batch {done} of {batches}, {rate:,.1f} images/s')
            return session.run({name: value for name, (value, _) in metrics.items()}), analysis


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Writes the report that a command line asks for, and returns the exit code."""
    arguments = _parse(argv)

    def command(screen: Screen) -> None:
        check_given_once(expanded(argv), ['eval_files'])
        print(_report(arguments, screen))

    return program.run(command, on_interrupt='interrupted; nothing was written')


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('evaluate', __doc__)
    parser.add_argument('model_dir', help='the model_dir of a run; may be at gs:// or s3://')
    parser.add_argument(
        '--checkpoint',
        metavar='NAME',
        help='a checkpoint in model_dir, such as model.ckpt-500, or its path (default: the newest)',
    )
    parser.add_argument('--out', metavar='DIR', help=f'folder for the report (default: {FOLDER} in model_dir)')
    parser.add_argument('--data_dir', metavar='DIR', help="folder of the records (default: the run's)")
    parser.add_argument(
        '--eval_files', metavar='PATTERNS', help="the files to evaluate (default: the run's, or those in --data_dir)"
    )
    for key in ('image_key', 'label_key'):
        parser.add_argument(f'--{key}', metavar='KEY', help=f"{key[:5]}'s key in TFRecords (default: the run's)")
    parser.add_argument('--label_offset', type=int, metavar='N', help="number to add to labels (default: the run's)")
    parser.add_argument('--data_format', choices=sorted(FORMATS), help="format of the records (default: the run's)")
    parser.add_argument(
        '--batch_size', type=int, metavar='N', help=f"images per batch (default: the run's, at most {_BATCH_AT_MOST})"
    )
    parser.add_argument(
        '--mistakes', type=int, default=48, metavar='N', help='number of worst mistakes to show (default: 48)'
    )
    arguments = parser.parse_args(expanded(argv))
    if arguments.batch_size is not None and arguments.batch_size < 1:
        parser.error(f'--batch_size={arguments.batch_size}: must be at least 1.')
    for name, given in (
        ('MODEL_DIR', arguments.model_dir),
        ('--data_dir', arguments.data_dir),
        ('--eval_files', arguments.eval_files),
        ('--out', arguments.out),
    ):
        if given == '':
            parser.error(f'{name}: must be the path of a folder, not empty.')
    if arguments.mistakes < 0:
        parser.error(f'--mistakes={arguments.mistakes}: must be at least 0.')
    return arguments


def _report(arguments: argparse.Namespace, screen: Screen) -> str:
    """Evaluates, writes the report, and returns the summary."""
    try:
        from inception_v3.commands import drawing
        from inception_v3.commands.evaluate_report import page
    except ImportError as error:
        raise ConfigError(f'The report needs {error.name}, which is not installed: {extras.command("studies")}.')
    start = time.monotonic()
    out = arguments.out or os.path.join(arguments.model_dir, FOLDER)
    model = trained_model.find(arguments.model_dir, arguments.checkpoint)
    info, model = _fit_to_data_set(model, arguments)
    check_fits(dataclasses.replace(model.config, mode='eval'), eval_flag='batch_size')
    check_writable('out', out)
    screen.update(f'preparing to evaluate {model.checkpoint}')
    digest = digests.of_index(model.checkpoint)
    # The pipeline writes the names of skipped records below model_dir, and the run's own folder must not change.
    with tempfile.TemporaryDirectory(prefix='evaluate_report_') as folder:
        config = dataclasses.replace(model.config, model_dir=folder)
        bad_records = BadRecords(config, [records.VALIDATION])
        with bad_records_explained(config, [records.VALIDATION], screen):
            metrics, analysis = evaluate(model._replace(config=config), arguments.mistakes, screen)
        skipped = [*bad_records.skipped()]
    screen.update('writing the report')
    if not analysis.images:
        raise records.DataError(f'{source_of(model.config)}: contains no usable validation image.')
    if not math.isfinite(metrics['cross_entropy']):
        raise TrainingError(
            f'{model.checkpoint}: the cross-entropy is {metrics["cross_entropy"]}: training has diverged.'
        )
    evaluation = evaluation_of(model.config, info, model.checkpoint, digest, metrics, time.monotonic() - start)
    learned = trained_data.of_checkpoint(model.config, model.checkpoint)
    names = learned.class_names
    report = ErrorReport(
        model_dir=arguments.model_dir,
        evaluation=evaluation,
        analysis=analysis,
        names=[*names, *[''] * (config.num_classes - len(names))],
        notes=[*_notes(model, evaluation, skipped), *([f'{learned.note}.'] if learned.note else [])],
    )
    light, dark = (page.figures_of(report, look) for look in (drawing.LIGHT, drawing.DARK))
    for name, picture in zip((CONFUSION_FILE, RELIABILITY_FILE), light):
        write_whole(os.path.join(out, name), picture)
    write_whole(os.path.join(out, JSON_FILE), report.json())
    page_path = os.path.join(out, PAGE_FILE)
    write_whole(page_path, page.html_of(report, light, dark))
    screen.clear()
    return _summary(report, page_path)


def _fit_to_data_set(model: TrainedModel, arguments: argparse.Namespace) -> Tuple[Optional[DatasetInfo], TrainedModel]:
    """Returns the description of the data set, and the model with the configuration of its evaluation."""
    config = model.config
    names = ('data_dir', 'eval_files', 'data_format', 'image_key', 'label_key', 'label_offset')
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if 'data_dir' in given:
        # The run's patterns belong to its own folder.
        given.setdefault('eval_files', '')
    elif 'eval_files' in given:
        given['data_dir'] = ''
    if given.get('data_format') == 'tar' != config.data_format:
        # The keys of the run's records are not those of tar shards.
        given = {'image_key': Config.image_key, 'label_key': Config.label_key, **given}
    config = dataclasses.replace(
        config,
        # A run that was trained on synthetic images may be evaluated on real ones.
        use_data='real' if given else config.use_data,
        **given,
        eval_batch_size=arguments.batch_size or min(config.eval_batch_size, _BATCH_AT_MOST),
        display_tensors=False,
    )
    info = description_of(config)
    if info and info.num_classes > config.num_classes:
        raise ConfigError(
            f'--data_dir={config.data_dir}: has {info.num_classes} classes, including the background; the network has '
            f'{config.num_classes}.'
        )
    if config.use_data == 'real':
        paths = source_of(config).find(records.VALIDATION)
        check_files(config, records.VALIDATION, paths)
        if given and is_counted(config, records.VALIDATION):
            count = sum(each.records for each in source_of(config).contents(paths))
            config = dataclasses.replace(config, num_eval_images=count)
        elif info and arguments.data_dir:
            config = dataclasses.replace(config, num_eval_images=info.validation_images)
    return description_of(config) if given else info, model._replace(config=config)


def _notes(model: TrainedModel, evaluation: Evaluation, skipped: Sequence[record_checker.BadRecord]) -> List[str]:
    notes = []
    run_evaluations = read_evaluations(str(model.config.model_dir))
    recorded = [e for e in run_evaluations if e.identity == evaluation.identity]
    if recorded:
        last = recorded[-1]
        notes.append(
            f'The run itself recorded top-1 {last.top_1:.2%} and cross-entropy {last.cross_entropy:.4f} for this '
            f'checkpoint in {RESULTS_FILE}.'
        )
    if evaluation.changed:
        notes.append(f'Settings that differ from training: {"; ".join(evaluation.changed)}.')
    if skipped:
        notes.append(f'Skipped records: {len(skipped)}. {"; ".join(map(str, skipped))}')
    return notes


def _summary(report: ErrorReport, page: str) -> str:
    evaluation, analysis = report.evaluation, report.analysis
    rows = [
        ('top-1', f'{evaluation.top_1:.2%}'),
        *([('top-5', f'{evaluation.top_5:.2%}')] if report.has_top_5 else []),
        ('cross-entropy', f'{evaluation.cross_entropy:.4f}'),
        ('calibration', f'{analysis.expected_calibration_error:.2%} expected error'),
        ('evaluated', f'{evaluation.images:,} images, {evaluation.weights} weights of step {evaluation.step:,}'),
    ]
    for pair in report.confusions[:3]:
        images = f'{pair.images:,} of {analysis.confusion[pair.label].sum():,} images'
        rows.append(('confused', f'{report.name(pair.label)} classified as {report.name(pair.predicted)}: {images}'))
    rows += [('note', note) for note in report.notes]
    rows.append(('report', page))
    return '\n'.join(f'{name:<13}  {value}' for name, value in rows)


if __name__ == '__main__':
    sys.exit(main())
