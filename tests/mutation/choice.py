"""Choosing the tests of a mutant, and the figures of a sample."""

import math
from typing import Any, Dict, List, NamedTuple, Tuple

# The tests of pages that are generated from the program, such as the page of the flags.
_PAGES = 'tests/docs/test_pages.py'
SURVIVED = ('survived', 'no test')


class Choice(NamedTuple):
    """The tests that run for a mutant.

    Attributes:
      tests: their names, in the order in which they run.
      left: the number of further tests, which the budget leaves out.
      seconds: the CPU time of the tests without the mutant, including their fixtures.
    """

    tests: List[str]
    left: int
    seconds: float


def choose(tests: Dict[str, Dict[str, Any]], mutant: Dict[str, Any], budget: float) -> Choice:
    """The tests that execute the statement of a mutant, as many as the budget in CPU-seconds allows.

    The tests in the module's own test file come first, and cheaper tests before dearer ones. A statement that no test
    executes runs at import, or never. It gets the tests of other lines of its file or, if the file has only constants,
    of the folder that mirrors its package; and the tests of the pages that show such constants.
    """
    span = range(mutant['first'], mutant['last'] + 1)
    of_file = {
        name: set(test['lines'][mutant['file']]) for name, test in tests.items() if mutant['file'] in test['lines']
    }
    names = [name for name, lines in of_file.items() if not lines.isdisjoint(span)]
    if not names:
        package = 'tests/' + mutant['file'].rpartition('/')[0].replace('inception_v3', '').strip('/')
        beside = [name for name in tests if name.rpartition('/')[0] == package.rstrip('/')]
        names = [*{**dict.fromkeys(of_file or beside), **dict.fromkeys(n for n in tests if n.startswith(_PAGES))}]
    own = '/test_' + mutant['file'].rpartition('/')[2]

    def order(name: str) -> Tuple[bool, float, str]:
        cost = tests[name]['seconds'] + sum(tests[name]['fixtures'].values())
        return not name.partition('::')[0].endswith(own), cost, name

    names.sort(key=order)
    seconds = 0.0
    ready: Dict[str, float] = {}
    chosen: List[str] = []
    for name in names:
        new = {fixture: cost for fixture, cost in tests[name]['fixtures'].items() if fixture not in ready}
        cost = tests[name]['seconds'] + sum(new.values())
        if chosen and seconds + cost > budget:
            break
        chosen.append(name)
        ready.update(new)
        seconds += cost
    return Choice(chosen, len(names) - len(chosen), seconds)


def interval(hits: int, of: int) -> Tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson's, 1927)."""
    if not of:
        return 0.0, 1.0
    z = 1.959964
    center = (hits + z * z / 2) / (of + z * z)
    half = z / (of + z * z) * math.sqrt(hits * (of - hits) / of + z * z / 4)
    return max(0.0, center - half), min(1.0, center + half)


def share(hits: int, of: int) -> str:
    """A share and its interval as text."""
    low, high = interval(hits, of)
    return f'{hits / of:.0%} ({low:.0%} to {high:.0%})' if of else '-'


class Counts(NamedTuple):
    """The numbers of mutants of a sample: all, noticed by a test, and without any effect."""

    mutants: int
    noticed: int
    equal: int

    @property
    def changing(self) -> int:
        """The number of mutants that change something."""
        return self.mutants - self.equal


def count(results: List[Dict[str, Any]], equal: Dict[str, str]) -> Counts:
    """Counts results of the journal, each with the mutant's `key` and `result`; `equal` has keys of equal mutants."""
    noticed = sum(each['result'] not in SURVIVED for each in results)
    return Counts(len(results), noticed, sum(each['result'] in SURVIVED and each['key'] in equal for each in results))


def is_significantly_below(wanted: float, results: List[Dict[str, Any]], equal: Dict[str, str]) -> bool:
    """Whether even the upper end of the interval of the noticed share is below the wanted one."""
    counts = count(results, equal)
    return interval(counts.noticed, counts.changing)[1] < wanted


def table(results: List[Dict[str, Any]], equal: Dict[str, str], places: Dict[str, int]) -> str:
    """The Markdown table of the results: a row for each package, the first one for all.

    Args:
      results: the results in the journal.
      equal: the reasons why mutants change nothing, by key.
      places: the number of places for mutants in each file.
    """
    heads = ('package', 'places', 'mutants', 'noticed', 'equal', 'survivors', 'noticed, of those that change something')
    rows = [f'| {" | ".join(heads)} |', '|---' * len(heads) + '|']
    for package in ('', *sorted({file.split('/')[0] for file in places})):
        counts = count([each for each in results if each['key'].startswith(package)], equal)
        of = sum(number for file, number in places.items() if file.startswith(package))
        survivors = counts.changing - counts.noticed
        figures = (of, *counts, survivors, share(counts.noticed, counts.changing))
        rows.append(f'| {f"`{package}`" if package else "all"} | ' + ' | '.join(map(str, figures)) + ' |')
    return '\n'.join(rows)
