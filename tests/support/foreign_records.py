"""Photographs in record files of other names and keys, with labels from 0."""

import pathlib
from typing import Any, Sequence

from compat import tf
from tests.support.photos import Photo
from tests.support.tar_files import write_tar

# The flags that describe the records.
FOREIGN = {'image_key': 'picture', 'label_key': 'fine_label', 'label_offset': 1}


def foreign_example(photo: Photo, **others: Any) -> tf.train.Example:
    """The record of a photograph; `others` has more fields, of one number or text each."""

    def feature(value: Any) -> tf.train.Feature:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    fields = {'picture': photo.encoded, 'fine_label': photo.label - 1, **others}
    return tf.train.Example(features=tf.train.Features(feature={k: feature(v) for k, v in fields.items()}))


def write_foreign(path: pathlib.Path, photos: Sequence[Photo]) -> str:
    """Writes a TFRecord file of photographs, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for photo in photos:
            writer.write(foreign_example(photo).SerializeToString())
    return str(path)


def write_foreign_tar(path: pathlib.Path, photos: Sequence[Photo]) -> str:
    """Writes a tar shard of photographs, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [
        (f'{number:06d}.{extension}', content)
        for number, photo in enumerate(photos)
        for extension, content in (('jpg', photo.encoded), ('cls', b'%d' % (photo.label - 1)))
    ]
    return write_tar(path, files)
