"""The benchmarks of mining, summaries and shortened vectors, at tiny size; recorded answers give what is kept."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not here (run from the checkout)")

from benchmarks import corpus, ingest, mining_quality, shortened, summaries
from benchmarks.common import RESULTS

from perdure.eval import mining_quality as scoring
from perdure.models.chat import ChatMessage, ChatReply, TokenUsage
from perdure.models.embedder import shorten, to_unit_length
from perdure.testing import ScriptedChat


@pytest.mark.parametrize("path", sorted(mining_quality.ANSWERS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_answers_give_the_kept_figures(path) -> None:
    kept = json.loads((RESULTS / "mining.json").read_text(encoding="utf-8"))["miners"]
    (now,) = (row for name, row in scoring.run(path).figures["miners"].items() if ":" in name)
    assert kept[path.stem] == json.loads(json.dumps(now))
    assert now["n_other_prompt"] == 0  # else the prompt has changed, and the answers are those to another one


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.parent.glob("*.py") if path.stem != "__main__"))
def test_every_benchmark_is_of_the_present_code(name) -> None:
    """A benchmark that imports what has moved fails when somebody runs it, which is seldom."""
    importlib.import_module(f"benchmarks.{name}")


def test_an_import_spends_time_in_each_of_its_stages(tmp_path) -> None:
    """A stage that moved to another module, or is no longer called there, has no time."""
    corpus.write_transcripts(tmp_path, n_bytes=50_000)
    assert all(ingest.stages(tmp_path).values())


def test_a_summary_that_was_cut_off_counts_up_to_its_last_line() -> None:
    replies = [
        ChatReply("- Fact: one\n- Fact: tw", usage=TokenUsage(), model="m", stop="length"),
        ChatReply("- Fact: o", usage=TokenUsage(), model="m", stop="length"),
        ChatReply("- Fact: one\n- Fact: two", usage=TokenUsage(), model="m"),
    ]
    chat = summaries.LineChat(ScriptedChat(replies))
    answers = [chat.reply([ChatMessage("user", "x")]) for _ in replies]
    assert [answer.text for answer in answers] == ["- Fact: one", "- Fact: o", "- Fact: one\n- Fact: two"]
    assert {answer.stop for answer in answers} == {"end"}


def test_nearest_documents_of_a_group_change_when_vectors_are_cut() -> None:
    """Two numbers of three: (0.6, 0, 0.8) is nearest to (0, 0, 1) by all, and to (1, 0) by the first two."""
    docs = to_unit_length(np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], np.float32))
    group = np.array([0, 1])
    (near,) = shortened.list_nearest(docs, np.array([[0.0, 0.0, 1.0]], np.float32), [group])
    assert near == {0, 1}  # the third is of another group
    assert np.allclose(shorten(docs[:1], 2), [[1.0, 0.0]])
