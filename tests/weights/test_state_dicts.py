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

from inception_v3.weights import state_dicts
from inception_v3.weights.sources import WeightsError
from tests.support.state_dicts import state_dict

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
    assert state_dicts.is_state_dict(str(path)) and not state_dicts.is_state_dict('weights.npz')
    np.testing.assert_equal(state_dicts.read(str(path), ''), {'a': np.ones([2, 1], np.float32)})


class Harmful:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ('echo unpickled > harmed',)


def test_read__runs_nothing(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile('harmful.pth', 'w') as archive:
        archive.writestr('x/data.pkl', pickle.dumps({'a': Harmful()}, protocol=2))
    (tmp_path / 'pickle.pth').write_bytes(pickle.dumps(Harmful(), protocol=2))
    for name in ('harmful.pth', 'pickle.pth'):
        with pytest.raises(WeightsError, match=r'it contains (posix|os)\.system, which is no tensor'):
            state_dicts.read(name, f'--weights={name}')
    assert not os.path.exists('harmed')


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
    # A shape that reaches beyond the storage.
    values = np.ones([2, 2], np.float32)
    with zipfile.ZipFile(io.BytesIO(state_dict({'a': values}))) as sound, zipfile.ZipFile(str(path), 'w') as written:
        for name in sound.namelist():
            content = sound.read(name)
            written.writestr(name, content.replace(b'(J\x02\0\0\0J\x02\0\0\0t', b'(J\x03\0\0\0J\x02\0\0\0t', 1))
    with pytest.raises(WeightsError, match='a has more values than its storage'):
        state_dicts.read(str(path), '--weights=FILE')
    with pytest.raises(WeightsError, match='no such file'):
        state_dicts.read(str(tmp_path / 'missing.pth'), '--weights=FILE')
