"""Hooks of mkdocs: add the pages that are made from the code, and the READMEs of other folders, to the site.

mkdocs runs this file in `.venv-docs`, where the program itself is not installed: modules are read, not imported.
"""

import logging
import pathlib
import re
from typing import Any, Dict, List

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PACKAGES = ('compat', 'console', 'preprocessing', 'data', 'inception_v3', 'tools')
# Files outside docs/ that are pages of the site, and their addresses there.
_READMES = {'tools/studies/README.md': 'studies-results.md', 'tools/benchmarks/README.md': 'benchmarks.md'}


def rooms() -> Dict[str, List[str]]:
    """Returns the modules of each package and subpackage that has any, by the package's dotted name."""
    found: Dict[str, List[str]] = {}
    for package in _PACKAGES:
        for init in sorted((_ROOT / package).rglob('__init__.py')):
            folder = init.parent
            dotted = '.'.join(folder.relative_to(_ROOT).parts)
            modules = sorted(path.stem for path in folder.glob('*.py') if not path.stem.startswith('__'))
            if (folder / '__main__.py').exists():
                modules.insert(0, '__main__')
            if modules:
                found[dotted] = [f'{dotted}.{module}' for module in modules]
    return found


def on_config(config: Any) -> Any:
    """Adds a page per room to the navigation, below "Modules"."""
    for handler in logging.getLogger('mkdocs').handlers:  # One of them counts the warnings of a strict build.
        handler.addFilter(_is_of_a_written_page)
    config.nav.append({'Modules': [{room: _page_of(room)} for room in rooms()]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages to the site's files."""
    from mkdocs.structure.files import File

    for room, modules in rooms().items():
        content = f'# {room}\n\n::: {room}\n    options:\n      members: false\n\n'
        content += '\n'.join(f'::: {module}\n' for module in modules)
        files.append(File.generated(config, _page_of(room), content=content))
    for source, page in _READMES.items():
        content = (_ROOT / source).read_text(encoding='utf-8').replace('](../../docs/', '](')
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns links to the READMEs of other folders into links to their pages."""
    for source, target in _READMES.items():
        markdown = markdown.replace(f'](../{source}', f']({target}')
    return markdown


def _is_of_a_written_page(record: logging.LogRecord) -> bool:
    """Drops warnings about docstrings, where square brackets are a usage such as `[--flag]`, not a link."""
    return not re.match('mkdocs_autorefs: modules/.* Could not find cross-reference target', record.getMessage())


def _page_of(room: str) -> str:
    return f'modules/{room}.md'
