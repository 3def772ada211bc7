"""TensorFlow's own tf.data, in the order of its tutorials: files, decode, crop, resize, flip, batch."""

# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.4.6", "tensorflow==2.21.0"]
# ///

from typing import Any, Iterator

from tools.benchmarks.peers import meter


def pipeline(task: meter.Task) -> Iterator[Any]:
    """Yields batches forever."""
    import tensorflow as tf

    def shifts() -> Any:
        y, cb, cr = (tf.random.uniform([], -largest, largest) for largest in task.colour or [])
        return tf.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb])

    def prepare(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image),
            tf.zeros([1, 0, 4]),
            aspect_ratio_range=task.aspect,
            area_range=task.area,
            use_image_if_no_bounding_boxes=True,
        )
        image = tf.image.resize(tf.slice(image, begin, size), task.size) / 255
        image = tf.image.random_flip_left_right(image)
        if task.colour:
            image = tf.clip_by_value(image + shifts(), 0, 1)
        return 2 * image - 1 if task.floats else tf.cast(tf.round(255 * image), tf.uint8)

    files = tf.data.Dataset.list_files(f'{task.files}/*/*.jpg', shuffle=True).repeat()
    dataset = files.map(prepare, tf.data.AUTOTUNE).batch(task.batch_size).prefetch(tf.data.AUTOTUNE)
    return iter(dataset.as_numpy_iterator())


if __name__ == '__main__':
    meter.answer(pipeline)
