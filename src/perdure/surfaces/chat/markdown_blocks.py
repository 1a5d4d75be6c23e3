"""Split a Markdown text that still grows into the blocks that are finished and the one that is not. Pure."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt


@cache
def _make_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").enable("strikethrough")  # as rich reads it


def split_finished(markdown: str) -> tuple[str, str]:
    r"""Return (the blocks that more text cannot change, the rest).

    More text changes only the last block: a paragraph goes on, a list gets another item, a fence ends.

    >>> split_finished("# Title\n\nOne paragraph.\n\n- a li")
    ('# Title\n\nOne paragraph.\n\n', '- a li')
    """
    starts = [
        token.map[0]
        for token in _make_parser().parse(markdown)
        if token.level == 0 and token.map is not None and token.nesting >= 0
    ]
    if len(starts) < 2:
        return "", markdown
    lines = markdown.splitlines(keepends=True)
    return "".join(lines[: starts[-1]]), "".join(lines[starts[-1] :])


def escape_empty_items(markdown: str) -> str:
    r"""Return a text in which no mark stands for a list item without words: rich leaves such an item out.

    >>> escape_empty_items("1984."), escape_empty_items("1. a\n-")
    ('1984\\.', '1. a\n\\-')
    """
    lines = markdown.split("\n")
    for token, next_token in pairwise(_make_parser().parse(markdown)):
        if token.type == "list_item_open" and next_token.type == "list_item_close" and token.map is not None:
            lines[token.map[0]] = re.sub(r"([-+*.)])(?=\s*$)", r"\\\1", lines[token.map[0]])
    return "\n".join(lines)
