"""Peers on the measures of the block: answers that are in the file are not asked again; nothing is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.eval.block_sets import BlockQuestion
from perdure.types import Hit

block = pytest.importorskip("benchmarks.peers.block", reason="the benchmarks are not here (run from the checkout)")

QUESTION = BlockQuestion("which port?", "ada", accepted=("8443",))
TXTAI = next(peer for peer in block.PEERS if peer.name == "txtai")


def make_piece(turn_id: str, text: str) -> Hit:
    return Hit(turn_id, "r", "c", "", "messages", "m", "a", None, "user", "human", "text", None, text, 1.0)


def test_answers_are_read_again_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    block.AnswerFile(path).add(("whole memory", "ada", "which port?"), ["t1#0"])
    assert block.AnswerFile(path).answers == {("whole memory", "ada", "which port?"): ["t1#0"]}


def test_answered_questions_start_no_peer(tmp_path: Path) -> None:
    file = block.AnswerFile(tmp_path / "answers.jsonl")
    file.add(("whole memory", "ada", "which port?"), ["t1#0", "t0#0"])
    pieces = {"ada": {"t0#0": make_piece("t0", "no"), "t1#0": make_piece("t1", "it is port 8443")}}
    blocks = block.PeerRun(TXTAI, file, pieces).ask_all([QUESTION], tmp_path / "nothing")
    assert [item.turn_id for item in blocks["whole memory"][0].items] == ["t1", "t0"]
    assert blocks["whole memory"][0].find_answer() == 1


def test_rows_of_a_peer_that_failed_say_why() -> None:
    table = block.format_rows("shipped", {"whole memory": {"txtai": "not installed: no such package"}})
    assert "| txtai | not installed: no such package |" in table
