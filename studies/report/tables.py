"""The tables of a report, as texts: a page and a Markdown file show the same."""

from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from inception_v3.model_dir.files import now
from studies.report import findings, statistics
from studies.report.findings import Findings
from studies.report.runs import METRICS, THROUGHPUT, Case, Metric, Run
from studies.report.statistics import Difference, Summary

NOTHING = '–'
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """A line of a table: its texts, and the indices of the cases that it is about (none: of all)."""

    cells: Tuple[str, ...]
    cases: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """Texts in rows: the columns from `numbers` on are of numbers, those before are of words."""

    header: Tuple[str, ...]
    rows: Tuple[Row, ...]
    numbers: int


def percent(fraction: float) -> str:
    """A fraction in whole percents."""
    return f'{100 * fraction:.0f} %'


def with_unit(label: str, unit: str) -> str:
    """The heading of numbers."""
    return f'{label}, {unit}' if unit else label


def flags_of(settings: Mapping[str, str]) -> str:
    """Settings as they are written on a command line."""
    return ' '.join(f'--{name}={value}' for name, value in settings.items())


def current_minute() -> str:
    """The time, to the minute."""
    return now()[:16].replace('T', ' ') + ' UTC'


def standing(runs: Sequence[Run]) -> str:
    """How many runs are finished, and how many have failed."""
    finished, failed = sum(map(findings.is_finished, runs)), sum(bool(run.failure) for run in runs)
    return f'{finished} of {len(runs)} runs finished{f", {failed} failed" if failed else ""}'


def finals(found: Findings) -> Table:
    """What the cases ended with: mean ± standard deviation, how many runs got there, images/s."""
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
    """Pairs of cases: the mean of the later one less that of the earlier, with its interval."""
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


def failed(found: Findings) -> Table:
    """The runs that have failed, and why."""
    rows = [Row((run.name, findings.state(run), run.failure), (index,)) for index, run in _runs(found) if run.failure]
    return Table(('run', 'state', 'reason'), tuple(rows), numbers=3)


def unfinished(found: Findings) -> Table:
    """The runs that are not finished, and have not failed: how far they are."""
    rows = [
        Row((run.name, findings.state(run)), (index,))
        for index, run in _runs(found)
        if not run.failure and not findings.is_finished(run)
    ]
    return Table(('run', 'state'), tuple(rows), numbers=2)


def environment(runs: Sequence[Run]) -> Table:
    """Where the runs were made, and which of them differ in that."""
    rows = [Row((name, _with_runs(values))) for name, values in findings.environment(runs).items()]
    return Table(('', 'value'), tuple(rows), numbers=2)


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
            f'Differences have a {percent(statistics.CONFIDENCE)} percentile-bootstrap interval of '
            f'{statistics.RESAMPLES:,} resamples: of the differences by seed where both cases have the same seeds, '
            f'else of each case by itself; none below {statistics.FEWEST_RUNS} runs.'
        )
    if with_interval:
        fewest = min(with_interval, key=lambda difference: statistics.coverage(difference.n, difference.paired))
        here, with_ten = (percent(statistics.coverage(n, fewest.paired)) for n in (fewest.n, 10))
        notes.append(
            f'Few runs make it too narrow: with {fewest.n} {"pairs" if fewest.paired else "runs of a case"}, as here, '
            f'it holds the true difference in about {here} of all studies, with 10 in {with_ten} (measured with normal '
            'numbers). Of many differences some leave out zero by chance.'
        )
    return notes


def _runs(found: Findings) -> Iterator[Tuple[int, Run]]:
    """All runs, with the indices of their cases."""
    return ((index, run) for index, each in enumerate(found.cases) for run in each.case.runs)


def _names_settings(case: Case) -> bool:
    """Whether a case's name tells its settings already."""
    return all(f'{name}={value}' in case.name for name, value in case.settings.items())


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


def _with_runs(runs_by_value: Mapping[str, Sequence[Run]]) -> str:
    """What most runs tell, and what the others do."""
    most, *others = sorted(runs_by_value.items(), key=lambda item: -len(item[1]))
    texts = [most[0]]
    for value, runs in others:
        more = len(runs) - _NAMES_SHOWN
        names = ', '.join(run.name for run in runs[:_NAMES_SHOWN]) + (f' and {more} more' if more > 0 else '')
        texts.append(f'{value} in {names}')
    return '; but '.join(texts)
