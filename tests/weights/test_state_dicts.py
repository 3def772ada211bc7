"""Tests of reading state dicts without PyTorch: files that PyTorch wrote, and files that are damaged or dangerous."""

import base64
import io
import os
import pickle
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest

from inception_v3.commands.weights import state_dicts
from inception_v3.weights.sources import WeightsError
from tests.support.state_dicts import Harmful, state_dict, with_training_state
from tests.support.weights import peak_of

# Written by PyTorch 2.14.1:
#   w = torch.arange(6.).reshape(2, 3)
#   d = OrderedDict(w=w, t=w.t(), n=torch.tensor(3), h=torch.tensor([1.5, -2.], dtype=torch.bfloat16),
#                   p=torch.nn.Parameter(torch.ones(2, dtype=torch.float64)))
#   torch.save(d, FILE, _use_new_zipfile_serialization=True), and the same with False; zlib and base85 of the files.
ARCHIVE = (
    'c-oy-&rj1(9Di%KZWKj8l;Q8+4u!F<gKY<dR8kK$0cJFW#4Kg2Y_Y6-yEh1)NDQc)B=Ky#n0PTBz49LzZXP_Ca4^P$CSE-'
    'H-s?8nje+vAx0iL_&yT+M`F5Mqct1j+5NaAC3L|4EuVX#B_}EmH9yGhhSmkm#%QTG~E?T9sIBDk%+sIE8b65n_p8;QF#z)AOfy-g'
    'b&K08B3ND&uF>4!hm7<x?Vxv^H?Cerp1U?d(36kP6snq8U@H-'
    'GuH7y<Ab1sSyV1zLcW_YsZ7Ap|c1Pq~R4QZUluS1*0Yrb_5Ulgc;b__={aFl^CbQFk4!CwdzgaU&dqcC3M)}d4LQFNCB>&9?A13e'
    '5@f)fs`>gTRiny=eA$x0;XC44>%VZztn?{M^CIF*6Zte^mAJRAzUDQTq6bC#9G;T+-NFq~(%vj!J5-'
    'x^$W_%30%oPjH>a1pMy*w97Y))x$H*dko>NKROlIn$^MUS~WqL>$5Xs^ASOc+(Laz%ZDB=yUdA=o!Q^AXTDMS}-'
    ')ZvHkEj!P7a_GD2ObgG4C$$g&r7oLw^PG6{*Qh^{0_l<nisFHfl%I$N{#pi#<JO-EKYi}R%gql8r@y=OH4X^bSOfw5)y&JhW2Ujy'
    'wZKn%>SV8fy@R}~+cHH#RV2IW{A-RToZm9Q^I2>GjBH55~o+SS!D@-'
    '|LhWUi9=W}GtizWlZsCSQaPV2sxoB~^+3=T`7l7OJ=L`TdU&W87a)sp-X4<<{Z1o{g<Bv_-Xp)3ZB75cv<#7HZnEs&GWxx&CXcwz'
    '6>g-'
    '+t&MpE~#DYC~zlRS)Ix;ci40sp9tQ`TGawCyY`wz|4Nxu!|(YPjvd+%og*ik~owBDV9v8M&ikMI+;$Vh7;0Ad^je@Qj#pEQt6bOk'
    'P^wX6qBjTl}{ak2=NhNE`1!^(W*~(LyJw$cYg;Oaqiab@?dUrsJZzY;qJ!k@xV77cvH7GGPv8W-'
    'NVq$BX_$t0^Qx^J*)>js`qFk%H1Pg)Vp1j)QEDY+lvbO>!^6snYeQ7MZMZZ$&Dy?7TY|iuME}VB;4T$dtjLWY8l%pO%MjEb?5j&*'
    'PjRPdWUn?KY`lgMhLR=uc|vw{(#_ML{{(A{srW$x;+'
)
PICKLES = (
    'c-'
    'nQ6%Wl&^6o&1wlY*h8+$q;`cesSwjnZb73RT@qxtWbO$V#12ZDj2H_P7Y7O4&3No`D5R9;2_rjx7=kj_pv9Dvai$nK|?Q|CyN~`('
    'i}Dzi#|meEa?7LUYKT{m`i2g<`t%ilPkCL?(U`c{?J_!X$=D0q!jAM4^<C@I>4XdokF)YtW+nFc4lAeiRwBUFfD;qs1&pQi&R8u1'
    '2#kmZ)>x)eA-vZ)1k*c}|)>$wb1Jq>>pg(!NMVe?9c20j1$UHC>fXya)4TlKMf@%Vij4hL?)1JdFCD6mgcM-'
    'i~cRGfj7<5T?l9wt!w8F*c&4Ctp{K25Rmc#dKP$R?D_*YuQ?|Td0>F{XtH)>dz&Pz2XXITpQsy*SI=@@i{2$oRB!_V7BxmF&B_zp'
    'a)Ztr-BMKU!XM3MmWvYf_SDvos~G};CzXSaiKzu9dFVF9U8tkNw-(ptyNqix=Qo~qBj~9@v_7f2UkmCfNK-'
    'Pr{yJB?L+GIqn=kfHf|7=5p}Ule-Aggx`$g8{kFs%2X{;Q0Qdg$9D`okdncqw4cwnFu%6^wkvNn$kIHwJ+h~mCAB^Q67V?iO`NtA'
    'X2T%6P$<ilS4(#IlyeYoylnYX)y$PF^v^LF(E}BK6MbXA%UHP{RyVR{wr8cDYZH<k04!X(#n~43{{X6~v%wpX!'
)


