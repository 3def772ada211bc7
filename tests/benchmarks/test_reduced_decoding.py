"""The benchmark of decoding at a part of the size."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks import reduced_decoding
from console.tensorflow_versions import tf
from preprocessing.decoding import decode_image
from tests.support.graphs import evaluate
from tests.support.images import CAT
from tests.support.photos import encode_jpeg


def sampled(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The values of an image at positions between its pixels."""
    for axis, places in enumerate([rows, columns]):
        low = np.floor(places).astype(int)
        share = (places - low).reshape([-1, 1, 1] if axis == 0 else [-1, 1])
        image = image.take(low, axis) * (1 - share) + image.take(low + 1, axis) * share
    return image


@pytest.mark.parametrize('reduction', reduced_decoding.REDUCTIONS)
def test_reduced__samples_means_of_blocks_at_the_positions_of_evaluation(reduction: int) -> None:
    height, width = 60, 90
    encoded = tf.constant(encode_jpeg(CAT.repeat(2, 0).repeat(2, 1)))  # 600 x 902
    whole, result = evaluate(decode_image(encoded), reduced_decoding.reduced(encoded, reduction, height, width))
    rows, columns = whole.shape[0] // reduction, whole.shape[1] // reduction
    blocks = whole[: rows * reduction, : columns * reduction].reshape([rows, reduction, columns, reduction, 3])
    means = blocks.astype(float).mean((1, 3))
    # The central crop: 37 and 56 pixels are left out on each side.
    places = [37 + np.arange(height) * (526 / height), 56 + np.arange(width) * (790 / width)]
    expected = sampled(means, *[(each - (reduction - 1) / 2) / reduction for each in places])
    # Means of decoded pixels are clipped and rounded before, the reduced ones after.
    assert np.abs(result - expected).mean() < 1
    # Positions that are wrong by a quarter of a reduced pixel differ more.
    for wrong in (-0.25, 0.25):
        shifted = sampled(means, *[(each - (reduction - 1) / 2) / reduction + wrong for each in places])
        assert np.abs(result - shifted).mean() > 1.2


def test_command__prints_ratios_and_differences(monkeypatch: Any, capsys: Any) -> None:
    for name, value in {'HEIGHT': 400, 'WIDTH': 600, '_IMAGES': 1}.items():
        monkeypatch.setattr(reduced_decoding, name, value)
    monkeypatch.setattr(reduced_decoding, 'KINDS', reduced_decoding.KINDS[1:2])
    arguments = ['reduced', '--height=75', '--width=75', '--repeats=2']
    assert reduced_decoding.main(arguments) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert 'largest difference' in head and [line.split()[3] for line in lines] == ['1/2', '1/4']
    assert reduced_decoding.main([*arguments, '--json']) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row['reduction'] for row in rows] == [2, 4]
    for row in rows:
        assert len(row['cpu_ms']) == len(row['reduced_cpu_ms']) == 2
        assert 0 < row['mean_difference'] < row['largest_difference']


@pytest.mark.parametrize('flag', ['--height=438', '--width=438', '--preprocessing=vgg'])
def test_command__refuses_what_it_does_not_measure(flag: str, capsys: Any) -> None:
    assert reduced_decoding.main(['reduced', flag]) == 2
    assert flag in capsys.readouterr().err
