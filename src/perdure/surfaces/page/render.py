"""From the values of a view to HTML. Everything is escaped; the few pieces of markup that are made here are made of
escaped text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from perdure import text
from perdure.access.redact import mask
from perdure.surfaces import moments
from perdure.surfaces.page import assets

_SAFE_LINK = re.compile(r"(?:https?://|mailto:|/(?!/)|#)", re.IGNORECASE)
_CODE_CHARS = 50_000  # more is shown without colours: a lexer is no place for a megabyte
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")  # of a terminal
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # control and direction


def page(template: str, values: Mapping[str, Any]) -> bytes:
    """A page as bytes."""
    return _environment().get_template(template).render(values).encode("utf-8", "replace")


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("perdure.surfaces.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters.update(
        ago=ago, when=moments.day, number=number, ms=milliseconds, size=size, one_line=text.one_line,
        markdown=markdown, code=code, highlight=highlight, masked=mask, clean=clean, iso=iso, plural=plural,
    )  # fmt: skip
    made.globals["asset"] = assets.address
    return made


def clean(said: str) -> str:
    """A text without the characters that change how others are read, or that no page may hold."""
    return _UNSEEN.sub("\ufffd", _COLOURS.sub("", said)).encode("utf-8", "replace").decode()


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago, as a page says it.

    >>> ago(datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 1, 0, 0, 59, tzinfo=UTC))
    'just now'
    """
    said = moments.ago(at, now)
    return "just now" if said == "0m ago" else said


def iso(at: datetime) -> str:
    """An instant for programs."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def number(n: float) -> str:
    """A count as people read it."""
    return f"{n:,.0f}"


def plural(n: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "turn"), plural(1200, "turn")
    ('1 turn', '1,200 turns')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def milliseconds(n: float) -> str:
    """A short time.

    >>> milliseconds(0.42), milliseconds(61), milliseconds(2340)
    ('0.4 ms', '61 ms', '2.3 s')
    """
    return f"{n / 1000:.1f} s" if n >= 1000 else f"{n:.0f} ms" if n >= 10 else f"{n:.1f} ms"


def size(n_bytes: float) -> str:
    """A number of bytes.

    >>> size(512), size(2_500_000)
    ('512 B', '2.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def highlight(said: str, terms: Sequence[str]) -> Markup:
    """A text in which the places of these terms are marked."""
    said = clean(said)
    shown, spans = text.snippet(said, terms, max(1, len(said)))
    pieces, at = [], 0
    for start, end in spans:
        pieces += [escape(shown[at:start]), Markup("<mark>"), escape(shown[start:end]), Markup("</mark>")]
        at = end
    return Markup("").join([*pieces, escape(shown[at:])])


# markdown -------------------------------------------------------------------------------------------------------


def markdown(said: str) -> Markup:
    """Markdown as HTML: no markup of the text's own, no image of another place, links that lead where they say."""
    return Markup(_markdown().render(clean(said)))  # escaped by its renderer


@functools.cache
def _markdown() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False}).enable(
        ["table", "strikethrough"]
    )
    made.add_render_rule("link_open", _link_open)
    made.add_render_rule("link_close", _link_close)
    made.add_render_rule("image", _image)
    made.add_render_rule("fence", _fence)
    made.add_render_rule("table_open", _table_open)
    made.add_render_rule("table_close", _table_close)
    return made


def _link_open(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    where = str(tokens[at].attrGet("href") or "")
    if not _SAFE_LINK.match(where):
        return f'<span class="dead-link" title="{escape(where)}">'
    return f'<a href="{escape(where)}" rel="noopener noreferrer nofollow">'


def _link_close(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    level = tokens[at].level
    opened = next(token for token in reversed(tokens[:at]) if token.type == "link_open" and token.level == level)
    return "</a>" if _SAFE_LINK.match(str(opened.attrGet("href") or "")) else "</span>"


def _image(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    token = tokens[at]
    return f'<span class="dead-link">[image: {escape(token.content or token.attrGet("src") or "")}]</span>'


def _fence(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    token = tokens[at]
    return str(code(token.content, token.info.strip().partition(" ")[0]))


def _table_open(*_: Any) -> str:
    return '<div class="scroll" tabindex="0" role="region" aria-label="table"><table class="data">'


def _table_close(*_: Any) -> str:
    return "</table></div>"


# code -----------------------------------------------------------------------------------------------------------


def code(said: str, language: str = "") -> Markup:
    """Code with the classes of its parts; plain where the language is not known or the text is long."""
    said = clean(said)
    inner = _coloured(said, language) if language and len(said) <= _CODE_CHARS else escape(said)
    return Markup('<pre class="code" tabindex="0"><code>{}</code></pre>').format(inner)


def _coloured(said: str, language: str) -> Markup:
    from pygments import highlight as colour  # 20 ms, for the first code that is shown
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return escape(said)
    return Markup(colour(said, lexer, HtmlFormatter(nowrap=True)))  # escaped by its formatter
