"""From the values of a view to HTML. Everything is escaped; the few pieces of markup that are made here are made of
escaped text. What a text costs to read as Markdown or to colour is bounded for each page: the rest is plain.
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
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from perdure import text
from perdure.access.redact import mask
from perdure.surfaces import moments
from perdure.surfaces.amounts import plural, size
from perdure.surfaces.page import assets

_SAFE_LINK = re.compile(r"(?:https?://|mailto:|/(?!/)|#)", re.IGNORECASE)
_MARKDOWN_CHARS = 20_000  # of one text that are read as Markdown
_MARKDOWN_MARKS = 6_000  # of one text; a mark costs up to 20 µs (brackets, rows of tables)
_PAGE_MARKS = 15_000  # of a page: 0.3 s of the costliest
_MARKS = re.compile(r"[!-/:-@\[-`{-~]")  # every character that can mean something in Markdown
_CODE_CHARS = 4_000  # of one block; a longer one is shown without colours
_COLOURS_S = 0.1  # of a page, in time of the processor: some texts cost a lexer the square of their length
_LANGUAGES = frozenset(
    "bash css diff docker dockerfile go html javascript js json kotlin lua php py pycon python python3 rb "
    "rs ruby rust sh shell sql swift toml ts typescript xml yaml yml zsh c cpp java".split()
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")  # of a terminal
KEY = "~"  # with which the key of a name begins
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # control and direction


@dataclass(slots=True)
class Room:
    """What is left for a page."""

    marks: int = _PAGE_MARKS
    colours_s: float = _COLOURS_S


_ROOM: ContextVar[Room | None] = ContextVar("room", default=None)  # of the page that is being made in this thread


def page(template: str, values: Mapping[str, Any]) -> bytes:
    """A page as bytes."""
    _ROOM.set(Room())
    return _environment().get_template(template).render(values).encode("utf-8", "replace")


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("perdure.surfaces.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters.update(
        ago=ago, when=moments.day, number=number, ms=milliseconds, size=size, one_line=text.one_line,
        markdown=markdown, code=code, highlight=highlight, masked=mask, clean=clean, key=key, shown=shown,
        iso=iso, plural=plural,
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


def shown(name: str) -> str:
    """A name of a project, a tag, a machine … as it may be shown."""
    return clean(mask(name))


def key(name: str) -> str:
    """The same as it stands in an address: the name where all of it may be shown, else what says nothing of it.

    >>> key("/work/tide"), key("/work/password=hunter2hunter2")
    ('/work/tide', '~8a17abf08eec17d1')
    """
    return name if shown(name) == name else KEY + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def iso(at: datetime) -> str:
    """An instant for programs."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def number(n: float) -> str:
    """A count as people read it."""
    return f"{n:,.0f}"


def milliseconds(n: float) -> str:
    """A short time.

    >>> milliseconds(0.42), milliseconds(61), milliseconds(2340)
    ('0.4 ms', '61 ms', '2.3 s')
    """
    return f"{n / 1000:.1f} s" if n >= 1000 else f"{n:.0f} ms" if n >= 10 else f"{n:.1f} ms"


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
    room = _ROOM.get() or Room()
    head, rest = _parted(clean(said), room)
    shown = Markup(_markdown().render(head))  # escaped by its renderer
    return shown + _REST.format(rest) if rest else shown


_REST = Markup(
    '<p class="quiet small">From here on it is shown as it was written.</p>'
    '<pre class="code wrap" tabindex="0"><code>{}</code></pre>'
)


def _parted(said: str, room: Room) -> tuple[str, str]:
    """(the lines that there is room to read as Markdown, the rest).

    A line costs its marks, and within a paragraph as many as the widest line above it has bars: a table fills up every
    row to its width.
    """
    most_marks = min(_MARKDOWN_MARKS, room.marks)
    n_chars = n_marks = n_bars = 0
    for line in said.splitlines(keepends=True):
        n_bars = max(n_bars, line.count("|")) if line.strip() else 0
        cost = 1 + len(_MARKS.findall(line)) + n_bars
        if n_marks + cost > most_marks or n_chars + len(line) > _MARKDOWN_CHARS:
            break
        n_marks, n_chars = n_marks + cost, n_chars + len(line)
    room.marks -= n_marks
    return said[:n_chars], said[n_chars:]


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
    room = _ROOM.get() or Room()
    is_coloured = language.lower() in _LANGUAGES and len(said) <= _CODE_CHARS and room.colours_s > 0
    inner = _coloured(said, language, room) if is_coloured else escape(said)
    return Markup('<pre class="code" tabindex="0"><code>{}</code></pre>').format(inner)


def _coloured(said: str, language: str, room: Room) -> Markup:
    """Code with its colours, as far as there is time for them."""
    from pygments import format as formatted  # 20 ms, for the first code that is shown
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    began_s = time.thread_time()
    said = said if said.endswith("\n") else f"{said}\n"  # some lexers read whole lines only
    lexer = get_lexer_by_name(language)
    tokens = _timely(lexer.get_tokens_unprocessed(said), said, began_s + room.colours_s)
    shown = formatted(tokens, HtmlFormatter(nowrap=True))  # escaped by its formatter
    room.colours_s -= time.thread_time() - began_s
    return Markup(shown)


def _timely(tokens: Iterable[tuple[int, Any, str]], said: str, until_s: float) -> Iterator[tuple[Any, str]]:
    """(kind, text) of the tokens; behind a moment all the rest as one."""
    from pygments.token import Text

    for at, kind, shown in tokens:
        yield kind, shown
        if time.thread_time() >= until_s:
            yield Text, said[at + len(shown) :]
            return
