"""Tests of the command: scores of folders and files, reasons for missing ones, and what cannot be compared."""

import json
import os
import pathlib
import pickle
from typing import Any, Dict, List, Tuple

import numpy as np
import PIL.Image
import pytest

from compat.errors import DONE, FIX
from inception_v3.networks.registry import NETWORKS
from inception_v3.weights import sources
from tests.support import commands
from tests.support.photos import encode_jpeg
from tests.support.runs import ONE_LAYER
from tools.features import __main__ as features
from tools.features import graph_2015
from tools.fid import __main__ as scores
from tools.fid import formulas

IMAGES = 24


@pytest.fixture(autouse=True)
def _of_one_layer(monkeypatch: Any) -> None:
    """Replaces the graph of 2015 by a small one with 16 features."""
    monkeypatch.setitem(NETWORKS, graph_2015.NETWORK, ONE_LAYER)
    monkeypatch.setattr(graph_2015, 'SIZE', 75)


@pytest.fixture(scope='module')
def made(tmp_path_factory: Any) -> str:
    """A folder with weights, and two folders of images, one with a damaged file."""
    folder, random = tmp_path_factory.mktemp('made'), np.random.RandomState(0)
    weights = {
        'Layer/weights': random.normal(size=[3, 3, 3, 16]),
        'Layer/BatchNorm/beta': random.normal(size=16),
        'Layer/BatchNorm/moving_mean': random.normal(size=16),
        'Layer/BatchNorm/moving_variance': random.uniform(0.5, 2, size=16),
        'Logits/weights': random.normal(size=[1, 1, 16, 1008]),
        'Logits/biases': 9 * random.normal(size=1008),
    }
    np.savez(str(folder / 'weights.npz'), **weights)
    for name, contrast in (('one', 60), ('other', 120)):
        (folder / name).mkdir()
        for number in range(IMAGES):
            image = 128 + contrast * random.uniform(-1, 1, [4 + number, 9, 3])
            (folder / name / f'{number:02d}.jpg').write_bytes(encode_jpeg(image.astype(np.uint8)))
    (folder / 'other' / 'text.png').write_text('no image')
    return str(folder)


def run(*arguments: str) -> Tuple[int, List[str], str]:
    done = commands.run(scores.main, *arguments)
    return done.returncode, done.stdout.splitlines(), done.stderr


def values_of(lines: List[str]) -> Dict[str, Any]:
    return {' '.join([found['score'], *found['of']]): found['value'] for found in map(json.loads, lines)}


def test_scores__of_folders_are_those_of_their_features(made: str, tmp_path: Any) -> None:
    one, other, weights = f'{made}/one', f'{made}/other', f'--weights={made}/weights.npz'
    arrays: List[Dict[str, Any]] = []
    for folder in (one, other):
        out = str(tmp_path / f'{len(arrays)}.npz')
        assert features.main([folder, weights, f'--out={out}']) == (FIX if folder == other else DONE)
        with np.load(out) as found:
            arrays.append(dict(found))
        assert arrays[-1]['features'].shape == (IMAGES, 16)
    with np.load(f'{made}/weights.npz') as held:
        kernel = held['Logits/weights'][0, 0]
    # The Inception Score has always been computed without the biases of the logits.
    np.testing.assert_allclose(arrays[0]['logits'], arrays[0]['features'] @ kernel, rtol=1e-3, atol=1e-3)
    options = ['--json', '--kid_subsets=5', '--kid_subset_size=20', '--splits=3', '--seed=4']
    code, lines, err = run(one, other, weights, *options)
    # One image could not be read.
    assert code == FIX and 'text.png: is not a JPEG, PNG, ' in err and '1 of 25 images could not be read' in err
    assert 'warning' not in err
    x, y = (found['features'] for found in arrays)
    assert values_of(lines) == {
        f'fid {one} {other}': formulas.frechet_distance(formulas.statistics_of(x), formulas.statistics_of(y)),
        f'kid {one} {other}': formulas.kernel_distance(x, y, 5, 20, 4)._asdict(),
        **{
            f'is {name}': formulas.inception_score(a['logits'], 3, 4)._asdict() for name, a in zip((one, other), arrays)
        },
    }
    # The files of features give the same, and need no weights; a folder and a file may be mixed.
    code, again, _ = run(str(tmp_path / '0.npz'), str(tmp_path / '1.npz'), *options)
    assert code == DONE and [*values_of(again).values()] == [*values_of(lines).values()]
    code, mixed, _ = run(one, str(tmp_path / '1.npz'), weights, '--scores=fid')
    assert (code, mixed) == (DONE, [f'FID: {values_of(lines)[f"fid {one} {other}"]:.7g}'])


def saved(path: Any, **arrays: Any) -> str:
    np.savez(str(path), **arrays)
    return str(path)


