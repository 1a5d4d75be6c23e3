"""A text that grows is cut only where more text cannot change what stands before."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.surfaces.chat.markdown_blocks import _make_parser, split_finished

BLOCKS = (
    "# Title\n\n", "A paragraph\nof two rows.\n\n", "- one\n- two\n\n", "```sh\na\n\nb\n```\n", "> said\n\n",
    "| a |\n|---|\n| 1 |\n\n", "***\n", "Setext\n===\n", "1. one\n\n   more\n2. two\n\n", "<b>\nx\n</b>\n\n",
)  # fmt: skip


@pytest.mark.parametrize(
    ("markdown", "finished"),
    [
        ("One", ""),
        ("One\n\nTwo", "One\n\n"),
        ("```\nNot\n\nyet", ""),
        ("- a\n\n- b", ""),
        ("Done.\n\n```\ncode\n```\n", "Done.\n\n"),
        ("a | b", ""),
    ],
)
def test_only_the_last_block_is_unfinished(markdown: str, finished: str) -> None:
    assert split_finished(markdown) == (finished, markdown[len(finished) :])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(BLOCKS), max_size=6), st.integers(1, 12))
def test_pieces_give_the_same_blocks_as_the_whole(blocks: list[str], size: int) -> None:
    """Whatever the size of the pieces in which the text comes."""
    markdown, printed, pending = "".join(blocks), "", ""
    for start in range(0, len(markdown), size):
        pending += markdown[start : start + size]
        finished, pending = split_finished(pending)
        printed += render(finished)
    assert printed + render(pending) == render(markdown)


def render(markdown: str) -> str:
    return _make_parser().render(markdown)
