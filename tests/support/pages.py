"""Parsing of HTML pages, and a check that they load no other file."""

import html.parser
from typing import Any, List


class Page(html.parser.HTMLParser):
    """A page: its embedded images, URLs that it fetches or links to, elements without an end tag, and texts."""

    def __init__(self, text: str):
        super().__init__()
        self.images: List[str] = []
        self.fetched: List[str] = []
        self.open: List[str] = []
        self.text: List[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        values = dict(attributes)
        if tag not in ('img', 'meta', 'input', 'source'):
            self.open.append(tag)
        for name in ('src', 'srcset', 'href'):
            if name in values:
                (self.images if values[name].startswith('data:image/') else self.fetched).append(values[name])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())


def read_page(path: Any) -> Page:
    """Parses a page, and checks that it loads no other file and that all its elements are closed."""
    with open(str(path), encoding='utf-8') as file:
        content = file.read()
    page = Page(content)
    assert not page.fetched and '@import' not in content and 'url(' not in content
    assert not page.open
    return page
