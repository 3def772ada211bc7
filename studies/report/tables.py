"""The tables of a report, as texts; page and Markdown file show the same tables."""

from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from inception_v3.run.files import now
from studies.report import findings, statistics
from studies.report.findings import Findings
from studies.report.runs import METRICS, THROUGHPUT, Case, Metric, Run
from studies.report.statistics import Difference, Estimate, Summary

_NO_VALUE = '–'
_NAMES_SHOWN = 3


class Table(NamedTuple):
    """A table; columns from the index `numbers` on hold numbers, earlier ones words."""

    header: Tuple[str, ...]
    rows: Sequence[Tuple[str, ...]]
    numbers: int


def percent(fraction: float) -> str:
    """A fraction as a whole percentage."""
    return f'{100 * fraction:.0f} %'


def with_unit(label: str, unit: str) -> str:
    """A heading with its unit."""
    return f'{label}, {unit}' if unit else label


def current_minute() -> str:
    """The current time, to the minute."""
    return now()[:16].replace('T', ' ') + ' UTC'


def status(runs: Sequence[Run]) -> str:
    """The numbers of finished and failed runs, in words."""
    finished, failed = sum(map(findings.is_finished, runs)), sum(bool(run.failure) for run in runs)
    return f'{finished} of {len(runs)} runs finished{f", {failed} failed" if failed else ""}'


def finals(found: Findings) -> Table:
    """Final results by case: mean ± standard deviation, number of finished runs, images/s."""
    metrics = {name: METRICS[name] for name in found.comparison.report}
    shows_flags = not all(_names_settings(each.case) for each in found.cases)
    rows = []
    for each in found.cases:
        flags = [' '.join(f'--{name}={value}' for name, value in each.case.settings.items())] if shows_flags else []
        finished = sum(map(findings.is_finished, each.case.runs))
        values = [mean(statistics.summarize(each.finals[name].values()), metric) for name, metric in metrics.items()]
        values.append(mean(statistics.summarize(each.throughputs.values()), THROUGHPUT))
        rows.append((each.case.name, *flags, f'{finished} of {len(each.case.runs)}', *values))
    labels = [with_unit(metric.label, metric.unit) for metric in metrics.values()]
    header = ('case', *(['flags'] if shows_flags else []), 'runs', *labels, 'training, images/s')
    return Table(header, rows, numbers=header.index('runs'))


def differences(found: Findings) -> Table:
    """Differences of the means by pair of cases, later - earlier, with their intervals."""
    metrics = [METRICS[name] for name in found.comparison.report]
    rows = []
    for pair in found.pairs:
        known = [difference for difference in pair.differences.values() if difference]
        if known:
            runs = f'{known[0].n} pairs' if known[0].paired else f'{known[0].runs[0]} and {known[0].runs[1]}'
            texts = [difference(pair.differences[metric], METRICS[metric]) for metric in pair.differences]
            later, earlier = found.cases[pair.later].case.name, found.cases[pair.earlier].case.name
            rows.append((f'{later} − {earlier}', runs, *texts))
    return Table(('difference', 'runs', *(with_unit(m.label, m.difference_unit) for m in metrics)), rows, numbers=1)


def interquartile_means(found: Findings) -> Table:
    """Interquartile means of the final results by case, with their intervals; empty with too few runs."""
    metrics = {name: METRICS[name] for name in found.comparison.report}
    rows = [
        (each.case.name, *[_estimate(each.middles[name], metric.text) for name, metric in metrics.items()])
        for each in found.cases
        if any(each.middles.values())
    ]
    header = ('interquartile mean', *(with_unit(metric.label, metric.unit) for metric in metrics.values()))
    return Table(header, rows, numbers=1)


def improvements(found: Findings) -> Table:
    """Probabilities that a run of the later case is better than one of the earlier, with their intervals."""
    rows = [
        (
            f'{found.cases[pair.later].case.name} over {found.cases[pair.earlier].case.name}',
            *[_estimate(estimate, '{:.2f}'.format) for estimate in pair.improvements.values()],
        )
        for pair in found.pairs
        if any(pair.improvements.values())
    ]
    labels = [METRICS[name].label for name in found.comparison.report]
    return Table(('probability of improvement', *labels), rows, numbers=1)


