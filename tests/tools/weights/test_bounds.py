"""Tests of files of weights that read other files, or that ask for far more memory than their tensors need."""

import io
import os
import zipfile
import zlib
from typing import Any, Callable, Dict

import h5py
import numpy as np
import pytest

from compat import tf
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tests.support.weights import keras_file, peak_of
from tools.weights import foreign, frozen_graphs, keras_files

# The bytes that a file inflates to, and the most that reading it may take.
LARGE, MOST = 1 << 24, 1 << 23
SECRET = np.arange(9, dtype=np.float32)
KERNEL = 'conv2d/conv2d/kernel:0'


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


TOO_LARGE = r'its tensors need \S+ bytes of memory, too many for a file of'
HDF5_FILES: Dict[str, Any] = {
    'external storage': (external_storage, 'kernel:0 has its values in another file'),
    'virtual data set': (virtual, 'kernel:0 has its values in another file'),
    'external link': (
        lambda group, name: group.__setitem__(name, h5py.ExternalLink('secret.h5', 'secret')),
        'kernel:0 is a link to another place',
    ),
    'soft link': (lambda group, name: group.__setitem__(name, h5py.SoftLink('/a')), 'kernel:0 is a link to another'),
    'bomb': (bomb, 'kernel:0 is compressed; h5repack -f NONE'),
    'unallocated': (
        lambda group, name: group.create_dataset(name, (1 << 40,), np.float32, chunks=(1 << 20,)),
        TOO_LARGE,
    ),
    'texts': (
        lambda group, name: group.create_dataset(name, data=[b'a'], dtype=h5py.special_dtype(vlen=str)),
        'numbers',
    ),
}


def archived(content: bytes, method: int, name: str = keras_files.ARCHIVE_MEMBER) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', method) as archive:
        archive.writestr(name, content)
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

    content = keras_file(change)
    content = archived(content, zipfile.ZIP_STORED) if ending == 'keras' else content
    check_refused(
        foreign.read, tmp_path / f'a.{ending}', content, f'is not a file of weights, or is damaged .*{message}'
    )


def test_hdf5__with_a_group_in_itself_ends_no_walk() -> None:
    def loop(file: h5py.File) -> None:
        file['conv2d/again'] = file['conv2d']

    assert 'conv2d_0/kernel' in keras_files.read(keras_file(loop)).arrays


ARCHIVES = {'a.npz': 'a.npy', 'a.keras': keras_files.ARCHIVE_MEMBER, 'a.pth': 'x/data.pkl'}


@pytest.mark.parametrize('name', [*ARCHIVES])
def test_archive__of_large_content_is_refused_before_it_is_inflated(name: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sources, '_SMALL', LARGE - 1)
    content = archived(bytes(LARGE), zipfile.ZIP_DEFLATED, ARCHIVES[name])
    check_refused(foreign.read, tmp_path / name, content, 'its tensors need 16,777,216 bytes of memory')
    # The directory claims 3 bytes.
    false = content.replace(LARGE.to_bytes(4, 'little'), b'\3\0\0\0')
    check_refused(foreign.read, tmp_path / name, false, 'or is damaged')
    check_refused(foreign.read, tmp_path / name, archived(b'abc', zipfile.ZIP_BZIP2, ARCHIVES[name]), 'than deflate')
    monkeypatch.setattr(sources, '_MOST_MEMBERS', 0)
    check_refused(foreign.read, tmp_path / name, content, 'it holds 1 arrays; weights are at most 0')


def npz(header: str, values: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        archive.writestr('a.npy', b'\x93NUMPY\1\0' + len(header).to_bytes(2, 'little') + header.encode() + values)
    return file.getvalue()


def header(shape: str, dtype: str = "'<f4'") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n"


NPZ_FILES = {
    '4 PiB': npz(header(f'({1 << 50},)'), bytes(4)),
    'one value too many': npz(header('(2, 2)'), bytes(12)),
    'negative': npz(header('(-1,)'), bytes(4)),
    'objects': npz(header('(1,)', "'O'"), bytes(8)),
    'broken header': npz("{'descr': ", b''),
}


@pytest.mark.parametrize('name', [*NPZ_FILES])
def test_npz__with_a_false_header_is_refused(name: str, tmp_path: Any) -> None:
    (tmp_path / 'a.npz').write_bytes(NPZ_FILES[name])
    with pytest.raises(WeightsError, match=r'a\.npz: is not a NumPy file of arrays, or is damaged'):
        sources.read(str(tmp_path / 'a.npz'))


def test_frozen_graph__counts_four_bytes_for_each_claimed_value() -> None:
    graph = tf.GraphDef()
    for name in ('one', 'other'):
        tensor = graph.node.add(name=name, op='Const').attr['value'].tensor
        tensor.dtype = tf.float32.as_datatype_enum
        for size in (1000, 500, 1000):
            tensor.tensor_shape.dim.add(size=size)
    with pytest.raises(ValueError, match='need 2,000,000,000 bytes'):
        frozen_graphs.constants_in(graph.SerializeToString())
