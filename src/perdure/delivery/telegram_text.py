"""Markdown as messages of Telegram: its few tags of HTML, at most 4,096 characters each, cut at paragraphs. Pure.

Telegram knows no headings, lists or tables: a heading is bold, a list has bullets, and a table becomes a list, because
a phone is narrow. All text is escaped, so what a model writes opens no tag. https://core.telegram.org/bots/api#html-style
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from perdure.lazy_module import LazyModule
from perdure.text import split

if TYPE_CHECKING:
    import markdown_it
    from markdown_it.token import Token
else:
    markdown_it = LazyModule("markdown_it")

MAX_CHARS = 4096  # of one message without its tags, counted in UTF-16 units as Telegram counts offsets
_LINKS = ("https://", "http://", "mailto:", "tg://")
_RULE = "———"
_MARKS = {"strong": "b", "em": "i", "s": "s"}


class TextRun(NamedTuple):
    """Characters with the tags around them, outermost first: `b`, `i`, `s`, `code`, `pre`, `a href="…"`, …"""

    text: str
    tags: tuple[str, ...] = ()


class MessagePart(NamedTuple):
    """One message: with markup, and without it."""

    html: str
    plain: str


@dataclass(frozen=True)
class TextBlock:
    """A paragraph, an item, a piece of code: it is cut only if it alone is too long."""

    runs: tuple[TextRun, ...]
    gap: str = "\n\n"  # before it, unless it comes first


def render_parts(markdown: str, *, title: str = "", max_chars: int = MAX_CHARS) -> list[MessagePart]:
    """Return Markdown as messages, in order; at least one.

    >>> render_parts("**a** < b")
    [MessagePart(html='<b>a</b> &lt; b', plain='a < b')]
    """
    blocks = [TextBlock((TextRun(title, ("b",)),))] if title else []
    blocks += read_blocks(markdown)
    messages: list[list[TextRun]] = []
    n_chars = 0
    for block in blocks:
        for piece in _cut_block(block, max_chars):
            n_piece = sum(count_units(run.text) for run in piece.runs)
            if not n_piece:
                continue
            if messages and n_chars + len(piece.gap) + n_piece <= max_chars:
                shared = _find_shared(messages[-1][-1].tags, piece.runs[0].tags)
                messages[-1] += [TextRun(piece.gap, shared), *piece.runs]
                n_chars += len(piece.gap) + n_piece
            else:
                messages.append(list(piece.runs))
                n_chars = n_piece
    return [
        MessagePart(to_html(runs), "".join(run.text for run in runs))
        for runs in messages
        if "".join(run.text for run in runs).strip()  # Telegram takes no empty message
    ] or [MessagePart("(empty)", "(empty)")]


def count_units(text: str) -> int:
    """Return the length of a text in UTF-16 units.

    >>> count_units("a\N{GRINNING FACE}")
    3
    """
    return len(text) + sum(1 for char in text if char > "\uffff")


def to_html(runs: Sequence[TextRun]) -> str:
    """Return runs with their tags, each closed.

    >>> to_html([TextRun("a", ("b",)), TextRun("c<", ("b", "i"))])
    '<b>a<i>c&lt;</i></b>'
    """
    pieces: list[str] = []
    opened: tuple[str, ...] = ()
    for run in (*runs, TextRun("")):
        shared = _find_shared(opened, run.tags)
        pieces += [f"</{tag.partition(' ')[0]}>" for tag in reversed(opened[len(shared) :])]
        pieces += [f"<{tag}>" for tag in run.tags[len(shared) :]]
        pieces.append(escape(run.text, quote=False))
        opened = run.tags
    return "".join(pieces)


def _find_shared(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    n_shared = 0
    while n_shared < min(len(first), len(second)) and first[n_shared] == second[n_shared]:
        n_shared += 1
    return first[:n_shared]


def _cut_block(block: TextBlock, max_chars: int) -> Iterator[TextBlock]:
    """Yield the block, or pieces of it that fit, cut at lines, sentences or words."""
    text = "".join(run.text for run in block.runs)
    if count_units(text) <= max_chars:
        yield block
        return
    is_astral = any(char > "\uffff" for char in text)
    for start, end in split(text, max_chars=max_chars // 2 if is_astral else max_chars, overlap_chars=0):
        runs, offset = [], 0
        for run in block.runs:
            low, high = max(start - offset, 0), min(end - offset, len(run.text))
            if low < high:
                runs.append(TextRun(run.text[low:high], run.tags))
            offset += len(run.text)
        yield TextBlock(tuple(runs), block.gap if start == 0 else "\n")


# reading Markdown ------------------------------------------------------------------------------------------------


@functools.cache
def _get_parser() -> markdown_it.MarkdownIt:
    return markdown_it.MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass
class _Nesting:
    """Where in nested quotes and lists the next block stands."""

    quote: int = 0
    lists: list[int] = field(default_factory=list)  # number of the next item of each open list; 0: bullets
    bullet: str = ""  # of the item that begins


def read_blocks(markdown: str) -> list[TextBlock]:
    """Return the blocks of a Markdown text."""
    tokens = _get_parser().parse(markdown)
    blocks: list[TextBlock] = []
    nesting, n = _Nesting(), 0
    while n < len(tokens):
        token = tokens[n]
        if token.type == "table_open":
            end = next(i for i in range(n, len(tokens)) if tokens[i].type == "table_close")
            blocks += _read_table(tokens[n:end])
            n = end
        elif token.type in ("fence", "code_block"):
            blocks.append(_read_code(token, nesting))
        elif token.type == "hr":
            blocks.append(TextBlock((TextRun(_RULE),)))
        elif token.type == "inline":
            is_heading = tokens[n - 1].type == "heading_open"
            blocks.append(_read_paragraph(token, nesting, ("b",) if is_heading else ()))
        elif token.type == "list_item_close" and nesting.bullet:  # without words: "1984." is an item, too
            blocks.append(_read_paragraph(token, nesting, ()))
        else:
            _move(nesting, token)
        n += 1
    return blocks


def _move(nesting: _Nesting, token: Token) -> None:
    """Follow the opening and closing of quotes, lists and items."""
    if token.type == "blockquote_open":
        nesting.quote += 1
    elif token.type == "blockquote_close":
        nesting.quote -= 1
    elif token.type == "bullet_list_open":
        nesting.lists.append(0)
    elif token.type == "ordered_list_open":
        nesting.lists.append(int(token.attrGet("start") or 1))
    elif token.type in ("bullet_list_close", "ordered_list_close"):
        nesting.lists.pop()
    elif token.type == "list_item_open":
        number = nesting.lists[-1]
        nesting.bullet = f"{number}. " if number else "• "
        nesting.lists[-1] = number + 1 if number else 0


def _read_paragraph(token: Token, nesting: _Nesting, tags: tuple[str, ...]) -> TextBlock:
    outer = ("blockquote",) if nesting.quote else ()
    indent = "  " * (len(nesting.lists) - 1)
    lead, gap = "", "\n\n"
    if nesting.bullet:
        lead, gap, nesting.bullet = f"{indent}{nesting.bullet}", "\n", ""
    elif nesting.lists:
        lead, gap = f"{indent}  ", "\n"
    runs = [TextRun(lead, outer)] if lead else []
    return TextBlock((*runs, *_read_inline(token.children or (), (*outer, *tags))), gap)


def _read_code(token: Token, nesting: _Nesting) -> TextBlock:
    """Return a piece of code; Telegram allows no other tag around it."""
    language = "".join(char for char in token.info.partition(" ")[0] if char.isalnum() or char in "+-_#")
    tags = ("pre", f'code class="language-{language}"') if language else ("pre",)
    nesting.bullet = ""
    return TextBlock((TextRun(token.content.rstrip("\n") or " ", tags),))


def _read_inline(children: Sequence[Token], tags: tuple[str, ...]) -> Iterator[TextRun]:
    """Yield the runs of a line of text. tags: around all of it."""
    opened: list[str] = []
    for child in children:
        name = child.type.removesuffix("_open").removesuffix("_close")
        if child.type in ("softbreak", "hardbreak"):
            yield TextRun("\n", (*tags, *filter(None, opened)))
        elif child.type == "code_inline":
            yield TextRun(child.content, (*(tag for tag in tags if tag == "blockquote"), "code"))
        elif child.type == "image":
            yield TextRun(f"{child.content} ({child.attrGet('src')})".strip(), tags)
        elif child.type.endswith("_open"):
            opened.append(_to_tag(child, name))
        elif child.type.endswith("_close"):
            opened.pop()
        elif child.content:
            yield TextRun(child.content, (*tags, *filter(None, opened)))


def _to_tag(token: Token, name: str) -> str:
    """Return the tag of a mark; "" for one that Telegram does not know."""
    if name != "link":
        return _MARKS.get(name, "")
    href = str(token.attrGet("href") or "")
    return f'a href="{escape(href)}"' if href.startswith(_LINKS) else ""


def _read_table(tokens: Sequence[Token]) -> Iterator[TextBlock]:
    """Yield a block for each row: the first cell, then "column: cell" on a line each."""
    rows: list[list[tuple[TextRun, ...]]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(tuple(_read_inline(token.children or (), ())))
    names = ["".join(run.text for run in cell) for cell in rows[0]] if rows else []
    for number, row in enumerate(rows[1:] or rows):
        runs = [TextRun("• "), *(TextRun(run.text, ("b",)) for run in row[0])]
        for name, cell in zip(names[1:], row[1:], strict=False):
            if cell:
                runs += [TextRun(f"\n  {name}: " if name else "\n  "), *cell]
        yield TextBlock(tuple(runs), "\n" if number else "\n\n")


def fence_code(text: str) -> str:
    """Return a text as a piece of code that it cannot close."""
    fence = "`" * max(3, 1 + max((len(run) for run in text.split("\n") if set(run) == {"`"}), default=0))
    return f"{fence}\n{text}\n{fence}"


def escape_markdown(text: str) -> str:
    """Return a text in which nothing is Markdown."""
    return "".join(f"\\{char}" if char in "\\`*_[]()<>#|~!-+" else char for char in text)
