"""Builds the wheel: one folder in site-packages, the program, which holds its other packages.

Settings that need no code are in pyproject.toml.
"""

import ast
import os
import pathlib
import re
from typing import Any, Dict, Match

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = 'inception_v3_tpu'
PARTS = find_packages(str(HERE), exclude=[PROGRAM, 'docs', 'docs.*', 'examples', 'tests', 'tests.*'])
# The beginning of an import of this program's packages.
_IMPORT = re.compile(rf'^(\s*)(from|import) (?=({"|".join(part for part in PARTS if "." not in part)})\b)')
# A link or a picture whose target is a file of this project.
_LINK = re.compile(r'(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)')


def in_wheel(source: str, path: str) -> str:
    """Rewrites a module's imports of this program's packages to their names in the wheel, each on its line.

    So each module exists once, as `inception_v3_tpu.data.records`, and `import data` imports a file of the user. In a
    checkout, the packages lie beside each other, because the documents name `inception_v3/main.py` and `data/`.
    """
    lines = source.split('\n')
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            match = _IMPORT.match(lines[node.lineno - 1])
            if match and match.group(2) == 'import':
                raise ValueError(f'{path}:{node.lineno}: {lines[node.lineno - 1].strip()}: write `from … import …`')
            if match:
                lines[node.lineno - 1] = _IMPORT.sub(rf'\1\2 {PROGRAM}.', lines[node.lineno - 1])
    return '\n'.join(lines)


class BuildPackages(build_py):
    """Copies the packages with the imports of `in_wheel`."""

    def build_module(self, module: Any, module_file: Any, package: Any) -> Any:
        """Copies a module; returns the path of the copy, and whether it was made."""
        path, copied = super().build_module(module, module_file, package)
        text = pathlib.Path(module_file).read_text(encoding='utf-8')
        pathlib.Path(path).write_text(in_wheel(text, module_file), encoding='utf-8')
        return path, copied


def version() -> str:
    """The version, from the one place that has it."""
    text = (HERE / 'inception_v3' / '__init__.py').read_text(encoding='utf-8')
    return re.findall(r"^__version__ = '(.+)'$", text, re.MULTILINE)[0]


def readme(url: str) -> str:
    """The README for a package index, which shows neither this project's files nor links relative to them.

    Args:
      url: the address of the repository on GitHub, such as https://github.com/OWNER/NAME. If it is empty, a link to a
        file is its text alone, and a picture is left out.
    """

    def linked(match: Match[str]) -> str:
        picture, text, target = match.groups()
        if url:
            return f'{picture}[{text}]({url}/{"raw" if picture else "blob"}/v{version()}/{target})'
        return '' if picture else text

    return _LINK.sub(linked, (HERE / 'README.md').read_text(encoding='utf-8'))


def addresses(url: str) -> Dict[str, str]:
    """The links that a package index shows beside the README: without a repository's address, the paper alone."""
    found = {'Paper': 'https://arxiv.org/abs/1512.00567'}
    if url:
        of_version = f'{url}/blob/v{version()}'
        found.update(Homepage=url, Source=url, Issues=f'{url}/issues')
        found.update(Changelog=f'{of_version}/CHANGELOG.md', Documentation=f'{of_version}/docs/index.md')
    return found


# The release workflow sets it: the project itself does not know where its repository is.
URL = os.environ.get('PROJECT_URL', '').rstrip('/')
setup(
    # Its place in pyproject.toml has two forms: Python 3.7's setuptools lacks one, and today's warns of the other.
    license='Apache-2.0',
    version=version(),
    long_description=readme(URL),
    long_description_content_type='text/markdown',
    project_urls=addresses(URL),
    packages=[PROGRAM, *(f'{PROGRAM}.{name}' for name in PARTS)],
    package_dir={f'{PROGRAM}.{name}': name for name in PARTS if '.' not in name},
    cmdclass={'build_py': BuildPackages},
)
