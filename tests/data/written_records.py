"""Record files with given numbers of records."""

from typing import Any, List

from console.tensorflow_versions import tf
from data import records


def written(data_dir: Any, split: str, counts: List[int]) -> List[str]:
    """Record files with `counts` empty records each."""
    paths = []
    for shard, count in enumerate(counts):
        paths.append(records.shard_path(str(data_dir), split, shard, len(counts)))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                writer.write(b'')
    return paths


def read(path: str) -> List[bytes]:
    return list(tf.io.tf_record_iterator(path))