def test_moments__are_read_in_the_layout_of_pytorch_fid(tmp_path: Any) -> None:
    random = np.random.RandomState(1)
    x, y = random.normal(size=[40, 6]), random.normal(size=[50, 6])
    # A reference batch of guided-diffusion also holds its images.
    moments = saved(tmp_path / 'm.npz', mu=x.mean(axis=0), sigma=np.cov(x, rowvar=False), arr_0=np.zeros(3, object))
    others = saved(tmp_path / 'f.npz', features=y)
    code, lines, err = run(moments, others)
    expected = formulas.frechet_distance(formulas.statistics_of(x), formulas.statistics_of(y))
    assert code == DONE
    assert lines == [
        f'FID: {expected:.7g}',
        'KID: not computed: a file of moments has no features of single images',
        f'Inception Score of {moments}: not computed: the file has no logits',
        f'Inception Score of {others}: not computed: the file has no logits',
    ]
    assert f'{moments}: an unknown number of images, 6 features' in err and f'{others}: 50 images, 6 features' in err


def test_few_images__are_said(tmp_path: Any) -> None:
    random = np.random.RandomState(1)
    few = saved(tmp_path / 'few.npz', features=random.normal(size=[6, 6]), logits=random.normal(size=[6, 3]))
    enough = saved(tmp_path / 'enough.npz', features=random.normal(size=[7, 6]))
    code, lines, err = run(few, enough)
    assert code == DONE and lines[0].startswith('FID: ')
    assert f'warning: {few} has 6 images for 6 features: the covariance is singular' in err
    assert f'{enough} has' not in err
    assert lines[1:3] == [
        'KID: not computed: 6 images are fewer than --kid_subset_size=1000',
        f'Inception Score of {few}: not computed: 6 images are fewer than --splits=10',
    ]
    # Two such sets give one warning.
    _, _, err = run(few, few, '--scores=fid')
    assert err.count('warning') == 1 and f'{few} has 6 images and {few} has 6 images' in err
    # A score that was asked for by name is an error.
    code, lines, err = run(few, enough, '--scores=kid,fid')
    assert code == FIX and 'error: KID: not computed: 6 images are fewer' in err
    one = saved(tmp_path / 'one.npz', features=random.normal(size=[1, 6]))
    code, lines, err = run(one, enough, '--scores=fid')
    assert code == FIX and 'the covariance of 1 image is not defined' in err


def test_one_set__has_an_inception_score_alone(tmp_path: Any) -> None:
    logits = np.log([[1.0, 3.0], [3.0, 1.0]])
    # The warning about as few images as features is only for two sets.
    code, lines, err = run(saved(tmp_path / 'x.npz', features=np.eye(2), logits=logits), '--splits=1', '--json')
    # The mean class probabilities are equal: each image has the divergence of (1/4, 3/4) from (1/2, 1/2).
    score = np.exp(np.log(0.5) / 4 + np.log(1.5) * 3 / 4)
    assert code == DONE and 'warning' not in err
    assert values_of(lines) == {f'is {tmp_path}/x.npz': {'mean': pytest.approx(score), 'deviation': 0.0}}


def test_mistakes__are_one_message(made: str, tmp_path: Any) -> None:
    def message(*arguments: str) -> str:
        code, _, err = run(*arguments)
        assert code == FIX and 'Traceback' not in err
        (line,) = [line for line in err.splitlines() if line.startswith('error: ') or ': error: ' in line]
        return line

    images, weights = f'{made}/one', f'--weights={made}/weights.npz'
    good = saved(tmp_path / 'good.npz', features=np.eye(4), layer='pool', digest='a')
    assert '--weights is needed for images' in message(images)
    assert 'pytorch-fid' in message(images)
    assert 'no such file or folder' in message(f'{made}/absent', weights)
    assert 'no such file' in message(str(tmp_path / 'absent.npz'))
    assert 'has neither features' in message(saved(tmp_path / 'n.npz', other=np.eye(2)))
    assert 'not finite' in message(saved(tmp_path / 'i.npz', features=np.full([3, 2], np.nan)))
    assert 'a row per image' in message(saved(tmp_path / 'r.npz', features=np.eye(3), logits=np.eye(2)))
    for shape in ([3], [3, 2, 2]):
        assert 'a row per image' in message(saved(tmp_path / 'r.npz', features=np.ones(shape)))
    of_moments: List[Tuple[List[int], List[int]]] = [([3], [2, 2]), ([2, 2], [2, 2, 2, 2]), ([], [])]
    for shape, other in of_moments:
        moments = saved(tmp_path / 'm.npz', mu=np.ones(shape), sigma=np.ones(other))
        assert 'a vector and a square matrix of the same size; their shapes are' in message(moments)
    layer = saved(tmp_path / 'l.npz', features=np.eye(4), layer='Mixed_6e', digest='a')
    assert f'{good} and {layer} cannot be compared: their layers differ, pool and Mixed_6e' in message(good, layer)
    digest = saved(tmp_path / 'd.npz', features=np.eye(4), layer='pool', digest='b' * 64)
    assert f'their weights differ, a and {"b" * 12}.' in message(good, digest)
    assert f'their weights differ, {"b" * 12} and a.' in message(digest, good)
    size = saved(tmp_path / 's.npz', mu=np.ones(3), sigma=np.eye(3))
    assert 'their numbers of features differ, 4 and 3' in message(good, size)
    assert '--scores=fid: FID and KID need two sets' in message(good, '--scores=fid')
    assert 'lpips is none of fid, kid, is' in message(good, good, '--scores=fid,lpips')
    for flag in ('--kid_subset_size=1', '--splits=0', '--seed=-1'):
        assert f'{flag.split("=")[0]}: {flag.split("=")[1]}: must be' in message(good, good, flag)


