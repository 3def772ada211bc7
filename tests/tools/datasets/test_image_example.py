"""Examples of images."""

import pytest

from tools.datasets import image_example


def test_make_example__labels_each_box() -> None:
    boxes = [
        image_example.Box(0.25, 0.5, 0.75, 1.0),
        image_example.Box(xmin=0.0, ymin=0.125, xmax=0.375, ymax=0.625),
    ]
    example = image_example.make_example(b'', 'PNG', 7, 'é\udcff', 1, 1, 'a\udcfe.png', 'n01440764', boxes)
    feature = example.features.feature
    assert [*feature['image/object/class/label'].int64_list.value] == [7, 7]
    assert {
        name: [*feature[f'image/object/bbox/{name}'].float_list.value] for name in ('xmin', 'ymin', 'xmax', 'ymax')
    } == {'xmin': [0.25, 0.0], 'ymin': [0.5, 0.125], 'xmax': [0.75, 0.375], 'ymax': [1.0, 0.625]}
    assert [*feature['image/class/synset'].bytes_list.value] == [b'n01440764']
    # Names of files may be bytes that are not UTF-8.
    assert [*feature['image/class/text'].bytes_list.value] == [b'\xc3\xa9\xff']
    assert [*feature['image/filename'].bytes_list.value] == [b'a\xfe.png']


@pytest.mark.parametrize(
    ('encoded', 'expected'), [(b'\x89PNG\r', 'PNG'), (b'GIF89a', 'GIF'), (b'\xff\xd8\xff', 'JPEG')]
)
def test_format_of__is_that_of_the_first_bytes(encoded: bytes, expected: str) -> None:
    assert image_example.format_of(encoded) == expected
