"""The tables of a report, as texts."""

import itertools
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from inception_v3.config import ConfigError
from inception_v3.model_dir import now
from tools.evaluate_report import predictions
from tools.paired import Pairs
from tools.studies.files import Table
from tools.studies.report import statistics
from tools.studies.report.runs import LOSS_POINTS, THROUGHPUT, Case, Comparison, Metric, Run
from tools.studies.report.statistics import FEWEST_RUNS, Estimate, summarize


def status(comparison: Comparison) -> str:
    """The numbers of finished and failed runs, and the current minute."""
    runs = comparison.runs
    finished, failed = sum(run.is_finished for run in runs), sum(bool(run.failure) for run in runs)
    texts = [f'{finished} of {len(runs)} runs finished', *([f'{failed} failed'] if failed else [])]
    return f'{", ".join(texts)}; written {now()[:16].replace("T", " ")} UTC.'


def finals(comparison: Comparison) -> Table:
    """Final results by case: the flags that differ, number of finished runs, mean ± standard deviation, images/s."""
    shared = shared_settings(comparison)
    differing = [{name: value for name, value in c.settings.items() if name not in shared} for c in comparison.cases]
    # The name of a case may contain its settings.
    shows_flags = any(
        f'{name}={value}' not in case.name
        for case, settings in zip(comparison.cases, differing)
        for name, value in settings.items()
    )
    rows = []
    for case, settings in zip(comparison.cases, differing):
        flags = [' '.join(f'--{name}={value}' for name, value in settings.items())] if shows_flags else []
        finished = f'{sum(run.is_finished for run in case.runs)} of {len(case.runs)}'
        values = [metric.mean(summarize(case.finals(name).values())) for name, metric in comparison.metrics.items()]
        values.append(THROUGHPUT.mean(summarize(case.throughputs.values())))
        rows.append((case.name, *flags, finished, *values))
    headings = [metric.heading for metric in (*comparison.metrics.values(), THROUGHPUT)]
    header = ('case', *(['flags'] if shows_flags else []), 'runs', *headings)
    return Table('Results', header, rows, header.index('runs'))


def shared_settings(comparison: Comparison) -> Dict[str, str]:
    """The settings with the same value in all cases; empty for a single case."""
    if len(comparison.cases) < 2:
        return {}
    every = [case.settings.items() for case in comparison.cases]
    return {name: value for name, value in every[0] if all((name, value) in each for each in every)}


def means(comparison: Comparison) -> Table:
    """Means with their intervals, and from four runs on interquartile means, which one bad run changes little.

    Further rows have the deviations between runs, and the parts of their variances that the number of images explains.
    """
    rows: List[Tuple[str, ...]] = []
    metrics = comparison.metrics
    for case in comparison.cases:
        values = {name: [*case.finals(name).values()] for name in metrics}
        finished = [run.evaluations[-1] for run in case.runs if run.is_finished]
        texts: Dict[str, List[str]] = {}
        if len(finished) == 1:
            (last,) = finished
            texts['one run'] = [
                '' if name == 'cross_entropy' else metric.share(getattr(last, name), last.images)
                for name, metric in metrics.items()
            ]
        if len(finished) >= FEWEST_RUNS:
            texts['mean'] = [m.estimate(statistics.mean(values[name], m.best)) for name, m in metrics.items()]
            images = finished[0].images
            spreads = [_spread(values[name], metric, images) for name, metric in metrics.items()]
            texts[f'deviation, and that of {images:,} images alone'] = spreads
        if len(finished) > FEWEST_RUNS:
            texts['interquartile mean'] = [
                metric.text(statistics.interquartile_mean(values[name])) for name, metric in metrics.items()
            ]
        rows += [(f'{case.name}: {label}', *cells) for label, cells in texts.items()]
    header = ('case', *(metric.heading for metric in metrics.values()))
    return Table('Means with their 95 % intervals', header, rows)


def _spread(values: Sequence[float], metric: Metric, images: int) -> str:
    """The deviation between runs; for an accuracy, also the most that the number of images alone would cause."""
    _, mean, deviation = summarize(values)
    if not metric.best:
        return metric.text(deviation)
    alone = metric.scale * statistics.deviation_of_images(mean / metric.scale, images)
    part = '100%' if alone >= deviation else f'{(alone / deviation) ** 2:.0%}'
    return f'{metric.text(deviation)}; {metric.text(alone)} (at most {part} of the variance)'


def differences(comparison: Comparison) -> Table:
    """Differences of the means by pair of cases, later - earlier, with their intervals.

    Further rows have the verdict whether cases are told apart, and the probability that a run of the later case is
    better than a run of the earlier. For two single runs with predictions for the same images, the interval is computed
    from these images.
    """
    rows: List[Tuple[str, ...]] = []
    for earlier, later in itertools.combinations(comparison.cases, 2):
        texts, verdicts, probabilities, runs = [], [], [], ''
        pairs = _pairs(earlier, later)
        for name, metric in comparison.metrics.items():
            ours, theirs = later.finals(name), earlier.finals(name)
            found = statistics.difference(ours, theirs)
            if pairs and name == 'top_1':
                found = Estimate(*(metric.scale * each for each in pairs.difference))
            texts.append(metric.estimate(found, '+'))
            verdicts.append(_verdict(found, statistics.detectable(ours, theirs), metric))
            runs = f'{len(ours)} pairs' if ours.keys() == theirs.keys() else f'{len(ours)} and {len(theirs)}'
            better, worse = (theirs, ours) if metric.best == 0 else (ours, theirs)
            values = [*ours.values(), *theirs.values()]
            if min(len(ours), len(theirs)) >= FEWEST_RUNS and np.isfinite(values).all():
                probabilities.append(f'{statistics.improvement(better.values(), worse.values()):.2f}')
        if ours and theirs:
            rows.append((f'{later.name} − {earlier.name}', runs, *texts))
        if pairs:
            p_values = [f'{pairs.p_value:.2g}' if name == 'top_1' else '' for name in comparison.metrics]
            rows.append((f"{later.name} − {earlier.name}: McNemar's exact test, p", runs, *p_values))
        elif any(verdicts):
            rows.append((f'{later.name} − {earlier.name}: verdict', runs, *verdicts))
        if len(probabilities) == len(texts):
            rows.append((f'{later.name} better than {earlier.name}: probability', runs, *probabilities))
    headings = [f'{metric.label}, {metric.difference_unit}' for metric in comparison.metrics.values()]
    return Table('Differences with their 95 % intervals', ('difference', 'runs', *headings), rows)