def failed(found: Findings) -> Table:
    """The failed runs, with the reason."""
    rows = [(run.name, findings.state(run), run.failure) for run in found.runs if run.failure]
    return Table(('run', 'state', 'reason'), rows, numbers=3)


def unfinished(found: Findings) -> Table:
    """The unfinished runs that have not failed, with their progress."""
    runs = [run for run in found.runs if not run.failure and not findings.is_finished(run)]
    return Table(('run', 'state'), [(run.name, findings.state(run)) for run in runs], numbers=2)


def environment(runs: Iterable[Run]) -> Table:
    """The environment of the runs, and the runs that differ in it."""
    properties: Dict[str, Dict[str, List[Run]]] = {}
    for run in runs:
        for name, value in run.environment.items():
            properties.setdefault(name, {}).setdefault(value, []).append(run)
    return Table(('property', 'value'), [(name, _with_runs(values)) for name, values in properties.items()], numbers=2)


def _with_runs(runs_by_value: Mapping[str, Sequence[Run]]) -> str:
    """The value of most runs, then the other values with their runs."""
    most, *others = sorted(runs_by_value.items(), key=lambda item: -len(item[1]))
    texts = [most[0]]
    for value, runs in others:
        more = len(runs) - _NAMES_SHOWN
        names = ', '.join(run.name for run in runs[:_NAMES_SHOWN]) + (f' and {more} more' if more > 0 else '')
        texts.append(f'{value} in {names}')
    return '; but '.join(texts)


def how_to_read(found: Findings) -> List[str]:
    """Explanations of the figures and tables: a sentence or more each."""
    notes = [
        'Bold lines are means over the runs of a case; bands show one sample standard deviation on either side; thin '
        'lines are single runs. Means in the table are over the runs that have evaluated the last step of training.',
        f'The loss is the training loss, including weight decay, in at most {findings.LOSS_POINTS} points a run, each '
        'the mean of the summaries in a span of steps. Images/s are the median over the training summaries of a run.',
    ]
    known = [difference for pair in found.pairs for difference in pair.differences.values() if difference]
    with_interval = [difference for difference in known if difference.low is not None]
    if known:
        notes.append(
            f'Differences have a {percent(statistics.CONFIDENCE)} percentile-bootstrap interval with '
            f'{statistics.RESAMPLES:,} resamples: of the differences by seed if both cases have the same seeds, '
            f'otherwise of each case separately; no interval with fewer than {statistics.FEWEST_RUNS} runs.'
        )
    if any(any(each.middles.values()) for each in found.cases):
        notes.append(
            'The interquartile mean is the mean of the middle half of the runs of a case. The probability of '
            'improvement is that of a run of one case to be better than one of the other; a tie counts half. Both are '
            'defined by Agarwal et al. (2021). Their percentile intervals resample the runs of each case by itself.'
        )
    if with_interval:
        fewest = min(with_interval, key=lambda difference: statistics.coverage(difference.n, difference.paired))
        here, with_ten = (percent(statistics.coverage(n, fewest.paired)) for n in (fewest.n, 10))
        notes.append(
            f'With few runs the interval is too narrow: with {fewest.n} '
            f'{"pairs" if fewest.paired else "runs a case"}, as here, it contains the true difference in about {here} '
            f'of all studies, with 10 in {with_ten} (measured with normal values). Among many intervals, some exclude '
            'zero by chance.'
        )
    return notes


def _names_settings(case: Case) -> bool:
    """Whether a case's name already contains its settings."""
    return all(f'{name}={value}' in case.name for name, value in case.settings.items())


def mean(summary: Summary, metric: Metric) -> str:
    """A mean ± the standard deviation, without the unit."""
    if not summary.n:
        return _NO_VALUE
    text = metric.text(summary.mean)
    return text if summary.deviation is None else f'{text} ± {metric.text(summary.deviation)}'


def difference(values: Optional[Difference], metric: Metric) -> str:
    """A difference with its interval, without the unit."""
    if not values:
        return _NO_VALUE
    text = metric.text(values.mean, signed=True)
    if values.low is None or values.high is None:
        return text
    return f'{text} [{metric.text(values.low, signed=True)}, {metric.text(values.high, signed=True)}]'


def _estimate(estimate: Optional[Estimate], text: Callable[[float], str]) -> str:
    return f'{text(estimate.value)} [{text(estimate.low)}, {text(estimate.high)}]' if estimate else _NO_VALUE
