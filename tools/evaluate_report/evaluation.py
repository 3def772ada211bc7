"""Evaluates a checkpoint on this machine's CPU, analyses its errors, and writes the report."""

import argparse
import contextlib
import dataclasses
import math
import os
import tempfile
import time
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

from compat import tf
from compat.errors import CommandError
from compat.log import logger
from compat.messages import in_rows
from console.outputs import check_is_no_input
from console.screen import Screen
from data import record_checker, records, remote
from data.dataset_info import DatasetInfo
from data.files import write_whole
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import check_data, copies_among, description_of, overlap
from inception_v3.input.bad_records import BadRecords
from inception_v3.input.infeed import Infeed
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import check_writable, digest_of_index
from inception_v3.model_fn import inception_model_fn
from inception_v3.run.evaluations import RESULTS_FILE, Evaluation, evaluation_of, read_evaluations, shortfall
from inception_v3.run.failures import bad_records_explained
from inception_v3.run.memory import check_fits
from inception_v3.run.trained_data import trained_data_of
from tools import other_data, trained_model
from tools.evaluate_report import JSON_FILE, predictions
from tools.evaluate_report.analysis import ErrorAnalysis
from tools.evaluate_report.page import ErrorReport
from tools.trained_model import TrainedModel

# The batches of a TPU run do not fit into the memory of a laptop.
BATCH_AT_MOST = 64


