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
# As after pip install, where the first words are the program's.
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
    found: List[Command] = []
    for page in PAGES:
        text = read(page).replace('\\\n', ' ')
        for line in text.splitlines():
            block, installed = _IN_BLOCK.fullmatch(line), _INSTALLED.fullmatch(line)
            if installed:
                entries = [f'./run {installed.group(1)}']
            else:
                entries = [block.group(1)] if block else _IN_TEXT.findall(line.replace(r'\|', '|'))
            found += [Command(page, entry) for entry in entries]
    return found
