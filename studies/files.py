"""Writes the files that the experiments leave."""

import json
from typing import Any

from data.files import write_whole


def write_json(path: str, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')
