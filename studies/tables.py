"""The tables of a report, as texts: a page and a Markdown file show the same."""

from dataclasses import dataclass
from typing import List, Mapping, Optional, Sequence, Tuple

from studies import findings, statistics
from studies.findings import Findings
from studies.runs import METRICS, Case, Metric, Run
from studies.statistics import Difference, Summary

NOTHING = '–'
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """A line of a table: its texts, and the indices of the cases that it is about (none: of all)."""

    cells: Tuple[str, ...]
    cases: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """Texts in rows; the first column is of names, the others of numbers unless `is_text`."""

    header: Tuple[str, ...]
    rows: Tuple[Row, ...]
    is_text: bool = False


def flags_of(settings: Mapping[str, str]) -> str:
    """Settings as they are written on a command line."""
    return ' '.join(f'--{name}={value}' for name, value in settings.items())


def standing(runs: Sequence[Run]) -> str:
    """How many runs are finished, and how many have failed."""
    finished, failed = sum(map(findings.is_finished, runs)), sum(bool(run.failure) for run in runs)
    return f'{finished} of {len(runs)} runs finished{f", {failed} failed" if failed else ""}'


def finals(found: Findings) -> Table:
    """What the cases ended with: mean ± standard deviation, how many runs got there, images/s."""
    metrics = [METRICS[name] for name in found.comparison.report]
    header = ['case', 'runs', *(_with_unit(metric.label, metric.unit) for metric in metrics), 'training, images/s']
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
        cells.append(_text_of(throughput, Metric('', '', '', 1, 0 if throughput.n and throughput.mean >= 100 else 1)))
        rows.append(Row(tuple(cells), (index,)))
    return Table(tuple(header), tuple(rows))


def differences(found: Findings) -> Table:
    """Pairs of cases: the first one's mean less the second one's, with its interval."""
    metrics = [METRICS[name] for name in found.comparison.report]
    header = ('difference', 'runs', *(_with_unit(metric.label, metric.difference_unit) for metric in metrics))
    index_of = {each.case.name: index for index, each in enumerate(found.cases)}
    rows = []
    for pair in found.pairs:
        known = [difference for difference in pair.differences.values() if difference]
        if known:
            runs = f'{known[0].n} pairs' if known[0].paired else f'{known[0].runs[0]} and {known[0].runs[1]}'
            texts = [_text_of_difference(pair.differences[metric], METRICS[metric]) for metric in pair.differences]
            cases = index_of[pair.first.name], index_of[pair.second.name]
            rows.append(Row((f'{pair.first.name} − {pair.second.name}', runs, *texts), cases))
    return Table(header, tuple(rows))


def unfinished(found: Findings) -> Table:
    """The runs that are not in the means: how far they are, and why those that failed did."""
    rows = [
        Row((run.name, findings.state(run), run.failure or NOTHING), (index,))
        for index, each in enumerate(found.cases)
        for run in each.case.runs
        if run.failure or not findings.is_finished(run)
    ]
    return Table(('run', 'state', 'reason'), tuple(rows), is_text=True)


def environment(runs: Sequence[Run]) -> Table:
    """Where the runs were made, and which of them differ in that."""
    told = sum(bool(run.environment) for run in runs)
    rows = [
        Row((name, '; '.join(_with_runs(value, those, told) for value, those in values.items())))
        for name, values in findings.environment(runs).items()
    ]
    return Table(('', 'value'), tuple(rows), is_text=True)


def how_to_read(found: Findings) -> List[str]:
    """What a reader has to know of the figures and tables: a sentence or more each."""
    notes = [
        'Bold lines are means over the runs of a case, and bands one sample standard deviation to either side; thin '
        'lines are single runs. The means of the table are of the runs that have evaluated the last step of training.',
        f'Losses are as trained on, with weight decay, in at most {findings.LOSS_POINTS} points a run, each the mean '
        'of what was told of its steps. Images/s are the median of a run over what was told of its training.',
    ]
    known = [difference for pair in found.pairs for difference in pair.differences.values() if difference]
    with_interval = [difference for difference in known if difference.low is not None]
    if known:
        notes.append(
            f'Differences have a {statistics.CONFIDENCE:.0%} percentile-bootstrap interval of '
            f'{statistics.RESAMPLES:,} resamples: of the differences by seed where both cases have the same seeds, '
            f'else of each case by itself; none below {statistics.FEWEST_RUNS} runs.'
        )
    if with_interval:
        fewest = min(with_interval, key=lambda difference: statistics.coverage(difference.n, difference.paired))
        notes.append(
            f'Few runs make it too narrow: with {fewest.n} {"pairs" if fewest.paired else "runs of a case"}, as here, '
            f'it holds the true difference in about {statistics.coverage(fewest.n, fewest.paired):.0%} of all studies, '
            f'with 10 in {statistics.coverage(10, fewest.paired):.0%} (measured with normal numbers). Of many '
            'differences some leave out zero by chance.'
        )
    return notes


def _names_settings(case: Case) -> bool:
    """Whether a case's name tells its settings already."""
    return all(f'{name}={value}' in case.name for name, value in case.settings.items())


def _with_unit(label: str, unit: str) -> str:
    return f'{label}, {unit}' if unit else label


def _text_of(summary: Summary, metric: Metric) -> str:
    if not summary.n:
        return NOTHING
    text = metric.text(summary.mean)
    return text if summary.deviation is None else f'{text} ± {metric.text(summary.deviation)}'


def _text_of_difference(difference: Optional[Difference], metric: Metric) -> str:
    if not difference:
        return NOTHING
    text = metric.text(difference.mean, signed=True)
    if difference.low is None or difference.high is None:
        return text
    return f'{text} [{metric.text(difference.low, signed=True)}, {metric.text(difference.high, signed=True)}]'


def _with_runs(value: str, runs: Sequence[Run], told: int) -> str:
    if len(runs) == told:
        return value
    names = ', '.join(run.name for run in runs[:_NAMES_SHOWN])
    more = len(runs) - _NAMES_SHOWN
    return f'{value} ({names}{f" and {more} more" if more > 0 else ""})'
