"""The pages of the documentation, and the commands in them."""

import pathlib
import re
from typing import List, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [
    'README.md',
    'README.ja.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    'tools/studies/README.md',
    'tools/benchmarks/README.md',
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / 'docs').glob('*.md')),
]
_IN_TEXT = re.compile(r'`((?:BUCKET=\S+ )?(?:\./run|\./run_tpu\.sh|docs/build|\.ci/run)(?: [^`]+)?)`')
_IN_BLOCK = re.compile(r'(?:    |)((?:BUCKET=\S+ )?(?:\./run |\./run_tpu\.sh|docs/build|\.ci/run).*)')
# A command after pip install begins with the program's name.
_INSTALLED = re.compile(r'(?:    |)(?:inception/bin/)?(inception-v3 .*)')


class Command(NamedTuple):
    """A command line, and the page that shows it."""

    page: str
    line: str


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text(encoding='utf-8')


def commands() -> List[Command]:
    """Every command of every page: in blocks, with continued lines joined, and in running text."""
    found = []
    for page in PAGES:
        for line in read(page).replace('\\\n', ' ').splitlines():
            block, installed = _IN_BLOCK.fullmatch(line), _INSTALLED.fullmatch(line)
            if installed:
                lines = [f'./run {installed.group(1)}']
            else:
                lines = [block.group(1)] if block else _IN_TEXT.findall(line.replace(r'\|', '|'))
            found += [Command(page, each) for each in lines]
    return found
