"""The pages: their sizes, their links, and the parts that are generated."""

import pathlib
import re
from typing import List

import pytest

from docs import flags_page, picture, site_hooks
from tests.docs.pages import PAGES, ROOT, read

_LINK = re.compile(r'\]\((?P<target>[^)#]+)(?:#(?P<heading>[^)]+))?\)')


def headings(page: str) -> List[str]:
    """The anchors of a page's headings."""
    titles = re.findall('^#+ (.*)$', read(page), re.MULTILINE)
    return [re.sub(r'[^\w\- ]', '', title.lower()).strip().replace(' ', '-') for title in titles]


@pytest.mark.parametrize('page', PAGES)
def test_page__links_to_files_and_headings_that_exist(page: str) -> None:
    for match in _LINK.finditer(read(page)):
        target, heading = match.group('target', 'heading')
        if target.startswith('https://'):
            continue
        path = (ROOT / page).parent / target
        assert path.exists(), target
        assert heading is None or heading in headings(str(path.resolve().relative_to(ROOT)))


def test_site__has_every_page_in_its_navigation() -> None:
    navigation = read('mkdocs.yml').partition('\nnav:')[2]
    for page in PAGES:
        if page.startswith('docs/'):
            assert f' {pathlib.Path(page).name}\n' in navigation
    for address in site_hooks.PAGES_ELSEWHERE.values():
        assert f' {address}\n' in navigation


def test_site__keeps_flags_whole_and_has_the_cells_of_notebooks() -> None:
    page = '<code>./run x --a=1</code> 9 s <pre>a-b</pre><td>97.8 %, 1 min 2 s, 3 steps; 2026-11-21</td>'
    word = '<span class="word">{}</span>'.format
    unbroken = f'97.8\u00a0%, 1\u00a0min 2\u00a0s, 3 steps; {word("2026-11-21")}'
    assert site_hooks.on_page_content(page, None, None, None) == (
        f'<code>./run x {word("--a=1")}</code> 9 s <pre>a-b</pre><td>{unbroken}</td>'
    )
    text = site_hooks.of_notebook(read('examples/images_to_export.ipynb'))
    assert text.startswith('# From images') and '```sh\ninception-v3 audit records\n```' in text


def test_site__has_every_module_of_the_packages() -> None:
    modules = {module for room in site_hooks.rooms().values() for module in room}
    assert {'inception_v3.model_fn', 'tools.preflight.__main__', 'compat.errors'} <= modules


def test_security__names_packages_as_they_are_locked() -> None:
    locks = {'1.15': 'requirements.lock', 'TPU': 'deploy/requirements-tpu.lock'}
    rows = re.findall(r'^\| ([\w-]+) (\d\S+) \| ([^|]+) \| .*', read('SECURITY.md'), re.MULTILINE)
    assert len(rows) > 20
    for package, version, where in rows:
        for lock in where.split(', '):
            assert re.search(
                rf'^{package}=={re.escape(version)} ', read(locks.get(lock, f'requirements-{lock}.lock')), re.MULTILINE
            ), (package, lock)


def test_flags_page__is_that_of_config() -> None:
    # If this fails: ./run python -m docs.flags_page
    assert flags_page.PAGE.read_text(encoding='utf-8') == flags_page.text()


def test_picture__separates_the_live_line_from_the_log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, '_PICTURE', tmp_path / 'picture.png')
    live = ''.join(f'\r\x1b[Kstep {step} of 750, loss {750 / step:.2f}, 9 images/s' for step in range(50, 750, 50))
    figure = picture.draw(f'started\r\n{live}\r\x1b[Kevaluated\r\n', [(250, 0.96), (750, 0.98)])
    assert (tmp_path / 'picture.png').read_bytes().startswith(b'\x89PNG')
    screen, losses, _ = figure.axes
    command, *lines = screen.texts[0].get_text().splitlines()
    assert command.startswith('$ ./run python -m inception_v3.main')
    assert lines == ['started', 'step 600 of 750, loss 1.25, 9 images/s', '', '…', '', 'evaluated']
    assert losses.lines[0].get_xydata()[-1].tolist() == [700, 1.07]
