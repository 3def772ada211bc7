"""Tests of files of weights that read other files, or that ask for far more memory than their tensors need."""

import functools
import io
import os
import zipfile
import zlib
from typing import Any, Callable, Dict, List

import h5py
import numpy as np
import pytest

from inception_v3.commands.weights import foreign, keras_files
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.weights import narrow, peak_of

# What a file inflates to, and what reading it may take.
LARGE, MOST = 1 << 24, 1 << 23
SECRET = np.arange(9, dtype=np.float32)
KERNEL = 'conv2d/conv2d/kernel:0'


@functools.lru_cache()
def written() -> bytes:
    weights = narrow()
    return keras_files.write(weights.architecture.of(False), weights.values)


def of_keras(change: Callable[[h5py.File], None]) -> bytes:
    """A file of Keras with a change."""
    content = io.BytesIO(written())
    with h5py.File(content, 'r+') as file:
        change(file)
    return content.getvalue()


def external_storage(group: h5py.Group, name: str) -> None:
    space = h5py.h5s.create_simple((9,), (9,))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_external(os.path.abspath('secret').encode(), 0, 36)
    h5py.h5d.create(group.id, name.encode(), h5py.h5t.IEEE_F32LE, space, plist)


def virtual(group: h5py.Group, name: str) -> None:
    layout = h5py.VirtualLayout((9,), np.float32)
    layout[:] = h5py.VirtualSource(os.path.abspath('secret.h5'), 'secret', (9,))
    group.create_virtual_dataset(name, layout)


def bomb(group: h5py.Group, name: str) -> None:
    """Three values, whose only chunk inflates to 16 MiB."""
    dataset = group.create_dataset(name, (3,), np.float32, chunks=(3,), compression='gzip')
    dataset.id.write_direct_chunk((0,), zlib.compress(bytes(LARGE)))


def large_chunk(group: h5py.Group, name: str) -> None:
    group.create_dataset(name, (3,), np.float32, chunks=(1 << 28,), maxshape=(None,), compression='gzip')


TOO_LARGE = r'its tensors need \S+ bytes of memory, too many for a file of'
HDF5_FILES: Dict[str, Any] = {
    'external storage': (external_storage, 'kernel:0 has its values in another file'),
    'virtual data set': (virtual, 'kernel:0 has its values in another file'),
    'external link': (
        lambda group, name: group.__setitem__(name, h5py.ExternalLink('secret.h5', 'secret')),
        'kernel:0 is a link to another place',
    ),
    'soft link': (lambda group, name: group.__setitem__(name, h5py.SoftLink('/a')), 'kernel:0 is a link to another'),
    'bomb': (bomb, 'kernel:0 inflates to more than its shape'),
    'large chunk': (large_chunk, TOO_LARGE),
    'unallocated': (
        lambda group, name: group.create_dataset(name, (1 << 40,), np.float32, chunks=(1 << 20,)),
        TOO_LARGE,
    ),
    'lzf': (lambda group, name: group.create_dataset(name, data=SECRET, compression='lzf'), 'h5repack -f NONE'),
    'texts': (
        lambda group, name: group.create_dataset(name, data=[b'a'], dtype=h5py.special_dtype(vlen=str)),
        'numbers',
    ),
}


