"""Tests of reading state dicts without PyTorch: files that PyTorch wrote, and files that are damaged or dangerous.

PyTorch 2.14.1 wrote `pytorch_archive.pth` and `pytorch_pickles.pth`:
  w = torch.arange(6.).reshape(2, 3)
  d = OrderedDict(w=w, t=w.t(), n=torch.tensor(3), h=torch.tensor([1.5, -2.], dtype=torch.bfloat16),
                  p=torch.nn.Parameter(torch.ones(2, dtype=torch.float64)))
  torch.save(d, FILE, _use_new_zipfile_serialization=True), and the same with False.
"""

import functools
import io
import os
import pathlib
import pickle
import zipfile
from typing import Any, List

import numpy as np
import pytest

from inception_v3.weights.sources import WeightsError, damage_explained
from tests.support.state_dicts import Harmful, with_training_state
from tests.support.weights import peak_of
from tools.weights import state_dicts

FOLDER = pathlib.Path(__file__).parent
WHOLE = state_dicts.write({'a': np.arange(4, dtype=np.float32).reshape(2, 2)})


def problem(content: bytes) -> str:
    refused = pytest.raises(WeightsError, match=r'^FILE: is not a state dict, or is damaged')
    with refused as caught, damage_explained('FILE', 'state dict'):
        state_dicts.read(content)
    return str(caught.value)