def evaluate(model: TrainedModel, screen: Screen) -> Tuple[Dict[str, float], ErrorAnalysis]:
    """Evaluates a checkpoint as the run does; returns the values of `metrics.evaluation_metrics`, and the analysis."""
    config = model.config
    analysis = ErrorAnalysis(config.num_classes)
    batches = -(-config.eval_images // config.eval_batch_size)
    with tf.Graph().as_default() as graph:
        dataset = InputPipeline(is_training=False, config=config, with_places=True)(
            {'batch_size': config.eval_batch_size}
        )
        iterator = tf.data.make_initializable_iterator(dataset)
        features, labels = iterator.get_next()
        labels, *places = tf.nest.flatten(labels)
        spec = inception_model_fn(features, labels, tf.estimator.ModeKeys.EVAL, {'config': config})
        metric_fn, (labels, logits) = spec.eval_metrics
        metrics = metric_fn(labels, logits)
        infeed = Infeed(config)
        pixels = infeed.preprocessing.visible(infeed.received(features, config.transpose_enabled))
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
                located = [(os.fsdecode(path), int(position)) for path, position in zip(*batch_places)]
                analysis.add(batch_labels, batch_logits, batch_pixels, located)
                rate = analysis.images / (time.monotonic() - start)
                done = -(-analysis.images // config.eval_batch_size)
                screen.update(f'evaluating: batch {done:,} of {batches:,}, {rate:,.1f} images/s')
            return session.run({name: value for name, (value, _) in metrics.items()}), analysis


def write_report(arguments: argparse.Namespace, out: str, screen: Screen) -> str:
    """Evaluates, writes the report into a folder, and returns the summary."""
    start = time.monotonic()
    found = trained_model.find(arguments.model_dir, arguments.checkpoint)
    info, model, data_notes = fit_to_data_set(found, arguments)
    check_fits(dataclasses.replace(model.config, mode='eval'), eval_flag='batch_size')
    check_writable('out', out)
    other = predictions.read(arguments.against) if arguments.against else None
    if other:
        check_is_no_input(os.path.join(out, predictions.PREDICTIONS_FILE), [other.file])
    if other and info and {'', other.evaluation.fingerprint, info.fingerprint} != {'', info.fingerprint}:
        raise ConfigError(
            f'--against={arguments.against}: its report is of another data set, '
            f'{other.evaluation.data_set or "unnamed"}. Evaluate both checkpoints on the same images, with --data_dir.'
        )
    screen.update(f'preparing to evaluate {model.checkpoint}')
    digest = digest_of_index(model.checkpoint)
    # The pipeline writes the names of skipped records below model_dir, and the run's own folder must not change.
    with tempfile.TemporaryDirectory(prefix='evaluate_report_') as folder:
        config = dataclasses.replace(model.config, model_dir=folder)
        bad_records = BadRecords(config, [records.VALIDATION])
        with bad_records_explained(config, [records.VALIDATION], screen, has_flag=False):
            metrics, analysis = evaluate(model._replace(config=config), screen)
        skipped = [*bad_records.skipped()]
    screen.update('writing the report')
    if not analysis.images:
        raise records.DataError(f'{model.config.source}: contains no usable validation image.')
    if not math.isfinite(metrics['cross_entropy']):
        raise CommandError(
            f'{model.checkpoint}: the cross-entropy is {metrics["cross_entropy"]}: training has diverged.'
        )
    evaluation = evaluation_of(model.config, info, model.checkpoint, digest, metrics, time.monotonic() - start)
    learned = trained_data_of(model.config, model.checkpoint)
    names = [*learned.class_names, *[''] * (config.num_classes - len(learned.class_names))]
    notes = [*data_notes, *notes_of(model, evaluation, skipped), *([f'{learned.note}.'] if learned.note else [])]
    report = ErrorReport(arguments.model_dir, evaluation, analysis, names, notes)
    _write(report, out)
    if other:
        # The report is already written without the comparison, which may fail after hours of evaluation.
        pairs = predictions.pairs(analysis.predictions, other)
        notes = [*notes, f'Against {other.path}: {pairs}.']
        report = report._replace(against=(other.evaluation, pairs), notes=notes)
        _write(report, out)
    screen.clear()
    return _summary(report, os.path.join(out, 'report.html'))


def _write(report: ErrorReport, out: str) -> None:
    figures = report.figures()
    contents: Dict[str, Union[str, bytes]] = {**figures, JSON_FILE: report.json(), 'report.html': report.html(figures)}
    contents[predictions.PREDICTIONS_FILE] = predictions.content(report.analysis.predictions)
    for name, content in contents.items():
        write_whole(os.path.join(out, name), content)


def fit_to_data_set(
    model: TrainedModel, arguments: argparse.Namespace
) -> Tuple[Optional[DatasetInfo], TrainedModel, List[str]]:
    """The description of the data set, the model with the configuration of its evaluation, and notes on the files."""
    trained = model.config
    changes = other_data.changes_of(trained, arguments, ('eval_files',))
    config, info = other_data.changed(trained, changes)
    config = dataclasses.replace(
        config,
        eval_batch_size=arguments.batch_size or min(trained.eval_batch_size, BATCH_AT_MOST),
        display_tensors=False,
    )
    if config.use_data == 'fake':
        raise ConfigError('The run was trained on made-up images: name the data set to evaluate with --data_dir.')
    notes = check_data(config)
    if changes:
        for note in notes_on_training_files(trained, config, config.source.find(records.VALIDATION)):
            # `check_data` has reported a copy of the whole data set.
            if note not in notes:
                logger.info('warning: %s', note)
                notes.append(note)
        if not info:
            # The report names the classes as the run does.
            other_data.check_labels(config, trained_data_of(trained, model.checkpoint).class_names)
        config = other_data.with_sizes(config, [records.VALIDATION], info)
        info = description_of(config)
    return info, model._replace(config=config), notes


def notes_on_training_files(trained: Config, config: Config, paths: Sequence[str]) -> Iterator[str]:
    """Yields a note if files to evaluate are training files of the run. Its data set may no longer exist."""
    source = trained.source
    with contextlib.suppress(records.DataError, remote.RemoteError, tf.errors.OpError):
        training = source.find(records.TRAIN) if source.is_named([records.TRAIN]) else []
        both = copies_among(paths, training)
        # Copies within the training data set have been reported.
        if both and (config.data_dir, config.train_files) != (trained.data_dir, trained.train_files):
            yield f'{config.source.flag(records.VALIDATION)}: {overlap(both, paths)}'


def notes_of(model: TrainedModel, evaluation: Evaluation, skipped: Sequence[record_checker.BadRecord]) -> List[str]:
    """Notes on an evaluation: the run's own evaluation, changed settings, and skipped records."""
    notes = []
    recorded = [e for e in read_evaluations(str(model.config.model_dir)) if e.identity == evaluation.identity]
    if recorded:
        notes.append(
            f'The run itself recorded top-1 {recorded[-1].top_1:.2%} and cross-entropy '
            f'{recorded[-1].cross_entropy:.4f} for this checkpoint in {RESULTS_FILE}.'
        )
    if evaluation.changed:
        notes.append(f'Settings that differ from training: {"; ".join(evaluation.changed)}.')
    missed = shortfall(model.config, evaluation, len(skipped))
    if missed:
        notes.append(f'{missed}.')
    if skipped:
        notes.append(f'Skipped records: {len(skipped):,}. {"; ".join(map(str, skipped))}')
    return notes


def _summary(report: ErrorReport, page: str) -> str:
    rows = [*report.scores.items(), ('weights', report.evaluation.weights)]
    for pair in report.confusions[:3]:
        images = f'{pair.images:,} of {report.analysis.confusion[pair.label].sum():,} images'
        rows.append(('confused', f'{report.name(pair.label)} classified as {report.name(pair.predicted)}: {images}'))
    return in_rows([*rows, *(('note', note) for note in report.notes), ('report', page)])
