"""Draws docs/preprocessed.jpg: a photograph under every preprocessing.

./run python -m docs.sample_picture

The photograph is scikit-image's `chelsea`, by Stefan van der Walt, which is in the public domain (CC0).
"""

import pathlib
import tempfile

from PIL import Image
from skimage import data

from tools.photo_pictures import Preprocessor, draw

PICTURE = pathlib.Path(__file__).with_name('preprocessed.jpg')
_SEED = 2
_QUALITY = 80


def main() -> None:
    """Makes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        photo, picture = (pathlib.Path(folder) / name for name in ('photo.png', 'picture.png'))
        Image.fromarray(data.chelsea()).save(photo)
        draw(Preprocessor(299, _SEED).show(photo.read_bytes()), 'chelsea', str(picture))
        Image.open(picture).convert('RGB').save(PICTURE, quality=_QUALITY, optimize=True)
    print(f'{PICTURE}  {PICTURE.stat().st_size / 1000:.0f} kB')


if __name__ == '__main__':
    main()