@pytest.mark.parametrize('name', ['pytorch_archive.pth', 'pytorch_pickles.pth'])
def test_read__returns_the_tensors_of_pytorchs_files(name: str) -> None:
    content = (FOLDER / name).read_bytes()
    found = state_dicts.read(content).models['']
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = {'w': w, 't': w.T, 'n': np.array(3), 'h': np.array([1.5, -2], np.float32), 'p': np.ones(2)}
    assert list(found) == list(expected)
    np.testing.assert_equal(found, expected)
    assert [str(values.dtype) for values in found.values()] == ['float32', 'float32', 'int64', 'float32', 'float64']
    for end in (0, 10, 100, len(content) // 2, len(content) - 1):
        problem(content[:end])


def test_write__gives_the_same_file_at_any_time() -> None:
    with zipfile.ZipFile(io.BytesIO(WHOLE)) as archive:
        # The earliest that the format has.
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize('protocol', [2, 4])
def test_read__runs_nothing_and_skips_objects_of_other_types(protocol: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    harm = pickle.dumps(Harmful(), protocol)
    assert 'it has not the signature of a PyTorch file' in problem(harm)
    with zipfile.ZipFile('b.pth', 'w') as archive:
        archive.writestr('x/data.pkl', harm)
    text = problem((tmp_path / 'b.pth').read_bytes())
    assert 'it holds no dict of tensors by name; save one: torch.save(model.state_dict(), NEW_FILE)' in text
    models = {'model': {'a': np.ones(2, np.float32)}, 'model_ema': {'a': np.zeros(2, np.float32)}}
    np.testing.assert_equal(state_dicts.read(with_training_state(models, protocol)).models, models)
    assert not os.path.exists('harmed')


def rewritten(old: bytes, new: bytes) -> bytes:
    """A state dict's file with another text in its pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(WHOLE)) as sound, zipfile.ZipFile(file, 'w') as written:
        for name in sound.namelist():
            own = sound.read(name)
            assert not name.endswith('.pkl') or old in own
            written.writestr(name, own.replace(old, new, 1) if name.endswith('.pkl') else own)
    return file.getvalue()


# The pickle of a tensor of 2 x 2 values: 'J' begins a number.
SHAPE, STRIDES, OFFSET = (b'(J\x02\0\0\0J\x02\0\0\0t', b'(J\x02\0\0\0J\x01\0\0\0t', b'QJ\0\0\0\0')


@pytest.mark.parametrize(
    ('old', 'new'),
    [
        # One value past the storage; the first one before it; more values than any memory has.
        (SHAPE, b'(J\x02\0\0\0J\x03\0\0\0t'),
        (OFFSET, b'QJ\x01\0\0\0'),
        (OFFSET, b'QJ\xff\xff\xff\xff'),
        (STRIDES, b'(J\x03\0\0\0J\x01\0\0\0t'),
        (STRIDES, b'(J\xff\xff\xff\xffJ\x01\0\0\0t'),
        (SHAPE, b'(J\xff\xff\xff\xffJ\x02\0\0\0t'),
    ],
)
def test_read__stays_inside_of_a_storage(old: bytes, new: bytes) -> None:
    np.testing.assert_array_equal(state_dicts.read(WHOLE).models['']['a'], [[0, 1], [2, 3]])
    text = problem(rewritten(old, new))
    assert 'more values than its storage' in text or 'has the shape' in text


def test_read__allocates_what_its_tensors_need_alone(monkeypatch: Any) -> None:
    large, most = 1 << 22, 1 << 20
    monkeypatch.setattr(state_dicts, '_LONGEST_PICKLE', 1 << 16)
    # A large pickle; a tensor of 2^60 values from a storage of four; a memo of 2^31 objects.
    for content in (
        rewritten(b'\x80\x02', b'\x80\x02' + b'N0' * (large // 2)),
        rewritten(SHAPE + STRIDES, b'(J\0\0\0\x40J\0\0\0\x40t(J\0\0\0\0J\0\0\0\0t'),
        rewritten(b'u.', b'r\xff\xff\xff\x7fu.'),
    ):
        peak, text = peak_of(functools.partial(problem, content))
        assert peak < 2 * large + most and 'damaged' in text
    assert 'no dict of tensors' in problem(state_dicts.write({}))


def test_view__has_the_values_at_offset_and_strides() -> None:
    storage = np.arange(6, dtype='<f4')

    def tensor(offset: int, shape: Any, strides: Any) -> Any:
        return state_dicts._Tensor('FloatStorage', '0', offset, shape, strides)

    np.testing.assert_array_equal(state_dicts._view(storage, tensor(1, (2, 2), (3, 1)), 'a'), [[1, 2], [4, 5]])
    np.testing.assert_array_equal(state_dicts._view(storage, tensor(5, (), ()), 'a'), 5)
    assert state_dicts._view(storage, tensor(9, (0, 2), (2, 1)), 'a').shape == (0, 2)
    with pytest.raises(ValueError, match=r'^a has more values than its storage'):
        state_dicts._view(storage, tensor(2, (2, 2), (3, 1)), 'a')
    for wrong in (tensor(-1, (1,), (1,)), tensor(0, (-1,), (1,)), tensor(0, (1,), (-1,)), tensor(0, (1,), (1, 1))):
        with pytest.raises(ValueError, match=r'a tensor has the shape \('):
            state_dicts._view(storage, wrong, 'a')
    assert (
        tensor(1, (2, 3), (3, 1)).bytes == 24 and tensor(1, (2, 3), (3, 1))._replace(kind='DoubleStorage').bytes == 48
    )


def test_dicts__are_found_three_levels_deep_and_once() -> None:
    inner = {'d': {'e': 1}}
    shared = {'x': 1}
    content = {'a': {'b': {'c': inner}}, 1: shared, 'again': shared, 'no': [{}]}
    assert {**state_dicts._dicts(content)} == {
        '': content, 'a': {'b': {'c': inner}}, 'a.b': {'c': inner}, 'a.b.c': inner, '1': shared,
    }  # fmt: skip
    assert state_dicts._dicts([content]) == {}


def test_settings__are_plain_shallow_and_few(monkeypatch: Any) -> None:
    tensor = state_dicts._Tensor('FloatStorage', '0', 0, (), ())
    plain: List[Any] = [None, 'a', 1, 1.5, True, [[[1]]], ({1: ('a',)},), {}]
    others: List[Any] = [b'a', [[[[1]]]], [{'a': [[]]}], [object()], {'a': tensor}, {(b'a',): 1}, {1, 2}]
    assert all(map(state_dicts._is_plain, plain)) and not any(map(state_dicts._is_plain, others))
    monkeypatch.setattr(state_dicts, '_MOST_SETTINGS', 8)
    assert state_dicts._is_plain([1] * 4) and state_dicts._is_plain({'a': [1] * 3})
    assert not state_dicts._is_plain([1] * 5) and not state_dicts._is_plain({'a': [1] * 4})


@pytest.mark.parametrize(
    ('members', 'message'),
    [
        ({'x/data.pkl': pickle.dumps({}, 2), 'y/data.pkl': b''}, 'the archive has no data.pkl'),
        ({'data.pkl': pickle.dumps({}, 2)}, 'the archive has no data.pkl'),
        ({'x/data.pkl': pickle.dumps({}, 2), 'x/byteorder': b'big'}, 'its numbers are not little-endian'),
        ({'x/data.pkl': pickle.dumps({}, 2), 'x/byteorder': b'little'}, 'it holds no dict of tensors by name'),
    ],
)
def test_read__of_another_archive_says_why(members: Any, message: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert message in problem(file.getvalue())
