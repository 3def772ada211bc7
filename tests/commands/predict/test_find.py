"""Tests of finding the image files that a command line of predict names."""

from typing import Any

from data import image_files


def test_find__files_folders_and_patterns(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ('b.jpg', 'a.png', 'x.bin', 'd/e/1.gif', 'd/0.JPG', 'd/x.txt', '.git/i.jpg', '[1].jpg'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b'')
    assert image_files.find(['x.bin', 'b.jpg', 'b.jpg']) == (['x.bin', 'b.jpg'], {}, [])
    assert image_files.find(['d']) == (['d/0.JPG', 'd/e/1.gif'], {}, ['d/x.txt'])
    assert image_files.find(['*.*']).paths == ['[1].jpg', 'a.png', 'b.jpg', 'x.bin']
    assert image_files.find(['**/*.gif']).paths == ['d/e/1.gif']
    # An existing file of this name takes precedence over the pattern.
    assert image_files.find(['[1].jpg']).paths == ['[1].jpg']
    found = image_files.find(['gs://bucket/a.jpg', 'b.jpg', 'z*', 'nothing'])
    assert found.paths == ['gs://bucket/a.jpg', 'b.jpg', 'z*', 'nothing']
    assert found.problems == {
        'gs://bucket/a.jpg': 'remote images are not supported; copy it to this machine first',
        'z*': 'no file matches this pattern',
        'nothing': 'no such file or folder',
    }
    (tmp_path / 'none').mkdir()
    assert image_files.find(['none', 'none']) == (['none'], {'none': 'no images in this folder'}, [])
