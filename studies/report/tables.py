"""The tables of a report, as texts; page and Markdown file show the same tables."""

from dataclasses import dataclass
from typing import Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from inception_v3.run.files import now
from studies.report import findings, statistics
from studies.report.findings import Estimate, Findings
from studies.report.runs import METRICS, THROUGHPUT, Case, Metric, Run
from studies.report.statistics import Difference, Summary

_NO_VALUE = '–'
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells, and the indices of its cases (empty: all cases)."""

    cells: Tuple[str, ...]
    cases: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table; columns from the index `numbers` on hold numbers, earlier ones words."""

    header: Tuple[str, ...]
    rows: Tuple[Row, ...]
    numbers: int


def percent(fraction: float) -> str:
    """A fraction as a whole percentage."""
    return f'{100 * fraction:.0f} %'


def with_unit(label: str, unit: str) -> str:
    """A heading with its unit."""
    return f'{label}, {unit}' if unit else label


def flags_of(settings: Mapping[str, str]) -> str:
    """Settings as flags of a command line."""
    return ' '.join(f'--{name}={value}' for name, value in settings.items())


def current_minute() -> str:
    """The current time, to the minute."""
    return now()[:16].replace('T', ' ') + ' UTC'


def status(runs: Sequence[Run]) -> str:
    """The numbers of finished and failed runs, in words."""
    finished, failed = sum(map(findings.is_finished, runs)), sum(bool(run.failure) for run in runs)
    return f'{finished} of {len(runs)} runs finished{f", {failed} failed" if failed else ""}'


def finals(found: Findings) -> Table:
    """Final results by case: mean ± standard deviation, number of finished runs, images/s."""
    metrics = [METRICS[name] for name in found.comparison.report]
    header = ['case', 'runs', *(with_unit(metric.label, metric.unit) for metric in metrics), 'training, images/s']
    named = [_names_settings(each.case) for each in found.cases]
    if not all(named):
        header.insert(1, 'flags')
    rows = []
    for index, each in enumerate(found.cases):
        finished = sum(findings.is_finished(run) for run in each.case.runs)
        cells = [each.case.name]
        if not all(named):
            cells.append(flags_of(each.case.settings))
        cells.append(f'{finished} of {len(each.case.runs)}')
        for name, metric in zip(found.comparison.report, metrics):
            cells.append(_text_of(statistics.summarize([*each.finals[name].values()]), metric))
        throughput = statistics.summarize([*each.throughputs.values()])
        cells.append(_text_of(throughput, THROUGHPUT))
        rows.append(Row(tuple(cells), (index,)))
    return Table(tuple(header), tuple(rows), numbers=header.index('runs'))


def differences(found: Findings) -> Table:
    """Differences of the means by pair of cases, later - earlier, with their intervals."""
    metrics = [METRICS[name] for name in found.comparison.report]
    header = ('difference', 'runs', *(with_unit(metric.label, metric.difference_unit) for metric in metrics))
    index_of = {each.case.name: index for index, each in enumerate(found.cases)}
    rows = []
    for pair in found.pairs:
        known = [difference for difference in pair.differences.values() if difference]
        if known:
            runs = f'{known[0].n} pairs' if known[0].paired else f'{known[0].runs[0]} and {known[0].runs[1]}'
            texts = [_text_of_difference(pair.differences[metric], METRICS[metric]) for metric in pair.differences]
            cases = index_of[pair.later.name], index_of[pair.earlier.name]
            rows.append(Row((f'{pair.later.name} − {pair.earlier.name}', runs, *texts), cases))
    return Table(header, tuple(rows), numbers=1)


def interquartile_means(found: Findings) -> Table:
    """Interquartile means of the final results by case, with their intervals; empty with too few runs."""
    names = found.comparison.report
    header = ('interquartile mean', *(with_unit(METRICS[name].label, METRICS[name].unit) for name in names))
    rows = [
        Row((each.case.name, *[_text_of_estimate(each.middles[name], METRICS[name].text) for name in names]), (index,))
        for index, each in enumerate(found.cases)
        if any(each.middles.values())
    ]
    return Table(header, tuple(rows), numbers=1)


def improvements(found: Findings) -> Table:
    """Probabilities that a run of the later case is better than one of the earlier, with their intervals."""
    names = found.comparison.report
    header = ('probability of improvement', *(METRICS[name].label for name in names))
    index_of = {each.case.name: index for index, each in enumerate(found.cases)}
    rows = [
        Row(
            (
                f'{pair.later.name} over {pair.earlier.name}',
                *[_text_of_estimate(pair.improvements[name], '{:.2f}'.format) for name in names],
            ),
            (index_of[pair.later.name], index_of[pair.earlier.name]),
        )
        for pair in found.pairs
        if any(pair.improvements.values())
    ]
    return Table(header, tuple(rows), numbers=1)


def failed(found: Findings) -> Table:
    """The failed runs, with the reason."""
    rows = [Row((run.name, findings.state(run), run.failure), (index,)) for index, run in _runs(found) if run.failure]
    return Table(('run', 'state', 'reason'), tuple(rows), numbers=3)


def unfinished(found: Findings) -> Table:
    """The unfinished runs that have not failed, with their progress."""
    rows = [
        Row((run.name, findings.state(run)), (index,))
        for index, run in _runs(found)
        if not run.failure and not findings.is_finished(run)
    ]
    return Table(('run', 'state'), tuple(rows), numbers=2)


def environment(runs: Sequence[Run]) -> Table:
    """The environment of the runs, and the runs that differ in it."""
    rows = [Row((name, _with_runs(values))) for name, values in findings.environment(runs).items()]
    return Table(('property', 'value'), tuple(rows), numbers=2)


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


def _runs(found: Findings) -> Iterator[Tuple[int, Run]]:
    """All runs, each with the index of its case."""
    return ((index, run) for index, each in enumerate(found.cases) for run in each.case.runs)


def _names_settings(case: Case) -> bool:
    """Whether a case's name already contains its settings."""
    return all(f'{name}={value}' in case.name for name, value in case.settings.items())


def _text_of(summary: Summary, metric: Metric) -> str:
    if not summary.n:
        return _NO_VALUE
    text = metric.text(summary.mean)
    return text if summary.deviation is None else f'{text} ± {metric.text(summary.deviation)}'


def _text_of_difference(difference: Optional[Difference], metric: Metric) -> str:
    if not difference:
        return _NO_VALUE
    text = metric.text(difference.mean, signed=True)
    if difference.low is None or difference.high is None:
        return text
    return f'{text} [{metric.text(difference.low, signed=True)}, {metric.text(difference.high, signed=True)}]'


def _text_of_estimate(estimate: Optional[Estimate], text: Callable[[float], str]) -> str:
    return f'{text(estimate.value)} [{text(estimate.low)}, {text(estimate.high)}]' if estimate else _NO_VALUE


def _with_runs(runs_by_value: Mapping[str, Sequence[Run]]) -> str:
    """The value of most runs, then the other values with their runs."""
    most, *others = sorted(runs_by_value.items(), key=lambda item: -len(item[1]))
    texts = [most[0]]
    for value, runs in others:
        more = len(runs) - _NAMES_SHOWN
        names = ', '.join(run.name for run in runs[:_NAMES_SHOWN]) + (f' and {more} more' if more > 0 else '')
        texts.append(f'{value} in {names}')
    return '; but '.join(texts)
