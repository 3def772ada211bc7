"""Writes the files that the experiments leave."""

import json
from typing import Any

from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole


def write_json(path: str, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def write_picture(path: str, content: bytes) -> None:
    """Writes the content of an image file."""
    with remote.explained(path, remote.WRITE), tf.io.gfile.GFile(path, 'wb') as file:
        file.write(content)