def _pairs(earlier: Case, later: Case) -> Optional[Pairs]:
    """The comparison of two finished single runs by their predictions; None if these are not for the same images."""
    theirs, ours = ([run.predictions if run.is_finished else None for run in case.counted] for case in (earlier, later))
    if len(theirs) != 1 or len(ours) != 1 or not theirs[0] or not ours[0]:
        return None
    try:
        fingerprints = {each.evaluation.fingerprint for each in (ours[0], theirs[0])} - {''}
        return predictions.pairs(ours[0].images, theirs[0]) if len(fingerprints) < 2 else None
    except ConfigError:
        return None


def _verdict(found: Optional[Estimate], detectable: float, metric: Metric) -> str:
    """Whether the interval of a difference excludes zero; empty without an interval."""
    if not found or not np.isfinite(found.low):
        return ''
    return 'told apart' if found.low > 0 or found.high < 0 else f'not told apart; detectable: {metric.text(detectable)}'


def seeds(comparison: Comparison, sought: float) -> Table:
    """The seeds that a difference of the first metric needs, by pair of cases with `FEWEST_RUNS` finished seeds."""
    name, metric = next(iter(comparison.metrics.items()))
    rows = []
    for earlier, later in itertools.combinations(comparison.cases, 2):
        ours, theirs = later.finals(name), earlier.finals(name)
        n, _, deviation = summarize(value - theirs[key] for key, value in ours.items() if key in theirs)
        if n >= FEWEST_RUNS and np.isfinite(deviation):
            deviations = [deviation, *statistics.deviation_interval(deviation, n)]
            needed, least, most = (f'{statistics.seeds_needed(sought, each):,}' for each in deviations)
            rows.append(
                (f'{later.name} − {earlier.name}', f'{n}', metric.text(deviation), needed, f'{least} to {most}')
            )
    deviation_of = f'deviation of {metric.label} by seed, {metric.difference_unit}'
    return Table('Seeds', ('difference', 'seeds so far', deviation_of, 'seeds needed', '95 % interval'), rows)


def unfinished(comparison: Comparison) -> Table:
    """The unfinished and the failed runs, with their progress and the reason of a failure."""
    runs = [run for run in comparison.runs if run.failure or not run.is_finished]
    rows = [(run.name, run.state, run.failure or '') for run in runs]
    return Table('Failed or not finished', ('run', 'state', 'reason'), rows, 3)


def environment(runs: Sequence[Run]) -> Table:
    """The environment of the runs: the value of most runs, then the other values with their runs."""
    properties: Dict[str, Dict[str, List[str]]] = {}
    for run in runs:
        for name, value in run.environment.items():
            properties.setdefault(name, {}).setdefault(value, []).append(run.name)
    rows = []
    for name, runs_by_value in properties.items():
        most, *others = sorted(runs_by_value.items(), key=lambda item: -len(item[1]))
        texts = [most[0]]
        for value, names in others:
            texts.append(f'{value} in {names[0]}' + (f' and {len(names) - 1} more' if len(names) > 1 else ''))
        rows.append((name, '; but '.join(texts)))
    return Table('Environment', ('property', 'value'), rows, 2)


HOW_TO_READ = (
    'Bold lines are means over the runs of a case; bands show one sample standard deviation on either side; thin '
    'lines are single runs. Means in the table are over the runs that have evaluated the last step of training.',
    f'The loss is the training loss, including weight decay, at up to {LOSS_POINTS} points per run, each the mean of '
    'the summaries in a span of steps. Images/s is the median over the training summaries of a run.',
    f"Means and differences have a 95 % interval of Student's t from {FEWEST_RUNS} runs on. A difference's interval is "
    "from the differences by seed if both cases have the same seeds, otherwise Welch's. Accuracies near 100 % are "
    'skewed: the interval of a mean, on the scale of the square roots of the errors, then contains the true value in '
    'about 94 % of all studies.',
    'Two cases are not told apart if the interval of their difference contains zero; this does not mean that they are '
    'equal. Among many intervals, some exclude zero by chance. Detectable is the smallest difference that '
    f'{statistics.POWER:.0%} of such studies would detect; `sweep --detect` computes the number of seeds that a '
    'smaller one needs.',
    "The accuracy of a single run has Wilson's interval, for its images alone: another seed may differ by more. Two "
    "single runs with evaluation reports on the same images are compared on these images: McNemar's exact test shows "
    'whether these two checkpoints differ, not whether other seeds would.',
    'Accuracies of runs also differ because they are measured on few images, on which runs make independent errors '
    '(Jordan, 2024, arXiv 2304.01910): by the deviation due to the images alone if all images are equally hard, by '
    'less if some are harder.',
    'The interquartile mean is the mean of the middle half of the runs of a case. The probability that one case is '
    'better counts pairs of their runs; a tie counts half. Both are defined by Agarwal et al. (2021).',
)
