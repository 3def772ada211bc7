"""The diagrams of the documentation are current, and their values agree with formulas by hand."""

import numpy as np
import pytest

from docs import diagrams


@pytest.mark.parametrize('name', sorted(diagrams.DIAGRAMS))
def test_diagram__is_current(name: str) -> None:
    # If this fails: ./run python -m docs.diagrams
    assert (diagrams.FOLDER / f'{name}.svg').read_text(encoding='utf-8') == diagrams.DIAGRAMS[name]()


def test_paths__are_those_of_the_formulas() -> None:
    for name, part in (('sgd', 0.0), ('momentum', 0.9)):
        weights, update = np.array(diagrams.START), np.zeros(2)
        points = diagrams.paths()[name]
        assert len(points) == diagrams.STEPS + 1
        for point in points:
            np.testing.assert_allclose(point, weights, atol=1e-5)
            update = part * update - diagrams.RATE * np.array([1.0, diagrams.CURVATURE]) * weights
            weights = weights + update


def test_timescale__waits_for_the_slower_side() -> None:
    # 1,024 images of 2.08 ms are 1,064.96 ms on two cores: longer than a step of 815 ms.
    host, device = diagrams.timescale(2)
    np.testing.assert_allclose(np.diff(host), 1064.96)
    np.testing.assert_allclose(np.subtract(device, host), 1064.96)
    # On eight cores, the host is two batches ahead, and begins the next batch when the device has taken one.
    host, device = diagrams.timescale(8)
    np.testing.assert_allclose(np.diff(device), 815)
    np.testing.assert_allclose(host, [0, 266.24, 2 * 266.24, 3 * 266.24, 266.24 + 815, 266.24 + 2 * 815])


def test_updates__of_eight_replicas_meet_one_of_a_tpu_after_each_step() -> None:
    gpu, tpu = diagrams.moved(0.9997, 24), diagrams.moved(0.9997**8, 3)
    assert tpu[1] == pytest.approx(1 - 0.9997**8) and len({*gpu}) == 25
    np.testing.assert_allclose(gpu[::8], tpu, atol=1e-15)
