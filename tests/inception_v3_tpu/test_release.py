"""A release: its version, changelog, citation, metadata, and the packages that it requires."""

import os
import re
import subprocess
from distutils.core import run_setup
from typing import Any, List

import pytest
import yaml

from inception_v3 import __version__
from tests.support.project import ROOT

URL = 'https://github.com/OWNER/NAME'
_REQUIREMENT = re.compile(r"""["']([A-Za-z][\w.-]*(?:\[[\w,-]+\])?)([^;"]*); python_version >= '3\.12'["']""")


def test_changelog__has_the_version_below_unreleased_with_what_breaks_first() -> None:
    text = (ROOT / 'CHANGELOG.md').read_text()
    unreleased, newest, *_ = re.findall(r'^## \[(.*)\](.*)$', text, re.MULTILINE)
    assert unreleased == ('Unreleased', '')
    assert newest[0] == __version__ and re.fullmatch(r' - \d{4}-\d\d-\d\d', newest[1])
    section = text.partition(f'## [{__version__}]')[2]
    assert re.findall(r'^### (.*)$', section, re.MULTILINE)[0].startswith('Breaking since ')


def test_citation__has_version_date_and_the_documents() -> None:
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert citation['version'] == __version__
    assert f'## [{__version__}] - {citation["date-released"]}\n' in (ROOT / 'CHANGELOG.md').read_text()
    titles = ' '.join(reference['title'] for reference in citation['references'])
    for words in ('Guide to Inception v3', 'Distributed BatchNorm', 'PyTorch / XLA', 'Eager Execution', 'Rethinking'):
        assert words in titles


@pytest.mark.parametrize('url', [URL, ''])
def test_metadata__has_links_that_work_on_a_package_index(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PROJECT_URL', url)
    monkeypatch.chdir(ROOT)
    metadata: Any = run_setup('setup.py', stop_after='init').metadata
    assert metadata.version == __version__
    targets = re.findall(r'\]\(([^)]+)\)', metadata.long_description)
    assert len(targets) >= 1 and all(target.startswith('https://') for target in targets)
    pictures = re.findall(r'!\[[^]]*\]\(([^)]+)\)', metadata.long_description)
    if url:
        assert pictures == [f'{URL}/raw/v{__version__}/docs/digits.png']
        assert f'{URL}/blob/v{__version__}/docs/your-data.md' in targets
        assert {'Homepage', 'Source', 'Issues', 'Changelog'} <= {*metadata.project_urls}
    else:
        # Without the address of the repository, no link is made up.
        assert not pictures and [*metadata.project_urls] == ['Paper']


def test_requirements__have_a_least_version_where_pip_could_go_far_back() -> None:
    requirements = _REQUIREMENT.findall((ROOT / 'pyproject.toml').read_text())
    assert len(requirements) > 8
    # If two extras contradict each other, pip tries every old version of a package without a bound.
    bare = [name for name, bounds in requirements if not bounds.startswith(('>=', '=='))]
    assert bare == ['tensorboard']  # TensorFlow's own; its versions go together.


@pytest.mark.program
@pytest.mark.skipif(not os.environ.get('CI'), reason='asks the package index: CI=1 runs it')
@pytest.mark.parametrize('python', ['3.12', '3.13'])
def test_extras__can_be_installed_together(python: str, tmp_path: Any) -> None:
    uv = str(ROOT / '.tools' / 'bin' / 'uv')
    lock = tmp_path / 'all.txt'
    # Packages without a wheel are built to read their requirements; an old Python cannot build today's packages.
    builder = ['--python', str(ROOT / '.venv-2.21' / 'bin' / 'python')]
    command: List[str] = [uv, 'pip', 'compile', '--quiet', '--all-extras', *builder, '--python-version', python]
    command += ['--python-platform', 'x86_64-manylinux_2_28']
    subprocess.run([*command, 'pyproject.toml', '--output-file', str(lock)], cwd=str(ROOT), check=True)
    assert {'apache-beam', 'ray', 'tensorflow'} <= {*re.findall(r'^([\w-]+)==', lock.read_text(), re.MULTILINE)}
