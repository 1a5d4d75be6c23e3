"""Render the values of a view as HTML, and serve the files that pages load.

Everything is escaped; the few pieces of markup made here are made of escaped text. The cost of reading
texts as Markdown and of colouring code is bounded per page: what exceeds it is shown plain. Static
files have a digest in their address, so that a browser may keep them for ever.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from perdure import text
from perdure.access.redact import mask
from perdure.surfaces import units
from perdure.surfaces.units import format_count, format_size

_MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/json",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One static file."""

    body: bytes
    media_type: str
    digest: str  # of the bytes, shortened


@functools.cache
def read_assets() -> dict[str, Asset]:
    """Return the static files by name."""
    assets = {}
    for path in resources.files("perdure.surfaces.web").joinpath("static").iterdir():
        suffix = "." + path.name.rpartition(".")[2]
        if suffix in _MEDIA_TYPES:
            body = path.read_bytes()
            assets[path.name] = Asset(body, _MEDIA_TYPES[suffix], hashlib.sha256(body).hexdigest()[:16])
    return assets


def asset_url(name: str) -> str:
    """Return the address of a static file. Raises KeyError for an unknown name."""
    return f"/static/{read_assets()[name].digest}/{name}"


_SAFE_LINK = re.compile(r"(?:https?://|mailto:|/(?!/)|#)", re.IGNORECASE)
_MARKDOWN_CHARS = 20_000  # of one text, read as Markdown
_MARKDOWN_MARKS = 6_000  # of one text; a mark costs up to 20 µs (brackets, rows of tables)
_PAGE_MARKS = 15_000  # of a page: 0.3 s if every mark is of the costliest kind
_MARKS = re.compile(r"[!-/:-@\[-`{-~]")  # characters with a meaning in Markdown
_CODE_CHARS = 4_000  # of one block; a longer one is not coloured
_COLOURS_S = 0.1  # of a page, CPU time: for some texts the cost of a lexer is quadratic
_LANGUAGES = frozenset(
    "bash css diff docker dockerfile go html javascript js json kotlin lua php py pycon python python3 rb "
    "rs ruby rust sh shell sql swift toml ts typescript xml yaml yml zsh c cpp java".split()
)
_ANSI_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")  # terminal escape sequences
KEY_PREFIX = "~"  # prefix of a key that stands for a name
_CONTROL_CHARS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # control and direction


@dataclass(slots=True)
class RenderBudget:
    """The remaining budget of a page."""

    marks: int = _PAGE_MARKS
    colours_s: float = _COLOURS_S


_BUDGET: ContextVar[RenderBudget | None] = ContextVar("room", default=None)  # of the page rendered in this thread


def render_page(template: str, values: Mapping[str, Any]) -> bytes:
    """Render a page to bytes."""
    _BUDGET.set(RenderBudget())
    return _make_environment().get_template(template).render(values).encode("utf-8", "replace")


@functools.cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("perdure.surfaces.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        ago=text.format_age,
        folder=text.shorten_project,
        when=units.format_zoned_time,
        number=format_number,
        ms=format_ms,
        size=format_size,
        one_line=text.one_line,
        markdown=render_markdown,
        code=render_code,
        highlight=highlight,
        masked=mask,
        clean=clean,
        key=to_key,
        shown=mask_name,
        iso=to_iso,
        plural=format_count,
    )
    environment.globals["asset"] = asset_url
    return environment


def clean(content: str) -> str:
    """Return a text without the characters that change how others are read, or that no page may contain."""
    return _CONTROL_CHARS.sub("\ufffd", _ANSI_COLOURS.sub("", content)).encode("utf-8", "replace").decode()


def mask_name(name: str) -> str:
    """Return a name of a project, a tag or a machine as it may be shown."""
    return clean(mask(name))


def to_key(name: str) -> str:
    """Return a name as it appears in an address.

    That is the name if all of it may be shown, and otherwise a key that reveals nothing of it.

    >>> to_key("/work/tide"), to_key("/work/password=hunter2hunter2")
    ('/work/tide', '~8a17abf08eec17d1')
    """
    return (
        name
        if mask_name(name) == name
        else KEY_PREFIX + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    )


def to_iso(instant: datetime) -> str:
    """Return an instant for programs."""
    return instant.astimezone(UTC).isoformat(timespec="seconds")


def format_number(n: float) -> str:
    """Return a count as people read it."""
    return f"{n:,.0f}"


def format_ms(n: float) -> str:
    """Return a short time as people read it.

    >>> format_ms(0.42), format_ms(61), format_ms(2340)
    ('0.4 ms', '61 ms', '2.3 s')
    """
    return f"{n / 1000:.1f} s" if n >= 1000 else f"{n:.0f} ms" if n >= 10 else f"{n:.1f} ms"