def test_archives__of_samples_are_scored_as_their_images(made: str, tmp_path: Any) -> None:
    random, weights = np.random.RandomState(2), f'--weights={made}/weights.npz'
    images = random.randint(0, 256, [33, 9, 7, 3]).astype(np.uint8)
    (tmp_path / 'folder').mkdir()
    for number, image in enumerate(images):
        PIL.Image.fromarray(image).save(str(tmp_path / 'folder' / f'{number:02d}.png'))
    archive = str(tmp_path / 'samples_33x9x7x3.npz')
    # With labels; compressed or not.
    for save in (np.savez, np.savez_compressed):
        save(archive, images, np.arange(33))
        code, lines, err = run(archive, str(tmp_path / 'folder'), weights, '--json', '--kid_subset_size=30')
        assert code == DONE and err.count('.npz: 33 images, 16 features') == 1
        scores_of = values_of(lines)
        assert scores_of[f'fid {archive} {tmp_path}/folder'] == pytest.approx(0, abs=1e-6)
        assert scores_of[f'is {archive}'] == scores_of[f'is {tmp_path}/folder']
    # A reference batch has the moments of more images than it holds.
    x = random.normal(size=[40, 16])
    reference = saved(tmp_path / 'VIRTUAL.npz', mu=x.mean(0), sigma=np.cov(x, rowvar=False), arr_0=images[:5])
    code, lines, err = run(reference, archive, weights, '--scores=fid')
    assert code == DONE and 'VIRTUAL.npz: an unknown number of images, 16 features' in err and 'FID: ' in lines[0]


def test_archives__must_be_local(monkeypatch: Any) -> None:
    # A file in a bucket is not searched for images.
    monkeypatch.setattr(sources, 'arrays', lambda *unused: {})
    code, _, err = run('gs://bucket/samples.npz', '--weights=w.npz')
    assert code == FIX and 'writes them. For images in arr_0, ' in err and 'copy it: they are read from local' in err


def test_archives__that_are_no_images_or_damaged_are_refused(made: str, tmp_path: Any) -> None:
    weights, images = f'--weights={made}/weights.npz', np.zeros([4, 5, 5, 3], np.uint8)
    path = str(tmp_path / 'a.npz')
    for array, kind in (
        (images.astype(np.float32), 'float32 [4, 5, 5, 3]'),
        (images[..., :1], 'uint8 [4, 5, 5, 1]'),
        (images[:0], 'uint8 [0, 5, 5, 3]'),
        (images.transpose([0, 3, 1, 2]), 'uint8 [4, 3, 5, 5]'),
        (np.asfortranarray(images), 'uint8 [4, 5, 5, 3]'),
        (images[..., 0], 'uint8 [4, 5, 5]'),
    ):
        np.savez(path, array)
        code, _, err = run(path, weights)
        assert code == FIX and f'a.npz: arr_0 is {kind}; images are uint8 [images, height, width, 3]' in err
    np.savez(path, images)
    code, _, err = run(path)
    assert code == FIX and 'a.npz: holds images, which need --weights, a file' in err
    content = pathlib.Path(path).read_bytes()
    many = content[:-12] + b'\xff\xff' + content[-10:]
    for damaged in (
        content[:-30],
        content.replace(b'4, 5, 5', b'9, 5, 5'),
        content.replace(b'NUMPY\1', b'NUMPY\2'),
        many,
    ):
        pathlib.Path(path).write_bytes(damaged)
        code, _, err = run(path, weights)
        assert code == FIX and 'a.npz: is not a NumPy file of arrays, or is damaged' in err and 'Traceback' not in err


def test_pickles__are_refused_without_loading_them(tmp_path: Any) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / 'harm'),)

    path = tmp_path / 'moments.pkl'
    path.write_bytes(pickle.dumps({'mu': Harmful()}))
    code, _, err = run(str(path), str(path))
    assert code == FIX and 'moments.pkl: is a pickle, which can run any code' in err and 'numpy.savez' in err
    assert not (tmp_path / 'harm').exists()
    # The command that the message suggests.
    command = err[err.index('python -c "') + len('python -c "') :].strip().rstrip('"')
    for moments in ({'mu': np.ones(2), 'sigma': np.eye(2)}, {'fid': {'mu': np.ones(2), 'sigma': np.eye(2)}}):
        path.write_bytes(pickle.dumps(moments))
        exec(command.replace('FILE', str(tmp_path / 'moments')))
        code, lines, _ = run(str(tmp_path / 'moments.npz'), str(tmp_path / 'moments.npz'), '--scores=fid')
        assert (code, lines) == (DONE, ['FID: 0'])
