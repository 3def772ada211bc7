"""The report of the study of streaming."""

from typing import Dict, List

import pytest

from studies.streaming import report
from studies.streaming.measurement import Measurement, Reading
from studies.streaming.report import COMPARED, Results


def results_of(values: Dict[Reading, List[float]]) -> Results:
    measured = {
        reading: [Measurement(8, value, 2.5, 90.0, None if reading.latency_ms is None else 0.5) for value in of_reading]
        for reading, of_reading in values.items()
    }
    return Results([0.0, 50.0], [1, 8], measured, {})


def test_gains__compare_measurements_in_the_same_round() -> None:
    a, b, c = [*COMPARED.values()][:3]
    found = results_of({a: [100.0, 200.0, 100.0], b: [110.0, 240.0, 100.0], c: [99.0, 240.0]})
    assert found.gain('B over A', report.SECOND) == pytest.approx((0.1, 0.0, 0.2))
    assert found.gain('C over A', report.SECOND) == pytest.approx((0.095, -0.01, 0.2))
    assert found.gain('C over B', report.SECOND) == pytest.approx((-0.05, -0.1, 0.0))
    # 2 ms an image instead of 2.5 ms: 25 % more images.
    found.measured[b] = [each._replace(cpu_ms=2.0) for each in found.measured[b]]
    assert found.gain('B over A', report.CPU_SECOND) == pytest.approx((0.25, 0.25, 0.25))
    assert found.gain('C over B', report.CPU_SECOND) == pytest.approx((-0.2, -0.2, -0.2))
    compared, with_latency = report.tables(found)
    assert compared.notes == [
        'B over A: images per second +10.0 % (+0.0 … +20.0), per CPU-second +25.0 % (+25.0 … +25.0); '
        'published: +11.2 %',
        'C over A: images per second +9.5 % (-1.0 … +20.0), per CPU-second +0.0 % (+0.0 … +0.0); '
        'published: throughput maintained',
        'C over B: images per second -5.0 % (-10.0 … +0.0), per CPU-second -20.0 % (-20.0 … -20.0); '
        'published: no figure',
    ]
    assert compared.rows[0][:2] == ('A: single files, local', '100 (100–200)')
    assert compared.rows[3][1:] == ('–',) * 5
    assert (a.read_ahead, a.latency_ms, c.latency_ms) == (8, None, 0)
    # C is also a reading of the grid.
    assert [row[:4] for row in with_latency.rows if row[0] == 'tar shards'][1] == (
        *('tar shards', '8', '170 (99–240)', '–'),
    )


def test_readings__have_no_duplicates() -> None:
    readings = Results([0.0, 50.0], [1, 8], {}, {}).readings()
    assert len(readings) == len(set(readings)) == 4 + 2 * 2 * 2
