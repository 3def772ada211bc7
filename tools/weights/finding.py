"""Finds the file of weights for a path: in a folder, in a tar archive, or beside the named file."""

import contextlib
import io
import os
import re
import shutil
import tarfile
import tempfile
from typing import Iterator, List, NamedTuple

from compat import tf
from compat.messages import listed, shown
from console import inputs
from data import remote
from inception_v3 import model_dir
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError

# Endings of files of weights of other frameworks, with `.tar` for the archives that PyTorch's examples once wrote.
TORCH_ENDINGS = ('.pth', '.pt', '.bin', '.tar')
FOREIGN_ENDINGS = (*TORCH_ENDINGS, '.safetensors', '.h5', '.hdf5', '.keras', '.pb')
_SAVED_MODEL = 'saved_model.pb'
_GZIP, _BZIP2, _XZ = b'\x1f\x8b', b'BZh', b'\xfd7zXZ\0'
# Other files of PyTorch in folders of Hugging Face, which hold no weights.
_OF_TRAINING = re.compile(r'(training_args|optimizer|scheduler|rng_state\w*|scaler)\.(bin|pt|pth)')
_MOST_MEMBERS = 10_000


class Place(NamedTuple):
    """The path of weights to read, and its name in messages, which differs for a member of an archive."""

    path: str
    name: str


@contextlib.contextmanager
def found(path: str) -> Iterator[Place]:
    """Context manager with the weights for a path; an archive's are unpacked while the context is open.

    A path without weights is returned unchanged.

    Raises:
      WeightsError: a folder or archive has several, or an archive is damaged or far larger than its file.
      RemoteError: access is denied, or the store cannot be reached.
    """
    path = sources.named_by(path)
    if tf.io.gfile.isdir(path):
        inner = _only(path, [*_candidates(path)], path) if not _is_source(path) else path
        yield Place(inner, inner)
    elif re.search(r'\.(tar(\.(gz|bz2|xz))?|tgz)$', path.lower()) and not path.lower().endswith('.pth.tar'):
        with tempfile.TemporaryDirectory() as folder:
            is_archive = _unpacked(path, folder)
            inner = _only(path, [*_candidates(folder, deep=True)], folder) if is_archive else path
            yield Place(inner, os.path.join(path, os.path.relpath(inner, folder)) if is_archive else path)
    else:
        yield Place(path, path)


def _is_source(folder: str) -> bool:
    return remote.exists(os.path.join(folder, model_dir.LIST_FILE)) or remote.exists(os.path.join(folder, _SAVED_MODEL))


def _candidates(folder: str, deep: bool = False) -> Iterator[str]:
    """The paths of weights in a folder: checkpoints without their endings, SavedModels, and other files."""
    names = remote.names_in(folder) or []
    if _SAVED_MODEL in names:
        yield folder
        return
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith('.index'):
            yield path[: -len('.index')]
        elif name.endswith((*FOREIGN_ENDINGS, '.npz', '.ckpt')) and not _OF_TRAINING.fullmatch(name):
            # A graph without weights is beside the checkpoints of TF-Slim.
            if not tf.io.gfile.isdir(path):
                yield path
        elif deep and tf.io.gfile.isdir(path):
            yield from _candidates(path, deep)


def _only(path: str, paths: List[str], folder: str) -> str:
    """The only weights in a folder, or the file that Hugging Face and timm read first."""
    names = [os.path.relpath(each, folder) for each in paths]
    for usual in ('model.safetensors', 'pytorch_model.bin'):
        if usual in names:
            return os.path.join(folder, usual)
    checkpoints = [each for each in paths if model_dir.is_complete(each)]
    others = [each for each in paths if not each.endswith('.pb')]
    for some in (paths, others, checkpoints):
        if len(some) == 1:
            return some[0]
    if not paths:
        raise WeightsError(
            f'{path}: has no file of weights. Name a folder or an archive with a checkpoint, a SavedModel, or one file '
            f'that ends with {", ".join(sorted({".npz", *FOREIGN_ENDINGS}))}.'
        )
    raise WeightsError(f'{path}: has several files of weights. Name one of them: {listed([*map(shown, names)], 10)}.')


def _unpacked(path: str, folder: str) -> bool:
    """Unpacks the regular files of a tar archive into a folder; False if the file is not an archive.

    Members that lie outside of the archive's folder, links and devices are left out.
    """
    content = remote.read(path, inputs.WEIGHTS_BYTES)
    if content is None:
        raise WeightsError(f'{path}: no such file.')
    if content[257:262] != b'ustar' and not content.startswith((_GZIP, _BZIP2, _XZ)):
        return False
    with sources.damage_explained(path, 'tar archive'):
        size = 0
        # As a stream, so that nothing is inflated before its size is known from the headers.
        with tarfile.open(fileobj=io.BytesIO(content), mode='r|*') as archive:
            for count, member in enumerate(archive):
                size += member.size
                sources.check_memory(size, len(content))
                if count >= _MOST_MEMBERS:
                    raise ValueError(f'it holds more than {_MOST_MEMBERS:,} files')
                parts = [part for part in member.name.split('/') if part not in ('', '.')]
                if not member.isreg() or not parts or '..' in parts or parts[-1].startswith('._'):
                    continue
                own = os.path.join(folder, *parts)
                os.makedirs(os.path.dirname(own), exist_ok=True)
                source = archive.extractfile(member)
                assert source is not None, 'a regular file has content'
                with open(own, 'wb') as file:
                    shutil.copyfileobj(source, file, 1 << 20)
    return True
