"""The page of `predict --html`: a thumbnail of each image, and its most probable classes."""

import contextlib
import datetime
import os
import pathlib
from types import TracebackType
from typing import List, Optional, Sequence, TextIO, Tuple, Type

import numpy as np

from console import html, outputs, processes
from console.messages import shown
from console.tensorflow_versions import tf
from data.image_files import show
from inception_v3.config import ConfigError

# Pixels of a thumbnail's longer side: sharp on displays with two pixels per CSS pixel.
_SIDE = 320
_JPEG_QUALITY = 80

_FOLDER = pathlib.Path(__file__).parent

_BEGIN = html.template((_FOLDER / 'contact_sheet.html').read_text())
_CARD = html.template("""<figure class="card{{ ' wrong' if is_wrong }}" style="margin: 0" data-class="{{ predicted }}"
data-label="{{ label }}" data-confidence="{{ likeliest[0][1] }}">
{% if thumbnail %}<img src="{{ thumbnail }}"
alt="{{ name }}: {{ predicted }}, {{ '%.1f' | format(100 * likeliest[0][1]) }} %">{% endif %}
<figcaption><div class="path">{{ name }}</div>
{% if is_wrong %}<div class="label">wrong: its folder is {{ label }}</div>{% endif %}
<ul class="bars">{% for class_name, probability in likeliest %}{{ layout.bar(class_name, probability) }}
{% endfor %}</ul></figcaption>
</figure>
""")
_END = html.template("""</div>
{% if problems %}
<h2>Not classified: {{ '{:,}'.format(problems | length) }}</h2>
<ul>{% for problem in problems %}<li class="path">{{ problem }}</li>
{% endfor %}</ul>
{% endif %}
<p class="faint">{{ '{:,}'.format(images) }} classified{{ ending }}.</p>
<script>{{ script | safe }}</script>
</body>
</html>
""")


class Thumbnails:
    """Makes thumbnails: small JPEG files of whole images, in the orientation in which they are classified."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._pixels = tf.placeholder(tf.uint8, [None, None, 3])
            sides = tf.cast(tf.shape(self._pixels)[:2], tf.float32)
            size = tf.cast(tf.math.ceil(sides * tf.minimum(1.0, _SIDE / tf.reduce_max(sides))), tf.int32)
            small = tf.image.resize_area(self._pixels[tf.newaxis], size)[0]
            self._thumbnail = tf.image.encode_jpeg(tf.cast(small + 0.5, tf.uint8), quality=_JPEG_QUALITY)
            self._session = tf.Session(graph=graph)

    def make(self, pixels: np.ndarray) -> bytes:
        """Returns the thumbnail of an image, uint8 [height, width, 3]."""
        return self._session.run(self._thumbnail, {self._pixels: pixels})

    def close(self) -> None:
        """Releases TensorFlow's resources."""
        self._session.close()


class ContactSheet:
    """Context manager that writes the page while images are classified, then completes it and moves it to its path.

    Args:
      path: path of the page.
      classifier: name of the classifier.
      class_names: the names of its classes; an image in a folder of such a name is marked if it is
        classified otherwise.

    Raises:
      ConfigError: the page cannot be written.
    """

    def __init__(self, path: str, classifier: str, class_names: Sequence[str]):
        if path.endswith('/'):
            raise ConfigError(f'--html={path}: is a folder; name a file for the page.')
        self._stack = contextlib.ExitStack()
        try:
            unfinished = self._stack.enter_context(outputs.unfinished_file(path))
            self._file: TextIO = open(unfinished, 'w', encoding='utf-8')  # noqa: SIM115
            self._stack.enter_context(self._file)
        except OSError as error:
            raise ConfigError(f'--html={path}: cannot be written: {error.strerror}.')
        self._class_names = {shown(name) for name in class_names[1:] if name}
        self._images = 0
        self._problems: List[str] = []
        self._ending = ', then interrupted'
        command, date = processes.command_line('predict'), datetime.datetime.utcnow()
        self._file.write(_BEGIN.render(classifier=classifier, command=command, date=date))

    def add(self, path: str, thumbnail: bytes, likeliest: Sequence[Tuple[str, float]]) -> None:
        """Adds an image.

        Args:
          path: path of the image.
          thumbnail: a JPEG file; empty if there is none.
          likeliest: classes and their probabilities, most probable first.
        """
        self._images += 1
        source = html.data_uri(thumbnail, 'image/jpeg') if thumbnail else ''
        folder = shown(os.path.basename(os.path.dirname(os.path.abspath(path))))
        predicted, label = likeliest[0][0], folder if folder in self._class_names else ''
        self._file.write(
            _CARD.render(
                name=show(path),
                thumbnail=source,
                likeliest=likeliest,
                predicted=predicted,
                label=label,
                is_wrong=bool(label) and label != predicted,
            )
        )

    def add_problem(self, problem: str) -> None:
        """Adds an image that could not be classified, with the reason."""
        self._problems.append(problem)

    def finish(self) -> None:
        """Marks the page as complete: all images were classified."""
        self._ending = ''

    def __enter__(self) -> 'ContactSheet':
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Completes the page, also after an error or Ctrl-C: it shows the images that were done."""
        with self._stack:
            script = (_FOLDER / 'contact_sheet.js').read_text()
            end = _END.render(problems=self._problems, images=self._images, ending=self._ending, script=script)
            self._file.write(end)