@pytest.mark.parametrize('encoded', [ARCHIVE, PICKLES])
def test_read__returns_the_tensors_of_pytorchs_files(encoded: str, tmp_path: Any) -> None:
    path = tmp_path / 'weights.pth'
    path.write_bytes(zlib.decompress(base64.b85decode(encoded)))
    found = state_dicts.read(str(path), '--weights=FILE')
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = {'w': w, 't': w.T, 'n': np.array(3), 'h': np.array([1.5, -2], np.float32), 'p': np.ones(2)}
    assert list(found) == list(expected)
    np.testing.assert_equal(found, expected)
    assert [str(values.dtype) for values in found.values()] == ['float32', 'float32', 'int64', 'float32', 'float64']


def test_read__finds_the_weights_below_training_state(tmp_path: Any) -> None:
    path = tmp_path / 'weights.pt'
    content = state_dict({'a': np.ones([2, 1], np.float32)})
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(str(path), 'w') as written:
        written.writestr('x/data/0', archive.read('archive/data/0'))
        inner = archive.read('archive/data.pkl')[2:-1]
        pickled = b'\x80\x02}(X\x05\x00\x00\x00epochK\x03X\x0a\x00\x00\x00state_dict' + inner + b'u.'
        written.writestr('x/data.pkl', pickled)
    np.testing.assert_equal(state_dicts.read(str(path), ''), {'a': np.ones([2, 1], np.float32)})


