"""Tests of the version of the source code."""

import shutil
import subprocess
from typing import Any

from inception_v3.run import versions


def git(folder: Any, *arguments: str) -> str:
    names = ['-c', 'user.name=n', '-c', 'user.email=e']
    return subprocess.run(
        ['git', *names, '-C', str(folder), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def test_source_version__has_the_git_revision_and_a_digest_of_the_files(tmp_path: Any, monkeypatch: Any) -> None:
    outer, project = tmp_path / 'outer', tmp_path / 'outer' / 'project'
    (project / 'inception_v3').mkdir(parents=True)
    module = project / 'inception_v3' / 'module.py'
    module.write_text('first')
    git(outer, 'init', '-q')
    monkeypatch.setattr(versions, '_ROOT', project)
    version = versions.of_program.__wrapped__
    # The repository in the outer folder does not count: it belongs to another project.
    installed = version()
    assert (installed['revision'], installed['modified']) == (None, None)
    shutil.move(str(outer / '.git'), str(project / '.git'))
    git(project, 'add', '.')
    git(project, 'commit', '-q', '-m', 'first')
    revision = git(project, 'rev-parse', 'HEAD')
    assert version() == {'revision': revision, 'modified': False, 'source': installed['source']}
    (project / 'notes.txt').write_text('no part of the program')
    assert not version()['modified']
    module.write_text('second')
    changed = version()
    assert changed['revision'] == revision and changed['modified'] and changed['source'] != installed['source']
    module.write_text('first')
    (project / 'requirements.lock').write_text('')
    assert version()['modified'] and version()['source'] == installed['source']
    (project / 'requirements.lock').unlink()
    (project / 'data').mkdir()
    (project / 'data' / 'new.py').write_text('')
    added = version()
    assert added['modified'] and added['source'] not in (installed['source'], changed['source'])