def archived(content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', method) as archive:
        archive.writestr(keras_files.ARCHIVE_MEMBER, content)
    return file.getvalue()


def check_refused(read: Callable[[str], Any], path: Any, content: bytes, message: str) -> None:
    path.write_bytes(content)

    def refused() -> None:
        with pytest.raises(WeightsError, match=f'{path.name}: .*{message}'):
            read(str(path))

    assert peak_of(refused)[0] < MOST


@pytest.mark.parametrize(('name', 'ending'), [('bomb', 'keras'), *((name, 'h5') for name in HDF5_FILES)])
def test_hdf5__holds_its_own_values_and_no_more(name: str, ending: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    SECRET.tofile('secret')
    with h5py.File('secret.h5', 'w') as file:
        file['secret'] = SECRET
    make, message = HDF5_FILES[name]

    def change(file: h5py.File) -> None:
        del file[KERNEL]
        make(file[KERNEL.rpartition('/')[0]], 'kernel:0')

    content = of_keras(change)
    content = archived(content) if ending == 'keras' else content
    check_refused(foreign.read, tmp_path / f'a.{ending}', content, f'is no file of weights, or is damaged .*{message}')


def test_hdf5__compressed_as_h5py_does_it_is_read() -> None:
    def compress(file: h5py.File) -> None:
        for name, filters in (('conv2d', False), ('conv2d_1', True)):
            values = file[f'{name}/{name}/kernel:0'][()]
            del file[f'{name}/{name}/kernel:0']
            options = {'compression': 'gzip', 'chunks': (2, 2, 2, 5), 'shuffle': filters, 'fletcher32': filters}
            file.create_dataset(f'{name}/{name}/kernel:0', data=values, **options)
        # A group in itself ends no walk.
        file['conv2d/again'] = file['conv2d']

    found = keras_files.read(of_keras(compress))
    for number, layer in enumerate(narrow().architecture.layers[:2]):
        expected = narrow().values[f'{layer.scope}/weights']
        np.testing.assert_array_equal(found.arrays[f'conv2d_{number}/kernel'], expected)


def test_keras_archive__of_a_large_member_is_refused_before_it_is_inflated(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sources, '_SMALL', LARGE - 1)
    content = archived(bytes(LARGE), zipfile.ZIP_DEFLATED)
    check_refused(foreign.read, tmp_path / 'a.keras', content, 'its tensors need 16,777,216 bytes of memory')


def npz(header: bytes, values: bytes = b'', version: bytes = b'\1\0', method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    length = len(header).to_bytes(2 if version == b'\1\0' else 4, 'little')
    with zipfile.ZipFile(file, 'w', method) as archive:
        archive.writestr('a.npy', b'\x93NUMPY' + version + length + header + values)
    return file.getvalue()


def header(shape: str, dtype: str = "'<f4'", order: str = 'False') -> bytes:
    return f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()


NPZ_FILES = {
    '4 PiB': (npz(header(f'({1 << 50},)')), 'its tensors need 4,503,'),
    'one value too many': (npz(header('(2, 2)'), bytes(12)), ''),
    'negative': (npz(header('(-1,)'), bytes(4)), 'shape'),
    'objects': (npz(header('(1,)', "'O'"), bytes(8)), 'type object'),
    'broken header': (npz(b"{'descr': "), ''),
    'long header': (npz(b' ' * LARGE, version=b'\2\0'), ''),
    'another method': (npz(header('(1,)'), bytes(4), method=zipfile.ZIP_BZIP2), 'another method than deflate'),
}


@pytest.mark.parametrize('name', [*NPZ_FILES])
def test_npz__with_a_false_header_is_refused(name: str, tmp_path: Any) -> None:
    content, message = NPZ_FILES[name]
    check_refused(sources.read, tmp_path / 'a.npz', content, f'is no .npz file of arrays, or is damaged .*{message}')


def test_npz__of_too_many_arrays_is_refused_before_they_are_read(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sources, '_MOST_MEMBERS', 2)
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        for number in range(3):
            archive.writestr(f'{number}.npy', b'')
    readers: List[Callable[[str], Any]] = [sources.read, foreign.read]
    for read in readers:
        check_refused(read, tmp_path / 'a.npz', file.getvalue(), 'it holds 3 arrays; weights are at most 2')


def test_npz__inflates_what_its_arrays_need_alone(tmp_path: Any) -> None:
    path = tmp_path / 'a.npz'
    values = np.arange(6, dtype=np.float32)
    path.write_bytes(npz(header('(2, 3)', order='True'), values.tobytes() + bytes(LARGE)))
    peak, source = peak_of(lambda: sources.read(str(path)))
    np.testing.assert_array_equal(source.values['a'], values.reshape(3, 2).T)
    assert peak < MOST
    np.savez_compressed(path, a=np.zeros([0, 3]), b=np.float64(2), c=np.asfortranarray(np.eye(3)[:2]))
    read = sources.read(str(path)).values
    np.testing.assert_equal(read, {'a': np.zeros([0, 3]), 'b': np.array(2.0), 'c': np.eye(3)[:2]})