@pytest.mark.parametrize('protocol', [2, 4])
def test_read__runs_nothing(protocol: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile('harmful.pth', 'w') as archive:
        archive.writestr('x/data.pkl', pickle.dumps({'a': Harmful()}, protocol))
    with pytest.raises(WeightsError, match=r'has no state dict, but objects of (posix|os)\.system, which are not'):
        state_dicts.read('harmful.pth', '--weights=harmful.pth')
    (tmp_path / 'pickle.pth').write_bytes(pickle.dumps(Harmful(), protocol))
    with pytest.raises(WeightsError, match='it has not the signature of a PyTorch file'):
        state_dicts.read('pickle.pth', '--weights=pickle.pth')
    assert not os.path.exists('harmed')


@pytest.mark.parametrize('protocol', [2, 4])
def test_read__skips_objects_of_other_types_without_running_them(
    protocol: int, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    models = {'model': {'a': np.ones(2, np.float32)}, 'model_ema': {'a': np.zeros(2, np.float32)}}
    (tmp_path / 'checkpoint.pth').write_bytes(with_training_state(models, protocol))
    for key, expected in models.items():

        def choose(names: Any, key: str = key) -> str:
            assert names == {'model': ['a'], 'model_ema': ['a']}
            return key

        np.testing.assert_equal(state_dicts.read('checkpoint.pth', '', choose), expected)
    assert not os.path.exists('harmed')


def test_read__names_the_lines_that_save_the_state_dict(tmp_path: Any) -> None:
    path = tmp_path / 'model.pth'
    for module, kind, load in (
        ('torchvision.models.inception', 'objects of torchvision', 'model = torch.load(FILE, weights_only=False); '),
        ('__torch__.torchvision', 'a program of TorchScript', 'model = torch.jit.load(FILE); '),
    ):
        with zipfile.ZipFile(str(path), 'w') as archive:
            archive.writestr('x/data.pkl', b'\x80\x02c' + module.encode() + b'\nInception3\n)\x81}b.')
        with pytest.raises(WeightsError) as caught:
            state_dicts.read(str(path), 'FILE')
        assert kind in str(caught.value) and f'{load}torch.save(model.state_dict(), NEW_FILE)' in str(caught.value)


def rewritten(
    content: bytes, old: bytes = b'', new: bytes = b'', compress: int = zipfile.ZIP_STORED, **members: bytes
) -> bytes:
    """A state dict's file with another text in its pickle, and with other members."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as sound, zipfile.ZipFile(file, 'w', compress) as written:
        for name in sound.namelist():
            own = members.get(name.rpartition('/')[2], sound.read(name))
            written.writestr(name, own.replace(old, new, 1) if name.endswith('.pkl') else own)
    return file.getvalue()


# Of a tensor of 2 x 2 values: 'J' begins a number.
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
def test_read__stays_inside_of_a_storage(old: bytes, new: bytes, tmp_path: Any) -> None:
    path = tmp_path / 'weights.pth'
    whole = state_dict({'a': np.arange(4, dtype=np.float32).reshape(2, 2)})
    path.write_bytes(whole)
    np.testing.assert_array_equal(state_dicts.read(str(path), '')['a'], [[0, 1], [2, 3]])
    path.write_bytes(rewritten(whole, old, new))
    assert path.read_bytes() != whole
    with pytest.raises(WeightsError, match=r'more values than its storage|has the shape'):
        state_dicts.read(str(path), '')


def refused(path: str) -> None:
    with pytest.raises(WeightsError):
        state_dicts.read(path, 'FILE')


def test_read__inflates_and_allocates_what_its_tensors_need_alone(tmp_path: Any) -> None:
    path = tmp_path / 'weights.pth'
    whole = state_dict({'a': np.arange(4, dtype=np.float32).reshape(2, 2)})
    inflated = 1 << 26
    values = np.arange(4, dtype=np.float32).tobytes() + bytes(inflated)
    # A storage of 64 MiB for four values.
    path.write_bytes(rewritten(whole, compress=zipfile.ZIP_DEFLATED, **{'0': values}))
    peak, arrays = peak_of(lambda: state_dicts.read(str(path), ''))
    np.testing.assert_array_equal(arrays['a'], [[0, 1], [2, 3]])
    assert peak < inflated / 8
    # A pickle of 64 MiB; a tensor of 2^60 values from a storage of four; a memo of 2^31 objects.
    for content in (
        rewritten(whole, b'\x80\x02', b'\x80\x02' + b'N0' * (inflated // 2), compress=zipfile.ZIP_DEFLATED),
        rewritten(whole, SHAPE + STRIDES, b'(J\0\0\0\x40J\0\0\0\x40t(J\0\0\0\0J\0\0\0\0t'),
        rewritten(whole, b'u.', b'r\xff\xff\xff\x7fu.'),
    ):
        path.write_bytes(content)
        assert peak_of(lambda: refused(str(path)))[0] < inflated
    # A method whose parts cannot be inflated alone.
    path.write_bytes(rewritten(whole, compress=zipfile.ZIP_BZIP2))
    with pytest.raises(WeightsError, match='by another method than deflate'):
        state_dicts.read(str(path), '')


def test_read__refuses_what_is_damaged(tmp_path: Any) -> None:
    path = tmp_path / 'weights.pth'

    def problem(content: bytes) -> str:
        path.write_bytes(content)
        with pytest.raises(WeightsError, match=r'^--weights=FILE: is no state dict of PyTorch, or') as caught:
            state_dicts.read(str(path), '--weights=FILE')
        return str(caught.value)

    archive, pickles = (zlib.decompress(base64.b85decode(each)) for each in (ARCHIVE, PICKLES))
    for whole in (archive, pickles):
        for end in (0, 10, 100, len(whole) // 2, len(whole) - 1):
            problem(whole[:end])
    assert 'no dict of tensors' in problem(state_dict({}))
    with pytest.raises(WeightsError, match='no such file'):
        state_dicts.read(str(tmp_path / 'missing.pth'), '--weights=FILE')
