"""The texts beside messages: read again only when their file is another."""

from __future__ import annotations

from pathlib import Path

from perdure.access import block_cache
from perdure.session.blocks import FLOOR, BlockFile


def test_texts_are_read_back_also_by_another_process(tmp_path: Path) -> None:
    ours, theirs = (BlockFile(tmp_path, "s1", is_kept=True) for _ in range(2))
    ours.write(FLOOR, "You are Jarvis.")
    ours.write("e1", "recalled")
    assert theirs.read() == {FLOOR: "You are Jarvis.", "e1": "recalled"} == ours.read()
    theirs.write("e2", "more")
    ours.write("e1", "")
    assert ours.read() == {FLOOR: "You are Jarvis.", "e1": "", "e2": "more"} == theirs.read()


def test_what_was_forgotten_is_gone_from_memory_too(tmp_path: Path) -> None:
    blocks = BlockFile(tmp_path, "s1", is_kept=True)
    blocks.write("e1", "a secret")
    assert blocks.read()
    block_cache.delete(tmp_path)
    assert blocks.read() == {}
    blocks.write("e1", "a secret")
    blocks.read()
    block_cache.delete(tmp_path)
    blocks.write("e2", "new")
    assert blocks.read() == {"e2": "new"}


def test_a_torn_line_is_no_text(tmp_path: Path) -> None:
    blocks = BlockFile(tmp_path, "s1", is_kept=True)
    blocks.write("e1", "whole")
    with block_cache.get_session_path(tmp_path, "s1").open("ab") as file:
        file.write(b'["e2", "to')
    assert blocks.read() == {"e1": "whole"}


def test_what_is_not_kept_lives_in_memory(tmp_path: Path) -> None:
    blocks = BlockFile(tmp_path, "s1", is_kept=False)
    blocks.write("e1", "here")
    assert blocks.read() == {"e1": "here"}
    assert list(tmp_path.iterdir()) == []