def highlight(content: str, terms: Sequence[str]) -> Markup:
    """Return a text in which these terms are marked."""
    content = clean(content)
    snippet, spans = text.snippet(content, terms, max(1, len(content)))
    pieces, offset = [], 0
    for start, end in spans:
        pieces += [escape(snippet[offset:start]), Markup("<mark>"), escape(snippet[start:end]), Markup("</mark>")]
        offset = end
    return Markup("").join([*pieces, escape(snippet[offset:])])


# markdown -------------------------------------------------------------------------------------------------------


def render_markdown(content: str) -> Markup:
    """Render Markdown as HTML: no markup of its own, no image of another site, links that lead where they say."""
    budget = _BUDGET.get() or RenderBudget()
    markdown_part, plain_part = _split_to_budget(clean(content), budget)
    html = Markup(_make_markdown().render(markdown_part))  # escaped by its renderer
    return html + _PLAIN_REST.format(plain_part) if plain_part else html


_PLAIN_REST = Markup(
    '<p class="quiet small">From here on it is shown as it was written.</p>'
    '<pre class="code wrap" tabindex="0"><code>{}</code></pre>'
)


def _split_to_budget(content: str, budget: RenderBudget) -> tuple[str, str]:
    """Split a text into (the lines that the budget allows to be read as Markdown, the rest).

    A line costs its marks, and within a paragraph also as many as the widest line above it has bars,
    because a table fills up every row to its width.
    """
    max_marks = min(_MARKDOWN_MARKS, budget.marks)
    n_chars = n_marks = n_bars = 0
    for line in content.splitlines(keepends=True):
        n_bars = max(n_bars, line.count("|")) if line.strip() else 0
        cost = 1 + len(_MARKS.findall(line)) + n_bars
        if n_marks + cost > max_marks or n_chars + len(line) > _MARKDOWN_CHARS:
            break
        n_marks, n_chars = n_marks + cost, n_chars + len(line)
    budget.marks -= n_marks
    return content[:n_chars], content[n_chars:]


@functools.cache
def _make_markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False}).enable(
        ["table", "strikethrough"]
    )
    parser.add_render_rule("link_open", _render_link_open)
    parser.add_render_rule("link_close", _render_link_close)
    parser.add_render_rule("image", _render_image)
    parser.add_render_rule("fence", _render_fence)
    parser.add_render_rule("table_open", _render_table_open)
    parser.add_render_rule("table_close", _render_table_close)
    return parser


def _render_link_open(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    href = str(tokens[index].attrGet("href") or "")
    if not _SAFE_LINK.match(href):
        return f'<span class="dead-link" title="{escape(href)}">'
    return f'<a href="{escape(href)}" rel="noopener noreferrer nofollow">'


def _render_link_close(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    level = tokens[index].level
    opening = next(token for token in reversed(tokens[:index]) if token.type == "link_open" and token.level == level)
    return "</a>" if _SAFE_LINK.match(str(opening.attrGet("href") or "")) else "</span>"


def _render_image(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    return f'<span class="dead-link">[image: {escape(token.content or token.attrGet("src") or "")}]</span>'


def _render_fence(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    return str(render_code(token.content, token.info.strip().partition(" ")[0]))


def _render_table_open(*_: Any) -> str:
    return '<div class="scroll" tabindex="0" role="region" aria-label="table"><table class="data">'


def _render_table_close(*_: Any) -> str:
    return "</table></div>"


# code -----------------------------------------------------------------------------------------------------------


def render_code(content: str, language: str = "") -> Markup:
    """Return code with the CSS classes of its tokens; plain if the language is unknown or the text is long."""
    content = clean(content)
    budget = _BUDGET.get() or RenderBudget()
    is_coloured = language.lower() in _LANGUAGES and len(content) <= _CODE_CHARS and budget.colours_s > 0
    html = _colour_code(content, language, budget) if is_coloured else escape(content)
    return Markup('<pre class="code" tabindex="0"><code>{}</code></pre>').format(html)


def _colour_code(content: str, language: str, budget: RenderBudget) -> Markup:
    """Colour code as far as the time budget allows."""
    from pygments import format as formatted  # takes 20 ms: imported when the first code is shown
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    began_s = time.thread_time()
    content = content if content.endswith("\n") else f"{content}\n"  # some lexers need a final newline
    lexer = get_lexer_by_name(language)
    tokens = _limit_time(lexer.get_tokens_unprocessed(content), content, began_s + budget.colours_s)
    html = formatted(tokens, HtmlFormatter(nowrap=True))  # escaped by its formatter
    budget.colours_s -= time.thread_time() - began_s
    return Markup(html)


def _limit_time(tokens: Iterable[tuple[int, Any, str]], content: str, deadline_s: float) -> Iterator[tuple[Any, str]]:
    """Yield (kind, text) of the tokens; after the deadline, yield all the rest as one text."""
    from pygments.token import Text

    for offset, kind, token_text in tokens:
        yield kind, token_text
        if time.thread_time() >= deadline_s:
            yield Text, content[offset + len(token_text) :]
            return
