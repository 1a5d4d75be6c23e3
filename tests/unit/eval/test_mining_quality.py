"""Precision and recall of a miner: when a memory says what a label marks, what counts, and what is recorded."""

from __future__ import annotations

import json

import pytest

from perdure.errors import BadAnswer, ModelBusy, UsageError
from perdure.eval import mining_quality
from perdure.eval.mining_quality import MinedClaim, MiningBatch, says_label
from perdure.eval.statement_quality import LabelledMessage, LabelSpan
from perdure.memories.mining_question import SYSTEM_PROMPT
from perdure.testing import Question, ScriptedChat

PORT = "Remember: staging listens on port 8443. Can you check it?"
LABEL = LabelSpan(10, 39, "fact")
BATCH = MiningBatch(
    "key",
    "dev",
    (
        LabelledMessage(PORT, "written", "dev", (LABEL,)),
        LabelledMessage("Why is the build red?", "written", "dev", ()),
        LabelledMessage("We use pnpm, not npm.", "written", "dev", (LabelSpan(0, 21, "fact"),)),
    ),
)


def op(text: str, turns: tuple[int, int] = (1, 1), **more: object) -> dict[str, object]:
    fields = {"path": "a/b", "kind": "fact", "text": text, "turns": list(turns), "entities": [], "confidence": 0.9}
    return {"op": "create", "id": "", "valid_from": "", "valid_until": "", "reason": "", **fields, **more}


@pytest.mark.parametrize(
    ("memory", "is_so"),
    [
        ("The staging server listens on port 8443.", True),
        ("Staging: 8443", True),  # weights: 8443 3, staging 1; listens 1 and port 1 are missing: 4 of 6
        ("The staging server listens on port 8080.", False),  # a number that nobody said
        ("The port is open.", False),  # 1 of 6
        (
            "The person asked about staging, port 8443, queues, caches, routers, planners, schedulers and buffers.",
            False,
        ),
        ("", False),
    ],
)
def test_a_memory_says_a_label_by_its_words(memory: str, is_so: bool) -> None:
    assert says_label(memory, PORT, LABEL) is is_so


def test_right_wrong_and_repeated_memories_are_counted() -> None:
    """Three memories: one right (said twice, counted once), one wrong that names the second message, one of nothing."""
    findings = [
        MinedClaim("Staging listens on port 8443", (0,)),
        MinedClaim("staging listens on port 8443", (0,)),
        MinedClaim("The build is red.", (1,)),
        MinedClaim("create"),
    ]
    score = mining_quality.score_batch(BATCH, findings)
    assert score.counts == ((1, 1, 1, 1), (0, 1, 0, 0), (0, 0, 0, 1), (0, 1, 0, 0))
    assert score.n_cited == 1 and set(score.wrong) == {"The build is red.", "create"}


def test_a_right_memory_that_names_another_message_is_not_cited() -> None:
    assert mining_quality.score_batch(BATCH, [MinedClaim("We use pnpm, not npm.", (0,))]).n_cited == 0


def test_batches_are_ten_unlike_messages_of_one_half() -> None:
    batches = mining_quality.make_batches(2)
    assert [batch.half for batch in batches] == ["dev", "held_out", "dev", "held_out"]
    assert all(len(batch.messages) == 10 and {m.half for m in batch.messages} == {batch.half} for batch in batches)
    assert len({m.text for batch in batches for m in batch.messages}) == 40
    labelled = [bool(m.spans) for batch in mining_quality.make_batches() for m in batch.messages]
    assert len(labelled) == 160 and sum(labelled) >= 60


def test_question_is_that_of_the_product() -> None:
    system, question = mining_quality.build_messages(BATCH)
    assert system.text == SYSTEM_PROMPT
    assert "1. 2026-03-02 09:01 person\n  Remember: staging" in question.text
    assert question.text.endswith("Answer for messages 1 to 3.")


def test_answers_are_recorded_once_and_checked_as_in_mining(tmp_path) -> None:
    """One kept, one without words, one of a message that is not there, one acknowledgement; then a bad answer."""
    operations = [op("We use pnpm, not npm.", (3, 3)), op(" "), op("It is late.", (4, 4)), op("Looks good, thanks!")]
    chat = ScriptedChat([{"operations": operations[:1]}, BadAnswer("x"), ModelBusy("x")], name="m")
    path, other = tmp_path / "answers.jsonl", BATCH._replace(key="other")
    mining_quality.record_answers([BATCH, other], chat, path)
    mining_quality.record_answers([BATCH, other], chat, path)
    assert len(chat.asked) == 2 and isinstance(chat.asked[0], Question)
    recorded = mining_quality.load_answers(path)
    assert [row.fault for row in recorded.values()] == ["", "bad-answer"]
    recorded["key"] = recorded["key"]._replace(operations=tuple(operations))
    figures, wrong = mining_quality.score_answers([BATCH, other], recorded)
    assert figures["refused"] == {"text": 1, "turns": 1, "acknowledgement": 1}
    assert (figures["n_operations"], figures["n_faults"], figures["n_other_prompt"], wrong) == (4, 1, 0, [])
    assert figures["parts"]["all"]["recall"]["at"] == 0.25 and figures["parts"]["all"]["precision"]["at"] == 1.0
    with pytest.raises(ModelBusy):
        mining_quality.record_answers([BATCH._replace(key="third")], chat, path)
    with pytest.raises(UsageError, match="answers of m"):
        mining_quality.record_answers([BATCH], ScriptedChat(name="another"), path)


def test_an_answer_to_another_prompt_is_counted(tmp_path) -> None:
    path = tmp_path / "answers.jsonl"
    row = mining_quality.RecordedAnswer("key", "m", "an older one", ())
    path.write_text(json.dumps(row._asdict()) + "\n", encoding="utf-8")
    figures, _ = mining_quality.score_answers([BATCH], mining_quality.load_answers(path))
    assert figures["n_other_prompt"] == 1
