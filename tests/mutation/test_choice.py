"""Tests of the choice of tests for a mutant, and of the figures of a sample."""

from typing import Any, Dict, List

from tests.mutation.choice import choose, interval, is_significantly_below, table

MUTANT = {'file': 'data/order.py', 'first': 10, 'last': 12}


def of(lines: List[int], seconds: float, **fixtures: float) -> Dict[str, Any]:
    """A test that executes lines of a file."""
    return {'lines': {'data/order.py': lines}, 'seconds': seconds, 'fixtures': fixtures}


def test_tests_of_the_modules_own_file__run_first() -> None:
    names = ('tests/test_a.py::test', 'tests/data/test_order.py::dear', 'tests/data/test_order.py::cheap')
    tests = {name: of([10], seconds) for name, seconds in zip(names, (0.1, 2.0, 1.0))}
    assert choose(tests, MUTANT, 3.0).tests == [names[2], names[1]]


def test_tests_of_a_statement__run_the_cheapest_first_within_the_budget() -> None:
    tests = {
        'dear': of([10], 30.0),
        'other line': of([9, 13], 0.1),
        'other file': {'lines': {'data/records.py': [11]}, 'seconds': 0.1, 'fixtures': {}},
        'cheap': of([8, 12], 1.0),
        'shares a run': of([11], 2.0, run=5.0),
        'shares it, too': of([11], 3.0, run=5.0),
    }
    chosen = choose(tests, MUTANT, 12.0)
    # The shared fixture is counted once.
    assert chosen == (['cheap', 'shares a run', 'shares it, too'], 1, 11.0)
    assert choose(tests, MUTANT, 10.9).tests == ['cheap', 'shares a run']
    # One test runs, whatever it costs.
    assert choose({'dear': of([10], 30.0)}, MUTANT, 1.0) == (['dear'], 0, 30.0)


def test_line_that_no_test_executes__gets_the_tests_of_its_file() -> None:
    tests = {'near': of([9], 1.0), 'other': {'lines': {}, 'seconds': 1.0, 'fixtures': {}}}
    assert choose(tests, MUTANT, 10.0).tests == ['near']
    assert choose({}, MUTANT, 10.0) == ([], 0, 0.0)


def test_file_of_constants__gets_the_tests_beside_it_and_those_of_pages() -> None:
    idle = {'lines': {}, 'seconds': 1.0, 'fixtures': {}}
    tests = {
        f'tests/{name}.py::test': idle
        for name in ('tools/weights/test_a', 'tools/test_b', 'tpu/test_c', 'test_d', 'docs/test_pages', 'docs/test_map')
    }
    chosen = {
        file: choose(tests, {**MUTANT, 'file': file}, 10.0).tests
        for file in ('tools/weights/choices.py', 'inception_v3/tpu/supported.py', 'inception_v3/presets.py')
    }
    names = ('tools/weights/test_a', 'tpu/test_c', 'test_d')
    assert [{*each} for each in chosen.values()] == [
        {f'tests/{name}.py::test', 'tests/docs/test_pages.py::test'} for name in names
    ]


def test_interval__is_that_of_wilson() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    for hits, number, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        assert [round(end, 4) for end in interval(hits, number)] == [low, high]


def test_table__counts_equal_mutants_apart() -> None:
    kinds = {'noticed': 90, 'stopped': 2, 'survived': 6, 'no test': 2}
    results = [
        {'key': f'data/{kind} {number}', 'result': kind} for kind, many in kinds.items() for number in range(many)
    ]
    results.append({'key': 'console/x', 'result': 'survived'})
    equal = {'data/survived 0': 'rounding', 'data/noticed 0': 'not any more'}
    rows = table(results, equal, {'data/order.py': 300, 'console/paths.py': 20, 'tools/paired.py': 4}).splitlines()
    assert rows[2].startswith('| all | 324 | 101 | 92 | 1 | 8 | 92% (')
    assert rows[3].startswith('| `console` | 20 | 1 | 0 | 0 | 1 | 0% (')
    assert rows[4].startswith('| `data` | 300 | 100 | 92 | 1 | 7 | 93% (')
    assert rows[5] == '| `tools` | 4 | 0 | 0 | 0 | 0 | - |'
    assert not is_significantly_below(0.95, results, equal) and is_significantly_below(0.98, results, equal)
