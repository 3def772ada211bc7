"""The benchmark of growth: its exponents, its tables, its data, and a small point of each kind of work."""

import json
import pathlib
from typing import Any, Dict

import numpy as np
import pytest

from benchmarks import charts
from benchmarks.comparison import spread
from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling import points
from benchmarks.scaling.points import Point
from data import records, tfrecord


@pytest.mark.parametrize('power', [0.0, 0.5, 1.0, 2.0])
def test_exponent__is_the_slope_of_the_last_two_points(power: float) -> None:
    work = [10, 100, 700]
    costs = [99.0, *(3.5 * value**power for value in work[1:])]
    slope = np.polyfit(np.log(work[1:]), np.log(costs[1:]), 1)[0]
    assert scaling.exponent(work, costs) == pytest.approx(slope)
    assert scaling.exponent(work, costs) == pytest.approx(power)


def invented(point: Point) -> Dict[str, float]:
    return {'start s': {'seed': 0.5, 'no seed': 2.0}[point.variant] * point.value}


def test_command__shows_and_draws_medians_and_growth(tmp_path: pathlib.Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(scaling, 'measure', invented)
    path = tmp_path / 'growth.png'
    assert scaling.main(['scaling', '--axes=hosts', '--largest=16', f'--plot={path}']) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:] == [['4', '8', '2'], ['16', '32', '8'], ['growth', '1.00', '1.00']]
    assert path.read_bytes().startswith(b'\x89PNG')
    assert scaling.main(['scaling', '--axes=hosts', '--largest=4', '--repeats=2', '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['hosts']['4']['start s, seed'] == {'median': 2.0, 'least': 2.0, 'greatest': 2.0}


def test_relative__divides_by_the_smallest_work() -> None:
    rows = {10: {'a': spread([2.0, 4.0, 9.0])}, 30: {'a': spread([6.0])}}
    assert scaling.relative(rows) == {'a': [(10, 1.0), (30, 1.5)]}


@pytest.mark.parametrize(
    ('flag', 'words'),
    [
        ('--axes=people', '--axes=people: people is not one of images, files, hosts, classes, pixels'),
        ('--largest=10', '--largest=10: leaves fewer than two amounts of images'),
        ('--preset=digits', '--preset: this benchmark sets the flags of its runs'),
        ('--height=75', '--height: this benchmark sets the flags of its runs'),
        ('--plot=a.svg', '--plot=a.svg: must be the path of a .png file'),
    ],
)
def test_command__refuses(flag: str, words: str, capsys: Any) -> None:
    assert scaling.main(['scaling', flag]) == 2
    assert words in capsys.readouterr().err


def test_charts__draw_each_kind_of_work(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    drawn = []
    monkeypatch.setattr(charts, '_save', lambda drawing, path: drawn.append(drawing))
    charts.growth('x.png', 'here', {'images': {'s': [(10, 1.0), (100, 3.0)]}, 'files': {'s': [(1, 1.0), (2, 1.0)]}})
    left, right = drawn[0].axes
    assert [line.get_label() for line in left.lines] == ['s', 'proportional']
    np.testing.assert_array_equal(left.lines[0].get_xydata(), [[10, 1], [100, 3]])
    np.testing.assert_array_equal(left.lines[1].get_xydata(), [[10, 1], [100, 10]])
    assert right.get_xlabel() == 'files'


@pytest.mark.parametrize(('images', 'files'), [(10, 4), (3, 1)])
def test_records__have_the_size_and_number_that_are_asked_for(images: int, files: int, tmp_path: pathlib.Path) -> None:
    size = points.write_records(str(tmp_path), images, files)
    paths = records.find_shards(str(tmp_path), records.TRAIN)
    assert len(paths) == files
    assert sum(tfrecord.count_records(paths)) == images
    assert sum(pathlib.Path(path).stat().st_size for path in paths) == images * size


@pytest.mark.program
def test_points__of_every_kind_are_measured(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    for axis, value, variant, quantities in (
        ('images', 1000, 'counting', {'counting s'}),
        ('images', 1000, 'resumed', {'start s', 'start CPU-s', 'MB read at the start'}),
        ('hosts', 64, 'seed', {'start s', 'start CPU-s', 'CPU-ms / image', 'peak MB', 'read / used'}),
        ('classes', 10, '', {'parameters', 'graph CPU-s', 'step CPU-s', 'peak MB'}),
    ):
        found = scaling.measure(Point(axis, value, variant, str(tmp_path)))
        assert found.keys() == quantities and min(found.values()) > 0, axis
        # A record that is used has been read.
        assert found.get('read / used', 1) >= 1
    # 21,768,352 parameters without classes and auxiliary head, and 2,048 + 1 for each class.
    assert found['parameters'] == 21_768_352 + 10 * 2049
    with pytest.raises(scaling.MeasurementError, match=r'64 nowhere: .*nowhere'):
        scaling.measure(Point('nowhere', 64, '', ''))
