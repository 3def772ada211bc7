"""Hooks of mkdocs: add the pages that are made from the code, and those of other folders, to the site.

mkdocs runs this file in `.venv-docs`, where the program itself is not installed: modules are read, not imported.
"""

import json
import logging
import pathlib
import re
from typing import Any, Dict, List

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PACKAGES = ('compat', 'console', 'preprocessing', 'data', 'inception_v3', 'tools')
# Files outside docs/ that are pages of the site, and their addresses there.
PAGES_ELSEWHERE = {
    'tools/studies/README.md': 'studies-results.md',
    'tools/benchmarks/README.md': 'benchmarks.md',
    'examples/images_to_export.ipynb': 'images-to-export.md',
    'examples/reproducibility_study.ipynb': 'reproducibility-study.md',
    'examples/estimator_elsewhere.md': 'estimator-elsewhere.md',
}
_UNBROKEN = r'<span class="word">\g<0></span>'
_HYPHENATED = r'(?<![^\s>])[^\s<>]{0,40}-[^\s<>]{1,40}(?![^\s<])'
_DATE = r'(?<=[> ])\d{4}-\d\d-\d\d(?=[<,;: ])'
# The space between a number and its unit.
_UNIT = r'(?<=\d) (?=%|(?:ms|s|min|h|KB|MB|GB)\b)'


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
    for source, page in PAGES_ELSEWHERE.items():
        content = (_ROOT / source).read_text(encoding='utf-8')
        content = of_notebook(content) if source.endswith('.ipynb') else content
        content = re.sub(r'\]\((?:\.\./)+docs/', '](', content)
        for other, target in PAGES_ELSEWHERE.items():
            if other.rpartition('/')[0] == source.rpartition('/')[0]:
                content = content.replace(f']({other.rpartition("/")[2]})', f']({target})')
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns links to the pages of other folders into links to their pages here."""
    for source, target in PAGES_ELSEWHERE.items():
        markdown = markdown.replace(f'](../{source}', f']({target}')
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Marks what a browser would break: words of code, after hyphens; in tables, dates, and numbers with units."""
    html = re.sub(r'<code>[^<\n]+</code>', lambda code: re.sub(_HYPHENATED, _UNBROKEN, code.group()), html)
    return re.sub(r'<td[^>]*>.*?</td>', lambda cell: _in_cell(cell.group()), html, flags=re.DOTALL)


def _in_cell(html: str) -> str:
    return re.sub(_UNIT, '\u00a0', re.sub(_DATE, _UNBROKEN, html))


def of_notebook(content: str) -> str:
    """The page of a notebook: its texts, and its code without results."""
    parts = []
    for cell in json.loads(content)['cells']:
        text = ''.join(cell['source'])
        if cell['cell_type'] == 'code':
            magic, _, rest = text.partition('\n')
            text = f'```sh\n{rest}\n```' if magic == '%%bash' else f'```python\n{text}\n```'
        parts.append(text)
    return '\n\n'.join(parts) + '\n'


def _is_of_a_written_page(record: logging.LogRecord) -> bool:
    """Drops warnings about docstrings, where square brackets are a usage such as `[--flag]`, not a link."""
    return not re.match('mkdocs_autorefs: modules/.* Could not find cross-reference target', record.getMessage())


def _page_of(room: str) -> str:
    return f'modules/{room}.md'
