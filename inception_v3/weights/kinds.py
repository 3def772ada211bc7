"""Names the kinds of files that hold no weights for `--init_from`, and the way from each to one that does."""

import re
from typing import Iterable

# Endings of files that `weights import` reads, with `.tar` for the archives that PyTorch's examples once wrote.
TORCH_ENDINGS = ('.pth', '.pt', '.bin', '.tar')
FOREIGN_ENDINGS = (*TORCH_ENDINGS, '.safetensors', '.h5', '.hdf5', '.keras')
HDF5 = b'\x89HDF\r\n\x1a\n'
# The beginning of a file of PyTorch before version 1.6: a pickle of protocol 2 of a number.
OLD_TORCH = b'\x80\x02\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19'
# Bytes that tell the kind.
BEGINNING = 1 << 12

_IMPORT = 'inception-v3 weights import {} MODEL_DIR'
# A pattern of the beginning, an ending of the name, and the kind with the way from there. The first that fits.
_KINDS = (
    (rb'\x1f\x8b', '.gz', 'compressed. Unpack it with gunzip, or tar -xzf.'),
    (rb'PK\x03\x04', '.zip', 'a ZIP archive. Unpack it, and name a file in it.'),
    (rb'version https://git-lfs', None, 'the pointer of a file in Git LFS. Get the file with git lfs pull.'),
    (rb'(?i)\s*<(!doctype html|html)', '.html', 'a web page. Download the file itself.'),
    (rb'\x08\x01\x12', 'saved_model.pb', 'the graph of a SavedModel. Name the folder that it is in.'),
)


def of_file(path: str, beginning: bytes) -> str:
    """The kind of a file by its first bytes, after `is`, and the way from there; empty if it may be a checkpoint."""
    if beginning.startswith((HDF5, OLD_TORCH)) or path.endswith(FOREIGN_ENDINGS):
        return f'a file of Keras or PyTorch. Import it first, and name the new folder: {_IMPORT.format(path)}.'
    for pattern, ending, kind in _KINDS:
        if re.match(pattern, beginning, re.DOTALL) or (ending and path.endswith(ending)):
            return kind
    return ''


def of_variables(names: Iterable[str]) -> str:
    """The same for a checkpoint or a SavedModel with variables of some names."""
    if not any(name.endswith('/.ATTRIBUTES/VARIABLE_VALUE') for name in names):
        return ''
    return (
        'of objects of TensorFlow 2 or Keras, which name their variables by Python attributes. Load the model in its '
        "own program (a SavedModel: model = tf.keras.models.load_model(FOLDER)), model.save('model.h5'), and import "
        f'that: {_IMPORT.format("model.h5")}.'
    )
