"""Folders of photographs, with a folder per class, and the data sets made from them."""

import pathlib
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import PIL.Image
import pytest
import skimage.data

from data import records
from tools.datasets.from_folder import conversion

PHOTOS = {
    'astronaut': skimage.data.astronaut(),
    'cat': skimage.data.chelsea(),
    'coffee': skimage.data.coffee(),
    'Rocket': skimage.data.rocket(),
    'camera': skimage.data.camera(),  # grey
}


SPLITS = (records.TRAIN, records.VALIDATION)


def save(path: pathlib.Path, photo: str, number: int) -> None:
    """Writes a piece of a photograph, different for every number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    piece = PHOTOS[photo][20 * number : 20 * number + 60, 10 * number : 10 * number + 70 + number]
    PIL.Image.fromarray(np.ascontiguousarray(piece)).save(path)


def save_class(folder: pathlib.Path, photo: str, numbers: Sequence[int]) -> None:
    """Writes JPEG and PNG files alternately, with all extensions, some of them in a subfolder."""
    for number in numbers:
        ending = ['.jpg', '.png', '.jpeg', '.JPG'][number % 4]
        save(folder / photo / ('deeper' if number % 5 == 4 else '') / f'{photo} {number}{ending}', photo, number)


def import_folder(folder: pathlib.Path, **options: Any) -> Tuple[pathlib.Path, List[str]]:
    """Imports a folder, and returns the new folder and the messages after the first, on the way it is understood."""
    data_dir = folder.parent / 'records'
    settings: Dict[str, Any] = {
        'validation_fraction': 0.2,
        'train_shards': 4,
        'validation_shards': 2,
        'skip_unreadable': False,
        **options,
    }
    said: List[str] = []
    conversion.import_folder(str(folder), str(data_dir), say=said.append, **settings)
    return data_dir, said[1:]


def refusal(folder: pathlib.Path, **options: Any) -> str:
    with pytest.raises(records.DataError) as error:
        import_folder(folder, **options)
    return str(error.value)


def image_files(folder: pathlib.Path) -> Dict[str, pathlib.Path]:
    return {path.name: path for path in folder.rglob('*') if path.is_file()}
