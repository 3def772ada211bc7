"""The common layout of all HTML pages: self-contained files for light and dark mode."""

import base64
import re
from typing import Any

import jinja2
import markupsafe

from compat.messages import printable

_UTC = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)')
# Blue and vermilion of Okabe and Ito, which colour-blind readers can tell apart; lighter variants in dark mode.
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --card: #f6f7f9; --ink: #1b1f24; --faint: #5c6570; --line: #d9dde3;
  --good: #0072b2; --bad: #c44f00; --track: #e3e7ec; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --card: #1d2127; --ink: #e6e9ed; --faint: #9aa4b0;
  --line: #343b44; --good: #56b4e9; --bad: #f0904e; --track: #2d343c; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem clamp(.75rem, 3vw, 2.5rem) 3rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; }
p { margin: .25rem 0 .75rem; max-width: 60rem; }
code, .path { overflow-wrap: anywhere; }
img { max-width: 100%; }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1.25rem; align-items: center; margin: 1rem 0; }
.controls label { display: flex; flex-wrap: wrap; gap: .25rem .5rem; align-items: center; min-width: 0; }
select, input { font: inherit; padding: .15rem .5rem; border: 1px solid var(--line); border-radius: 5px;
  background: var(--card); color: inherit; max-width: 100%; min-width: 0; }
:focus-visible { outline: 2px solid var(--good); outline-offset: 2px; }
[hidden] { display: none !important; }
.figure { flex: 0 1 auto; min-width: 0; height: auto; display: block; }
/* Figures have the colours of a light page. */
@media (prefers-color-scheme: dark) { .figure { filter: invert(.93) hue-rotate(180deg); } }
.about { margin: .5rem 0 1rem; display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 .75rem; }
.about div { display: contents; }
.about dt { color: var(--faint); }
.about dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.faint { color: var(--faint); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(13.5rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem; min-width: 0;
  content-visibility: auto; contain-intrinsic-size: 13rem 19rem; }
.card img { display: block; width: 100%; height: 10rem; object-fit: contain; background: var(--track);
  border-radius: 4px; }
.card .path { font-size: .85rem; margin: .4rem 0; font-weight: 600; }
.bars { list-style: none; margin: 0; padding: 0; font-size: .85rem; }
.bars li { display: grid; grid-template-columns: 1fr auto; column-gap: .5rem; margin-top: .25rem; }
.bars span { overflow-wrap: anywhere; min-width: 0; }
.bars b { font-weight: 400; font-variant-numeric: tabular-nums; color: var(--faint); }
.bars i { grid-column: 1 / -1; height: 5px; border-radius: 3px; background: var(--track); overflow: hidden; }
.bars i::before { content: ''; display: block; height: 100%; width: var(--share);
  background: var(--fill, var(--good)); }
/* On a narrow screen, a row is a block with a line per cell; `data-head` is the head of its column. */
@media (max-width: 499.98px) {
  .stacked, .stacked tbody, .stacked tr { display: block; width: 100%; }
  .stacked thead { display: none; }
  .stacked tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .stacked tr td { display: grid; grid-template-columns: 8.5rem minmax(0, 1fr); gap: .75rem; padding: .1rem 0;
    border: 0; text-align: left; min-width: 0; white-space: normal; overflow-wrap: anywhere; }
  .stacked tr td::before { content: attr(data-head); color: var(--faint); }
  .stacked tr td:empty { display: none; }
}
"""

_LAYOUT = """{% macro bar(name, share, fill='') -%}
<li><span>{{ name }}</span><b>{{ '%.1f' | format(100 * share) }} %</b>
<i style="--share: {{ '%.2f' | format(100 * share) }}%{% if fill %}; --fill: var(--{{ fill }}){% endif %}"></i></li>
{%- endmacro %}
{% macro picture(figure, alt) -%}
<img class="figure" src="{{ figure[0] }}" width="{{ figure[1] }}" alt="{{ alt }}">
{%- endmacro %}
{% macro begin(title) -%}
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{{ title }}</title>
<style>{{ style | safe }}</style>
</head>
<body>
<h1>{{ title }}</h1>
{%- endmacro %}
"""


def template(text: str) -> jinja2.Template:
    """Compiles a Jinja template of a part of a page. The template escapes inserted values.

    In the template, `TIME | minute` is a time in UTC as all pages show it. `layout.begin(title)` starts a page.
    `layout.bar(name, share)` is an item of a list of the class `bars`: a name, and a bar for a share of 0 to 1.
    `layout.picture(figure, alt)` is a figure: its data URI and width.
    """
    environment = jinja2.Environment(
        autoescape=True,
        finalize=finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.DictLoader({'layout': _LAYOUT}),
    )
    environment.globals['style'] = _STYLE
    environment.filters['minute'] = minute
    return environment.from_string("{% import 'layout' as layout %}" + text)


def minute(time: str) -> str:
    """A time in UTC, ISO 8601, as `2026-11-27 12:25 UTC`; other texts stay as they are."""
    return f'{time[:10]} {time[11:16]} UTC' if _UTC.fullmatch(time) else time


def finalized(value: Any) -> Any:
    """A value for a page: texts in printable characters, which Jinja then escapes."""
    return printable(value, '\n\t') if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


def data_uri(content: bytes, media_type: str) -> str:
    """Returns a data URI with the content of a file, to embed the file in a page."""
    return f'data:{media_type};base64,{base64.b64encode(content).decode()}'
