"""A page of notes or instructions as statements: one for each list item and each short paragraph. Pure.

What stands in a list item stays together with what is indented below it, in the words of the page. Code, tables,
quotations and HTML are left out and counted: they are examples and other people's words.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from perdure.memories import claims
from perdure.memories.values import Claim
from perdure.patterns import late
from perdure.text import normalised

if TYPE_CHECKING:  # 20 ms that only an import pays
    from markdown_it.token import Token

MAX_CHARS = 2000  # of a statement; a longer paragraph is prose, and is left out and counted
_SLUG_BYTES = 24  # of a part of a path: ten of them stay below the longest path that a memory may have
_MAX_HEADINGS = 3  # in a path, the innermost
MAX_COMPARED = 1_000_000  # pairs of a new and an old statement: a thousand lines that all changed
_MARK_CHARS = 4  # of a hash, that tells two items from each other which begin alike
_LEFT_OUT = {"fence": "code", "code_block": "code", "table_open": "table", "html_block": "html"}
_WORD = late(r"\w+")


@dataclass(frozen=True)
class Item:
    """A statement of a page."""

    headings: tuple[str, ...]  # above it, outermost first
    text: str


@dataclass(frozen=True)
class Notes:
    """What a page states, and how much of what was left out."""

    items: tuple[Item, ...]
    left_out: Mapping[str, int]  # code, table, quote, html, long -> how many


def read(body: str) -> Notes:
    """Return the statements of a page, in their order, none twice under one heading. A title is no heading."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # what is bold or a link within a line does not matter
    left_out: Counter[str] = Counter()
    items = tuple(dict.fromkeys(_items(parser.parse(body), left_out)))
    return Notes(items, dict(left_out))


def _items(tokens: Sequence[Token], left_out: Counter[str]) -> Iterable[Item]:
    """Each statement below its headings. left_out is counted up."""
    above: dict[int, str] = {}
    at = 0
    while at < len(tokens):
        token = tokens[at]
        end = _end(tokens, at)
        if token.type == "heading_open":
            level = int(token.tag[1:])
            if at == 0 and level == 1:  # the page's title
                level = 0
            above = {n: words for n, words in above.items() if n < level} | {level: tokens[at + 1].content}
        elif token.type in ("list_item_open", "paragraph_open"):
            words = _words(tokens[at:end], left_out)
            if _says_something(words, left_out, leads=token.type == "paragraph_open" and _leads(tokens, end)):
                yield Item(tuple(above[n] for n in sorted(above) if n), words)
        elif token.type == "blockquote_open":
            left_out["quote"] += 1
        elif token.type in _LEFT_OUT:
            left_out[_LEFT_OUT[token.type]] += 1
        inside = token.type in ("bullet_list_open", "ordered_list_open")  # its items are what is looked at
        at = at + 1 if inside else end


def _end(tokens: Sequence[Token], at: int) -> int:
    """The place behind a block, with everything in it."""
    level, depth = tokens[at].level, tokens[at].nesting
    if depth != 1:
        return at + 1
    return next(n for n in range(at + 1, len(tokens)) if tokens[n].level == level and tokens[n].nesting == -1) + 1


def _words(block: Sequence[Token], left_out: Counter[str]) -> str:
    """The lines of a block without what is left out; items within an item are set in below it."""
    lines: list[str] = []
    depth = skipped = 0
    for token in block:
        if token.type in ("blockquote_open", "table_open"):
            skipped += 1
            left_out["quote" if token.type == "blockquote_open" else "table"] += 1
        elif token.type in ("blockquote_close", "table_close"):
            skipped -= 1
        elif token.type in ("list_item_open", "list_item_close"):
            depth += token.nesting
        elif token.type in ("fence", "code_block", "html_block"):
            left_out[_LEFT_OUT[token.type]] += 1
        elif token.type == "inline" and not skipped:
            lines.append("  " * max(0, depth - 2) + "- " * (depth > 1) + token.content.strip())
    return "\n".join(line for line in lines if line.strip())


def _leads(tokens: Sequence[Token], end: int) -> bool:
    """Whether a block stands right before a list."""
    return end < len(tokens) and tokens[end].type in ("bullet_list_open", "ordered_list_open", "fence")


def _says_something(words: str, left_out: Counter[str], *, leads: bool) -> bool:
    """Whether these words are a statement, and no lead-in, rule or import."""
    if len(words) > MAX_CHARS:
        left_out["long"] += 1
        return False
    return len(_WORD.findall(words)) > 1 and not (leads and words.endswith(":"))


# paths, and what became of an item --------------------------------------------------------------------------------


def page_path(parts: Iterable[str]) -> str:
    """Return the path below which the statements of a page lie. parts: of its place, with its name last.

    >>> page_path(["CLAUDE.md"])
    'notes/claude-md'
    """
    return "/".join(["notes", *(_slug(part) for part in list(parts)[-4:])])


def section_path(page: str, headings: Sequence[str]) -> str:
    """Return the path of what stands below these headings of a page."""
    return "/".join([page, *(_slug(heading) for heading in headings[-_MAX_HEADINGS:])])


def item_path(page: str, item: Item) -> str:
    """Return the path of a new statement of a page.

    >>> item_path("notes/claude-md", Item(("Testing",), "Run the tests before you push"))
    'notes/claude-md/testing/run-the-tests-before-you-d8ba'
    """
    mark = hashlib.sha256(normalised(item.text).encode()).hexdigest()[:_MARK_CHARS]
    return f"{section_path(page, item.headings)}/{_slug(item.text)}-{mark}"


def _slug(words: str) -> str:
    """Words as a part of a path: letters and digits of any script, with dashes between; "x" when there are none."""
    joined = "-".join(_WORD.findall(normalised(words).replace("_", " ")))
    short = joined.encode()[:_SLUG_BYTES].decode("utf-8", "ignore")
    if len(short) < len(joined) and joined[len(short)] != "-":  # not half a word
        short = short.rpartition("-")[0] or short
    return short.strip("-") or "x"


def paired(new: Sequence[tuple[str, str]], old: Mapping[str, str]) -> dict[int, str]:
    """Return for new statements the path of the old one that each takes the place of, by number.

    new: (section path, words) of those that no old one says. old: path -> words of those that are gone. Two are the
    same one, changed, when they stand below the same headings and share most of their words, or claim the same thing.
    Where there are more than MAX_COMPARED pairs to look at, none is: that is another page under an old name.
    """
    if len(new) * len(old) > MAX_COMPARED:
        return {}
    left = {path: _read(words) for path, words in old.items()}
    found = {}
    for n, (section, words) in enumerate(new):
        mine = _read(words)
        near = [(_likeness(mine, was), path) for path, was in left.items() if path.rpartition("/")[0] == section]
        likeness, path = max(near, default=(0.0, ""))
        if likeness > 0.5:
            found[n] = path
            del left[path]
    return found


class _Said(NamedTuple):
    words: frozenset[str]
    claim: Claim | None


def _read(words: str) -> _Said:
    return _Said(frozenset(_WORD.findall(normalised(words))), claims.claim(words))


def _likeness(new: _Said, old: _Said) -> float:
    """The share of words that two statements have in common; 1.0 when they claim something of the same thing."""
    if new.claim is not None and old.claim is not None and claims.same_subject(new.claim, old.claim):
        return 1.0
    return len(new.words & old.words) / max(1, len(new.words), len(old.words))
